"""State on disk is what state in memory is, whatever is done to it."""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.disk import state as disk_state
from squall_common.state.disk.state import DiskState
from squall_common.state.disk.table import DiskTable
from squall_common.state.errors import StateError, StateStoreError, StateValueError
from squall_common.state.key_groups import groups_of_task, key_group
from squall_common.state.keyed import NO_KEY, KeyedState
from squall_common.state.segment import Footer, Segment
from squall_common.state.segment_file import put_segment
from squall_common.topology.serialization import Registry
from squall_engine.embed import ValueCodec

GROUPS = 16
CODEC = ValueCodec(Registry(), allow_pickle=False)
KEYS: list[Any] = [*"abcdefgh", b"a", 1, 2.5, ("a", 1), ("b", "x"), None, True, "k" * 600]
ALL = groups_of_task(0, 1, GROUPS)


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def on_disk(folder: Path, write_entries: int = 4, **options: Any) -> DiskState:
    table = DiskTable(str(folder))
    return DiskState(GROUPS, CODEC, table=table, write_entries=write_entries, **options)


def stored(
    store: CheckpointStore, name: str, changes: Any, *, index: int = 0, tasks: int = 1
) -> Segment:
    footer = Footer(
        topology="t",
        component="c",
        task=index,
        tasks=tasks,
        max_parallelism=GROUPS,
        generation=1,
        epoch=changes.epoch,
        entries=changes.entries,
        keys=changes.keys,
        bound=changes.bound,
        is_base=changes.is_base,
        blocks=(),
        older=(),
    )
    ref = put_segment(
        store, footer, changes.encode(CODEC), name, groups_of_task(index, tasks, GROUPS)
    )
    return opened(store, name, ref)


def opened(store: CheckpointStore, name: str, ref: Any) -> Segment:
    return Segment.open(name, lambda start, length: store.get_part(name, start, length), ref)


def shown(state: KeyedState) -> dict[Any, Any]:
    found = dict(state.iterate())
    assert len(found) == len(state)
    return found


def change(chance: random.Random, states: Iterable[KeyedState]) -> None:
    """Do the same to each of them."""
    one, other = states
    key, owner = chance.choice(KEYS), chance.choice(KEYS)
    current = chance.choice([key, key, key, owner, NO_KEY])
    what = chance.randrange(6)
    value: Any = chance.choice([7, "text", [1], {"a": [2]}, 2**70, None])
    before = [state.entry(key) for state in (one, other)]
    for state, entry in zip((one, other), before, strict=True):
        state.current = current
        if what < 3:
            state.put(key, value if what else chance.getstate()[1][0])
        elif what == 3:
            got = state.get(key)
            if isinstance(got, list):
                got.append(3)
            elif isinstance(got, dict):
                got["a"].append(4)
        elif what == 4:
            state.delete(key)
        else:
            state.current = key
            state.put(key, [])
            state.put_back({key: entry})
        state.current = NO_KEY


@pytest.mark.parametrize("ttl_secs", [None, 50.0])
@pytest.mark.parametrize("seed", range(8))
def test_it_is_what_state_in_memory_is(
    tmp_path: Path, seed: int, ttl_secs: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_state, "_CHUNK_BYTES", 64)
    chance, clock = random.Random(seed), Clock()
    store = CheckpointStore(str(tmp_path / "store"))
    options: dict[str, Any] = {"ttl_secs": ttl_secs, "clock": clock}
    memory = KeyedState(GROUPS, CODEC, **options)
    disk = on_disk(tmp_path, chance.choice([1, 4, 1_000]), **options)
    chains: list[list[Segment]] = [[], []]
    complete = 0
    for epoch in range(1, 30):
        for _ in range(chance.randrange(8)):
            change(chance, (memory, disk))
            clock.now += chance.choice([0, 1, 9])
        base = not chains[0] or chance.random() < 0.2
        for chain, state, name in zip(chains, (memory, disk), ("m", "d"), strict=True):
            taken = stored(store, f"{name}/{epoch}", state.snapshot(epoch, base=base))
            chain[:] = [taken] if base else [*chain, taken]
        if base or chance.random() < 0.7:
            complete = epoch
            memory.completed(epoch)
            disk.completed(epoch)
        else:  # given up: what it has is in the next one, too
            for chain in chains:
                chain.pop()
        assert shown(disk) == shown(memory)
        assert disk.bound == memory.bound
        if complete == epoch and chance.random() < 0.3:
            memory, disk = KeyedState(GROUPS, CODEC, **options), on_disk(tmp_path, 3, **options)
            # Each reads what the other has written.
            memory.restore([chains[1]], ALL, bound=True)
            disk.restore([chains[0]], ALL, bound=True)
            chains.reverse()
            assert shown(disk) == shown(memory)
            assert disk.bound == memory.bound


