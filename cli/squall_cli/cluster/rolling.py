"""Restarts workers one at a time: each drains, exits, is started again by its supervisor, and runs
before the next one is touched."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

from squall_cli.cluster.nimbus import NotAliveError, call_nimbus
from squall_cli.cluster.worker_requests import failures, is_pending, reason_of, send
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import SquallError

_POLL_SECS = 0.2
# A worker's age and the time are reported in whole seconds: two lives of one slot that began less
# than two seconds apart cannot be distinguished.
_DISTINCT_SECS = 2


@dataclass(frozen=True, slots=True)
class Life:
    """One life of the worker in a slot, as the worker reports it."""

    began: int  # seconds since the epoch, by its node's clock; one second more or less
    age_secs: int

    @classmethod
    def of(cls, worker: Any) -> Life | None:
        """None: no worker of the topology has reported from this slot yet."""
        if not worker.time_secs:
            return None
        return cls(worker.time_secs - worker.uptime_secs, worker.uptime_secs)

    def follows(self, before: Life | None) -> bool:
        """Whether this is another life than the one before. (A clock that is set makes a worker
        look younger, but does not take from its age.)"""
        if before is None:
            return True
        return self.began - before.began >= _DISTINCT_SECS and self.age_secs <= before.age_secs + 1


@dataclass(slots=True)
class Turn:
    """A worker's turn, with its result."""

    topology: str
    worker: str
    supervisor_id: str
    port: int
    before: Life | None
    result: str = "waiting"  # restarted, moved, new already, gone, failed
    secs: float | None = None  # until it ran again
    error: str | None = None


class RollingRestart:
    """`turns` in order; `run` goes through them. A failure ends it: the others keep running."""

    def __init__(self, client: ClientOptions, *, timeout_secs: float) -> None:
        self._client = client
        self._timeout_secs = timeout_secs
        self.turns: list[Turn] = []

    def plan(self, topologies: Sequence[str], hosts: Collection[str], *, named: bool) -> None:
        """Note the workers of the topologies, only those on `hosts` if it is not empty. Raises
        SquallError when one cannot be restarted: then nothing has begun. One that is killed is an
        error only when it was named."""
        known = {
            one.supervisor_id for one in call_nimbus(self._client, "getClusterInfo").supervisors
        }
        away = []
        for name in topologies:
            try:
                workers = self._workers(name)
            except NotAliveError:
                if named:
                    raise
                continue
            for worker in workers:
                if hosts and worker.host not in hosts:
                    continue
                place = f"{worker.host}:{worker.port}"
                if worker.supervisor_id not in known:
                    away.append(place)
                life = Life.of(worker)
                self.turns.append(Turn(name, place, worker.supervisor_id, worker.port, life))
        if away:
            raise SquallError(
                f"{', '.join(away)} could not be started again: no supervisor is known there",
                hint="Start the supervisor, or wait until Nimbus moves the work to other nodes.",
            )

    def run(self, report: Callable[[int, Turn], None]) -> None:
        """Restart one after the other; `report` gets each with its number when it is over. Raises
        SquallError when one does not come back: those after it were not touched."""
        for number, turn in enumerate(self.turns, start=1):
            began = time.monotonic()
            try:
                turn.result = self._take(turn, began + self._timeout_secs)
            except NotAliveError:
                turn.result = "gone"
            except SquallError as error:
                turn.result, turn.error = "failed", error.message
                report(number, turn)
                raise
            if turn.result == "restarted":
                turn.secs = round(time.monotonic() - began, 1)
            report(number, turn)

    def _take(self, turn: Turn, deadline: float) -> str:
        """Its result."""
        from squall_thrift import storm

        while True:
            worker = self._find(turn)
            if worker is None:
                return "moved"  # and so started after we had begun
            life = Life.of(worker)
            if life is not None and turn.before is not None and life.follows(turn.before):
                return "new already"
            if life is not None and life.age_secs >= _DISTINCT_SECS:
                break
            self._pause(turn, deadline, "it was not running yet")
        turn.before = life
        stamp_ms = int(time.time() * 1000)
        request = send(self._client, worker, storm.ProfileAction.JVM_RESTART, stamp_ms)
        while is_pending(self._client, request):
            self._pause(
                turn, deadline, "its supervisor has not carried out the restart yet, but still may"
            )
        reason = reason_of(request, failures(self._client, turn.topology))
        if reason is not None:
            raise SquallError(f"{turn.worker} of {turn.topology} was not restarted: {reason}")
        while True:
            worker = self._find(turn)
            if worker is None:
                return "moved"
            life = Life.of(worker)
            if life is not None and life.follows(turn.before):
                return "restarted"
            self._pause(turn, deadline, "it was not running again")

    def _pause(self, turn: Turn, deadline: float, reason: str) -> None:
        if time.monotonic() >= deadline:
            raise SquallError(
                f"{turn.worker} of {turn.topology}: after {self._timeout_secs:g} s {reason}",
                hint=f"'storm get-errors {turn.topology}' and the worker's log may show why; "
                "the remaining workers were not touched",
            )
        time.sleep(_POLL_SECS)

    def _find(self, turn: Turn) -> Any:
        """The worker as it is now; None when its slot no longer belongs to the topology."""
        return next(
            (
                one
                for one in self._workers(turn.topology)
                if (one.supervisor_id, one.port) == (turn.supervisor_id, turn.port)
            ),
            None,
        )

    def _workers(self, topology: str) -> list[Any]:
        """Raises NotAliveError."""
        summary = call_nimbus(self._client, "getTopologySummaryByName", topology)
        if summary.status == "KILLED":
            raise NotAliveError(f"{topology} is being killed")
        page = call_nimbus(self._client, "getTopologyPageInfo", summary.id, ":all-time", True)
        return sorted(page.workers or [], key=lambda one: (one.host or "", one.port or 0))
