"""Segments are deleted while snapshots are written, given up, completed and confirmed late, and
while a savepoint is copied: what the last complete epoch needs is always there, and the copy's."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from squall_common.state.key_groups import groups_of_task, key_group
from squall_common.state.keyed import KeyedState
from squall_common.state.manifest import ComponentPart, Manifest
from squall_engine.core.codec import ValueCodec
from squall_engine.epochs import parts
from squall_engine.epochs.parts import Chain, PartStore, Snapshot

TASKS, GROUPS = 2, 8
SHAPE = {"count": TASKS}
KEYS = [
    [key for key in range(20) if key_group(key, GROUPS) in groups_of_task(index, TASKS, GROUPS)][:6]
    for index in range(TASKS)
]


class Store:
    """A `CheckpointStore` in memory."""

    url = "memory"
    is_local = True

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}

    def put(self, name: str, data: bytes | Sequence[bytes]) -> None:
        self.files[name] = data if isinstance(data, bytes) else b"".join(data)

    def get_part(self, name: str, start: int, length: int) -> bytes:
        data = self.find(name)
        return data[start:] if start < 0 else data[start : start + length]

    def find(self, name: str) -> bytes:
        if name not in self.files:
            raise FileNotFoundError(name)
        return self.files[name]

    def names(self, folder: str) -> list[str]:
        inner = (name.removeprefix(f"{folder}/") for name in self.files if name.startswith(folder))
        return sorted({name.partition("/")[0] for name in inner})

    def delete(self, name: str) -> None:
        self.files.pop(name, None)


class Topology:
    """Two tasks with state, as coordinator and workers treat them."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.store: Any = Store()
        self.parts = PartStore(self.store, "t", SHAPE, ValueCodec())
        self.generation, self.epoch = 0, 0
        self.merged = 0  # bases that were made of segments
        self.complete: tuple[Manifest, list[dict[Any, Any]]] | None = None
        self.pinned: tuple[Manifest, list[dict[Any, Any]]] | None = None
        self.unheard: list[list[int]] = []  # by task: complete epochs of which it does not know
        self.start()

    def start(self) -> None:
        """A new generation, from the last complete epoch."""
        self.generation += 1
        self.unheard = [[] for _ in range(TASKS)]
        self.states = [KeyedState(GROUPS, ValueCodec()) for _ in range(TASKS)]
        self.chains = [Chain() for _ in range(TASKS)]
        if self.complete is not None:
            manifest = self.complete[0]
            for index, state in enumerate(self.states):
                self.restore(manifest, index, state)
                segments = manifest.components["count"].tasks[index].segments
                self.chains[index] = Chain(segments)

    def restore(self, manifest: Manifest, index: int, state: KeyedState) -> None:
        self.parts.restore_state(manifest.components["count"], ("count", index), state)

    def change(self) -> None:
        for state, keys in zip(self.states, KEYS, strict=True):
            for _ in range(self.chance.randrange(4)):
                key = self.chance.choice(keys)
                state.current = key
                if self.chance.random() < 0.8:
                    state.put(key, "x" * self.chance.randrange(40))
                else:
                    state.delete(key)

    def take(self) -> None:
        """An epoch: each task writes its snapshot, or does not get to it."""
        self.epoch += 1
        full = self.chance.random() < 0.1
        found, expected = [], []
        for index, state in enumerate(self.states):
            chain = self.chains[index]
            can_merge = self.parts.can_merge(chain.older)
            base = chain.wants_base(state, full=full, can_merge=can_merge)
            older = () if base else chain.older
            merged = can_merge and not base and chain.merges(self.epoch)
            changes = state.snapshot(self.epoch, base=base)
            expected.append(dict(state.items()))
            if self.chance.random() < 0.85:
                task = ("count", index)
                snapshot = Snapshot(task, self.generation, self.epoch, changes, older, merged)
                part = self.parts.write(snapshot, GROUPS)
                self.merged += merged and part.segments[0].epoch == self.epoch
                chain.wrote(self.epoch, part.segments)
                found.append(part)
        if len(found) == TASKS and self.chance.random() < 0.85:
            components = {"count": ComponentPart(GROUPS, tuple(found))}
            manifest = Manifest("t", self.generation, self.epoch, components)
            self.complete = manifest, expected
            for epochs in self.unheard:
                epochs.append(self.epoch)

    def hear(self) -> None:
        """Some tasks hear of complete epochs: late, of some again, and of others never."""
        for index, epochs in enumerate(self.unheard):
            while epochs and self.chance.random() < 0.5:
                epoch = epochs.pop(0)
                for _ in range(self.chance.randrange(3)):
                    self.states[index].completed(epoch)
                    self.chains[index].completed(epoch)

    def collect(self) -> None:
        if self.complete is not None:
            manifest, pinned = self.complete[0], None if self.pinned is None else self.pinned[0]
            self.parts.collect(manifest.generation, manifest.epoch, manifest, pinned)

    def check(self, kept: Iterable[tuple[Manifest, list[dict[Any, Any]]] | None]) -> None:
        for manifest, expected in filter(None, kept):
            for index in range(TASKS):
                state = KeyedState(GROUPS, ValueCodec())
                self.restore(manifest, index, state)
                assert dict(state.items()) == expected[index]


@pytest.fixture(autouse=True)
def small_bases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "_BASE_BYTES_MIN", 100)
    monkeypatch.setattr(parts, "SEGMENTS_MAX", 5)


def test_what_a_kept_epoch_needs_is_never_deleted() -> None:
    deleted = merged = 0
    for seed in range(80):
        topology = Topology(seed)
        for _ in range(25):
            topology.change()
            topology.take()
            topology.hear()
            if topology.chance.random() < 0.2:
                topology.pinned = topology.complete if topology.pinned is None else None
            before = len(topology.store.files)
            if topology.chance.random() < 0.8:
                topology.collect()
            deleted += before - len(topology.store.files)
            topology.check([topology.complete, topology.pinned])
            if topology.chance.random() < 0.05:
                topology.start()
        merged += topology.merged
    assert deleted > 80
    assert merged > 80
