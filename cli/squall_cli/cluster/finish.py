"""Waits until a topology has finished: its sources have ended, and nothing is in flight.

Nimbus decides that (`TopologyPageInfo.finished`). What can be said of one answer is decided by
`state_of`; the rest asks again and again.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from squall_cli.cluster.nimbus import NotAliveError, ask_nimbus, is_refusal
from squall_cli.output import say
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusError, SquallError

if TYPE_CHECKING:
    from squall_common.client.nimbus import NimbusClient
    from squall_thrift import storm

_WINDOW = "600"
_FOREVER_SECS = 3600.0
_LOOK_SECS = 1.0
_LOOK_SHARE = 10  # a look that takes Nimbus long is made less often
# So long Nimbus may be away meanwhile, as when another one takes the lead.
_AWAY_SECS = 120.0
_WELL = frozenset({"", "ok"})
_PASSES = "starting"  # of itself


class NotFinishedError(SquallError):
    """A topology that has not finished in time, or never will."""


@dataclass(frozen=True, slots=True)
class State:
    """How far a topology is. `missing` says in words what it waits for; empty: it has finished."""

    missing: str
    all_ended: bool = False  # all sources have ended
    trouble: str = ""  # its health, if it is not well


def state_of(
    name: str, summary: storm.TopologySummary, page: storm.TopologyPageInfo | None
) -> State:
    """From what Nimbus says; `page` is None if it cannot say. Raises NotFinishedError if it never
    finishes."""
    if summary.status == "KILLED":
        raise NotFinishedError(f"topology {name!r} is being killed, and has not finished")
    if page is not None and page.finished:
        return State("")
    spouts = {} if page is None else page.id_to_spout_agg_stats or {}
    endless = sorted(one for one, stats in spouts.items() if _ended(stats) is None)
    if endless:
        names = ", ".join(endless)
        which = f"spout {names} does" if len(endless) == 1 else f"spouts {names} do"
        raise NotFinishedError(
            f"{which} not say whether the source ends, so topology {name!r} cannot be waited for",
            hint="define exhausted() in the class of the spout; LinesSpout takes follow=False",
        )
    if summary.status != "ACTIVE":
        return State(f"it is {summary.status}")
    if (summary.health or "") not in _WELL:
        return State(f"its health is: {summary.health}", trouble=summary.health or "")
    if not spouts:
        return State("Nimbus does not know its spouts yet")
    reading = [
        f"{one} ({_ended(stats)} of {_tasks(stats)} tasks have ended)"
        for one, stats in sorted(spouts.items())
        if (_ended(stats) or 0) < _tasks(stats)
    ]
    if reading:
        return State(f"spouts have more to read: {', '.join(reading)}")
    pending = sum(map(_pending, spouts.values()))
    if pending:
        return State(f"{pending:,} messages are in flight", all_ended=True)
    if page is not None and page.checkpoints is not None:
        return State("no checkpoint is complete since all input was read", all_ended=True)
    return State("a worker has something in flight, or has not reported lately", all_ended=True)


def _ended(stats: storm.ComponentAggregateStats) -> int | None:
    spout = None if stats.specific_stats is None else stats.specific_stats.spout
    return None if spout is None else spout.exhausted_tasks


def _tasks(stats: storm.ComponentAggregateStats) -> int:
    return (stats.common_stats and stats.common_stats.num_tasks) or 0


def _pending(stats: storm.ComponentAggregateStats) -> int:
    return (stats.common_stats and stats.common_stats.queue_tuples) or 0


class _Wait:
    """One wait, over as many connections to Nimbus as it takes."""

    def __init__(self, name: str, timeout_secs: float | None) -> None:
        self._name = name
        self._timeout_secs = timeout_secs
        self._began = self._answered = time.monotonic()
        self._topology_id: str | None = None
        self._state = State("Nimbus has not answered")
        self._trouble = ""

    def run(self, options: ClientOptions) -> float:
        """Wait. Returns the seconds that it took. Raises NotFinishedError and NimbusError."""
        while True:
            try:
                ask_nimbus(options, self._follow, "getTopologyPageInfo")
                return time.monotonic() - self._began
            except NotAliveError as error:
                if self._topology_id is None:
                    raise
                raise self._gone("was removed") from error
            except NimbusError:
                away_secs = time.monotonic() - self._answered
                if self._topology_id is None or away_secs > _AWAY_SECS or self._is_over():
                    raise
                time.sleep(_LOOK_SECS)

    async def _follow(self, client: NimbusClient) -> None:
        while True:
            began = time.monotonic()
            self._state = await self._look(client)
            if not self._state.missing:
                return
            self._answered = time.monotonic()
            self._notice(self._state.trouble)
            if self._is_over():
                raise NotFinishedError(
                    f"topology {self._name!r} has not finished in {self._timeout_secs:g} s: "
                    f"{self._state.missing}",
                    hint=f"storm status {self._name} shows how far it is",
                )
            pause = max(_LOOK_SECS, _LOOK_SHARE * (self._answered - began))
            await asyncio.sleep(min(pause, self._left_secs()))

    async def _look(self, client: NimbusClient) -> State:
        from squall_thrift.client import ThriftApplicationError

        summary = await client.call("getTopologySummaryByName", self._name)
        if self._topology_id not in (None, summary.id):
            raise self._gone("was removed, and another one has its name")
        self._topology_id = summary.id
        try:
            page = await client.call("getTopologyPageInfo", summary.id, _WINDOW, False)
            state = state_of(self._name, summary, page)
            if state.all_ended and state.missing:
                # Its workers report more often while somebody watches.
                await client.call("watchTopology", summary.id)
            return state
        except ThriftApplicationError as error:
            if not is_refusal(error):
                raise
            return state_of(self._name, summary, None)  # its code is not there yet

    def _notice(self, trouble: str) -> None:
        """Say once that the topology has a trouble, which may pass."""
        if trouble not in ("", _PASSES, self._trouble):
            say(f"{self._name} is not well: {trouble}. storm status {self._name} says more.")
        self._trouble = trouble

    def _gone(self, what: str) -> NotFinishedError:
        return NotFinishedError(f"topology {self._name!r} {what} before it had finished")

    def _left_secs(self) -> float:
        if self._timeout_secs is None:
            return _FOREVER_SECS
        return max(0.0, self._began + self._timeout_secs - time.monotonic())

    def _is_over(self) -> bool:
        return self._left_secs() <= 0


def wait_finished(options: ClientOptions, name: str, timeout_secs: float | None) -> float:
    """Wait until a topology has finished, at most `timeout_secs`. Returns the seconds that it took.
    Raises NotFinishedError at the timeout, if the topology is killed meanwhile, and if a spout does
    not say whether its source ends; NotAliveError if there is none of this name; NimbusError."""
    return _Wait(name, timeout_secs).run(options)
