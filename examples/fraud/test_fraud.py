import json
import sqlite3

import pytest
from fraud import Decide, Habits, Store, TriedCards, Velocity, build, read_payment
from generate import payments, stolen, tried
from squall.testing import BoltTest, TopologyTest

MINUTE = 60_000
PAYMENT = {"parse": ["id", "card", "at", "amount", "country", "shop"]}
FLAGS = {"habits": ["card", "at", "rule", "id", "detail"]}


def pay(number, at=0, amount=10.0, card="c1", country="NL", shop="s1"):
    return [f"p{number}", card, at, amount, country, shop]


@pytest.mark.parametrize(
    "change",
    [{"id": ""}, {"card": 1}, {"at": "noon"}, {"at": True}, {"at": -1}, {"amount": 0}]
    + [{"amount": float("nan")}, {"country": None}],
)
def test_what_is_not_a_payment_is_refused(change):
    names = ["id", "card", "at", "amount", "country", "shop"]
    payment = dict(zip(names, pay(1), strict=True))
    assert read_payment(json.dumps(payment)) == pay(1)
    with pytest.raises(ValueError):
        read_payment(json.dumps({**payment, **change}))


def rules(emitted):
    return [e.values[2] for e in emitted]


def test_an_amount_far_above_the_usual_is_a_flag():
    with BoltTest(Habits(), PAYMENT) as test:
        for number in range(5):
            assert test.execute(pay(number, amount=10 + number)).emitted == []
        assert test.execute(pay(5, amount=20)).emitted == []
        assert rules(test.execute(pay(6, amount=500)).emitted) == ["amount"]


def test_two_countries_in_a_short_time_are_a_flag():
    with BoltTest(Habits(), PAYMENT) as test:
        test.execute(pay(1, country="NL"))
        (flag,) = test.execute(pay(2, at=30 * MINUTE, country="BR")).emitted
        assert flag.values[2:] == ["travel", "p2", "NL to BR in 30 minutes"]
        assert test.execute(pay(3, at=300 * MINUTE, country="NL")).emitted == []


def test_a_payment_that_comes_again_changes_no_habit_and_has_its_flags_again():
    """The first ones are lost if the worker that was to get them has ended."""
    habits = Habits()
    with BoltTest(habits, PAYMENT) as test:
        test.execute(pay(1))
        (flag,) = test.execute(pay(2, country="BR")).emitted
        test.execute(pay(3, at=9 * 60 * MINUTE))
        before = habits.state.get("c1")
        again = test.execute(pay(2, country="BR"))
        assert again.acked
        assert [e.values for e in again.emitted] == [flag.values]
        assert habits.state.get("c1") == before


def test_many_payments_in_ten_minutes_are_one_flag():
    with BoltTest(Velocity(payments_max=3), PAYMENT) as test:
        for number in (1, 2, 3, 3):
            test.execute(pay(number, at=number * MINUTE))
        test.execute(pay(4, at=20 * MINUTE))  # the others' windows end
        assert test.run_for(2) == []
        for number in range(10, 14):
            test.execute(pay(number, at=31 * MINUTE))
        test.execute(pay(20, at=60 * MINUTE))
        keys = {e.values[3] for e in test.run_for(2)}
        assert keys == {"p13"}


def test_a_late_payment_is_not_lost_in_silence():
    with BoltTest(Velocity(), PAYMENT) as test:
        test.execute(pay(1, at=60 * MINUTE))
        test.run_for(2)
        (late,) = test.execute(pay(2, at=0)).emitted
        assert late.stream == "late"
        assert late.values[0]["values"]["id"] == "p2"


def test_tiny_payments_with_many_cards_are_a_flag_for_each():
    with BoltTest(TriedCards(cards_max=2), PAYMENT) as test:
        for number in range(3):
            test.execute(pay(number, at=MINUTE + 1 + number, amount=1, card=f"c{number}"))
        test.execute(pay(4, at=MINUTE + 5, amount=80, card="honest"))
        test.execute(pay(5, at=9 * MINUTE))
        assert [e.values[0] for e in test.run_for(2)] == ["c0", "c1", "c2"]


def alerts(execution):
    return [e.values for e in execution.emitted if e.stream == "default"]


def test_two_rules_together_are_an_alert_and_one_an_hour_is_enough():
    with BoltTest(Decide(), FLAGS) as test:
        assert alerts(test.execute(["c1", 0, "amount", "p1", ""])) == []
        assert alerts(test.execute(["c2", 0, "travel", "p2", ""])) == []
        travel = ["c1", 5, "travel", "p1", ""]
        alert = ["c1", 5, 100, ["amount", "travel"]]
        assert alerts(test.execute(travel)) == [alert]
        assert alerts(test.execute(travel)) == [alert]  # it came again: the first may be lost
        assert alerts(test.execute(["c1", 9, "velocity", "c1/0", ""])) == []
        assert alerts(test.execute(["c1", 90 * MINUTE, "amount", "p8", ""])) == []
        assert len(alerts(test.execute(["c1", 91 * MINUTE, "travel", "p9", ""]))) == 1


class StoreAtOnce(Store):
    blocking = False  # on the test's clock, not on a thread of its own


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_stolen_cards_are_found_and_no_other(times, tmp_path):
    """Also if each payment comes twice, as it may after a failure."""
    source, database = tmp_path / "payments.jsonl", tmp_path / "fraud.db"
    lines = [json.dumps(payment) for payment in payments(200) for _ in range(times)]
    source.write_text("".join(f"{line}\n" for line in [*lines, "broken"]))
    topology = build(str(source), str(database))
    with TopologyTest(topology, objects={"store": StoreAtOnce(str(database))}) as test:
        test.run_for(10)
        assert not test.errors
        assert not test.failed("payments")
    with sqlite3.connect(database) as connection:
        found = {card for (card,) in connection.execute("SELECT card FROM alerts")}
        flags = set(connection.execute("SELECT rule, card FROM flags"))
        left_out = connection.execute("SELECT line FROM left_out").fetchall()
    connection.close()
    assert found == set(stolen(200))
    for rule in ("amount", "travel", "velocity"):
        assert {(rule, card) for card in stolen(200)} <= flags
    assert {card for rule, card in flags if rule == "tried"} == set(tried(200))
    assert left_out == [("broken",)]
