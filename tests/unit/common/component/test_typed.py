"""Declared types: every emit of a component that declares some is checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from squall import Bolt, InvalidTopologyError, Spout, Stream, TopologyBuilder
from squall.testing import BoltTest, TopologyTest
from squall_common.component.typed import WrongTypeError, classes_of, fits


class Typed(Bolt):
    outputs = {"default": Stream({"word": str, "count": int | None}), "notes": ["note"]}

    def execute(self, tup: Any) -> None:
        self.emit([tup[0], tup[1]])
        self.emit(["anything"], stream="notes", anchors=())


class TypedColumns(Bolt):
    outputs = Stream({"word": str})

    def execute_columns(self, columns: Any) -> None:
        self.emit_columns([columns["word"]])


class Sink(Bolt):
    def execute(self, tup: Any) -> None:
        pass


class TypedSpout(Spout):
    outputs = Stream({"n": int})

    def __init__(self, values: Sequence[Any]) -> None:
        self.values = values

    def next_tuple(self) -> None:
        if self.values:
            value, self.values = self.values[0], self.values[1:]
            self.emit([value], message_id=value)


@pytest.mark.parametrize("values", [["the", 1], ["the", None]])
def test_values_of_the_declared_types_are_emitted(values: list[Any]) -> None:
    with BoltTest(Typed(), {"source": ["word", "count"]}) as test:
        done = test.execute(values)
    assert [one.values for one in done.emitted] == [values, ["anything"]]
    assert done.acked


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([7, 1], r"'bolt' emitted 7 \(int\) in field 'word' of stream 'default'.* as str"),
        (["the", "1"], r"emitted '1' \(str\) in field 'count'.* as int \| None"),
        (["the", True], r"emitted True \(bool\) in field 'count'"),
        (["the", 1.0], r"emitted 1.0 \(float\)"),
    ],
)
def test_a_value_of_another_type_fails_the_tuple_and_names_the_field(
    values: list[Any], message: str
) -> None:
    with BoltTest(Typed(), {"source": ["word", "count"]}) as test:
        done = test.execute(values)
    assert done.failed
    with pytest.raises(WrongTypeError, match=message):
        raise done.errors[0]


def test_columns_are_checked() -> None:
    with BoltTest(TypedColumns(), {"source": ["word"]}) as test:
        assert test.execute(["the"]).acked
        done = test.execute([b"the"])
    assert done.failed
    assert isinstance(done.errors[0], WrongTypeError)


def test_spouts_are_checked() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", TypedSpout([1, "two", 3]))
    builder.bolt("sink", Sink()).shuffle("numbers")
    with TopologyTest(builder.build()) as test:
        test.run_until(lambda: bool(test.errors))
        assert isinstance(test.errors[0].error, WrongTypeError)
        assert ["two"] not in [one.values for one in test.emitted("numbers")]


def test_a_stream_with_types_travels_like_one_with_names() -> None:
    typed = Stream({"a": int})
    assert typed.fields == ("a",)
    assert typed.types == {"a": int}
    assert Stream(["a"]).types is None
    assert hash(typed)


def test_a_float_may_be_an_int_and_a_bool_is_neither() -> None:
    assert fits(1, classes_of(float, "f"))
    assert not fits(True, classes_of(float, "f"))
    assert fits(True, classes_of(bool, "f"))
    assert fits([1], classes_of(list[str], "f"))
    assert fits(object(), classes_of(Any, "f"))
    assert fits(None, classes_of(str | None, "f"))


def test_what_is_no_type_is_refused_where_it_is_declared() -> None:
    with pytest.raises(InvalidTopologyError, match="field 'a': 'int' is not a type"):
        Stream({"a": "int"})
