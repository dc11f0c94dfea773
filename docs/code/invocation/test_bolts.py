import sqlite3

import pytest
from bolts import Enrich, Pairs, Price, Score, Store, Words
from squall.testing import BoltTest


@pytest.mark.parametrize(
    ("bolt", "field", "values", "emitted"),
    [
        (Words(), "line", ["to be"], [["to"], ["be"]]),
        (Score(), "order", ["abc"], [["abc", 3]]),
    ],
)
def test_each_kind_is_tested_in_the_same_way(bolt, field, values, emitted):
    with BoltTest(bolt, {"source": [field]}) as test:
        done = test.execute(values)
    assert [e.values for e in done.emitted] == emitted
    assert done.acked


def test_plain():
    with BoltTest(Price(), {"orders": ["order", "amount"]}) as test:
        assert test.execute(["a", 1.5]).emitted[0].values == ["a", 150]


def test_a_coroutine_waits_on_the_virtual_clock():
    with BoltTest(Enrich(), {"orders": ["order"]}) as test:
        done = test.execute(["a"], wait_secs=0.2)
        assert [e.values for e in done.emitted] == [["a", "NL"]]


def test_a_thread_runs_in_real_time(tmp_path):
    with BoltTest(Store(str(tmp_path / "orders.db")), {"orders": ["order"]}) as test:
        done = test.execute(["a"])
        test.test.run_until(lambda: done.acked, timeout_secs=20)
    with sqlite3.connect(tmp_path / "orders.db") as database:
        assert database.execute("SELECT id FROM orders").fetchall() == [("a",)]
    database.close()


def test_acks_by_hand():
    with BoltTest(Pairs(), {"numbers": ["n"]}) as test:
        first = test.execute([1])
        assert not first.acked
        second = test.execute([2])
        assert [e.values for e in second.emitted] == [[1, 2]]
        assert first.acked
        assert second.acked
