"""Narrow steps on batches: map, filter, flat_map and what else looks at one value after the other.

A task runs a tree of steps, a *program*. Each step takes a `Flow` and makes another one; the
loops over the values run in C where that is possible. A value for which the user's function raises
fails with the row of the batch that it came from, and no other does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress, repeat
from typing import Any, TypeVar

from squall.streams.functions import Spec, callable_of
from squall.windows.reading import millis_of
from squall_common.component.columns.fan_out import FanOut
from squall_common.component.groupings import canonical_encoding
from squall_common.topology.serialization import Registry

# (row, error): the row of the batch fails.
Fail = Callable[[int, BaseException], Any]

_Value = TypeVar("_Value")

_PLAIN_KEYS = frozenset({str, int, float, bool, bytes, type(None)})
_BOOLS = frozenset({bool})
_LAST_MS = 253_402_300_799_999
NOWHERE = -1  # of a value that no branch takes


@dataclass(slots=True)
class Flow:
    """Values on their way through a task, with the row of the batch that each came from (None: they
    are the rows), and their times and keys, if they have any."""

    values: list[Any]
    origins: Sequence[int] | None = None
    times: list[Any] | None = None
    keys: list[Any] | None = None
    arms: list[int] | None = None  # of branches: which one takes each value

    def rows(self) -> Sequence[int]:
        """The row that each value came from."""
        return range(len(self.values)) if self.origins is None else self.origins

    def kept(self, keep: Iterable[Any]) -> Flow:
        """The values for which `keep` is true."""
        keep = list(keep)
        return Flow(
            list(compress(self.values, keep)),
            list(compress(self.rows(), keep)),
            _kept(self.times, keep),
            _kept(self.keys, keep),
            _kept(self.arms, keep),
        )

    def without_rows(self, rows: frozenset[int] | set[int]) -> Flow:
        """Without the values that came from these rows."""
        return self.kept([row not in rows for row in self.rows()])

    def without(self, places: Sequence[int]) -> Flow:
        """Without the values at these places."""
        if not places:
            return self
        gone = set(places)
        return self.kept([place not in gone for place in range(len(self.values))])


def _kept(column: list[Any] | None, keep: Iterable[Any]) -> list[Any] | None:
    return None if column is None else list(compress(column, keep))


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a program. `parent` is the step whose values it takes, -1 for the input. `extra`
    belongs to the operation: the functions of branches, the names of fields, a prefix."""

    parent: int
    operation: str
    function: Spec
    label: str  # for people: "map(split), words.py:12"
    extra: Any = None

    def encoded(self) -> list[Any]:
        """As an argument of a component."""
        return [self.parent, self.operation, self.function, self.label, self.extra]


class Program:
    """The steps of a task, ready to run."""

    def __init__(self, steps: Sequence[Sequence[Any]], registry: Registry) -> None:
        """`steps` as `Step.encoded` returns them, parents first. `registry` has the topology's
        registered types, which may be keys."""
        self._steps = [
            (parent, _OPERATIONS[operation](spec, label, extra, registry))
            for parent, operation, spec, label, extra in steps
        ]

    def run(self, flow: Flow, fail: Fail) -> list[Flow]:
        """The results of all steps, in their order."""
        results: list[Flow] = []
        for parent, run in self._steps:
            results.append(run(flow if parent < 0 else results[parent], fail))
        return results


def explained(error: BaseException, label: str, value: Any) -> BaseException:
    """The error, with a note that names the step and the value."""
    try:
        shown = f"{value!r:.200}"
    except Exception:
        shown = f"a {type(value).__name__}"
    error.add_note(f"in {label}, for the value {shown}")
    return error


_Run = Callable[[Flow, Fail], Flow]


def applied(
    function: Callable[[Any], Any], label: str, flow: Flow, fail: Fail
) -> tuple[list[Any], list[int]]:
    """The results of a function, and the places of the values for which it raised."""
    values = flow.values
    results: list[Any] = []
    failed: list[int] = []
    left = iter(values)
    while True:
        try:
            results.extend(map(function, left))
        except Exception as error:
            place = len(results) + len(failed)
            fail(flow.rows()[place], explained(error, label, values[place]))
            failed.append(place)
            continue
        place = len(results) + len(failed)
        if place == len(values):
            return results, failed
        # `map` ends where a function raises StopIteration.
        ended = RuntimeError("the function raised StopIteration")
        fail(flow.rows()[place], explained(ended, label, values[place]))
        failed.append(place)


