"""`storm list`: the topologies that the cluster runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import duration, print_json, print_table, say

if TYPE_CHECKING:
    from squall_cli.cluster.activity import Findings
    from squall_thrift import storm

_COLUMNS = (
    "NAME", "STATUS", "HEALTH", "EMITTED/S", "ACKED/S", "LATENCY", "FAILED", "RESTARTS",
    "TASKS", "EXECUTORS", "WORKERS", "UPTIME", "ID", "OWNER",
)  # fmt: skip


@click.command("list")
@json_option
@settings_options
def command(settings: Settings, as_json: bool) -> None:
    """List the topologies, with status, health, rates and size.

    HEALTH is `ok` when every task runs, and `finished` when the topology has also read all of its
    input, and nothing is in flight (`storm wait`); otherwise it gives the reason: `starting`,
    `no free slot`, `no supervisor`, `crash loop`, `package refused`, `launch failed`,
    `waiting for blobs`, `supervisor away`. `storm get-errors NAME` shows details.

    EMITTED/S, ACKED/S, LATENCY (from a spout's emit to its ack) and FAILED (messages) are those of
    the last ten minutes; RESTARTS counts workers that ended unexpectedly within a day.

    Lines below the table show the newest error of each topology in which something is wrong, and
    the last worker that ended unexpectedly.
    """
    from squall_cli.cluster.activity import read_topologies
    from squall_cli.cluster.nimbus import call_nimbus

    client = settings.client()
    found = read_topologies(client)
    if as_json:
        print_json([_as_json(topology, findings) for topology, findings in found])
        return
    for node in call_nimbus(client, "getClusterInfo").supervisors:
        if node.unhealthy:
            say(f"Node {node.host} is unhealthy and gets no work: {node.unhealthy}")
    if not found:
        say("No topologies are running.")
        return
    print_table(_COLUMNS, (_row(topology, findings) for topology, findings in found))
    now = time.time()
    problems = [(one.name, findings.problem) for one, findings in found if findings.problem]
    if problems:
        click.echo()
        print_table(
            ("PROBLEM", "COMPONENT", "AGO", "REASON"),
            (
                (name, problem.component or "", _ago(problem.time_secs, now), problem.reason)
                for name, problem in problems
            ),
        )
    ended = [(one.name, one.last_exit) for one, _ in found if one.last_exit is not None]
    if ended:
        click.echo()
        print_table(
            ("UNEXPECTED EXIT", "AGO", "WORKER", "REASON", "LAST LINE"),
            (
                (
                    name,
                    _ago(last.time_secs, now),
                    f"{last.host}:{last.port}",
                    last.reason,
                    last.last_line,
                )
                for name, last in ended
            ),
        )


def _ago(time_secs: int | None, now: float) -> str:
    return "" if time_secs is None else duration(max(0, int(now - time_secs)))


def _row(topology: storm.TopologySummary, findings: Findings) -> tuple[object, ...]:
    from squall_cli.observe.screen import condition

    activity = findings.activity
    latency = None if activity is None else activity.complete_ms
    return (
        topology.name,
        topology.status,
        condition(topology.health, findings.finished),
        "" if activity is None else f"{activity.emitted_per_sec:g}",
        "" if activity is None else f"{activity.acked_per_sec:g}",
        "" if latency is None else f"{latency:.0f} ms",
        "" if activity is None else activity.failed,
        topology.restarts or 0,
        topology.num_tasks,
        topology.num_executors,
        topology.num_workers,
        duration(topology.uptime_secs),
        topology.id,
        topology.owner or "",
    )


def _as_json(topology: storm.TopologySummary, findings: Findings) -> dict[str, Any]:
    """As docs/json.md describes it."""
    activity, problem = findings.activity, findings.problem
    return {
        "name": topology.name,
        "status": topology.status,
        "health": topology.health,
        "finished": findings.finished,
        "activity": None
        if activity is None
        else {
            "secs": activity.secs,
            "emitted_per_sec": activity.emitted_per_sec,
            "acked_per_sec": activity.acked_per_sec,
            "failed": activity.failed,
            "complete_ms": activity.complete_ms,
        },
        "restarts": topology.restarts,
        "problem": None
        if problem is None
        else {
            "reason": problem.reason,
            "component": problem.component,
            "time_secs": problem.time_secs,
        },
        "last_exit": _exit_as_json(topology.last_exit),
        "tasks": topology.num_tasks,
        "executors": topology.num_executors,
        "workers": topology.num_workers,
        "uptime_secs": topology.uptime_secs,
        "id": topology.id,
        "owner": topology.owner,
    }


def _exit_as_json(found: storm.WorkerExit | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "time_secs": found.time_secs,
        "worker": f"{found.host}:{found.port}",
        "reason": found.reason,
        "last_line": found.last_line,
    }
