"""The bolts that streams become, all but those with windows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from squall.streams.functions import Spec, callable_of
from squall.streams.marking import MarkedBolt, Origin
from squall.streams.steps import Fail, Flow, Program, applied, check_many, explained
from squall.streams.values import (
    Layout,
    check_total,
    is_plain,
    own_copy,
    reader_of,
    times_of,
)
from squall_common.component.component import Bolt, Outputs
from squall_common.component.stateful import StatefulBolt

if TYPE_CHECKING:
    from squall_common.component.columns.columns import Columns
    from squall_common.component.context import TopologyContext
    from squall_common.component.state import KeyValueState
    from squall_common.component.tuples import Tuple

S = TypeVar("S")

# A topology whose other bolts get ticks does not send them to these.
NO_TICKS = {"topology.tick.tuple.freq.secs": None}


class Inputs:
    """How the streams that a bolt gets are read.

    An input is [component, stream, layout, timed, spec of what makes a value of a row]."""

    def __init__(self, inputs: Sequence[Sequence[Any]]) -> None:
        self._read = {
            (component, stream): (
                reader_of(Layout(layout), None if spec is None else callable_of(spec)),
                Layout(layout) if timed else None,
            )
            for component, stream, layout, timed, spec in inputs
        }

    def flow_of(self, columns: Columns) -> Flow:
        """The values of a batch."""
        read, timed = self._read[columns.source_component, columns.source_stream]
        lists = list(columns)
        values = read(columns.fields, lists)
        return Flow(values, None, None if timed is None else times_of(timed, lists))

    def value_of(self, tup: Tuple) -> tuple[Any, Any]:
        """The value of a tuple, and its time if it has one."""
        read, timed = self._read[tup.source_component, tup.source_stream]
        lists = [[value] for value in tup.values]
        (value,) = read(tup.fields, lists)
        return value, None if timed is None else times_of(timed, lists)[0]


class StepsBolt(MarkedBolt, Bolt):
    """Narrow steps, fused into one task.

    `outputs` are [step, stream, layout, timed, fields]; `marked` are [stream, the step that calls
    event_time, or `FROM_INPUT`] of those of which others get marks."""

    stateless = True
    component_conf = NO_TICKS

    def __init__(
        self,
        inputs: Sequence[Sequence[Any]],
        steps: Sequence[Sequence[Any]],
        outputs: Sequence[Sequence[Any]],
        marked: Sequence[Sequence[Any]] = (),
    ) -> None:
        self._inputs_given = inputs
        self._steps_given = steps
        self._marked_given = marked
        self._emits = [
            (step, stream, Layout(layout), timed) for step, stream, layout, timed, _ in outputs
        ]
        self._squall_steps = [
            label for _, operation, given, label, _ in steps if given or operation == "branch"
        ]
        self.outputs: Outputs = {stream: fields for _, stream, _, _, fields in outputs}

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._inputs = Inputs(self._inputs_given)
        self._program = Program(self._steps_given, context.serialization)
        streams: dict[str, int] = dict(map(tuple, self._marked_given))
        self._origins: dict[int, Origin] = {}
        if self._squall_marks is not None:
            self._origins = {
                step: _origin_of(self._steps_given[step]) for step in streams.values() if step >= 0
            }
        self._begin_marks(context, streams, self._origins)

    def execute_columns(self, columns: Columns) -> None:
        bad: dict[int, BaseException] = {}
        try:
            flow = self._inputs.flow_of(columns)
        except Exception:
            flow = self._one_by_one(columns, bad)
        flows = self._program.run(flow, bad.setdefault)
        parts = {step: self._parts(step, flows[step], bad.setdefault) for step in self._origins}
        if bad:
            if columns.rows == 1:
                # With checkpoints each row that fails ends up alone: why it failed is the reason of
                # its dead letter, or of the end of the topology.
                raise bad[0]
            # Nothing that comes of these rows leaves the task.
            failed = set(bad)
            flows = [one.without_rows(failed) for one in flows]
            for row, error in bad.items():
                columns.fail(row)
                self.report_error(error)
            parts = {step: self._parts(step, flows[step], bad.setdefault) for step in self._origins}
        if self._marking is not None:
            for step, found in parts.items():
                self._marking.seen(step, columns.source_task, flows[step].times or (), found)
        for step, stream, layout, timed in self._emits:
            flow = flows[step]
            if flow.values:
                self.emit_columns(
                    _columns_of(flow, layout, timed), origins=flow.origins, stream=stream
                )

    def _parts(self, step: int, flow: Flow, fail: Fail) -> list[Any] | None:
        """Which part of the source each value is of. A value of which that cannot be told fails."""
        part_of = self._origins[step].part_of
        if part_of is None:
            return None
        return applied(part_of, f"parts of {self._steps_given[step][3]}", flow, fail)[0]

    def _one_by_one(self, columns: Columns, bad: dict[int, BaseException]) -> Flow:
        """The values of a batch in which one cannot be made. (Only rows are made of fields, and
        they have no times.)"""
        values, rows = [], []
        lists = list(columns)
        for row in range(columns.rows):
            try:
                one = _Row(columns, [[column[row]] for column in lists])
                values += self._inputs.flow_of(one).values  # type: ignore[arg-type]
                rows.append(row)
            except Exception as error:
                made = dict(zip(columns.fields, (column[row] for column in lists), strict=True))
                bad[row] = explained(error, f"the source {columns.source_component!r}", made)
        return Flow(values, rows)


def _origin_of(step: Sequence[Any]) -> Origin:
    """Of an encoded step that calls event_time."""
    lag_ms, idle_ms, interval_ms, parts = step[4]
    function = None if parts is None else callable_of(parts)

    def part_of(value: Any) -> Any:
        assert function is not None
        part = function(value)
        hash(part)
        return part

    return Origin(lag_ms, idle_ms, interval_ms, None if function is None else part_of)


class _Row:
    """One row of a batch."""

    def __init__(self, columns: Columns, lists: list[list[Any]]) -> None:
        self.fields = columns.fields
        self.source_component = columns.source_component
        self.source_stream = columns.source_stream
        self._lists = lists

    def __iter__(self) -> Any:
        return iter(self._lists)


def _columns_of(flow: Flow, layout: Layout, timed: bool) -> list[list[Any]]:
    columns: list[list[Any]]
    if layout is Layout.KEY:
        assert flow.keys is not None
        columns = [flow.keys]
    elif layout is Layout.KEYED:
        assert flow.keys is not None
        columns = [flow.keys, flow.values]
    elif layout is Layout.NAMED:
        return [list(column) for column in zip(*flow.values, strict=True)]
    else:
        columns = [flow.values]
    if timed:
        assert flow.times is not None
        columns.append(flow.times)
    return columns


class AsyncMapBolt(MarkedBolt, Bolt):
    """Awaits an async function of each value."""

    stateless = True
    component_conf = NO_TICKS

    def __init__(
        self, inputs: Sequence[Sequence[Any]], function: Spec, label: str, fields: Sequence[str]
    ) -> None:
        self._inputs_given = inputs
        self._function_given = function
        self._label = label
        self._squall_steps = [label]
        self.outputs: Outputs = list(fields)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._inputs = Inputs(self._inputs_given)
        self._function = callable_of(self._function_given)
        self._begin_marks(context)

    async def execute(self, tup: Tuple) -> None:
        value, at = self._inputs.value_of(tup)
        try:
            result = await self._function(value)
        except Exception as error:
            raise explained(error, self._label, value) from None
        self.emit([result] if at is None else [result, at])


class KeyState(Generic[S]):
    """The state of one key, in `process`.

        def changes(sensor: str, value: float, state: KeyState[float]) -> Iterator[float]:
            if value != state.get():
                state.put(value)
                yield value

    `get` returns the state, or `default` if there is none; `put` sets and `delete` removes it. What
    `get` returned may be changed in place; values that were emitted before stay as they were."""

    __slots__ = ("_key", "_state", "changes")

    def __init__(self, state: KeyValueState, key: Any) -> None:
        self._state = state
        self._key = key
        self.changes = False  # whether the function has a value of the state that it may change

    def get(self, default: Any = None) -> Any:
        """The state, or `default`."""
        value = self._state.get(self._key, default)
        self.changes = self.changes or not is_plain(value)
        return value

    def put(self, value: S) -> None:
        """Set the state."""
        self.changes = self.changes or not is_plain(value)
        self._state.put(self._key, value)

    def delete(self) -> None:
        """Remove the state; does nothing if there is none."""
        self._state.delete(self._key)


class _KeyedBolt(MarkedBolt, StatefulBolt):
    """A bolt with a state for each key: its input is grouped by the field `key`."""

    component_conf = NO_TICKS
    _value_at = 1  # of the values of a tuple: what errors show

    def __init__(self, label: str, fields: Sequence[str], *functions: Spec) -> None:
        self._label = label
        self._given = functions
        self._squall_steps = [label] if functions else []
        self.outputs: Outputs = list(fields)

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._functions: list[Callable[..., Any] | None] = [
            None if one is None else callable_of(one) for one in self._given
        ]
        self._begin_marks(context)

    def _squall_explain(self, error: Exception, tup: Tuple) -> None:
        """Note where it failed, in an error that came once `execute` had returned."""
        explained(error, self._label, tup.values[self._value_at])


class CountBolt(_KeyedBolt):
    """Counts the values of each key."""

    _value_at = 0

    def execute(self, tup: Tuple) -> None:
        key = tup.values[0]
        state = self.state
        count = state.get(key, 0) + 1
        state.put(key, count)
        self.emit((key, count))


class TimedCountBolt(_KeyedBolt):
    """The same for values with a time, which is that of the count."""

    _value_at = 0

    def execute(self, tup: Tuple) -> None:
        key, at = tup.values
        count = self.state.get(key, 0) + 1
        self.state.put(key, count)
        self.emit((key, count, at))


_NOTHING = object()


class FoldBolt(_KeyedBolt):
    """Adds the values of each key up: `init()`, `add(total, value)`, `result(total)`. Without
    `init` the first value is the first total."""

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        super().prepare(conf, context)
        self._init, add, self._result = self._functions
        assert add is not None
        self._add: Callable[[Any, Any], Any] = add

    def execute(self, tup: Tuple) -> None:
        values = tup.values
        key, value = values[0], values[1]
        state, result = self.state, self._result
        total = state.get(key, _NOTHING)
        try:
            if total is _NOTHING and self._init is None:
                total = value
            else:
                before = self._init() if total is _NOTHING and self._init is not None else total
                total = self._add(before, value)
                if total is None:
                    check_total(total, before)
            shown = total if result is None else result(total)
            if not is_plain(total):
                shown = own_copy(shown)
            state.put(key, total)
        except Exception as error:
            raise explained(error, self._label, value) from None
        self.emit((key, shown) if len(values) == 2 else (key, shown, values[2]))


class ProcessBolt(_KeyedBolt):
    """Calls `function(key, value, state)` and emits the values that it returns or yields."""

    def execute(self, tup: Tuple) -> None:
        (function,) = self._functions
        assert function is not None
        key, value, *at = tup.values
        try:
            state = KeyState[Any](self.state, key)
            found = _listed(function(key, value, state), state)
        except Exception as error:
            raise explained(error, self._label, value) from None
        for result in found:
            self.emit([result, *at])


def _listed(results: Iterable[Any] | None, state: KeyState[Any]) -> list[Any]:
    """The results of a function that may change its state between two of them."""
    if results is None:
        return []
    check_many(results, "process")
    found: list[Any] = []
    for result in results:
        found.append(own_copy(result) if state.changes else result)
    return found