def _map(spec: Spec, label: str, extra: Any, registry: Registry) -> _Run:
    function = callable_of(spec)

    def run(flow: Flow, fail: Fail) -> Flow:
        results, failed = applied(function, label, flow, fail)
        left = flow.without(failed)
        return Flow(results, left.origins, left.times)

    return run


def _filter(spec: Spec, label: str, extra: Any, registry: Registry) -> _Run:
    function = callable_of(spec)

    def run(flow: Flow, fail: Fail) -> Flow:
        results, failed = applied(function, label, flow, fail)
        left = flow.without(failed)
        if not _BOOLS.issuperset(map(type, results)):  # `bool` may raise, as that of an array does
            answers = Flow(results, left.origins)
            results, failed = applied(bool, f"the answer of {label}", answers, fail)
            left = left.without(failed)
        return left.kept(results)

    return run


def _flat_map(spec: Spec, label: str, extra: Any, registry: Registry) -> _Run:
    function = callable_of(spec)

    def run(flow: Flow, fail: Fail) -> Flow:
        values: list[Any] = []
        counts: list[int] = []
        failed: list[int] = []
        left = iter(flow.values)
        count = counts.append
        while True:
            try:
                for value in left:
                    found = function(value)
                    if type(found) is not list:
                        found = _listed(found)
                    values += found
                    count(len(found))
                break
            except Exception as error:
                place = len(counts)
                fail(flow.rows()[place], explained(error, label, flow.values[place]))
                failed.append(place)
                count(0)
        if flow.origins is None:
            rows: Sequence[int] = FanOut(counts)
        else:
            rows = _repeated(flow.origins, counts)
        times = None if flow.times is None else _repeated(flow.times, counts)
        return Flow(values, rows, times)

    return run


def _repeated(values: Sequence[_Value], counts: Sequence[int]) -> list[_Value]:
    return list(chain.from_iterable(map(repeat, values, counts)))


def _listed(found: Any) -> list[Any]:
    check_many(found, "flat_map")
    return list(found)


def check_many(found: Any, operation: str) -> None:
    """Raise TypeError if what a function returned is not many values. A text is one."""
    if isinstance(found, str | bytes) or not hasattr(type(found), "__iter__"):
        raise TypeError(
            f"{operation}: the function returned {found!r:.100}; expected a list of values"
        )


def _peek(spec: Spec, label: str, extra: Any, registry: Registry) -> _Run:
    function = callable_of(spec)

    def run(flow: Flow, fail: Fail) -> Flow:
        _, failed = applied(function, label, flow, fail)
        return flow.without(failed)

    return run


def _print(spec: Spec, label: str, prefix: Any, registry: Registry) -> _Run:
    def shown(value: Any) -> str:
        return f"{prefix}{value}\n"

    def run(flow: Flow, fail: Fail) -> Flow:
        lines, failed = applied(shown, label, flow, fail)
        print("".join(lines), end="", flush=True)
        return flow.without(failed)

    return run


def _event_time(spec: Spec, label: str, extra: Any, registry: Registry) -> _Run:
    function = callable_of(spec)

    def run(flow: Flow, fail: Fail) -> Flow:
        times, failed = applied(function, label, flow, fail)
        left = flow.without(failed)
        if not times or (set(map(type, times)) == {int} and max(times) <= _LAST_MS):
            return Flow(left.values, left.origins, times)
        times, failed = applied(_time, label, Flow(times, left.origins), fail)
        left = left.without(failed)
        return Flow(left.values, left.origins, times)

    return run


def _time(at: Any) -> Any:
    """The same timestamp. Raises ValueError if it is none, or would make late, for good, whatever
    comes after it."""
    if millis_of(at) > _LAST_MS:
        raise ValueError(
            f"timestamp {at!r:.100} is after the year 9999; expected milliseconds since the epoch"
        )
    return at


