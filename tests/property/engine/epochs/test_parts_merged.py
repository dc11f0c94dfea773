"""Tasks that put their state in the core, take snapshots, lose some, and go back: whatever becomes
a base by merging, a complete epoch restores what the tasks had, in any number of tasks."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.key_groups import groups_of_task, key_group
from squall_common.state.keyed import KeyedState
from squall_common.state.manifest import ComponentPart
from squall_engine.atomic.undo import UndoableState, hot
from squall_engine.core.codec import ValueCodec
from squall_engine.epochs import parts
from squall_engine.epochs.parts import Chain, PartStore, Snapshot

GROUPS = 8
Draw = Callable[[random.Random], Any]
EDGES = [0, 1, 127, 128, 255, 256, 65_535, 65_536, 2**32, 2**63, -32, -33, -128, -129, -(2**63)]
KEYS: list[Draw] = [
    lambda chance: f"key {chance.randrange(40)}",
    lambda chance: b"%d" % chance.randrange(20),
    lambda chance: chance.choice(EDGES),
    lambda chance: "x" * chance.choice([0, 31, 32, 255, 256]),
]
# Some are equal to plain ones, and none can be merged.
OTHER_KEYS: list[Draw] = [lambda chance: chance.choice([True, 1.0, -0.0, 2.5, None, ("a", 1)])]
VALUES: list[Draw] = [
    lambda chance: chance.randrange(1_000),
    lambda chance: chance.choice([None, True, 0.5, 2**64, "y" * 1_020, "y" * 3_000]),
    lambda chance: [chance.randrange(5)],  # can be changed in place
]


class Tasks:
    def __init__(self, folder: Path, chance: random.Random, count: int, keys: list[Draw]) -> None:
        self.store = CheckpointStore(str(folder))
        self.chance, self.count, self.keys = chance, count, keys
        self.parts = PartStore(self.store, "t", {"c": count}, ValueCodec())
        self.epoch, self.generation = 0, 0
        self.merged = 0
        self.complete: ComponentPart | None = None
        self.begin()

    def begin(self) -> None:
        self.generation += 1
        self.states = [KeyedState(GROUPS, ValueCodec()) for _ in range(self.count)]
        self.chains = [Chain() for _ in range(self.count)]
        if self.complete is not None:
            for index, state in enumerate(self.states):
                self.parts.restore_state(self.complete, ("c", index), state)
                self.chains[index] = Chain(self.complete.tasks[index].segments)
        self.shown = [hot(UndoableState(state, ValueCodec())) for state in self.states]

    def call(self) -> None:
        """One call of a bolt, which may fail."""
        chance = self.chance
        key = chance.choice(self.keys)(chance)
        group = key_group(key, GROUPS)
        groups = [groups_of_task(index, self.count, GROUPS) for index in range(self.count)]
        shown = self.shown[next(i for i, mine in enumerate(groups) if group in mine)]
        shown.begin(key)
        for _ in range(chance.randrange(1, 4)):
            if chance.random() < 0.25:
                shown.delete(key)
            else:
                shown.get(key)
                shown.put(key, chance.choice(VALUES)(chance))
        if chance.random() < 0.15:
            shown.undo()
        else:
            shown.end()

    def take(self) -> None:
        """An epoch, which may be given up."""
        chance = self.chance
        self.epoch += 1
        full = chance.random() < 0.1
        found = []
        for index, (state, chain) in enumerate(zip(self.states, self.chains, strict=True)):
            can_merge = self.parts.can_merge(chain.older)
            base = chain.wants_base(state, full=full, can_merge=can_merge)
            older = () if base else chain.older
            merged = can_merge and not base and chain.merges(self.epoch)
            changes = state.snapshot(self.epoch, base=base)
            if chance.random() < 0.85:
                task = ("c", index)
                snapshot = Snapshot(task, self.generation, self.epoch, changes, older, merged)
                part = self.parts.write(snapshot, GROUPS)
                assert not full or {one.epoch for one in part.segments} <= {self.epoch}
                self.merged += merged and part.segments[0].is_base
                chain.wrote(self.epoch, part.segments)
                found.append(part)
        if len(found) == self.count and chance.random() < 0.85:
            self.complete = ComponentPart(GROUPS, tuple(found))
            for state, chain in zip(self.states, self.chains, strict=True):
                if chance.random() < 0.8:  # the others do not hear of it
                    state.completed(self.epoch)
                    chain.completed(self.epoch)
            self.check(self.complete)

    def check(self, complete: ComponentPart) -> None:
        had: dict[Any, Any] = {}
        for state in self.states:
            had |= dict(state.items())
        # (Equal keys of several tasks could not come to one.)
        for count in {self.count, 1 if self.keys is not KEYS else self.chance.choice([1, 2, 4])}:
            others = PartStore(self.store, "t", {"c": count}, ValueCodec())
            restored: dict[Any, Any] = {}
            for index in range(count):
                state = KeyedState(GROUPS, ValueCodec())
                others.restore_state(complete, ("c", index), state)
                restored |= dict(state.items())
            assert restored == had


def test_a_complete_epoch_restores_what_tasks_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "_BASE_BYTES_MIN", 0)
    merged = 0
    for seed in range(120):
        chance = random.Random(seed)
        plain = seed % 3 > 0
        keys = KEYS if plain else KEYS + OTHER_KEYS
        tasks = Tasks(tmp_path / str(seed), chance, chance.choice([1, 2, 3]) if plain else 1, keys)
        for _ in range(chance.randrange(3, 12)):
            for _ in range(chance.randrange(30)):
                tasks.call()
            tasks.take()
            if chance.random() < 0.15:
                tasks.begin()
        merged += tasks.merged
    assert merged > 100
