"""Calls that are tried, and the state that they change: both cores, against what is obvious."""

from __future__ import annotations

import asyncio
import copy
import random
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from squall_common.state.disk.state import DiskState
from squall_common.state.disk.table import DiskTable
from squall_common.state.keyed import ABSENT, NO_KEY, KeyedState, Unstored
from squall_engine.atomic.undo import BatchKeys, BatchState, UndoableState
from squall_engine.core import COMPILED, pure
from squall_engine.core.codec import ValueCodec

cores: list[ModuleType] = [pure]
if COMPILED:
    from squall_engine.core import compiled

    cores.append(compiled)

CODEC = ValueCodec()
GROUPS = 16
KEYS: list[Any] = ["ann", "bob", "c" * 40, 1, 2, 7_777, b"raw", 2.5, ("a", 1), True, None]
VALUES: list[Any] = [0, 1, -5, 2**70, "text", b"bytes", None, True, 0.5, [1], {"a": 2}, (1, 2)]


class Task:
    """State, what it should be, and the segments of the last complete epoch."""

    def __init__(self, core: ModuleType, *, batches: bool, inner: KeyedState | None = None) -> None:
        self.inner = KeyedState(GROUPS, CODEC) if inner is None else inner
        kind = BatchState if batches else UndoableState
        slow = kind(self.inner, CODEC)
        hot = self.inner.share(
            lambda values, owners, beyond=None: core.HotState(
                slow,
                values,
                owners,
                absent=ABSENT,
                no_key=NO_KEY,
                of_batches=batches,
                beyond=beyond,
            )
        )
        assert hot is not None
        self.hot: Any = hot
        self.batches = batches
        self.expected: dict[Any, Any] = {}
        self.epoch = 0
        self.older: list[Any] = []
        self.pending: list[tuple[int, bool, Any, dict[Any, Any]]] = []

    def call(self, chance: random.Random) -> None:
        """A try that may fail."""
        if self.batches:
            keys = chance.sample(KEYS, 4)
            self.hot.begin(BatchKeys(lambda: keys))
        else:
            keys = [chance.choice([*KEYS, NO_KEY])]
            self.hot.begin(keys[0])
        now = copy.deepcopy(self.expected)
        for _ in range(chance.randrange(1, 6)):
            key = chance.choice(keys) if chance.random() < 0.8 else chance.choice(KEYS)
            self.change(chance, KEYS[0] if key is NO_KEY else key, now)
        if chance.random() < 0.3:
            self.hot.undo()
        else:
            self.hot.end()
            self.expected = now
        assert dict(self.inner.items()) == self.expected

    def change(self, chance: random.Random, key: Any, now: dict[Any, Any]) -> None:
        what = chance.random()
        if what < 0.5:
            value = copy.deepcopy(chance.choice(VALUES))
            self.hot.put(key, value)
            now[key] = copy.deepcopy(value)
        elif what < 0.6:
            self.hot.delete(key)
            now.pop(key, None)
        elif what < 0.9:
            value = self.hot.get(key, "nothing")
            assert value == now.get(key, "nothing")
            if isinstance(value, list):
                value.append(len(value))
                now[key].append(len(now[key]))
        else:
            assert dict(self.hot.items()) == now
            assert len(self.hot) == len(now)

    def snapshot(self, chance: random.Random) -> None:
        self.epoch += 1
        is_base = not self.older or chance.random() < 0.2
        changes = self.inner.snapshot(self.epoch, base=is_base)
        self.pending.append((self.epoch, is_base, changes, copy.deepcopy(self.expected)))

    def settle(self, chance: random.Random) -> None:
        """The oldest snapshot that is pending completes, or is given up."""
        epoch, is_base, changes, expected = self.pending.pop(0)
        blocks = changes.encode(ValueCodec())
        chain = [*([] if is_base else self.older), Stored(blocks)]
        restored = KeyedState(GROUPS, CODEC)
        restored.restore([chain], range(GROUPS), bound=True)
        assert dict(restored.items()) == expected
        assert restored.bound == changes.bound
        if chance.random() < 0.7:
            self.inner.completed(epoch)
            self.older = chain
            if self.pending:  # they need what was the last complete one then
                self.pending = []


