"""State of one task, in memory and on disk, with keys in random order.

    table      the table on disk alone: a get of bytes, and a put with 100,000 in a write
    disk       a get and a put of `self.state` on disk, and what they cost when they are written
    memory     the same in memory
    disk_try, memory_try   the same in a try of one tuple, as with checkpoints
    restore    1 GB: a million keys of 1 kB, from a base on the local disk

Bases and segments are not written while gets and puts are measured.
"""

from __future__ import annotations

import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from bench.runs import WrongCountError
from bench.tables import Table, met, number
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.disk.state import DiskState
from squall_common.state.disk.table import PORTION_BYTES, DiskTable
from squall_common.state.keyed import KeyedState
from squall_common.state.segment import Footer, Segment
from squall_common.state.segment_file import put_segment
from squall_common.topology.serialization import Registry
from squall_engine.embed import ValueCodec, tried_state

KEYS, CALLS, GROUPS = 1_000_000, 500_000, 128
AT_ONCE = 100_000
VALUE = "x" * 100
LARGE = "x" * 1_000
CALLS_GOAL, CALLS_LIMIT, RESTORE_GOAL_SECS = 300_000, 200_000, 30.0


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    title: str
    run: Callable[[Path], float]


def cases() -> list[Case]:
    return [
        Case("table", "the table on disk: get and put, a second of CPU", _table),
        Case("disk", "`self.state` on disk: get and put, a second of CPU", partial(_state, True)),
        Case(
            "memory", "`self.state` in memory: get and put, a second of CPU", partial(_state, False)
        ),
        Case("disk_try", "the same in tries, on disk", partial(_tries, True)),
        Case("memory_try", "the same in tries, in memory", partial(_tries, False)),
        Case("restore_disk", "restore 1 GB to disk, seconds", partial(_restore, True)),
        Case("restore_memory", "restore 1 GB to memory, seconds", partial(_restore, False)),
    ]


def _shuffled(seed: int) -> list[str]:
    keys = [f"key-{number:09}" for number in range(KEYS)]
    random.Random(seed).shuffle(keys)
    return keys


def _new(folder: Path, *, disk: bool) -> KeyedState:
    codec = ValueCodec(Registry(), allow_pickle=False)
    if not disk:
        return KeyedState(GROUPS, codec)
    return DiskState(GROUPS, codec, table=DiskTable(str(folder)))


def _table(folder: Path) -> float:
    table, value = DiskTable(str(folder)), VALUE.encode()
    rows = ValueCodec(Registry()).table_rows(GROUPS)
    keys = [key.encode() for key in _shuffled(1)]
    for start in range(0, KEYS, AT_ONCE):
        batch = rows.batch()
        for key in keys[start : start + AT_ONCE]:
            batch.add(key, value)
        table.write(batch.portions(PORTION_BYTES))
    random.Random(2).shuffle(keys)
    begin, found = time.process_time(), 0
    for start in range(0, CALLS, AT_ONCE):
        batch = rows.batch()
        for key in keys[start : start + AT_ONCE]:
            found += table.get(key) is not None
            batch.add(key, value)
        table.write(batch.portions(PORTION_BYTES))
    secs = time.process_time() - begin
    if found != CALLS:
        raise WrongCountError(f"{found} of {CALLS} keys were found")
    return CALLS / secs


def _state(disk: bool, folder: Path) -> float:
    state = _filled(folder, disk=disk)

    def call(key: str) -> None:
        state.current = key
        state.put(key, state.get(key, 0) + 1)

    return _called(state, call)


def _tries(disk: bool, folder: Path) -> float:
    state = _filled(folder, disk=disk)
    shown = tried_state(state, ValueCodec(Registry(), allow_pickle=False))

    def call(key: str) -> None:
        shown.begin(key)
        shown.put(key, shown.get(key, 0) + 1)
        shown.end()

    return _called(state, call)


def _filled(folder: Path, *, disk: bool) -> KeyedState:
    state = _new(folder, disk=disk)
    for at, key in enumerate(_shuffled(1)):
        state.current = key
        state.put(key, at)
        if at % AT_ONCE == AT_ONCE - 1:
            state.snapshot(at)
            state.completed(at)
    return state


def _called(state: KeyedState, call: Callable[[str], None]) -> float:
    """Calls a second."""
    keys = _shuffled(2)[:CALLS]
    begin = time.process_time()
    for at, key in enumerate(keys, KEYS):
        call(key)
        if at % AT_ONCE == AT_ONCE - 1:
            state.snapshot(at)
            state.completed(at)
    secs = time.process_time() - begin
    if len(state) != KEYS:
        raise WrongCountError(f"{len(state)} of {KEYS} keys are there")
    return CALLS / secs


def _restore(disk: bool, folder: Path) -> float:
    state, store = _new(folder, disk=True), CheckpointStore(str(folder / "store"))
    for at, key in enumerate(_shuffled(1)):
        state.current = key
        state.put(key, LARGE)
        if at % AT_ONCE == AT_ONCE - 1:
            state.snapshot(at)
            state.completed(at)
    changes = state.snapshot(KEYS, base=True)
    codec = ValueCodec(Registry(), allow_pickle=False)
    footer = Footer("t", "c", 0, 1, GROUPS, 1, KEYS, KEYS, KEYS, 0, True, (), ())
    ref = put_segment(store, footer, changes.encode(codec), "base", range(GROUPS))
    del state, changes
    begin = time.perf_counter()
    restored = _new(folder, disk=disk)
    segment = Segment.open("base", partial(store.get_part, "base"), ref)
    restored.restore([[segment]], range(GROUPS), bound=True)
    secs = time.perf_counter() - begin
    if len(restored) != KEYS:
        raise WrongCountError(f"{len(restored)} of {KEYS} keys are restored")
    return secs


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Each case `pairs` times, by turns; medians are reported."""
    chosen = [case for case in cases() if only is None or case.name in only]
    taken: dict[str, list[float]] = {case.name: [] for case in chosen}
    for _ in range(pairs):
        for case in chosen:
            print(f"{case.name} ...", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory(prefix="squall-bench-") as folder:
                taken[case.name].append(case.run(Path(folder)))
    rows = {
        case.name: {"title": case.title, "value": statistics.median(taken[case.name])}
        for case in chosen
    }
    return {"pairs": pairs, "counts_checked": True, "cases": rows}


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, row in report["cases"].items():
        value, verdict = row["value"], ""
        if name == "table":
            verdict = met(value, CALLS_GOAL, CALLS_LIMIT, at_most=False)
        elif name.startswith("restore"):
            verdict = met(value, RESTORE_GOAL_SECS, None, at_most=True)
        rows.append([row["title"], number(value), verdict])
    note = (
        f"Medians of {report['pairs']} runs; {KEYS:,} keys in random order, {CALLS:,} gets and "
        f"puts. The goal of the table is {CALLS_GOAL:,} a second, its limit {CALLS_LIMIT:,}."
    )
    return [Table("State in memory and on disk", ["what", "figure", "goal met"], rows, [note])]
