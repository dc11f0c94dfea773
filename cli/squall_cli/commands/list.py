"""`storm list`: the topologies that the cluster runs."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from squall_cli.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import duration, print_json, print_table, say

if TYPE_CHECKING:
    from squall_thrift import storm


@click.command("list")
@json_option
@settings_options
def command(settings: Settings, as_json: bool) -> None:
    """List the topologies of the cluster, with status, health and size.

    HEALTH is `ok` when every task runs; otherwise it gives the reason: `starting`, `no free slot`,
    `no supervisor`, `crash loop`, `package refused`, `launch failed`, `waiting for blobs`,
    `supervisor away`. `storm get-errors NAME` shows details.

    Lines below the table name the last worker of each topology that ended unexpectedly within a
    day.
    """
    topologies = sorted(
        call_nimbus(settings.client(), "getTopologySummaries"), key=lambda topology: topology.name
    )
    if as_json:
        print_json(
            [
                {
                    "name": topology.name,
                    "status": topology.status,
                    "health": topology.health,
                    "last_exit": _as_json(topology.last_exit),
                    "tasks": topology.num_tasks,
                    "executors": topology.num_executors,
                    "workers": topology.num_workers,
                    "uptime_secs": topology.uptime_secs,
                    "id": topology.id,
                    "owner": topology.owner,
                }
                for topology in topologies
            ]
        )
        return
    if not topologies:
        say("No topologies are running.")
        return
    print_table(
        ("NAME", "STATUS", "HEALTH", "TASKS", "EXECUTORS", "WORKERS", "UPTIME", "ID", "OWNER"),
        (
            (
                topology.name,
                topology.status,
                topology.health or "",
                topology.num_tasks,
                topology.num_executors,
                topology.num_workers,
                duration(topology.uptime_secs),
                topology.id,
                topology.owner or "",
            )
            for topology in topologies
        ),
    )
    ended = [topology for topology in topologies if topology.last_exit is not None]
    if ended:
        click.echo()
        now = time.time()
        print_table(
            ("UNEXPECTED EXIT", "AGO", "WORKER", "REASON", "LAST LINE"),
            (
                (
                    topology.name,
                    duration(max(0, int(now - topology.last_exit.time_secs))),
                    f"{topology.last_exit.host}:{topology.last_exit.port}",
                    topology.last_exit.reason,
                    topology.last_exit.last_line,
                )
                for topology in ended
            ),
        )


def _as_json(found: storm.WorkerExit | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "time_secs": found.time_secs,
        "worker": f"{found.host}:{found.port}",
        "reason": found.reason,
        "last_line": found.last_line,
    }