class Stored:
    name = "it"

    def __init__(self, blocks: Any) -> None:
        self._blocks = list(blocks.items() if isinstance(blocks, dict) else blocks)

    def blocks(self, groups: Any) -> Any:
        return [block for block in self._blocks if block[0] in groups]


def in_memory(_: random.Random, __: Path) -> KeyedState:
    return KeyedState(GROUPS, CODEC)


def on_disk(chance: random.Random, folder: Path) -> KeyedState:
    table = DiskTable(str(folder))
    return DiskState(GROUPS, CODEC, table=table, write_entries=chance.choice([1, 2, 5, 1_000]))


@pytest.mark.parametrize("make", [in_memory, on_disk])
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("core", cores)
def test_every_snapshot_has_what_the_calls_that_succeeded_have_left(
    core: ModuleType, batches: bool, make: Callable[..., KeyedState], tmp_path: Path
) -> None:
    for seed in range(60):
        chance = random.Random(seed)
        task = Task(core, batches=batches, inner=make(chance, tmp_path))
        for _ in range(60):
            what = chance.random()
            if what < 0.7:
                task.call(chance)
            elif what < 0.85 or not task.pending:
                task.snapshot(chance)
            else:
                task.settle(chance)
        while task.pending:
            task.settle(chance)


@pytest.mark.parametrize("core", cores)
def test_what_is_on_disk_is_put_without_the_slow_state_and_bounded(
    core: ModuleType, tmp_path: Path
) -> None:
    state = DiskState(GROUPS, CODEC, table=DiskTable(str(tmp_path)), write_entries=10)
    for key in range(200):
        state.current = key
        state.put(key, key)
    state.current = NO_KEY
    state.snapshot(1, base=True)
    state.completed(1)
    hot = Task(core, batches=False, inner=state).hot
    for key in range(200):
        hot.begin(key)
        if key % 2:
            assert hot.get(key) == key
        hot.put(key, -key)
        hot.end()
        assert len(state.newer_keys()) <= 20
    assert not state._changed
    expected = {key: -key for key in range(200)}
    assert dict(state.items()) == expected
    assert restored(state.snapshot(2)) == expected
    assert len(hot) == 200


@pytest.mark.parametrize("core", cores)
def test_what_was_put_is_not_stored_until_its_epoch_is_complete(core: ModuleType) -> None:
    task = Task(core, batches=False)

    def put(key: str) -> None:
        task.hot.begin(key)
        task.hot.put(key, 1)
        task.hot.end()

    put("ann")

    def unstored(*keys: Any) -> set[Any]:
        found = Unstored()
        found.note(keys, task.inner)
        return found.keys()

    assert (unstored("ann"), task.inner.unstored) == ({"ann"}, 1)
    task.inner.snapshot(1)
    assert unstored("ann") == {"ann"}
    put("bob")
    assert task.inner.unstored == 2
    task.inner.completed(1)
    assert unstored("ann", "bob") == {"bob"}
    put("ann")
    assert unstored("ann", "bob", "nobody", ("no", "key"), True) == {"ann", "bob"}


@pytest.mark.parametrize("core", cores)
def test_a_log_that_leaves_out_rows_meanwhile_still_tells_what_was_put(core: ModuleType) -> None:
    task = Task(core, batches=False)
    asked = Unstored()
    for turn in range(4):
        for number in range(50_000):
            task.hot.begin(number)
            task.hot.put(number, turn)
            task.hot.end()
        if turn == 0:
            asked.note([7, 49_999, "no"], task.inner)
    again = Unstored()
    again.note([7, 49_999, 50_000], task.inner)
    pauses: list[None] = []
    assert asked.keys(lambda: pauses.append(None)) == {7, 49_999}
    assert len(pauses) >= 3
    assert again.keys() == {7, 49_999}


