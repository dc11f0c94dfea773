"""Waiting until submitted topologies run: what `storm jar --wait` does after the entry point.

Nimbus says in a word how each topology is doing (`TopologySummary.health`). `verdict` decides from
that alone whether to go on waiting; the rest asks.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from squall_common.client.nimbus import NimbusClient, run_nimbus
from squall_common.cluster.slot_reports import Condition
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import SquallError
from squall_common.names import is_system_id
from squall_common.topology.error_text import headline

if TYPE_CHECKING:
    from squall_thrift.storm import ErrorInfo

_POLL_SECS = 0.25
# A worker reports why it ended a moment after its supervisor has noticed that it did.
_ERROR_PATIENCE_SECS = 3.0
# An error this much older than the newest one is of an earlier end.
_SAME_STORY_SECS = 30
_ENDED = " ended unexpectedly"  # as supervisors report it

# These do not pass by waiting.
_FINAL = frozenset(
    one.value for one in (Condition.CRASH_LOOP, Condition.PACKAGE_REFUSED, Condition.LAUNCH_FAILED)
)
_HINTS = {
    "no free slot": "end another topology, or give supervisors more supervisor.slots.ports",
    "no supervisor": "start one: storm supervisor",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What Nimbus reports about one topology; `health` is None if it reports none."""

    status: str
    health: str | None


class NotRunningError(SquallError):
    """A topology that does not run, and why."""


def verdict(name: str, seen: Seen, waited_secs: float, limit_secs: float) -> bool:
    """True: every task runs; False: wait on. Raises NotRunningError when waiting is of no use, or
    was long enough."""
    if seen.health == "ok":
        return True
    if seen.health is None:
        raise NotRunningError(
            "this Nimbus does not say whether a topology runs",
            hint="its version is older than this client's; see storm list",
        )
    if seen.status == "KILLED":
        raise NotRunningError(f"topology {name!r} was killed")
    if seen.health in _FINAL:
        raise NotRunningError(f"topology {name!r} does not run: {seen.health}")
    if waited_secs >= limit_secs:
        raise NotRunningError(
            f"topology {name!r} does not run after {limit_secs:g} s: {seen.health}",
            hint=_HINTS.get(seen.health),
        )
    return False


def wait_running(options: ClientOptions, names: Sequence[str], limit_secs: float) -> None:
    """Wait until every task of these topologies runs. Raises NotRunningError with the reason and
    the topology's newest error, and what asking Nimbus raises."""

    async def wait(nimbus: NimbusClient) -> None:
        began = time.monotonic()
        for name in names:
            try:
                while True:
                    seen = await _look(nimbus, name)
                    if verdict(name, seen, time.monotonic() - began, limit_secs):
                        break
                    await asyncio.sleep(_POLL_SECS)
            except NotRunningError as error:
                raise await _explained(nimbus, name, error) from None

    run_nimbus(options, wait)


async def _look(nimbus: NimbusClient, name: str) -> Seen:
    from squall_thrift import storm

    try:
        summary = await nimbus.call("getTopologySummaryByName", name)
    except storm.NotAliveException:
        raise NotRunningError(f"topology {name!r} no longer exists") from None
    return Seen(summary.status, summary.health)


async def _explained(nimbus: NimbusClient, name: str, error: NotRunningError) -> NotRunningError:
    """The error with the reason in it, when the topology has reported one."""
    crashed = any(word in error.message for word in _FINAL)
    deadline = time.monotonic() + (_ERROR_PATIENCE_SECS if crashed else 0.0)
    while True:
        found = reason_of(await _errors(nimbus, name))
        if (found is not None and not found.is_end) or time.monotonic() >= deadline:
            break
        await asyncio.sleep(_POLL_SECS)
    if found is None:
        return error
    return NotRunningError(f"{error.message}\n{found.text}", hint=f"more: storm get-errors {name}")


@dataclass(frozen=True, slots=True)
class Reported:
    """An error that a component, or a supervisor for a worker, reported."""

    time_secs: int
    component: str
    line: str  # that names the error
    place: str = ""  # host:port of the worker, if known

    @classmethod
    def of(cls, component: str, error: ErrorInfo) -> Reported:
        """An error as Nimbus gives it."""
        place = f"{error.host}:{error.port}" if error.host and error.port else ""
        line = headline(error.error) or "unknown error"
        return cls(error.error_time_secs, component, line, place)

    @property
    def text(self) -> str:
        """The error with where it occurred."""
        place = f" on {self.place}" if self.place else ""
        return f"{self.component}{place}: {self.line}"

    @property
    def of_system(self) -> bool:
        """Whether no component of the topology raised it."""
        return is_system_id(self.component)

    @property
    def is_end(self) -> bool:
        """Whether it reports that a worker has ended, which follows from something else."""
        return self.of_system and _ENDED in self.line


def reason_of(errors: Sequence[Reported]) -> Reported | None:
    """The error that says best why a topology does not run: the newest that a component has raised
    lately, otherwise why a worker could not run, and only then that one has ended."""
    if not errors:
        return None
    newest = max(one.time_secs for one in errors)
    return max(
        (one for one in errors if newest - one.time_secs <= _SAME_STORY_SECS),
        key=lambda one: (not one.of_system, not one.is_end, one.time_secs),
    )


async def _errors(nimbus: NimbusClient, name: str) -> list[Reported]:
    """The newest errors of each component."""
    from squall_thrift import storm

    # All: the newest of the system says only that a worker has ended.
    options = storm.GetInfoOptions(num_err_choice=storm.NumErrorsChoice.ALL)
    try:
        info = await nimbus.call("getTopologyInfoByNameWithOpts", name, options)
    except storm.NotAliveException:
        return []
    return [
        Reported.of(component, error)
        for component, errors in (info.errors or {}).items()
        for error in errors
    ]
