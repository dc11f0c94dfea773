"""Components: bound to a collector in the worker, and clear about what is not there before."""

import abc
import inspect
import logging
import pydoc
from types import SimpleNamespace
from typing import Any

import pytest

from squall import Bolt, Spout, SquallError, Stream
from squall_common.errors import InvalidTopologyError


class Recorder:
    """A collector that records its calls."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> tuple[int, ...]:
            self.calls.append((name, args, kwargs))
            return (7,)

        self.__dict__[name] = call
        return call


CONTEXT: Any = SimpleNamespace(this_component_id="count", this_task_id=5)


class Count(Bolt):
    def execute(self, tup: Any) -> None: ...


class Keyed(Count):
    def __init__(self, field: str, *, size: int = 3) -> None: ...


class Made(Count):
    def __new__(cls, field: str) -> Any:
        return super().__new__(cls)


class Loud(Bolt):
    """Overrides a call, and passes it on."""

    def emit(self, values: Any, **options: Any) -> Any:
        return super().emit([str(v).upper() for v in values], **options)

    def execute(self, tup: Any) -> None: ...


class Source(Spout):
    def next_tuple(self) -> None: ...


def test_a_bound_bolt_calls_its_collector_without_a_wrapper():
    bolt, collector = Count(), Recorder()
    bolt._bind(collector, CONTEXT)
    for name in ("emit", "emit_direct", "ack", "fail", "reset_timeout", "report_error"):
        assert getattr(bolt, name) is getattr(collector, name)
    assert bolt.emit(["a"], anchors=(), stream="s") == (7,)
    assert collector.calls == [("emit", (["a"],), {"anchors": (), "stream": "s"})]


def test_a_spouts_ack_and_fail_stay_its_own():
    acked = []

    class Kept(Source):
        def ack(self, msg_id: Any) -> None:
            acked.append(msg_id)

    spout, collector = Kept(), Recorder()
    spout._bind(collector, CONTEXT)
    spout.ack(1)
    spout.fail(2)
    assert (acked, collector.calls) == ([1], [])
    assert spout.emit is collector.emit


def test_an_overridden_call_stays_and_reaches_the_collector_through_super():
    bolt, collector = Loud(), Recorder()
    bolt._bind(collector, CONTEXT)
    bolt.emit(["a"], stream="s")
    assert collector.calls == [("emit", (["A"],), {"anchors": None, "stream": "s"})]


def test_each_class_call_reaches_the_collector():
    bolt, collector = Count(), Recorder()
    bolt._bind(collector, CONTEXT)
    Bolt.emit_direct(bolt, 3, ["a"])
    Bolt.ack(bolt, "t")  # type: ignore[arg-type]
    Bolt.fail(bolt, "t")  # type: ignore[arg-type]
    Bolt.reset_timeout(bolt, "t")  # type: ignore[arg-type]
    error = ValueError()
    Bolt.report_error(bolt, error)
    assert [name for name, _, _ in collector.calls] == [
        "emit_direct",
        "ack",
        "fail",
        "reset_timeout",
        "report_error",
    ]


def test_context_and_log_are_there_once_bound():
    bolt = Count()
    bolt._bind(Recorder(), CONTEXT)
    assert bolt.context is CONTEXT
    assert isinstance(bolt.log, logging.Logger)
    assert bolt.log.name == "topology.count.5"


@pytest.mark.parametrize("use", ["emit", "context", "log"])
def test_before_it_is_bound_each_use_says_from_when_on(use):
    with pytest.raises((SquallError, AttributeError)) as caught:
        Count().emit(["a"]) if use == "emit" else getattr(Count(), use)
    assert "is not available yet" in str(caught.value)
    assert "prepare()" in str(caught.value)
    with pytest.raises((SquallError, AttributeError), match=r"open\(\)"):
        Source().emit(["a"]) if use == "emit" else getattr(Source(), use)


def test_another_missing_attribute_is_an_ordinary_attribute_error():
    with pytest.raises(AttributeError, match="'Count' object has no attribute 'counts'"):
        Count().counts  # noqa: B018
    assert not hasattr(Count(), "execute_all")


def test_a_component_may_be_abstract():
    class Base(Bolt):
        @abc.abstractmethod
        def name(self) -> str: ...

    with pytest.raises(TypeError, match="abstract"):
        Base()  # type: ignore[abstract]


def test_a_constructor_that_raises_raises_its_own_error():
    class Bad(Source):
        def __init__(self) -> None:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        Bad()


def test_a_stream_is_its_fields_and_whether_it_is_direct():
    assert Stream(["a", "b"], direct=True) == Stream(("a", "b"), direct=True)
    assert Stream(["a"]).direct is False
    with pytest.raises(InvalidTopologyError, match=r"write Stream\(\['word'\]\)"):
        Stream("word")


@pytest.mark.parametrize(
    ("kind", "signature"),
    [
        (Count, "()"),
        (Keyed, "(field: str, *, size: int = 3)"),
        (type("Derived", (Keyed,), {}), "(field: str, *, size: int = 3)"),
        (Made, "(field: str)"),
    ],
)
def test_a_class_shows_the_arguments_of_its_constructor(kind: Any, signature: str) -> None:
    assert str(inspect.signature(kind)) == signature


def test_help_shows_the_arguments_of_the_constructor() -> None:
    shown = pydoc.render_doc(Keyed, renderer=pydoc.plaintext)
    assert "\n |  Keyed(field: str, *, size: int = 3)\n" in shown