@pytest.mark.parametrize("core", cores)
def test_a_log_is_bounded_by_its_keys(core: ModuleType) -> None:
    """Also of keys with a common factor, which a plain table would put into one slot."""
    for step in (1, 2**20, 2**40):
        state = Task(core, batches=False)
        keys = [number * step for number in range(3_000)]
        for turn in range(60):
            for key in keys:
                state.hot.begin(key)
                state.hot.put(key, turn)
                state.hot.end()
        changes = state.inner.snapshot(1)
        assert changes.entries <= 2 * len(keys) + 70_000
        restored = KeyedState(GROUPS, CODEC)
        restored.restore([[Stored(changes.encode(CODEC))]], range(GROUPS), bound=True)
        assert dict(restored.items()) == dict.fromkeys(keys, 59)


def put_alone(task: Task, key: Any, value: Any) -> None:
    """A call that puts nothing else."""
    task.hot.begin(key)
    task.hot.put(key, value)
    task.hot.end()


def restored(changes: Any) -> dict[Any, Any]:
    """What a task has that goes on from these changes alone."""
    state = KeyedState(GROUPS, CODEC)
    state.restore([[Stored(changes.encode(CODEC))]], range(GROUPS), bound=True)
    return dict(state.items())


@pytest.mark.parametrize("core", cores)
def test_a_log_has_the_last_values_of_more_keys_than_it_finds_again(core: ModuleType) -> None:
    state, count = Task(core, batches=False), 100_000
    for turn in range(4):
        # The last turn is about a half of them, after the log has left out rows.
        for key in range(0, count, 1 if turn < 3 else 2):
            put_alone(state, key, turn)
    changes = state.inner.snapshot(1)
    assert changes.entries <= 2 * count + 70_000
    assert restored(changes) == {key: 2 if key % 2 else 3 for key in range(count)}


@pytest.mark.parametrize("core", cores)
def test_a_log_that_grows_finds_the_last_row_of_a_key(core: ModuleType) -> None:
    """Some are in it twice by then, as their places were taken. (Numbers in order get places of
    their own, so these are by chance.)"""
    chance = random.Random(1)
    keys = [chance.getrandbits(60) for _ in range(800)]
    task, expected = Task(core, batches=False), {}
    for value in range(3_000):
        key = chance.choice(keys)
        put_alone(task, key, value)
        expected[key] = value
    assert restored(task.inner.snapshot(1)) == expected


@pytest.mark.parametrize("core", cores)
def test_a_log_is_bounded_by_the_keys_in_it_also_in_a_large_state(core: ModuleType) -> None:
    task, count = Task(core, batches=False), 100_000
    task.inner._values.update(dict.fromkeys(range(1_000_000), 0))
    for turn in range(5):
        for key in range(count):
            put_alone(task, key, turn)
    changes = task.inner.snapshot(1)
    assert changes.entries <= 2 * count + 70_000
    assert restored(changes) == dict.fromkeys(range(count), 4)


@pytest.mark.parametrize("core", cores[1:])  # the log of the reference is a dictionary
def test_a_log_of_keys_that_nearly_all_differ_is_not_looked_through_again(core: ModuleType) -> None:
    task, count = Task(core, batches=False), 250_000
    for key in range(count):
        put_alone(task, key, 1)
    log = task.inner._delta.log
    assert log is not None
    assert len(log) == count
    some = range(count - 5_000, count)  # they came too late for the table that finds keys again
    for key in some:
        put_alone(task, key, 2)
    assert len(log) == count + len(some)
    assert restored(task.inner.snapshot(1)) == {
        **dict.fromkeys(range(count), 1),
        **dict.fromkeys(some, 2),
    }


@pytest.mark.parametrize("core", cores)
def test_a_log_has_only_what_was_put_since_the_one_before(core: ModuleType) -> None:
    """Although it begins with the keys of that one, if most of them were put again."""
    task, count = Task(core, batches=False), 40_000
    turns = [range(count), range(0, count, 2), range(1, count, 100), range(count, 2 * count), [7]]
    for turn, keys in enumerate([*turns, range(3, 100_000), range(5), range(50_000)]):
        for key in keys:
            # Every tenth is one that a log cannot have as a row.
            put_alone(task, key, turn if key % 10 else 2**70 + turn)
        log = task.inner._delta.log
        assert log is not None
        asked = {7, 8, count + 1, count + 3, 99_999}
        assert set().union(*log.found(asked)) == {key for key in asked if key in keys}
        assert len(log) == len([key for key in keys if key % 10])
        changes = task.inner.snapshot(turn + 1)
        assert restored(changes) == {key: turn if key % 10 else 2**70 + turn for key in keys}
        task.inner.completed(turn + 1)


