"""Why is a topology slow, or why does it stand? Decided from what is known, with figures.

    for reason in reasons_of(topology, now_secs): print(reason.text)

Each rule knows one cause. The worst come first, and a healthy topology has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from squall_cli.output import duration

if TYPE_CHECKING:
    from squall_cli.observe.facts import Component, Topology

_FULL = 0.8  # of an executor's time in `execute`: it takes hardly more
_EXPLAINED = 0.25  # of a bolt's capacity: below this its streams do not explain it
_FAILING = 0.01  # of the messages that ended
_NEAR_TIMEOUT = 0.5  # of the message timeout
_RECENT_SECS = 300
_QUIET_SECS = 60  # how long a topology may have no figures at all


class Severity(Enum):
    """How bad a reason is; in the order in which reasons are shown."""

    STANDS = "stands"
    SLOW = "slow"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class Reason:
    """One cause: what is known about it, and what to do. `component` is None for the topology."""

    severity: Severity
    text: str
    component: str | None = None


def reasons_of(topology: Topology, now_secs: float) -> list[Reason]:
    """The reasons, the worst first."""
    found = [reason for rule in _RULES for reason in rule(topology, now_secs)]
    order = list(Severity)
    return sorted(found, key=lambda one: order.index(one.severity))


_STATUS = {
    "INACTIVE": "It is deactivated, and its spouts pause: 'storm activate {name}' resumes it.",
    "REBALANCING": "It is being rebalanced: its spouts pause until its tasks have been placed.",
    "KILLED": "It is being killed: its spouts have stopped, and tuples in flight finish.",
}
_HEALTH = {
    "no supervisor": "No supervisor is connected, so nothing runs: start one with 'storm "
    "supervisor'.",
    "no free slot": "Some executors have no slot: add supervisors or supervisor.slots.ports, or "
    "use fewer workers.",
    "supervisor away": "A supervisor that runs some of its workers is not connected; its tasks "
    "move if it stays away.",
    "waiting for blobs": "A supervisor is fetching its package or its blobs.",
    "package refused": "A supervisor cannot use its package: 'storm get-errors {name}' says why.",
    "launch failed": "A supervisor cannot start a worker: 'storm get-errors {name}' says why.",
    "crash loop": "A worker ends again and again soon after its start.",
    "starting": "Some of its workers are starting.",
}


def _status(topology: Topology, now_secs: float) -> Iterator[Reason]:
    summary = topology.summary
    text = _STATUS.get(summary.status or "")
    if text is not None:
        yield Reason(Severity.STANDS, text.format(name=summary.name))


def _health(topology: Topology, now_secs: float) -> Iterator[Reason]:
    summary = topology.summary
    health = summary.health or "ok"
    if summary.status != "ACTIVE" or health == "ok":
        return
    text = _HEALTH.get(health, f"Its health is: {health}.").format(name=summary.name)
    if health == "no free slot" and summary.sched_status:
        text += f" Nimbus: {summary.sched_status}."
    last = summary.last_exit
    if health in ("crash loop", "launch failed") and last is not None:
        text += f" The last one: {last.reason}."
        if last.last_line:
            text += f" Its last line: {last.last_line}"
    yield Reason(Severity.NOTE if health == "starting" else Severity.STANDS, text)


def _no_progress(topology: Topology, now_secs: float) -> Iterator[Reason]:
    """All workers run, and no message moves."""
    summary = topology.summary
    if summary.status != "ACTIVE" or summary.health not in (None, "ok"):
        return
    if topology.activity.secs < _QUIET_SECS or topology.activity.emitted:
        return
    spouts = _names(one.name for one in topology.components if one.is_spout)
    pending = topology.max_pending
    text = (
        f"{spouts} emitted nothing within {duration(topology.activity.secs)}: the source is empty"
    )
    if pending is not None:
        text += f", or {pending} messages (topology.max.spout.pending) wait for their acks"
    yield Reason(Severity.STANDS, f"{text}.")


def _full_workers(topology: Topology, now_secs: float) -> Iterator[Reason]:
    """The executors of a worker share its thread, so that none of them needs to be full."""
    share = _share_of_workers(topology)
    if share < _FULL:
        return
    one = max(topology.components, key=lambda each: _busy(topology, each))
    workers = max(1, len(topology.workers))
    more = f"storm rebalance {topology.summary.name} -n {workers + 1}"
    if one.executors <= workers < one.tasks:
        more += f" -e {one.name}={workers + 1}"
    yield Reason(
        Severity.SLOW,
        f"{_count(workers, 'worker')} cannot do more: bolts spend {share:.0%} of the time in "
        f"execute, {one.name} {_busy(topology, one) / workers:.0%} "
        f"({one.executed / topology.activity.secs:.4g} tuples/s, {_ms(one)} each). The executors "
        f"of a worker share its thread. Try: {more}",
        one.name,
    )


def _share_of_workers(topology: Topology) -> float:
    """The share of all workers' time (0 to 1) that bolts spend in `execute`."""
    busy = sum(_busy(topology, one) for one in topology.components)
    return busy / max(1, len(topology.workers))


