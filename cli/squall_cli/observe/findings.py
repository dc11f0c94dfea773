"""Why a topology is slow, or why nothing moves: what the commands know of it, put before the rules
that the web UI uses too (`squall_common.telemetry.findings`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall_common.telemetry.findings import (
    CheckpointFacts,
    ComponentFacts,
    Exit,
    Facts,
    Finding,
    HeldWorker,
    cpu_note,
    findings,
)

if TYPE_CHECKING:
    from squall_cli.observe.facts import Component, Topology, Worker
    from squall_thrift import storm


def findings_of(topology: Topology, now_secs: float) -> list[Finding]:
    """The findings about a topology, the worst first."""
    return findings(facts_of(topology, now_secs))


def cpu_note_of(topology: Topology) -> str:
    """Why the CPU of its workers says little; empty if none of them has reported any."""
    if all(one.cpu_cores is None for one in topology.workers):
        return ""
    return cpu_note(facts_of(topology, 0.0))


def facts_of(topology: Topology, now_secs: float) -> Facts:
    """A topology as the rules want it; `now_secs` since 1970."""
    summary = topology.summary
    last = summary.last_exit
    return Facts(
        name=summary.name,
        status=summary.status,
        health=summary.health or "",
        uptime_secs=summary.uptime_secs,
        rates_secs=topology.activity.secs,
        workers=len(topology.workers),
        silent=[f"{one.host}:{one.port}" for one in topology.workers if not one.uptime_secs],
        held=[held for one in topology.workers if (held := _held(one)) is not None],
        schedule=summary.sched_status or "",
        last_exit=None
        if last is None
        else Exit(
            last.reason, f"{last.host}:{last.port}", _age(last.time_secs, now_secs), last.last_line
        ),
        restarts=summary.restarts or 0,
        pending_max=topology.max_pending,
        timeout_secs=topology.timeout_secs,
        components=[
            _component(one, topology.activity.secs, now_secs) for one in topology.components
        ],
        checkpoints=None if topology.checkpoints is None else _checkpoints(topology.checkpoints),
        finished=topology.finished,
        busy_poll_ms=topology.busy_poll_ms,
    )


def _held(one: Worker) -> HeldWorker | None:
    return HeldWorker.of(f"{one.host}:{one.port}", one.loop_lag_ms, one.components)


def _checkpoints(report: storm.CheckpointReport) -> CheckpointFacts:
    return CheckpointFacts(
        report.interval_ms / 1000,
        report.waiting_ms / 1000,
        report.epoch,
        report.given_up,
        report.waited_for or "",
        report.rollbacks,
        report.rollback_reason or "",
        report.failure or "",
    )


def _component(one: Component, secs: int, now_secs: float) -> ComponentFacts:
    latency_ms = one.latency_ms or 0.0
    return ComponentFacts(
        one.name,
        one.is_spout,
        one.executors,
        one.tasks,
        emitted=one.emitted / secs,
        executed=one.executed / secs if one.load is None else one.load.executed_per_sec,
        acked=one.acked / secs,
        failed=one.failed / secs,
        execute_ms=0.0 if one.is_spout else latency_ms,
        complete_ms=latency_ms if one.is_spout else 0.0,
        busy=one.capacity or 0.0,
        busy_mean=None if one.load is None else one.load.mean,
        busiest="" if one.load is None else one.load.busiest,
        blocked=one.blocked,
        error="" if one.error is None else one.error.line,
        error_age_secs=None if one.error is None else _age(one.error.time_secs, now_secs),
        pending=(one.queue_tuples or 0) if one.is_spout else 0,
        exhausted=one.exhausted_tasks,
        calls=one.calls,
        calls_max=one.calls_max,
        on_threads=one.on_threads,
    )


def _age(time_secs: int, now_secs: float) -> int:
    return max(0, int(now_secs) - time_secs)