@pytest.mark.parametrize("core", cores)
def test_a_log_knows_its_keys_however_they_are_kept(core: ModuleType) -> None:
    """In its table, and as rows; also those that are equal to one of another type."""
    count = 150_000
    log = core.HotState(
        KeyedState(GROUPS, CODEC), {}, {}, absent=ABSENT, no_key=NO_KEY
    ).renew({}, GROUPS)  # fmt: skip
    assert list(log.frames(())) == []
    task = Task(core, batches=False)
    for key in range(count):
        put_alone(task, key, key)
    log = task.inner._delta.log
    assert log is not None

    def found(*keys: Any) -> set[Any]:
        return set().union(*log.found(set(keys)))

    asked = [0, 7, count - 1, count, "7", b"7", "k" * 2_000]
    assert found(*asked) == {0, 7, count - 1}
    assert found(2.0, count - 2.0, 0.5, ("no", "key")) == {2.0, count - 2.0}
    kept = set(range(count)) - {0, 7, 100_000, count - 1}
    for dead in ({0, 7, 100_000, count - 1, "no"}, {0, 7.0, 100_000.0, count - 1, ("no",)}):
        rows = [row for _, frame in log.frames(dead) for row in CODEC.decode_rows(frame)]
        assert {key for key, _ in rows} == kept


@pytest.mark.parametrize("core", cores)
def test_rows_of_every_size_and_type_are_found_again(core: ModuleType) -> None:
    """Behind enough others that they get no place in the table of keys."""
    keys: list[Any] = [letter * size for size in (0, 1, 31, 32, 255, 256, 900) for letter in "aé"]
    keys += [key.encode() for key in keys]
    keys += [0, 127, 128, 255, 256, 65_535, 65_536, 2**32 - 1, 2**32, 2**63, 2**64 - 1]
    keys += [-1, -32, -33, -128, -129, -32_768, -32_769, -(2**31), -(2**31) - 1, -(2**63)]
    values = [None, True, False, 0.5, *keys, "\ud800", 2**64, "long" * 1_000, "last"]
    task, others = Task(core, batches=False), range(1_000_000, 1_120_000)
    for key in others:
        put_alone(task, key, None)
    expected = dict.fromkeys(others)
    for turn, value in enumerate(values):
        for key in keys[turn % 3 :: 3]:
            put_alone(task, key, value)
            expected[key] = value
    assert restored(task.inner.snapshot(1)) == expected


@pytest.mark.parametrize("core", cores)
def test_snapshots_that_were_given_up_are_together_in_the_next(core: ModuleType) -> None:
    """What came last counts: of rows, of values that can be changed, of deletions."""
    task = Task(core, batches=False)

    def put(key: Any, value: Any) -> None:
        put_alone(task, key, value)

    def delete(key: Any) -> None:
        task.hot.begin(key)
        task.hot.delete(key)
        task.hot.end()

    for key in ("list, row", "row, deleted", "row, row", "list, deleted", "deleted, row", "row"):
        put(key, [1] if key.startswith("list") else 1)
    delete("deleted, row")
    task.inner.snapshot(1)
    for key in ("list, row", "row, row", "deleted, row"):
        put(key, 2)
    delete("row, deleted")
    delete("list, deleted")
    task.inner.snapshot(2)
    put("new", 3)
    expected = {"list, row": 2, "row, row": 2, "deleted, row": 2, "row": 1, "new": 3}
    assert restored(task.inner.snapshot(3)) == expected


