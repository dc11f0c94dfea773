"""What topologies did within the last ten minutes and what is wrong with them, for `storm list`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from squall_cli.cluster.nimbus import ask_nimbus
from squall_common.client.waiting import Reported, reason_of
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusError

if TYPE_CHECKING:
    from squall_common.client.nimbus import NimbusClient
    from squall_common.telemetry.findings import HeldWorker
    from squall_thrift import storm

WINDOW_SECS = 600
_WINDOW = str(WINDOW_SECS)
_AT_ONCE = 8  # topologies that are asked about at the same time
# Values of HEALTH that need no explanation.
_WELL = frozenset({"", "ok", "starting"})


@dataclass(frozen=True, slots=True)
class Activity:
    """Counts of one topology within `secs`, which is shorter than the window if it began later."""

    secs: int
    emitted: int
    acked: int  # messages of spouts, like `failed`
    failed: int
    complete_ms: float | None  # None: no message was acked

    @property
    def emitted_per_sec(self) -> float:
        return round(self.emitted / self.secs, 1)

    @property
    def acked_per_sec(self) -> float:
        return round(self.acked / self.secs, 1)


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something is wrong. `component` and `time_secs` are None if no component reported it."""

    reason: str
    component: str | None = None
    time_secs: int | None = None  # since 1970


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known beyond a topology's summary. `activity` is None if Nimbus cannot say."""

    activity: Activity | None = None
    problem: Problem | None = None
    finished: bool | None = None  # all input is read, and nothing is in flight


def activity_of(page: storm.TopologyPageInfo) -> Activity:
    """The counts on a topology's page."""
    from squall_thrift import storm

    stats = page.topology_stats or storm.TopologyStats()
    oldest = max([one.uptime_secs or 0 for one in page.workers or ()], default=0)
    acked = (stats.window_to_acked or {}).get(_WINDOW, 0)
    latency = (stats.window_to_complete_latencies_ms or {}).get(_WINDOW, 0.0)
    return Activity(
        secs=max(1, min(WINDOW_SECS, oldest)),
        emitted=(stats.window_to_emitted or {}).get(_WINDOW, 0),
        acked=acked,
        failed=(stats.window_to_failed or {}).get(_WINDOW, 0),
        complete_ms=round(latency, 1) if acked else None,
    )


def held_of(page: storm.TopologyPageInfo) -> Sequence[HeldWorker]:
    """The workers in which nothing runs, because of a call that does not return."""
    from squall_common.telemetry.findings import HeldWorker

    found = [
        HeldWorker.of(
            f"{one.host}:{one.port}",
            None if one.usage is None else one.usage.loop_lag_ms,
            one.component_to_num_tasks or {},
        )
        for one in page.workers or ()
    ]
    return [one for one in found if one is not None]


def is_wrong(
    summary: storm.TopologySummary,
    activity: Activity | None,
    held: Sequence[HeldWorker] = (),
) -> bool:
    """Whether a reason is wanted: tasks do not run, messages fail, workers end unexpectedly, or
    calls do not return."""
    failed = activity is not None and activity.failed > 0
    return (summary.health or "") not in _WELL or failed or bool(summary.restarts) or bool(held)


def problem_of(
    summary: storm.TopologySummary,
    activity: Activity | None,
    errors: Mapping[str, Sequence[storm.ErrorInfo]],
    held: Sequence[HeldWorker] = (),
) -> Problem:
    """The reason to show: of what was reported, the cause rather than its effects."""
    found = reason_of([Reported.of(name, one) for name, some in errors.items() for one in some])
    if found is not None:
        return Problem(found.line, found.component, found.time_secs)
    if (summary.health or "") not in _WELL:
        return Problem(summary.sched_status or summary.health or "")
    if held:
        one = held[0]
        return Problem(f"a call in worker {one.worker} has not returned for {one.secs:.0f} s")
    if activity is not None and activity.failed:
        return Problem("messages failed or timed out, and no component reported an error")
    return Problem("a worker ended unexpectedly")


def read_topologies(
    options: ClientOptions,
) -> list[tuple[storm.TopologySummary, Findings]]:
    """All topologies with what is known about them, by name, over one connection. Raises
    NimbusError."""

    async def ask(client: NimbusClient) -> list[tuple[storm.TopologySummary, Findings]]:
        summaries = sorted(await client.call("getTopologySummaries"), key=lambda one: one.name)
        turns = asyncio.Semaphore(_AT_ONCE)

        async def find(summary: storm.TopologySummary) -> Findings:
            async with turns:
                return await _find(client, summary)

        found = await asyncio.gather(*map(find, summaries))
        return list(zip(summaries, found, strict=True))

    return ask_nimbus(options, ask, "getTopologySummaries")


async def _find(client: NimbusClient, summary: storm.TopologySummary) -> Findings:
    """Ask for what the summary does not say. What Nimbus cannot answer is left out: the topology
    may have ended, or its code may not be on this Nimbus."""
    from squall_thrift import storm
    from squall_thrift.client import ThriftApplicationError

    activity, problem, finished = None, None, None
    held: Sequence[HeldWorker] = ()
    try:
        page = await client.call("getTopologyPageInfo", summary.id, _WINDOW, False)
        activity, held, finished = activity_of(page), held_of(page), page.finished
        if is_wrong(summary, activity, held):
            options = storm.GetInfoOptions(num_err_choice=storm.NumErrorsChoice.ALL)
            info = await client.call("getTopologyInfoWithOpts", summary.id, options)
            problem = problem_of(summary, activity, info.errors or {}, held)
    except (
        NimbusError,
        ThriftApplicationError,
        storm.NotAliveException,
        storm.AuthorizationException,
    ):
        if problem is None and is_wrong(summary, activity, held):
            problem = problem_of(summary, activity, {}, held)
    return Findings(activity, problem, finished)
