"""Switches features off that the engine does not let one switch off, to see what they cost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from squall_worker.engine.engine import Engine
from squall_worker.engine.executors import SpoutTask, SyncBolt
from squall_worker.engine.stats import TaskCounts


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _metrics() -> None:
    """Latencies (the counts themselves are taken by the batch, and checked)."""
    TaskCounts.processed = _nothing  # type: ignore[method-assign]


def _time_outs() -> None:
    init = Engine.__init__

    def without(self: Engine, topology: Any, conf: Any, **kwargs: Any) -> None:
        init(self, topology, {**conf, "topology.enable.message.timeouts": False}, **kwargs)

    Engine.__init__ = without  # type: ignore[method-assign]


def _acks_to_the_spout() -> None:
    """The calls of the user's ack(): counted in one go instead."""

    def call_user(self: SpoutTask, what: str, message_ids: Any) -> None:
        self.user.done += len(message_ids)

    SpoutTask.call_user = call_user  # type: ignore[method-assign]


def _slices() -> None:
    """The clock and the latencies around each slice of a batch."""

    def run(self: SyncBolt, deadline: float) -> bool:
        while self.inbox:
            batch = self.inbox.popleft()
            n = len(batch)
            self.queued -= n
            self.counts.add(self.counts.executed, batch.source.key, n)
            self.calls.run(batch, n)
        return True

    SyncBolt.run = run  # type: ignore[method-assign]


STUBS: dict[str, Callable[[], None]] = {
    "latencies": _metrics,
    "time_outs": _time_outs,
    "slices": _slices,
    "calls_of_ack": _acks_to_the_spout,
}


def apply(name: str) -> None:
    STUBS[name]()