@pytest.mark.parametrize("core", cores)
@pytest.mark.parametrize(("older", "newer"), [(2**70, 5), (5, 2**70), (2**70, 2**71)])
def test_the_last_value_of_a_key_counts_whatever_encodes_it(
    core: ModuleType, older: int, newer: int
) -> None:
    """Among more keys than the log finds again, so that many are in it twice."""
    state = Task(core, batches=False)

    def put(keys: list[str], value: int) -> None:
        for key in keys:
            state.hot.begin(key)
            state.hot.put(key, value)
            state.hot.end()

    some, others = [f"key {n}" for n in range(200)], [f"other {n}" for n in range(3_000)]
    put(some, older)
    put(others, 1)
    put(some, newer)
    blocks = state.inner.snapshot(1).encode(ValueCodec())
    restored = KeyedState(GROUPS, CODEC)
    restored.restore([[Stored(blocks)]], range(GROUPS), bound=True)
    assert dict(restored.items()) == {**dict.fromkeys(others, 1), **dict.fromkeys(some, newer)}


@pytest.mark.parametrize("core", cores)
def test_keys_of_users_keep_their_own_equality(core: ModuleType) -> None:
    """A key that changes the state while it is compared."""

    class Odd(str):
        def __eq__(self, other: object) -> bool:
            task.inner.delete("ann")
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    task = Task(core, batches=False)
    for key in ("ann", Odd("ann")):
        task.hot.begin(key)
        task.hot.put("ann", 1)
        assert task.hot.get("ann") in (1, None)
        task.hot.end()


def tuple_of(core: ModuleType, values: list[Any], component: str = "a") -> Any:
    source = core.Source(component, 1, "default", ("x", "y"))
    return core.Tuple(values, 0, 0, source)


@pytest.mark.parametrize("core", cores)
def test_keys_are_found_by_stream(core: ModuleType) -> None:
    finder = core.KeyFinder({("a", "default"): (0,), ("b", "default"): (1, 0)}, NO_KEY)
    some = [
        tuple_of(core, ["k", 1]),
        tuple_of(core, ["k", 1], "b"),
        tuple_of(core, ["k", 1], "c"),
        tuple_of(core, [["no hash"], 1]),
        tuple_of(core, ["last", 1]),
    ]
    assert [finder(one) for one in some] == ["k", (1, "k"), NO_KEY, ["no hash"], "last"]
    assert finder.of_all(some) == {"k", (1, "k"), "last"}


@pytest.mark.parametrize("values", [["short"], ("short",), []])
@pytest.mark.parametrize("places", [(4,), (0, 4)])
@pytest.mark.parametrize("core", cores)
def test_no_key_is_found_behind_the_values(core: ModuleType, places: Any, values: Any) -> None:
    """A component may shorten a list that it has emitted."""
    finder = core.KeyFinder({("a", "default"): places}, NO_KEY)
    with pytest.raises(IndexError):
        finder(tuple_of(core, values))


@pytest.mark.parametrize("core", cores)
def test_what_is_emitted_leaves_in_its_order_once_the_call_has_returned(core: ModuleType) -> None:
    made: list[Any] = []
    faults: list[BaseException] = []
    failed: list[Any] = []
    trial = core.Trial([], failure=lambda: ValueError("it called fail"), on_fault=faults.append)

    def otherwise(values: Any, anchors: Any, stream: str) -> Any:
        held = trial.held
        if held is None:
            made.append(("at once", values))
            return (1,)
        held.append((lambda *given: made.append(given), (stream, values)))
        return ()

    emit = trial.holding(made.append, "default", 1, otherwise)

    def execute(what: Any) -> None:
        emit([what])
        emit((what,), None, "default")
        emit([what], stream="other")
        emit([what, what])  # not what the stream has
        emit([what])
        assert made == []
        if what == "raises":
            raise KeyError(what)
        if what == "fails":
            trial.fail(what)

    call = trial.around(execute, lambda *given: failed.append(given))
    call("fine")
    assert made == [
        ["fine"], ("fine",), ("other", ["fine"]), ("default", ["fine", "fine"]), ["fine"]
    ]  # fmt: skip
    made.clear()
    call("raises")
    call("fails")
    assert made == []
    assert [(what, str(error)) for what, error in failed] == [
        ("raises", "'raises'"), ("fails", "it called fail")
    ]  # fmt: skip
    emit(["outside"])
    assert made == [("at once", ["outside"])]
    assert trial.held is None


