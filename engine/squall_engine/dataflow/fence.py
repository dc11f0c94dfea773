"""Keeps generations of a topology with checkpoints apart on the links between its workers.

A worker process runs its tasks in one *generation*: a rollback replaces the process's image, and
with it all its links. So it says once in each pair of sessions, before the first tuples, which
generation they belong to; a receiver drops whatever comes from another one.

Barriers travel behind the tuples that they close off. Each says how many sections of tuples were
sent before it, and a receiver that has taken another number does not accept it: whatever was lost,
wherever that was, cannot get into a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from squall_common.topology.model import WorkerSlot
from squall_engine.core.sections import EPOCHS, METRICS, TRACES, TUPLES

_KIND = bytes([EPOCHS])
_FREE = frozenset({METRICS, TRACES})  # they belong to no generation
_ENTER = "enter"
_BARRIER = "barrier"
_encode = msgspec.msgpack.Encoder().encode
_decode_enter = msgspec.msgpack.Decoder(tuple[str, int]).decode
_decode_barrier = msgspec.msgpack.Decoder(tuple[str, int, str, int, int, bool, int]).decode
# As they begin, after the kind: an array of so many items, and a short string.
_ENTER_HEAD = _KIND + _encode([_ENTER, 0])[:-1]
_BARRIER_HEAD = _KIND + _encode([_BARRIER, 0, "", 0, 0, False, 0])[: 2 + len(_BARRIER)]


class Barrier(NamedTuple):
    """A task, named by component and index, has taken its snapshot of an epoch."""

    component: str
    task_index: int
    epoch: int
    full: bool


class Fence:
    """The generation of one worker's tasks. `on_barrier` gets the barriers of other workers'
    tasks, `on_gap` the reason why nothing of this generation can be trusted any more."""

    def __init__(self, generation: int, routes: Mapping[int, WorkerSlot]) -> None:
        """`routes`: where every task of the topology runs in this generation."""
        self.generation = generation
        self.routes = routes
        self.is_open = False  # whether anything may leave
        self.on_barrier: Callable[[Barrier], None] | None = None
        self.on_gap: Callable[[str], None] | None = None
        self._sent: dict[WorkerSlot, int] = {}  # sections of tuples, since we said who we are
        self._barriers: dict[WorkerSlot, list[Barrier]] = {}
        self._taken: dict[WorkerSlot, tuple[object, int]] = {}  # sessions, sections of tuples
        self.dropped = 0  # sections of other generations

    # -- out --

    @property
    def has_barriers(self) -> bool:
        """Whether barriers wait to be sent."""
        return bool(self._barriers)

    def add_barrier(self, slot: WorkerSlot, barrier: Barrier) -> None:
        """Send a barrier to a worker, behind what this turn has for it."""
        self._barriers.setdefault(slot, []).append(barrier)

    def waiting(self) -> list[WorkerSlot]:
        """The workers for which there are barriers."""
        return list(self._barriers)

    def enclose(self, slot: WorkerSlot, tuples: list[bytes]) -> list[bytes]:
        """What to send to a worker: sections of tuples, with what goes before and after them."""
        ahead: list[bytes] = []
        if slot not in self._sent:
            self._sent[slot] = 0
            ahead = [_KIND + _encode([_ENTER, self.generation])]
        sent = self._sent[slot] = self._sent[slot] + len(tuples)
        behind = [
            _KIND + _encode([_BARRIER, self.generation, *barrier, sent])
            for barrier in self._barriers.pop(slot, ())
        ]
        return [*ahead, *tuples, *behind]

    def session_began(self, slot: WorkerSlot) -> None:
        """A new pair of sessions: say again which generation we are."""
        self._sent.pop(slot, None)

    # -- in --

    def admits(self, slot: WorkerSlot, sessions: object, section: bytes) -> bool:
        """Whether a section belongs to this generation. Takes barriers, and what a worker says of
        its own generation: for these it returns False, as nothing is left to do."""
        kind = section[0] if section else 0
        if kind in _FREE:
            return True
        if section.startswith(_ENTER_HEAD):
            _, generation = _decode_enter(memoryview(section)[1:])
            if generation == self.generation:
                self._taken[slot] = (sessions, 0)
            else:
                self._taken.pop(slot, None)
            return False
        if section.startswith(_BARRIER_HEAD):
            self._receive_barrier(slot, sessions, section)
            return False
        if kind == EPOCHS:
            return True
        known, count = self._taken.get(slot, (None, 0))
        if known != sessions:
            self.dropped += 1
            return False
        if kind == TUPLES:
            self._taken[slot] = (sessions, count + 1)
        return True

    def _receive_barrier(self, slot: WorkerSlot, sessions: object, section: bytes) -> None:
        _, generation, component, index, epoch, full, sent = _decode_barrier(
            memoryview(section)[1:]
        )
        if generation != self.generation:
            self.dropped += 1
            return
        known, count = self._taken.get(slot, (None, 0))
        if known != sessions or count != sent:
            self.lost(f"{sent} sections of tuples were sent by {slot}, and {count} have come")
        elif self.on_barrier is not None:
            self.on_barrier(Barrier(component, index, epoch, full))

    def lost(self, reason: str) -> None:
        """Something of this generation will not arrive."""
        if self.on_gap is not None:
            self.on_gap(reason)