def test_key_groups_move_to_other_tasks(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "store"))
    chains: list[list[Segment]] = []
    for index in range(2):
        state, chain = on_disk(tmp_path), []
        groups = groups_of_task(index, 2, GROUPS)
        for number in range(300):
            if state._group_of(number) in groups:
                state.current = number
                state.put(number, [number])
                state.put(("of", number), number)
            if number % 100 == 99:
                changes = state.snapshot(number, base=number == 99)
                chain.append(stored(store, f"{index}/{number}", changes, index=index, tasks=2))
                state.completed(number)
        chains.append(chain)
    found: dict[Any, Any] = {}
    for index in range(5):
        state = on_disk(tmp_path)
        state.restore(chains, groups_of_task(index, 5, GROUPS), bound=False)
        assert not found.keys() & dict(state.iterate()).keys()
        found.update(state.iterate())
    assert found == {
        **{number: [number] for number in range(300)},
        **{("of", number): number for number in range(300)},
    }


def test_a_key_of_two_tasks_is_refused(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "store"))
    chains = []
    for index, owner in enumerate((1, 2)):
        state = on_disk(tmp_path)
        state.current = owner
        state.put("total", 1)
        chains.append([stored(store, str(index), state.snapshot(1, base=True))])
    with pytest.raises(StateError, match="two tasks have an entry for 'total'"):
        on_disk(tmp_path).restore(chains, ALL, bound=False)


def test_a_base_is_as_the_state_was_at_the_snapshot(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "store"))
    state = on_disk(tmp_path, 1)
    for key in "abc":
        state.current = key
        state.put(key, [key])
    base = state.snapshot(1, base=True)
    state.get("a").append("later")
    state.put("d", 4)
    state.delete("b")
    state.snapshot(2)  # writes to the table
    restored = KeyedState(GROUPS, CODEC)
    restored.restore([[stored(store, "base", base)]], ALL, bound=True)
    assert dict(restored.iterate()) == {"a": ["a"], "b": ["b"], "c": ["c"]}
    assert dict(state.iterate()) == {"a": ["a", "later"], "c": ["c"], "d": 4}


def test_what_changes_is_in_memory_only_until_it_is_written(tmp_path: Path) -> None:
    state = on_disk(tmp_path, 100)
    for number in range(10_000):
        state.current = number
        state.put(number, number)
        assert len(state._on_disk.newer) <= 201
    state.snapshot(1)
    state.completed(1)
    assert len(state) == 10_000
    state.current = 17
    assert state.get(17) == 17
    assert not state._on_disk.newer


def test_a_full_disk_fails_the_snapshot_not_the_call(tmp_path: Path) -> None:
    state = on_disk(tmp_path, 10)
    table = state._on_disk.table
    write = table.write

    def full(*_: Any) -> None:
        raise StateStoreError("no space left")

    table.write = full  # type: ignore[method-assign]
    for number in range(100):
        state.current = number
        state.put(number, number)
    with pytest.raises(StateStoreError, match="no space left"):
        state.snapshot(1)
    table.write = write  # type: ignore[method-assign]
    changes = state.snapshot(2)
    assert changes.entries == 100
    assert dict(state.iterate()) == {number: number for number in range(100)}


@dataclass(frozen=True)
class Point:
    x: int


def test_keys_of_other_types_are_refused(tmp_path: Path) -> None:
    state = on_disk(tmp_path)
    for key in (Point(1), frozenset({1}), ("a", Point(1))):
        with pytest.raises(StateValueError, match=r"cannot be on disk \(topology.state.backend\)"):
            state.put(key, 1)


class One(enum.IntEnum):
    ONE = 1


@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize(
    ("key", "equal"), [(1, Decimal(1)), (1, One.ONE), (("a", (1,)), ("a", (One.ONE,)))]
)
def test_keys_of_other_types_are_refused_also_where_an_equal_one_is(
    tmp_path: Path, key: Any, equal: Any, is_written: bool
) -> None:
    """A segment would have them as they are, and they could not be restored."""
    state = on_disk(tmp_path)
    state.current = key
    state.put(key, 5)
    if is_written:
        state.snapshot(1, base=True)
        state.completed(1)
        assert state.get(key) == 5  # what was read last is looked at before the table
    for call in (state.get, state.delete, lambda one: state.put(one, 6)):
        with pytest.raises(StateValueError, match=r"of type (Decimal|One) cannot be on disk"):
            call(equal)
    assert state.has_changes is not is_written
    assert shown(state) == {key: 5}


