"""The parts that the JSON of `storm status` and of `storm top` have in common (docs/json.md)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall_cli.observe.facts import Component
    from squall_common.telemetry.findings import Finding
    from squall_thrift import storm


def summary_as_json(summary: storm.TopologySummary) -> dict[str, Any]:
    """A topology's state and size."""
    return {
        "name": summary.name,
        "id": summary.id,
        "status": summary.status,
        "health": summary.health,
        "owner": summary.owner,
        "uptime_secs": summary.uptime_secs,
        "tasks": summary.num_tasks,
        "executors": summary.num_executors,
        "num_workers": summary.num_workers,
        "restarts": summary.restarts,
    }


def component_as_json(component: Component, secs: int) -> dict[str, Any]:
    """A component's figures over the last `secs` seconds."""
    error = component.error
    return {
        "name": component.name,
        "kind": "spout" if component.is_spout else "bolt",
        "executors": component.executors,
        "tasks": component.tasks,
        "emitted_per_sec": round(component.emitted / secs, 1),
        "handled_per_sec": round(component.handled / secs, 1),
        "failed": component.failed,
        "latency_ms": _rounded(component.latency_ms),
        "p50_ms": _rounded(component.p50_ms),
        "p95_ms": _rounded(component.p95_ms),
        "p99_ms": _rounded(component.p99_ms),
        "process_ms": _rounded(component.process_ms),
        "capacity": _rounded(component.capacity),
        "calls": _rounded(component.calls),
        "calls_max": component.calls_max,
        "queue_tuples": component.queue_tuples,
        "state_keys": component.state_keys,
        "state_bytes": component.state_bytes,
        "exhausted_tasks": component.exhausted_tasks,
        "blocked": {by: _rounded(share) for by, share in sorted(component.blocked.items())},
        "last_error": None
        if error is None
        else {"error": error.line, "time_secs": error.time_secs},
    }


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """Why a topology is slow or stopped."""
    return {
        "kind": finding.kind,
        "severity": finding.severity.name.lower(),
        "component": finding.component,
        "title": finding.title,
        "text": finding.text,
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