def _busy(topology: Topology, component: Component) -> float:
    """The seconds in a second that all executors of a bolt spend on tuples; 0 for a spout."""
    return component.executed * (component.latency_ms or 0.0) / 1000 / topology.activity.secs


def _bottleneck(topology: Topology, now_secs: float) -> Iterator[Reason]:
    """The busiest bolt, if it is full while the workers are not."""
    if _share_of_workers(topology) >= _FULL:
        return
    bolts = [one for one in topology.components if (one.capacity or 0.0) >= _FULL]
    if not bolts:
        return
    one = max(bolts, key=lambda bolt: bolt.capacity or 0.0)
    rate = one.executed / topology.activity.secs
    text = (
        f"{one.name} is the bottleneck: its busiest executor spends {one.capacity:.0%} of its time "
        f"in execute ({rate:.4g} tuples/s, {_ms(one)} each, {_count(one.executors, 'executor')}). "
    )
    busy = _busy(topology, one) / max(1, one.executors)
    if busy < (one.capacity or 0.0) * _EXPLAINED:
        text += (
            f"These tuples take {busy:.0%} of the time; the rest goes to ticks: do less on each."
        )
    elif one.executors < one.tasks:
        text += f"Try: storm rebalance {topology.summary.name} -e {one.name}={one.tasks}"
    else:
        text += f"It has as many executors as tasks: raise tasks= of {one.name}, or speed it up."
    yield Reason(Severity.SLOW, text, one.name)


def _failing(topology: Topology, now_secs: float) -> Iterator[Reason]:
    """Messages that fail, and messages that are about to."""
    timeout_secs = topology.timeout_secs
    for one in topology.components:
        ended = one.acked + one.failed
        if not one.is_spout or not ended:
            continue
        slow = one.latency_ms is not None and one.latency_ms >= timeout_secs * 1000 * _NEAR_TIMEOUT
        if one.failed / ended >= _FAILING:
            text = (
                f"{one.failed / ended:.0%} of the messages of {one.name} failed "
                f"({one.failed} of {ended})"
            )
            if slow or not one.acked:
                text += f"; they time out after {timeout_secs:g} s"
            yield Reason(Severity.SLOW, f"{text}.", one.name)
        elif slow:
            yield Reason(
                Severity.SLOW,
                f"Messages of {one.name} take {_ms(one)} and time out after {timeout_secs:g} s: "
                "lower topology.max.spout.pending, or give the bolts more executors.",
                one.name,
            )


def _silent(topology: Topology, now_secs: float) -> Iterator[Reason]:
    """Workers that have not reported."""
    silent = [f"{one.host}:{one.port}" for one in topology.workers if not one.uptime_secs]
    if silent and topology.summary.health in (None, "ok"):
        yield Reason(
            Severity.NOTE,
            f"{_names(silent)} has not reported yet: it has just started, or hangs.",
        )


def _restarts(topology: Topology, now_secs: float) -> Iterator[Reason]:
    summary = topology.summary
    last = summary.last_exit
    if last is None or summary.health in ("crash loop", "launch failed"):
        return
    ago = max(0, int(now_secs - (last.time_secs or 0)))
    yield Reason(
        Severity.SLOW if ago < _RECENT_SECS else Severity.NOTE,
        f"{_count(summary.restarts or 1, 'worker')} ended unexpectedly within a day, the last "
        f"{duration(ago)} ago on {last.host}:{last.port}: {last.reason}.",
    )


def _errors(topology: Topology, now_secs: float) -> Iterator[Reason]:
    for one in topology.components:
        if one.error is None:
            continue
        ago = max(0, int(now_secs - one.error.time_secs))
        if ago < _RECENT_SECS:
            yield Reason(
                Severity.NOTE,
                f"{one.name} reported an error {duration(ago)} ago: {one.error.line}",
                one.name,
            )


_RULES: tuple[Callable[[Topology, float], Iterable[Reason]], ...] = (
    _status,
    _health,
    _no_progress,
    _full_workers,
    _bottleneck,
    _failing,
    _restarts,
    _silent,
    _errors,
)


def _ms(component: Component) -> str:
    ms = component.latency_ms or 0.0
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _names(names: Iterable[str]) -> str:
    found = list(names)
    shown = ", ".join(found[:3])
    return shown if len(found) <= 3 else f"{shown} and {len(found) - 3} more"