def test_rows_of_plain_values_are_those_of_the_codec(tmp_path: Path) -> None:
    state = on_disk(tmp_path)
    for row in (("a", 1), (b"a", None), (1.5, True), ("\ud800", 2**80), (2**64, "x")):
        assert state._row_bytes(row) == CODEC.encode_rows((row,))


def blocks_of(segment: Segment) -> Iterator[int]:
    return (block.group for block in segment.footer.blocks)


def test_a_segment_may_have_several_blocks_of_a_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_state, "_CHUNK_BYTES", 200)
    store = CheckpointStore(str(tmp_path / "store"))
    state = on_disk(tmp_path)
    for number in range(200):
        state.current = number
        state.put(number, number)
    segment = stored(store, "base", state.snapshot(1, base=True))
    found = list(blocks_of(segment))
    assert len(found) > len(set(found)) == GROUPS
    restored = KeyedState(GROUPS, CODEC)
    restored.restore([[segment]], [3, 5], bound=False)
    assert sorted(key for key, _ in restored.iterate()) == [
        number for number in range(200) if state._group_of(number) in (3, 5)
    ]


def test_what_a_task_has_deleted_stays_deleted_when_another_one_joins_it(tmp_path: Path) -> None:
    store = CheckpointStore(str(tmp_path / "store"))
    parts = []
    for index in range(2):
        one = KeyedState(GROUPS, CODEC)
        mine = groups_of_task(index, 2, GROUPS)
        for number in range(40):
            one.current = f"k{number}"
            if key_group(one.current, GROUPS) in mine:
                one.put(one.current, number)
        one.current = NO_KEY
        found = [stored(store, f"{index}-1", one.snapshot(1, base=True), index=index, tasks=2)]
        one.completed(1)
        if index == 0:
            for key in list(one.keys()):
                one.delete(key)
            found.append(stored(store, f"{index}-2", one.snapshot(2), index=index, tasks=2))
        parts.append(found)
    memory, disk = KeyedState(GROUPS, CODEC), on_disk(tmp_path)
    for state in (memory, disk):
        state.restore(parts, ALL, bound=False)
    assert 0 < len(memory) < 40
    assert shown(disk) == shown(memory)


def test_a_key_that_is_refused_is_in_no_way_of_others(tmp_path: Path) -> None:
    clock = Clock()
    state = on_disk(tmp_path, ttl_secs=10, clock=clock)
    state.current = Decimal("1.5")
    with pytest.raises(StateValueError):
        state.put(Decimal("1.5"), 1)
    clock.now += 20
    state.current = "a"
    state.put("a", 1)
    assert shown(state) == {"a": 1}


def test_many_values_that_may_change_are_not_looked_through_at_each_put(tmp_path: Path) -> None:
    state = on_disk(tmp_path)
    for number in range(100):
        state.current = f"k{number}"
        state.put(f"k{number}", [number])
    assert state._try_at > 50
    state.snapshot(1)
    assert state._try_at == 0
    assert len(shown(state)) == 100


def owners_of(state: KeyedState) -> dict[Any, Any]:
    return {key: state._owners.get(key) for key, _ in state.iterate()}


@pytest.mark.parametrize("make", [lambda _: KeyedState(GROUPS, CODEC), on_disk])
def test_times_of_keys_that_had_none_are_stored_and_forgotten_with_the_option(
    tmp_path: Path, make: Any
) -> None:
    """A second restart does not begin the time of a key anew."""
    store, clock = CheckpointStore(str(tmp_path / "store")), Clock()

    def restarted(ttl_secs: float | None, before: Segment | None) -> Any:
        state = make(tmp_path)
        state._clock = clock
        if before is not None:
            state.restore([[before]], ALL, bound=True)
        state.set_ttl(ttl_secs)
        return state

    state = restarted(None, None)
    for number in range(20):
        state.current = number if number % 2 else "owner"
        state.put(number, [number])
    state.current = NO_KEY
    state.put("bound", 1)
    base = stored(store, "1", state.snapshot(1, base=True))
    state = restarted(50.0, base)
    owners = owners_of(state)
    base = stored(store, "2", state.snapshot(2, base=True))
    clock.now += 30
    state = restarted(50.0, base)
    assert len(shown(state)) == 21
    assert owners_of(state) == owners
    clock.now += 30
    assert shown(state) == {}
    state = restarted(None, base)
    base = stored(store, "4", state.snapshot(4, base=True))
    state = restarted(50.0, base)
    assert len(shown(state)) == 21