@pytest.mark.parametrize("core", cores)
def test_a_tuple_without_a_key_fails_as_in_a_try_and_changes_nothing(core: ModuleType) -> None:
    task = Task(core, batches=False)
    failed: list[Any] = []
    executed: list[str] = []
    trial = core.Trial([task.hot], failure=ValueError, on_fault=failed.append)
    finder = core.KeyFinder({("a", "default"): (1,)}, NO_KEY)

    def execute(tup: Any) -> None:
        executed.append(tup[0])
        task.hot.put(tup[1], tup[0])

    call = trial.around(execute, lambda *given: failed.append(given), finder)
    some = [tuple_of(core, ["x", "ann"]), tuple_of(core, ["y"]), tuple_of(core, ["z", "bob"])]
    for tup in some:
        call(tup)
    ((tup, error),) = failed
    assert tup is some[1]
    assert isinstance(error, IndexError)
    assert executed == ["x", "z"]
    assert dict(task.inner.items()) == {"ann": "x", "bob": "z"}
    tup.values.append("cleo")  # it is looked for again in each try
    assert isinstance(trial.retry(tuple_of(core, [])), IndexError)
    assert trial.retry(tup) is None
    assert task.inner.get("cleo") == "y"
    assert trial.held is None


@pytest.mark.parametrize("core", cores)
def test_what_a_call_has_emitted_that_was_broken_off_does_not_leave(core: ModuleType) -> None:
    left: list[Any] = []
    trial = core.Trial([], failure=ValueError, on_fault=left.append)
    emit = trial.holding(left.append, "default", 1, lambda *given: ())

    def execute(what: str) -> None:
        emit([what])
        if what == "broken off":
            raise asyncio.CancelledError

    call = trial.around(execute, lambda *given: None)
    with pytest.raises(asyncio.CancelledError):
        call("broken off")
    call("next")
    assert left == [["next"]]


@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize("core", cores)
def test_undoing_a_call_leaves_what_one_before_has_put_that_was_broken_off(
    core: ModuleType, batches: bool
) -> None:
    task = Task(core, batches=batches)

    def begin(key: str) -> None:
        task.hot.begin(BatchKeys(lambda: [key]) if batches else key)

    begin("ann")
    task.hot.put("ann", 1)  # neither `end` nor `undo` follows, as by `CancelledError`
    begin("bob")
    task.hot.put("bob", 2)
    task.hot.undo()
    assert dict(task.inner.items()) == {"ann": 1}


@pytest.mark.parametrize("core", cores)
def test_an_emit_that_fails_when_it_leaves_is_a_fault(core: ModuleType) -> None:
    faults: list[BaseException] = []
    trial = core.Trial([], failure=ValueError, on_fault=faults.append)
    left: list[Any] = []

    def send(values: Any) -> None:
        if values == [2]:
            raise RuntimeError("no")
        left.append(values)

    emit = trial.holding(send, "default", 1, lambda *given: ())
    call = trial.around(lambda what: [emit([n]) for n in (1, 2, 3)], lambda *given: None)
    with pytest.raises(RuntimeError, match="no"):
        call("it")
    assert [str(error) for error in faults] == ["no"]
    assert left == [[1]]
    trial.around(lambda what: emit([what]), lambda *given: None)(4)
    assert left == [[1], [4]]  # and not what was left


@pytest.mark.parametrize("core", cores)
def test_a_position_goes_with_its_tuple(core: ModuleType) -> None:
    sent: list[Any] = []
    positions: dict[Any, Any] = {}

    def send(*given: Any) -> Any:
        sent.append(given)
        return (7,)

    def otherwise(values: Any, **how: Any) -> Any:
        raise ValueError(how["message_id"])

    emit = core.PositionedEmit(send, positions, iter([1, 2, 3]), otherwise).emit
    assert emit(["a"], position=("file", 5)) == (7,)
    emit(["b"], stream="other")
    with pytest.raises(ValueError, match="mine"):
        emit(["c"], message_id="mine")
    core.PositionedEmit(send, positions, None, otherwise).emit(["d"], position=("other", 1))
    assert positions == {"file": 5, "other": 1}
    assert sent == [
        (["a"], 1, "default"), (["b"], 2, "other"), (["d"], None, "default")
    ]  # fmt: skip