def _key_by(spec: Spec, label: str, extra: Any, registry: Registry) -> _Run:
    function = None if spec is None else callable_of(spec)

    def run(flow: Flow, fail: Fail) -> Flow:
        if function is None:
            keys, left = flow.values, flow
        else:
            keys, failed = applied(function, label, flow, fail)
            left = flow.without(failed)
        keyed = Flow(left.values, left.origins, left.times, keys)
        types = set(map(type, keys))
        if types <= _PLAIN_KEYS and float not in types:
            return keyed
        return keyed.without(list(_unhashable(keyed, label, fail, registry)))

    return run


def _unhashable(flow: Flow, label: str, fail: Fail, registry: Registry) -> Iterable[int]:
    """The places of the keys that no grouping can hash."""
    rows = flow.rows()
    for place, key in enumerate(flow.keys or ()):
        try:
            if _is_nan(key):
                raise ValueError(f"the key is {key!r}, which equals nothing, not even itself")
            if type(key) is tuple and _PLAIN_KEYS.issuperset(map(type, key)):
                continue  # seen without the cost of an encoding
            if type(key) not in _PLAIN_KEYS:
                hash(key)
                canonical_encoding(key, registry)
        except Exception as error:
            fail(rows[place], explained(error, label, flow.values[place]))
            yield place


def _is_nan(key: Any) -> bool:
    """Whether it is not a number, or has one in it. Each would have a state of its own."""
    return key != key if type(key) is float else type(key) is tuple and any(map(_is_nan, key))


def _branch(spec: Spec, label: str, predicates: Any, registry: Registry) -> _Run:
    functions = [callable_of(predicate) for predicate in predicates]

    def choose(value: Any) -> int:
        for arm, matches in enumerate(functions):
            if matches(value):
                return arm
        return NOWHERE

    def run(flow: Flow, fail: Fail) -> Flow:
        arms, failed = applied(choose, label, flow, fail)
        left = flow.without(failed)
        return Flow(left.values, left.origins, left.times, None, arms)

    return run


def _arm(spec: Spec, label: str, arm: Any, registry: Registry) -> _Run:
    def run(flow: Flow, fail: Fail) -> Flow:
        kept = flow.kept([one == arm for one in flow.arms or ()])
        kept.arms = None
        return kept

    return run


def _same(spec: Spec, label: str, extra: Any, registry: Registry) -> _Run:
    return lambda flow, fail: flow


def _holds(value: Any, name: str) -> bool:
    """Whether a value is an object with a field of this name. Not hasattr: a text has `count`."""
    kind = type(value)
    return (
        name in getattr(value, "__dict__", ())
        or name in getattr(kind, "_fields", ())
        or name in getattr(kind, "__dataclass_fields__", ())
    )


def _fields(spec: Spec, label: str, names: Any, registry: Registry) -> _Run:
    def values_of(value: Any) -> tuple[Any, ...]:
        if isinstance(value, dict):
            return tuple(value[name] for name in names)
        if isinstance(value, tuple | list) and len(value) == len(names):
            return tuple(value)
        if len(names) == 1:
            return (getattr(value, names[0]) if _holds(value, names[0]) else value,)
        if isinstance(value, tuple | list) and not hasattr(value, "_fields"):
            raise ValueError(f"{len(value)} values for {len(names)} fields")
        return tuple(getattr(value, name) for name in names)

    def run(flow: Flow, fail: Fail) -> Flow:
        rows, failed = applied(values_of, label, flow, fail)
        left = flow.without(failed)
        return Flow(rows, left.origins, left.times)

    return run


_OPERATIONS: dict[str, Callable[[Spec, str, Any, Registry], _Run]] = {
    "map": _map,
    "filter": _filter,
    "flat_map": _flat_map,
    "peek": _peek,
    "print": _print,
    "event_time": _event_time,
    "key_by": _key_by,
    "branch": _branch,
    "arm": _arm,
    "merge": _same,
    "values": _same,
    "late": _same,
    "fields": _fields,
}
