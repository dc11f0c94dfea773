"""Narrow steps on batches: results, origins, and values that fail alone."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from tests.support import stream_steps as steps

from squall.streams.functions import spec_of
from squall.streams.steps import Flow, Program
from squall_common.topology.serialization import Registry

Failed = dict[int, BaseException]


class Card(NamedTuple):
    user: str


@dataclass(frozen=True, slots=True)
class Slotted:
    user: str
    amount: int = 0


def run(flow: Flow, *steps_of: tuple[str, Any], extra: Any = None) -> tuple[Flow, Failed]:
    """The result of steps one after the other, and the rows that failed."""
    program = Program(
        [
            [place - 1, operation, None if f is None else spec_of(f), f"{operation}()", extra]
            for place, (operation, f) in enumerate(steps_of)
        ],
        Registry(),
    )
    failed: Failed = {}
    return program.run(flow, failed.setdefault)[-1], failed


def test_map_keeps_rows_and_times() -> None:
    flow, failed = run(Flow([1, 2], None, [10, 20]), ("map", steps.double))
    assert (flow.values, list(flow.rows()), flow.times, failed) == ([2, 4], [0, 1], [10, 20], {})


def test_filter_and_flat_map_remember_the_row_of_each_value() -> None:
    flow, _ = run(
        Flow([1, 2, 3, 6], None, [1, 2, 3, 6]), ("flat_map", steps.upto), ("filter", steps.is_even)
    )
    assert flow.values == [0, 0, 0, 2, 0]
    assert flow.origins == [0, 1, 2, 2, 3]
    assert flow.times == [1, 2, 3, 3, 6]


def test_generators_are_lists_for_flat_map() -> None:
    flow, _ = run(Flow([1, 2]), ("flat_map", steps.twice))
    assert (flow.values, list(flow.rows())) == ([1, 1, 2, 2], [0, 0, 1, 1])


def test_a_flat_map_after_another_remembers_the_rows_of_the_batch() -> None:
    flow, _ = run(Flow([1, 2]), ("flat_map", steps.twice), ("flat_map", steps.upto))
    assert (flow.values, list(flow.rows())) == ([0, 0, 0, 1, 0, 1], [0, 0, 1, 1, 1, 1])


@pytest.mark.parametrize(
    ("operation", "values"),
    [("map", [1, 2, 4]), ("filter", [1, 2, 4]), ("peek", [1, 2, 3, 4])],
)
def test_a_value_that_fails_takes_no_other_with_it(operation: str, values: list[int]) -> None:
    flow, failed = run(Flow([1, 3, 2, 3, 4]), (operation, steps.fail_on_three))
    assert flow.values == [1, 2, 4]
    assert list(flow.rows()) == [0, 2, 4]
    assert list(failed) == [1, 3]
    assert failed[1].__notes__ == [f"in {operation}(), for the value 3"]


def test_an_answer_of_filter_that_is_neither_true_nor_false_fails_alone() -> None:
    flow, failed = run(Flow([1, 3, 2, 0, 3, 4]), ("filter", steps.undecided_on_three))
    assert flow.values == [1, 2, 4]
    assert list(flow.rows()) == [0, 2, 5]
    assert list(failed) == [1, 4]
    assert failed[1].__notes__ == ["in the answer of filter(), for the value Undecided()"]


def test_a_value_that_fails_in_flat_map_takes_no_other_with_it() -> None:
    flow, failed = run(Flow([5, None, 6]), ("flat_map", steps.upto))
    assert (flow.values, list(flow.rows())) == ([0, 0, 1], [0, 2, 2])
    assert [type(error) for error in failed.values()] == [TypeError]


@pytest.mark.parametrize("function", [steps.text, steps.double])
def test_flat_map_refuses_what_is_no_list(function: Any) -> None:
    _, failed = run(Flow([12]), ("flat_map", function))
    assert "expected a list of values" in str(failed[0])


def test_a_function_that_raises_stop_iteration_loses_no_value() -> None:
    flow, failed = run(Flow([1, 2]), ("map", steps.stops))
    assert flow.values == []
    assert sorted(failed) == [0, 1]


def test_key_by_refuses_a_key_that_no_grouping_can_hash() -> None:
    flow, failed = run(Flow([1, object(), [2], (3,)]), ("key_by", None))
    assert flow.keys == [1, (3,)]
    assert sorted(failed) == [1, 2]


def test_a_branch_takes_the_first_that_matches() -> None:
    predicates = [spec_of(steps.is_even), spec_of(steps.is_small)]
    program = Program(
        [
            [-1, "branch", None, "branch()", predicates],
            [0, "arm", None, "even", 0],
            [0, "arm", None, "small", 1],
        ],
        Registry(),
    )
    _, even, small = program.run(Flow([1, 2, 3, 8, 9]), lambda row, error: None)
    assert (even.values, small.values) == ([2, 8], [1, 3])
    assert (even.origins, small.origins) == ([1, 3], [0, 2])


@pytest.mark.parametrize(
    ("value", "row"),
    [
        ({"user": "a", "amount": 1}, ["a", 1]),
        (("a", 1), ["a", 1]),
        (["a", 1], ["a", 1]),
        (steps.Event("a", 1, 0), ["a", 1]),
    ],
)
def test_fields_take_values_apart(value: Any, row: list[Any]) -> None:
    flow, _ = run(Flow([value]), ("fields", None), extra=["user", "amount"])
    assert list(flow.values[0]) == row


@pytest.mark.parametrize(
    ("value", "field"),
    [
        (steps.Event("a", 1, 0), "a"),
        (SimpleNamespace(user="a"), "a"),
        (Card("a"), "a"),
        (Slotted("a"), "a"),
        ({"user": "a"}, "a"),
        (("a",), "a"),
    ],
)
def test_a_value_is_taken_apart_for_one_field_too(value: Any, field: Any) -> None:
    flow, _ = run(Flow([value]), ("fields", None), extra=["user"])
    assert list(flow.values[0]) == [field]


@pytest.mark.parametrize("value", ["to count", 5, ["a", "b"], ("a", "b"), steps.Event("a", 1, 0)])
def test_a_value_without_that_field_is_the_field_itself(value: Any) -> None:
    flow, _ = run(Flow([value]), ("fields", None), extra=["count"])
    assert list(flow.values[0]) == [value]


@pytest.mark.parametrize("value", [("a",), {"user": "a"}, 5])
def test_a_value_without_the_fields_fails(value: Any) -> None:
    _, failed = run(Flow([value]), ("fields", None), extra=["user", "amount"])
    assert list(failed) == [0]


def test_a_value_whose_repr_raises_is_named_by_its_type() -> None:
    class Odd:
        def __repr__(self) -> str:
            raise RuntimeError

    _, failed = run(Flow([Odd()]), ("map", steps.double))
    assert failed[0].__notes__ == ["in map(), for the value a Odd"]
