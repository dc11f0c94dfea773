"""Functions travel by import path; what cannot is refused with a reason and a remedy."""

from __future__ import annotations

import functools
import operator
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from tests.support import stream_steps as steps

from squall.streams.functions import callable_of, kind_problem, name_of, spec_of
from squall_common.errors import InvalidTopologyError
from squall_common.topology.arguments import decode_arguments, encode_arguments


def sent(function: Any) -> Callable[..., Any]:
    """As it arrives in a worker."""
    (arrived,), _ = decode_arguments(encode_arguments([spec_of(function)], {}))
    return callable_of(arrived)


@pytest.mark.parametrize(
    ("function", "argument", "result"),
    [
        (steps.double, 4, 8),
        (str, 4, "4"),
        (list[int], (1, 2), [1, 2]),
        (Counter[str], "aab", Counter(a=2, b=1)),
        (len, "abc", 3),
        (str.upper, "abc", "ABC"),
        (operator.neg, 3, -3),
        (operator.itemgetter("a"), {"a": 1}, 1),
        (operator.itemgetter(0, 2), "abc", ("a", "c")),
        (operator.attrgetter("real"), 3, 3),
        (operator.methodcaller("strip"), " a ", "a"),
        (operator.methodcaller("split", maxsplit=1), "a b c", ["a", "b c"]),
        (functools.partial(steps.scaled, 3), 5, 15),
        (functools.partial(steps.scaled, factor=3), None, None),
        (functools.partial(functools.partial(steps.plus, 1)), 5, 6),
        (steps.Event.cheap, steps.Event("a", 3, 0), True),
        (steps.Event.is_cheap, steps.Event("a", 3, 0), True),
        (steps.cached, 1, 101),
    ],
)
def test_what_has_an_import_path_arrives(function: Any, argument: Any, result: Any) -> None:
    arrived = sent(function)
    if result is None:
        assert arrived(n=2) == 6
    else:
        assert arrived(argument) == result


def made_inside() -> Callable[[int], int]:
    def inner(n: int) -> int:
        return n

    return inner


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, n: int) -> int:
        return n * self.factor

    def scaled(self, n: int) -> int:
        return n * self.factor


@pytest.mark.parametrize(
    ("function", "reason", "remedy"),
    [
        (lambda n: n, "a lambda has no import path", "top level of a module"),
        (made_inside(), "'inner' is made inside a function", "functools.partial"),
        (functools.partial(lambda n: n), "a lambda has no import path", "top level"),
        (Scale(2).scaled, "Scale.scaled is a method of an object", "functools.partial"),
        (Scale(2), "an object with a state", "dataclass"),
        ("abc".join, "a method of an object", "top level"),
        (3, "3 is not a function", "top level"),
    ],
)
def test_what_no_worker_could_find_is_refused_with_a_remedy(
    function: Any, reason: str, remedy: str
) -> None:
    with pytest.raises(InvalidTopologyError) as raised:
        spec_of(function)
    assert reason in raised.value.message
    assert raised.value.hint is not None
    assert remedy in raised.value.hint


def test_arguments_that_cannot_travel_are_refused() -> None:
    with pytest.raises(InvalidTopologyError, match="object"):
        spec_of(functools.partial(print, object()))


def test_a_function_of_the_programs_own_module_gets_its_importable_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import sys
    import types

    main = types.ModuleType("__main__")
    main.__file__ = "/somewhere/jobs.py"
    exec("def split(line): return line.split()", main.__dict__)
    monkeypatch.setitem(sys.modules, "__main__", main)
    encoded = encode_arguments([spec_of(main.split)], {})
    assert b'"jobs:split"' in encoded


@pytest.mark.parametrize(
    ("operation", "function", "problem"),
    [
        ("map", steps.slow_double, "is async"),
        ("map_async", steps.double, "is not async"),
        ("map_async", steps.slow_double, None),
        ("map", steps.twice, "contains `yield`"),
        ("map", functools.partial(steps.twice), "contains `yield`"),
        ("flat_map", steps.twice, None),
        ("process", steps.first_seen, None),
    ],
)
def test_the_wrong_kind_of_function_is_found(
    operation: str, function: Any, problem: str | None
) -> None:
    found = kind_problem(operation, function)
    assert (found is None) if problem is None else (found is not None and problem in found[0])


def test_names_are_short() -> None:
    assert name_of(steps.double) == "double"
    assert name_of(str.lower) == "str.lower"
    assert name_of(operator.itemgetter("user")) == "itemgetter('user')"
    assert name_of(functools.partial(steps.scaled, 2)) == "scaled"
    assert name_of(made_inside()) == "inner"
