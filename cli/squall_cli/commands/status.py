"""`storm status`: all that is known about one topology, and why it is slow or stopped."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import duration, print_json, print_table, printable
from squall_cli.topology_argument import topology_argument

if TYPE_CHECKING:
    from squall_cli.commands.get_errors import ErrorGroup
    from squall_cli.observe.facts import Component, Topology
    from squall_common.telemetry.findings import Finding
    from squall_thrift import storm


@click.command("status")
@topology_argument
@json_option
@settings_options
def command(settings: Settings, topology_name: str, as_json: bool) -> None:
    """Show all that is known about a topology, and why it is slow or stopped.

    Rates, latencies and failures are those of the last ten minutes. HANDLED/S counts acked messages
    of a spout and executed tuples of a bolt; LATENCY is a spout's mean time from emit to ack and a
    bolt's mean time in execute, P50, P95 and P99 its percentiles; CAPACITY is the share of its time
    that the busiest executor of a bolt spends there (of an async bolt, and of one on threads, its
    calls under way and their limit); QUEUE is the number of tuples that wait for a bolt, or of a
    spout's pending messages; BLOCKED names whom a component waits for most.

    PLAN OF lists the steps of streams that run in a component, and the windows of bolts.
    """
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_cli.commands.get_errors import group_errors
    from squall_cli.observe.facts import read_topology
    from squall_cli.observe.findings import findings_of
    from squall_thrift import storm

    client = settings.client()
    topology = read_topology(client, topology_name)
    options = storm.GetInfoOptions(num_err_choice=storm.NumErrorsChoice.ALL)
    info = call_nimbus(client, "getTopologyInfoWithOpts", topology.summary.id, options)
    levels = call_nimbus(client, "getLogConfig", topology_name).named_logger_level or {}
    errors = group_errors(info.errors or {})
    now = time.time()
    found = findings_of(topology, now)
    if as_json:
        print_json(_as_json(topology, found, errors, levels))
        return
    _print_summary(topology)
    _print_findings(found)
    _print_components(topology, now)
    _print_plans(topology)
    _print_workers(topology)
    if levels:
        click.echo()
        print_table(
            ("LOGGER", "LEVEL"),
            ((name, level.target_log_level or "") for name, level in sorted(levels.items())),
        )
    if errors:
        click.echo()
        print_table(
            ("ERRORS OF", "COUNT", "LAST", "WORKER", "ERROR"),
            (
                (
                    one.component,
                    one.count,
                    f"{duration(max(0, int(now - one.last_secs)))} ago",
                    one.worker,
                    one.headline,
                )
                for one in errors
            ),
        )


def _print_summary(topology: Topology) -> None:
    from squall_cli.observe.screen import input_words

    summary, activity = topology.summary, topology.activity
    rows = [
        ("topology", f"{summary.name} ({summary.id})"),
        ("status", summary.status),
        ("health", summary.health or ""),
        ("input", input_words(topology)),
        ("owner", summary.owner or ""),
        ("uptime", duration(summary.uptime_secs)),
        (
            "size",
            f"{summary.num_workers} workers, {summary.num_executors} executors, "
            f"{summary.num_tasks} tasks",
        ),
        ("figures of", f"the last {duration(activity.secs)}"),
        ("emitted", f"{activity.emitted_per_sec:g}/s"),
        ("acked", f"{activity.acked_per_sec:g}/s"),
        ("failed", str(activity.failed)),
        ("latency", "" if activity.complete_ms is None else f"{activity.complete_ms:g} ms"),
        ("restarts", f"{summary.restarts or 0} within a day"),
    ]
    if topology.checkpoints is not None:
        rows += _checkpoint_rows(topology.checkpoints, time.time())
    for name, value in rows:
        if value:
            click.echo(f"{name:<11} {printable(str(value))}")


def _checkpoint_rows(report: storm.CheckpointReport, now: float) -> list[tuple[str, str]]:
    """What `status` says of checkpoints."""
    every = f"every {report.interval_ms / 1000:g} s"
    last = f"number {report.epoch}" if report.epoch else "none yet"
    parts = [f"{last}, {duration(report.waiting_ms // 1000)} ago" if report.completed else last]
    if report.duration_ms is not None:
        took = f"took {report.duration_ms} ms"
        if report.longest_task is not None:
            took += f" (longest: {report.longest_task}, {report.longest_ms} ms)"
        parts.append(took)
    if report.size_bytes is not None:
        parts.append(f"{report.size_bytes / 2**20:.1f} MiB")
    rows = [("checkpoints", f"{every}; {', '.join(parts)}")]
    if report.given_up:
        waited = f", the last one waited for {report.waited_for}" if report.waited_for else ""
        rows.append(("given up", f"{report.given_up}{waited}"))
    if report.failure:
        rows.append(("store", f"fails: {report.failure}"))
    if report.rollbacks:
        why = ""
        if report.rollback_time_ms is not None:
            secs = max(0, int(now - report.rollback_time_ms / 1000))
            why = f", the last one {duration(secs)} ago: {report.rollback_reason}"
        rows.append(("rollbacks", f"{report.rollbacks}{why}"))
    return rows


def _checkpoints_as_json(report: storm.CheckpointReport) -> dict[str, Any]:
    """As docs/json.md describes it."""
    return {
        "epoch": report.epoch,
        "interval_ms": report.interval_ms,
        "completed": report.completed,
        "given_up": report.given_up,
        "waited_for": report.waited_for,
        "failure": report.failure,
        "waiting_ms": report.waiting_ms,
        "duration_ms": report.duration_ms,
        "size_bytes": report.size_bytes,
        "longest_task": report.longest_task,
        "longest_ms": report.longest_ms,
        "rollbacks": report.rollbacks,
        "rollback_reason": report.rollback_reason,
        "rollback_time_ms": report.rollback_time_ms,
    }


def _print_findings(found: list[Finding]) -> None:
    from squall_cli.observe.screen import finding_line

    click.echo()
    if not found:
        click.echo("Nothing is wrong.")
    for one in found:
        click.echo(finding_line(one))


def _print_components(topology: Topology, now: float) -> None:
    from squall_cli.observe.screen import (
        blocked_words,
        capacity_words,
        latency_words,
        state_words,
    )

    # Few topologies have a column of sizes: the table is wide.
    has_state = any(one.state_keys is not None for one in topology.components)
    click.echo()
    print_table(
        (
            "COMPONENT", "KIND", "EXECUTORS", "TASKS", "EMITTED/S", "HANDLED/S", "FAILED",
            "LATENCY", "P50", "P95", "P99", "PROCESS", "CAPACITY", "QUEUE",
            *(["STATE"] if has_state else []), "BLOCKED", "LAST ERROR",
        ),
        (
            (
                one.name,
                "spout" if one.is_spout else "bolt",
                one.executors,
                one.tasks,
                f"{one.emitted / topology.activity.secs:.4g}",
                f"{one.handled / topology.activity.secs:.4g}",
                one.failed,
                latency_words(one.latency_ms),
                latency_words(one.p50_ms),
                latency_words(one.p95_ms),
                latency_words(one.p99_ms),
                latency_words(one.process_ms),
                capacity_words(one),
                "" if one.queue_tuples is None else one.queue_tuples,
                *([state_words(one)] if has_state else []),
                blocked_words(one),
                _last_error(one, now),
            )
            for one in topology.components
        ),
    )  # fmt: skip


def _print_plans(topology: Topology) -> None:
    rows = [
        (
            name if number == 0 else "",
            f"{step.name} over {step.windows}" if step.windows else step.name,
            ", ".join(step.functions),
        )
        for name in (one.name for one in topology.components)
        for number, step in enumerate(topology.plans.get(name, ()))
    ]
    if rows:
        click.echo()
        print_table(("PLAN OF", "STEP", "FUNCTIONS"), rows)


def _print_workers(topology: Topology) -> None:
    from squall_cli.observe.findings import cpu_note_of
    from squall_cli.observe.screen import latency_words

    click.echo()
    print_table(
        ("WORKER", "EXECUTORS", "UPTIME", "CPU", "MEMORY", "LOOP LAG", "TASKS OF", "SUPERVISOR"),
        (
            (
                f"{one.host}:{one.port}",
                one.executors,
                duration(one.uptime_secs),
                "" if one.cpu_cores is None else f"{one.cpu_cores:.0%}",
                "" if one.memory_bytes is None else f"{one.memory_bytes / 2**20:.0f} MiB",
                latency_words(one.loop_lag_ms),
                ", ".join(f"{name} {number}" for name, number in sorted(one.components.items())),
                one.supervisor_id,
            )
            for one in topology.workers
        ),
    )
    if note := cpu_note_of(topology):
        click.echo(note)


def _last_error(component: Component, now: float) -> str:
    if component.error is None:
        return ""
    return f"{duration(max(0, int(now - component.error.time_secs)))} ago"


def _as_json(
    topology: Topology,
    found: list[Finding],
    errors: list[ErrorGroup],
    levels: dict[str, storm.LogLevel],
) -> dict[str, Any]:
    """As docs/json.md describes it."""
    from squall_cli.observe.as_json import component_as_json, finding_as_json, summary_as_json
    from squall_common.topology.plan import plan_as_json

    return {
        **summary_as_json(topology.summary),
        "finished": topology.finished,
        "secs": topology.activity.secs,
        "findings": [finding_as_json(one) for one in found],
        "checkpoints": None
        if topology.checkpoints is None
        else _checkpoints_as_json(topology.checkpoints),
        "components": [
            {
                **component_as_json(one, topology.activity.secs),
                "plan": plan_as_json(topology.plans.get(one.name, ())),
            }
            for one in topology.components
        ],
        "workers": [
            {
                "worker": f"{one.host}:{one.port}",
                "supervisor_id": one.supervisor_id,
                "executors": one.executors,
                "uptime_secs": one.uptime_secs,
                "cpu_cores": one.cpu_cores,
                "memory_bytes": one.memory_bytes,
                "loop_lag_ms": one.loop_lag_ms,
                "tasks": dict(sorted(one.components.items())),
            }
            for one in topology.workers
        ],
        "log_levels": {name: one.target_log_level for name, one in sorted(levels.items())},
        "errors": [
            {
                "component": one.component,
                "count": one.count,
                "first_secs": one.first_secs,
                "last_secs": one.last_secs,
                "worker": one.worker,
                "error": one.headline,
            }
            for one in errors
        ],
    }
