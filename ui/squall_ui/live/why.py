"""Why is it slow? Why is nothing moving? Decided from what is known, and said in words.

    for finding in findings(facts): print(finding.title, finding.text)

Each rule looks at one cause; the worst findings come first. Thresholds are chosen so that a healthy
topology has none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

_BUSY = 0.8  # of an executor's time: it cannot take much more
_NEARLY_BUSY = 0.6
_SKEW = 1.6  # the busiest executor against the mean (of two executors it is at most 2)
_FAILING = 0.01  # of all messages
_BLOCKED = 0.2  # of a component's time
_RECENT_SECS = 300
_SILENT_SECS = 30  # after which a worker without a heartbeat is no longer "starting"
_TREND = 0.15


class Severity(IntEnum):
    """How bad it is."""

    STOPPED = 0  # nothing moves
    SLOW = 1
    NOTE = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause: a few words, what is known about it, and what to do. `kind` names the rule."""

    kind: str
    severity: Severity
    title: str
    text: str
    component: str | None = None
    trend: str = ""  # rising, falling, steady; empty: not known


@dataclass(frozen=True, slots=True)
class ComponentFacts:
    """What is known about a component. Rates are a second, `busy` is of the busiest executor."""

    name: str
    is_spout: bool
    executors: int
    reporting: int
    emitted: float = 0.0
    executed: float = 0.0
    acked: float = 0.0
    failed: float = 0.0
    execute_ms: float = 0.0
    complete_ms: float = 0.0
    busy: float = 0.0
    busy_mean: float = 0.0
    busy_before: float | None = None
    busiest: str = ""  # which executor, and where
    blocked: Mapping[str, float] = field(default_factory=dict)  # share of time, by whom
    queue: int | None = None
    error: str = ""
    error_age_secs: int | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a topology."""

    status: str
    health: str
    uptime_secs: int
    schedule: str = ""
    exit_reason: str = ""
    exit_line: str = ""
    exit_age_secs: int | None = None
    restarts: int = 0
    pending_max: int | None = None
    timeout_secs: float = 30.0
    components: Sequence[ComponentFacts] = ()


def findings(facts: Facts) -> list[Finding]:
    """The worst first; empty if nothing is wrong."""
    found = [one for rule in _RULES for one in rule(facts)]
    return sorted(found, key=lambda one: one.severity)


def _status(facts: Facts) -> Iterator[Finding]:
    text = {
        "INACTIVE": "It was deactivated: its spouts emit nothing. Activate it to go on.",
        "KILLED": "It is being killed: its spouts are off, and what is in flight finishes.",
        "REBALANCING": "It is being rebalanced: its spouts are off until its tasks have moved.",
    }.get(facts.status)
    if text is not None:
        title = {"INACTIVE": "Deactivated", "KILLED": "Being killed"}.get(
            facts.status, "Being rebalanced"
        )
        yield Finding("status", Severity.STOPPED, title, text)


_HEALTH = {
    "no supervisor": (
        "No supervisor",
        "No supervisor is connected, so nothing can run. Start one with `storm supervisor`.",
    ),
    "no free slot": (
        "Not enough slots",
        "Some executors have no slot. Start another supervisor, add slots, or use fewer workers.",
    ),
    "supervisor away": (
        "A supervisor is away",
        "A node that runs workers of this topology is not connected. Nimbus moves its tasks if it "
        "stays away.",
    ),
    "waiting for blobs": (
        "Waiting for files",
        "A supervisor is still downloading the topology's package or its blobs.",
    ),
    "package refused": (
        "Package refused",
        "A supervisor refuses the topology's package. Its reason is among the errors.",
    ),
    "launch failed": (
        "Workers cannot be started",
        "A supervisor could not start a worker. Its reason is among the errors.",
    ),
    "crash loop": ("Crash loop", "A worker ends again and again soon after its start."),
    "starting": ("Starting", "Workers are being started."),
}


def _health(facts: Facts) -> Iterator[Finding]:
    if facts.status != "ACTIVE" or facts.health in ("", "ok"):
        return
    title, text = _HEALTH.get(facts.health, (facts.health.capitalize(), ""))
    if facts.health == "no free slot" and facts.schedule:
        text = f"{facts.schedule}. {text}"
    if facts.health in ("crash loop", "launch failed") and facts.exit_reason:
        text += f" The last one: {facts.exit_reason}."
        if facts.exit_line:
            text += f" Its last words: {facts.exit_line}"
    starting = facts.health == "starting"
    yield Finding("health", Severity.NOTE if starting else Severity.STOPPED, title, text.strip())


def _restarts(facts: Facts) -> Iterator[Finding]:
    recent = facts.exit_age_secs is not None and facts.exit_age_secs <= _RECENT_SECS
    if recent and facts.health != "crash loop":
        text = f"{_ago(facts.exit_age_secs)} a worker ended: {facts.exit_reason}."
        if facts.restarts > 1:
            text += f" It was the {_th(facts.restarts)} within a day."
        yield Finding("restart", Severity.NOTE, "A worker was restarted", text)


def _silent(facts: Facts) -> Iterator[Finding]:
    if facts.status != "ACTIVE" or facts.health not in ("", "ok"):
        return
    silent = [one for one in facts.components if one.reporting < one.executors]
    if silent and facts.uptime_secs > _SILENT_SECS:
        names = _names(one.name for one in silent)
        yield Finding(
            "silent",
            Severity.NOTE,
            "Some executors report nothing",
            f"There are no statistics yet of executors of {names}: their worker has just started, "
            "or hangs.",
        )


def _bottleneck(facts: Facts) -> Iterator[Finding]:
    bolts = [one for one in facts.components if not one.is_spout and one.busy >= _NEARLY_BUSY]
    if not bolts:
        return
    one = max(bolts, key=lambda bolt: bolt.busy)
    skewed = one.executors > 1 and one.busy_mean > 0 and one.busy / one.busy_mean >= _SKEW
    full = one.busy >= _BUSY
    trend = trend_of(one.busy_before, one.busy)
    if skewed:
        yield Finding(
            "skew", Severity.SLOW if full else Severity.NOTE, f"{one.name} is skewed",
            f"One executor ({one.busiest}) is busy {one.busy:.0%} of the time, all together "
            f"{one.busy_mean:.0%}: a few keys get most of the tuples. More executors do not help; "
            "a partial key grouping, or another key, does.",
            one.name, trend,
        )  # fmt: skip
        return
    yield Finding(
        "slow bolt", Severity.SLOW if full else Severity.NOTE,
        f"{one.name} is the bottleneck" if full else f"{one.name} is nearly at its limit",
        f"Its executors are busy {one.busy:.0%} of the time: {_rate(one.executed)} tuples a second "
        f"at {_ms(one.execute_ms)} each. Rebalance it to more executors, or make execute faster.",
        one.name, trend,
    )  # fmt: skip


def _blocked(facts: Facts) -> Iterator[Finding]:
    """Who waits for whom."""
    for one in facts.components:
        if not one.blocked:
            continue
        by, share = max(one.blocked.items(), key=lambda item: item[1])
        if share >= _BLOCKED:
            what = "Its spout waits" if one.is_spout else "It waits"
            yield Finding(
                "blocked", Severity.SLOW, f"{one.name} waits for {by}",
                f"{what} {share:.0%} of the time because {by} takes no more: "
                f"{by}, or what comes after it, is too slow.",
                one.name,
            )  # fmt: skip


def _idle(facts: Facts) -> Iterator[Finding]:
    if facts.status != "ACTIVE" or facts.health not in ("", "ok"):
        return
    spouts = [one for one in facts.components if one.is_spout]
    if not spouts or any(one.reporting < one.executors for one in spouts):
        return
    if all(one.emitted == 0 for one in spouts):
        busy = [one for one in facts.components if not one.is_spout and one.executed > 0]
        text = f"{_names(one.name for one in spouts)} emit nothing"
        if busy:
            text += f", while {_names(one.name for one in busy)} still work on earlier tuples."
        elif facts.pending_max is not None:
            text += (
                f": there is nothing to read, or {facts.pending_max:,} messages are in flight "
                "(topology.max.spout.pending) and none is acked."
            )
        else:
            text += ": there is nothing to read at their sources."
        yield Finding("idle", Severity.STOPPED, "The spouts emit nothing", text)


def _failing(facts: Facts) -> Iterator[Finding]:
    for one in facts.components:
        ended = one.acked + one.failed
        if one.is_spout and ended and one.failed / ended >= _FAILING:
            text = f"{one.failed / ended:.0%} of the messages of {one.name} fail"
            slow = one.complete_ms >= facts.timeout_secs * 500
            text += (
                f": they take {_ms(one.complete_ms)}, and time out after {facts.timeout_secs:g} s."
                if slow
                else ". A bolt fails them, or they time out; see the errors."
            )
            yield Finding("failing", Severity.SLOW, "Messages fail", text, one.name)


def _errors(facts: Facts) -> Iterator[Finding]:
    for one in facts.components:
        if one.error and one.error_age_secs is not None and one.error_age_secs <= _RECENT_SECS:
            yield Finding(
                "error", Severity.NOTE, f"{one.name} raises errors",
                f"{_ago(one.error_age_secs)}: {one.error}", one.name,
            )  # fmt: skip


_RULES: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    _status, _health, _idle, _bottleneck, _blocked, _failing, _restarts, _silent, _errors,
)  # fmt: skip


def trend_of(before: float | None, now: float) -> str:
    """Of a share, against some minutes ago."""
    if before is None:
        return ""
    if now > before + _TREND:
        return "rising"
    return "falling" if now < before - _TREND else "steady"


def _names(names: Iterable[str]) -> str:
    found = list(names)
    if len(found) > 4:
        return f"{', '.join(found[:3])} and {len(found) - 3} more"
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


def _ms(value: float) -> str:
    return f"{value / 1000:.1f} s" if value >= 1000 else f"{value:.3g} ms"


def _ago(secs: int | None) -> str:
    secs = secs or 0
    return f"{secs} s ago" if secs < 120 else f"{secs // 60} min ago"


def _th(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if 10 <= number % 100 <= 20 else ending}"
