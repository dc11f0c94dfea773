from __future__ import annotations

from typing import Any

import pytest

from squall import TopologyBuilder
from squall.testing import BoltTest, FeederSpout, TopologyTest
from squall.windows import JoinBolt, tumbling
from squall_common.errors import InvalidTopologyError

ORDERS = [[1, "ann"], [2, "bob"], [3, "ann"], [4, "zoe"], [5, None]]
CUSTOMERS = [["ann", "Ann", {"city": "Bern"}], ["bob", "Bob", {}], ["eve", "Eve", {"city": "Rom"}]]
PAYMENTS = [[1, 10.0], [3, 30.0], [3, 33.0]]
INPUTS = {
    "orders": ["id", "customer"],
    "customers": ["key", "name", "address"],
    "payments": ["order", "amount"],
}


def joined(bolt: JoinBolt) -> list[list[Any]]:
    with BoltTest(bolt, INPUTS, windows=tumbling(secs=10)) as test:
        for source, rows in (
            ("customers", CUSTOMERS),
            ("orders", ORDERS),
            ("payments", PAYMENTS),
        ):
            for row in rows:
                test.execute(row, source=source)
        found = [one.values for one in test.run_for(11)]
        assert test.test.errors == []
    return found


def test_an_inner_join_leaves_out_rows_without_a_match() -> None:
    bolt = JoinBolt("orders", "customer").join("customers", "key", "orders").select("id, name")
    with BoltTest(
        bolt,
        {"orders": INPUTS["orders"], "customers": INPUTS["customers"]},
        windows=tumbling(secs=10),
    ) as test:
        for row in CUSTOMERS:
            test.execute(row, source="customers")
        for row in ORDERS:
            test.execute(row, source="orders")
        found = [one.values for one in test.run_for(11)]
    assert found == [[1, "Ann"], [2, "Bob"], [3, "Ann"]]


def test_the_output_fields_are_named_as_they_are_selected() -> None:
    bolt = JoinBolt("a", "k").join("b", "k", "a").select("a:k, x.y")
    builder = TopologyBuilder()
    builder.spout("a", One())
    builder.spout("b", One())
    declarer = builder.bolt("join", bolt).windowed(tumbling(count=1))
    declarer.fields("a", "k").fields("b", "k")
    assert builder.build().components["join"].streams["default"].fields == ("a:k", "x.y")


class One(FeederSpout):
    outputs = ("k",)


def test_a_tuple_of_an_input_that_is_not_joined_is_an_error() -> None:
    bolt = JoinBolt("orders", "id").select("id")
    with BoltTest(bolt, INPUTS, windows=tumbling(count=1)) as test:
        done = test.execute(PAYMENTS[0], source="payments")
        assert done.failed
        assert "'payments', which is not joined" in str(done.errors[0])


def rows(kind: str, select: str) -> list[list[Any]]:
    bolt = JoinBolt("orders", "customer")
    bolt = getattr(bolt, kind)("customers", "key", "orders")
    bolt = bolt.left_join("payments", "order", "orders")
    return joined(bolt.select(select))


def test_an_input_is_compared_with_the_field_by_which_its_prior_was_joined() -> None:
    """As in Storm: orders are joined by customer, so payments are compared with the customer."""
    found = rows("join", "orders:id, name, payments:amount")
    assert found == [[1, "Ann", None], [2, "Bob", None], [3, "Ann", None]]


def test_a_left_join_keeps_rows_without_a_match_but_not_those_without_a_value() -> None:
    bolt = (
        JoinBolt("orders", "id")
        .left_join("payments", "order", "orders")
        .select("orders:id, payments:amount")
    )
    with BoltTest(
        bolt,
        {"orders": INPUTS["orders"], "payments": INPUTS["payments"]},
        windows=tumbling(secs=10),
    ) as test:
        done = [test.execute(row, source="payments") for row in PAYMENTS]
        done += [test.execute(row, source="orders") for row in [*ORDERS, [None, "nobody"]]]
        found = [one.values for one in test.run_for(11)]
        assert all(one.acked for one in done)
    assert found == [[1, 10.0], [2, None], [3, 30.0], [3, 33.0], [4, None], [5, None]]


def test_nested_fields_are_found_and_missing_ones_are_none() -> None:
    found = rows("left_join", "orders:id, customers:address.city")
    assert found == [[1, "Bern"], [2, None], [3, "Bern"], [4, None]]


class Both(FeederSpout):
    outputs = {"left": ["k", "a"], "right": ["k", "b"]}


def test_lists_and_dicts_are_compared_by_what_they_hold() -> None:
    bolt = JoinBolt("a", "k").join("b", "k", "a").select("a:n, b:n")
    keys = [[1, [2]], {"x": [1], "y": None}, "text", []]
    with BoltTest(bolt, {"a": ["k", "n"], "b": ["k", "n"]}, windows=tumbling(secs=10)) as test:
        for source in ("a", "b"):
            for number, key in enumerate(keys):
                test.execute([key, number], source=source)
        test.execute([[1, [3]], 9], source="b")
        found = [one.values for one in test.run_for(11)]
        assert test.test.errors == []
    assert found == [[0, 0], [1, 1], [2, 2], [3, 3]]


def test_streams_of_one_component_are_joined_by_their_names() -> None:
    join = JoinBolt("left", "k", by="stream", stream="out").join("right", "k", "left")
    join = join.select("left:k, a, b")
    builder = TopologyBuilder()
    builder.spout("both", Both())
    declarer = builder.bolt("join", join).windowed(tumbling(secs=1))
    declarer.fields("both", "k", stream="left").fields("both", "k", stream="right")
    with TopologyTest(builder) as test:
        test.feed("both", [1, "x"], message_id=1, stream="left")
        test.feed("both", [1, "y"], message_id=2, stream="right")
        test.feed("both", [2, "z"], message_id=3, stream="right")
        test.run_until_idle()
        assert [(one.stream, one.values) for one in test.emitted("join")] == [
            ("out", [1, "x", "y"])
        ]
        assert sorted(test.acked("both")) == [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (lambda: JoinBolt("a", "k").join("a", "k", "a"), "already part of the join"),
        (lambda: JoinBolt("a", "k").join("c", "k", "b"), "not part of the join before it"),
        (lambda: JoinBolt("a", "x:k"), "names a source"),
        (lambda: JoinBolt("a", ""), "is not a field"),
        (lambda: JoinBolt("a", "k").select("a:k,,b"), "is not a field"),
        (lambda: JoinBolt("a", "k").select("b:k"), "not part of the join"),
        (lambda: JoinBolt("a", "k", by="task"), "expected"),  # type: ignore[arg-type]
    ],
)
def test_joins_that_cannot_work_are_refused(make: Any, problem: str) -> None:
    with pytest.raises(InvalidTopologyError, match=problem):
        make()
