"""Switches off features that the engine always has, to measure their cost. For the benchmark only:
`apply` changes the classes of this process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class Stub:
    """`patch` changes classes of the engine, whose modules must be those in Python. `cuts` changes
    the compiled core (`bench.variants`; without them the stub is for either core)."""

    title: str
    patch: Callable[[], None] | None = None
    cuts: Sequence[str] = ()
    workers: int = 1  # how many it takes to see it


def _nothing(*_: Any, **__: Any) -> None:
    pass


def _statistics() -> None:
    """No counts, no latencies, and no clock around each slice of a batch."""
    from squall_engine.core.stats import TaskCounts
    from squall_engine.tasks.bolt import SyncBolt

    def run(self: SyncBolt, deadline: float) -> bool:
        while (batch := self.take(self.inbox.queued)) is not None:
            self.calls.run(batch, len(batch))
        return True

    SyncBolt.run = run  # type: ignore[method-assign]
    for name in ("add", "executed_many", "processed"):
        setattr(TaskCounts, name, _nothing)


def _time_outs() -> None:
    from squall_engine.engine import Engine
    from squall_engine.settings import EngineSettings

    init = Engine.__init__

    def without(self: Engine, settings: EngineSettings, *args: Any, **kwargs: Any) -> None:
        prepared = settings.prepared
        conf = {**prepared.conf, "topology.enable.message.timeouts": False}
        init(self, replace(settings, prepared=replace(prepared, conf=conf)), *args, **kwargs)

    Engine.__init__ = without  # type: ignore[method-assign]


def _calls_of_ack() -> None:
    """The calls of the user's ack(): counted in one go instead."""
    from squall_engine.tasks.spout import SpoutTask

    def call_user(self: SpoutTask, what: str, message_ids: Any) -> None:
        self.user.done += len(message_ids)

    SpoutTask.call_user = call_user  # type: ignore[method-assign]


def _sequence_numbers() -> None:
    from bench.bare import BareTransport
    from squall_worker.transport import zmq

    zmq.ZmqTransport = BareTransport  # type: ignore[assignment,misc]
    _credit()  # which counts on them


def _credit() -> None:
    """Unlimited credit that is not counted."""
    from squall_engine.backpressure import credit

    credit.FLOOR_BYTES = 1 << 62
    credit.Account.take = _nothing  # type: ignore[method-assign]


STUBS: dict[str, Stub] = {
    "statistics": Stub("metrics: counts, latencies, the clock around a slice", _statistics),
    "time_outs": Stub("message timeouts", _time_outs),
    "errors": Stub("errors handled, values checked against fields", cuts=["errors"]),
    "several_anchors": Stub("several anchors allowed", cuts=["several_anchors"]),
    "state": Stub("what a topology without state pays for it", cuts=["state"]),
    "calls_of_ack": Stub("the user's `ack` called for each message", _calls_of_ack),
    "credit": Stub("byte credit between workers", _credit, workers=2),
    "sequence_numbers": Stub(
        "sequence numbers and credit: frames kept, acknowledged, resent",
        _sequence_numbers,
        workers=2,
    ),
}


def cuts_of(names: Sequence[str]) -> list[str]:
    """Those that the compiled core needs for these stubs."""
    return [cut for name in names for cut in STUBS[name].cuts]


def apply(names: Sequence[str]) -> None:
    for name in names:
        patch = STUBS[name].patch
        if patch is not None:
            patch()
