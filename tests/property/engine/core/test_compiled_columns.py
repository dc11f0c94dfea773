"""Columns are a way to write rows: what is emitted as columns goes where its rows would go one by
one, with the same ids, in the same order, and is read the same as rows and as columns, in both
cores. Counts of a fan-out are a way to write origins."""

from __future__ import annotations

import importlib
import random
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.component.columns.fan_out import FanOut
from squall_common.component.groupings import (
    NoStableHashError,
    stable_hash,
    stable_hash_of_fields,
)
from squall_engine.core import pure
from squall_engine.core.stats import TaskCounts

try:
    CORES = [pure, importlib.import_module("squall_engine.core.compiled")]
except ImportError:
    CORES = [pure]

TASKS = (4, 5)  # of the spout


class NoHash:
    """A value that no fields grouping takes."""

    def __repr__(self) -> str:
        return "NoHash()"


NO_HASH = NoHash()
# (Every NaN is one value to a grouping, but not to ==.)
values = st.one_of(
    st.integers(), st.text(max_size=3), st.floats(allow_nan=False), st.booleans(), st.none(),
    st.binary(max_size=3), st.tuples(st.integers()),
)  # fmt: skip
rows = st.lists(st.tuples(values, values), max_size=40)
flawed = rows.map(lambda some: [*some, ("x", NO_HASH), ("y", 1)])
emits = st.tuples(
    st.sampled_from(["columns", "columns", "row"]), st.sampled_from(TASKS), st.one_of(rows, flawed),
    st.booleans(),
)  # fmt: skip
reads = st.tuples(st.sampled_from(["rows", "run", "halves"]), st.integers(0, 40))
steps = st.lists(st.one_of(emits, emits, reads), max_size=12)


class Story:
    """Two tasks of a spout emit, over the edges that they share, to a bolt that is fed with columns
    and emits some."""

    def __init__(
        self,
        core: Any,
        grouping: str,
        targets: int,
        *,
        one_by_one: bool,
        counted: bool = False,
    ) -> None:
        """`counted`: the bolt says the origins as a `FanOut`."""
        self.core, self.one_by_one, self.counted = core, one_by_one, counted
        self.seen: list[Any] = []
        draw = random.Random(1).getrandbits
        self.trees, self.pending = core.Trees(1, [0], draw), core.PendingRoots()
        self.trees.attach(TASKS[0], self.pending)
        self.edges: Any = ()  # made with the first task
        self.spouts = {task: self._spout(task, grouping, targets, draw) for task in TASKS}
        self.outbox = core.Outbox(list(zip(self.edges, self.edges, strict=True)))
        source = core.Source("bolt", 9, "default", ["b"])
        output = core.Output(source, direct=False)
        self.sinks = tuple(core.Edge(task, source, local=True) for task in range(20, 23))
        output.add_consumer(core.ByFields(self.sinks, [0], stable_hash), self.sinks)
        self.calls = core.ColumnCalls(
            core.Emitter("bolt", 9, {"default": output}, draw, on_rejected=print),
            self.trees.ledger,
            TaskCounts(),
            self.execute,
            auto_ack=True,
            auto_anchor=True,
            default_anchors=lambda: (),
            on_error=lambda error: self.seen.append(("error", type(error).__name__)),
        )

    def _spout(self, task: int, grouping: str, targets: int, draw: Any) -> tuple[Any, Any]:
        core = self.core
        source = core.Source("spout", task, "default", ["a", "b"])
        output = core.Output(source, direct=False)
        if not self.edges:
            self.edges = tuple(core.Edge(10 + i, source, local=True) for i in range(targets))
        if grouping == "shuffle":
            grouper: Any = core.RoundRobin(self.edges, random.Random(task))
        elif grouping == "field":
            grouper = core.ByFields(self.edges, [1], stable_hash)
        else:
            grouper = core.ByFields(self.edges, [1, 0], stable_hash_of_fields)
        output.add_consumer(grouper, self.edges)
        emitter = core.Emitter("spout", task, {"default": output}, draw, on_rejected=print)
        turn = core.TurnState(1.0)
        calls = core.SpoutCalls(
            emitter, self.trees.ledger, self.pending, turn, acker=0, on_error=print
        )
        return calls, output

    def emit(self, how: str, task: int, some: Sequence[Any], acked: bool) -> None:
        calls, output = self.spouts[task]
        ids = [i if i % 7 else None for i in range(len(some))]
        try:
            if how == "columns" and not self.one_by_one:
                columns = [[row[0] for row in some], [row[1] for row in some]]
                calls.emit_columns(columns, message_ids=ids if acked else None)
            else:
                for row, message_id in zip(some, ids, strict=True):
                    calls.emit(row, message_id=message_id if acked else None)
        except NoStableHashError:
            self.seen.append("refused")
        self.seen.append((calls.emitted(), output.emitted_total(), output.transferred_total()))

    def read(self, how: str, count: int) -> None:
        waiting: list[Any] = self.outbox.take()
        for edge in waiting:
            batch = edge.take()
            self.seen.append((edge.task, len(batch), batch.last_row(), sorted(batch.roots())))
            parts = [batch.take(count), batch] if how == "halves" else [batch]
            for part in parts:
                if how == "run":
                    whole = count >= len(part)
                    self.calls.run(part, min(count, len(part)))
                    if whole:
                        continue
                if len(part):
                    self.seen.append([tuple(row) for row in part.rows()])
                for tup in part.as_tuples():
                    where = (tup.source_task, tup.id, tup.root)
                    self.seen.append((tuple(tup.values), *where))

    def execute(self, columns: Any) -> None:
        self.seen.append((columns.source_task, [list(column) for column in columns]))
        each = columns.source_task == TASKS[0]  # one tuple of each row, without origins
        counts = [1 if each else row * 2 % 5 for row in range(columns.rows)]
        if columns.rows > 2 and not each:
            columns.ack(0)
            columns.fail(2)
            counts[0] = counts[2] = 0
        origins = [row for row, count in enumerate(counts) for _ in range(count)]
        some = [columns["b"][row] for row in origins]
        columns[0].clear()  # they are the bolt's own
        if self.one_by_one and self.core is not pure:
            for value, row in zip(some, origins, strict=True):
                self.calls.emit_columns([[value]], origins=[row])
        elif each and not self.counted:
            self.calls.emit_columns([some])
        else:
            self.calls.emit_columns([some], origins=FanOut(counts) if self.counted else origins)

    def end(self) -> list[Any]:
        self.read("run", 1_000)
        for edge in self.sinks:
            batch = edge.take()
            self.seen.append([(tuple(t.values), t.id, t.root) for t in batch.as_tuples()])
        self.seen.append((self.trees.settle(), len(self.pending)))
        return self.seen


@given(steps, st.sampled_from(["shuffle", "field", "fields"]), st.integers(1, 6))
@pytest.mark.parametrize("core", CORES)
def test_columns_go_where_their_rows_would_go_one_by_one(
    core: Any, script: Any, grouping: str, targets: int
) -> None:
    found = []
    for kind, one_by_one, counted in (
        (pure, False, False),
        (core, False, False),
        (core, False, True),
        (core, True, False),
    ):
        story = Story(kind, grouping, targets, one_by_one=one_by_one, counted=counted)
        for step in script:
            if step[0] in ("columns", "row"):
                story.emit(*step)
            else:
                story.read(*step)
        found.append(story.end())
    assert all(one == found[0] for one in found)
