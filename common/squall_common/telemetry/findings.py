"""Why is a topology slow? Why is nothing moving? Decided from what is known, and said in words.

    for finding in findings(facts):
        print(f"{finding.title}. {finding.text}")

The web UI and `storm status` and `top` show the same findings: each of them makes `Facts` from what
Nimbus answers. A rule looks at one cause. Thresholds are chosen so that a healthy topology has no
findings.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

from squall_common.names import is_system_id

# Calls under way above which a task does not make one after the other. Only needed for workers of
# earlier versions, which do not say how many it makes.
_ONE_AT_A_TIME = 1.5
NEARLY_FULL, FULL = 0.6, 0.8  # of an executor's time: at the second it hardly takes more
_SHARED = 1.1  # workers' time above which the executors of a worker cannot be sharing its thread
_SKEW = 1.6  # the busiest executor against the mean (of two executors it is at most 2)
_EXPLAINED = 0.25  # of a bolt's time in execute: below this its tuples do not explain it
_FAILING = 0.01  # of the messages that ended
_NEAR_TIMEOUT = 0.5  # of the message timeout
_BLOCKED = 0.2  # of a component's time
_RECENT_SECS = 300
_SILENT_SECS = 30  # after which a worker that has not reported is no longer starting
_INTERVALS = 5  # without a checkpoint, after which something is wrong
_CHECKPOINT_SECS = 10.0  # at least: a rollback takes that long
_HELD_SECS = 10.0  # that a worker's loop did not turn; a garbage collection takes less
_IDLE_SECS = 10  # how long a topology may have no figures at all
_TREND = 0.15


class Severity(IntEnum):
    """How bad a finding is."""

    STOPPED = 0  # nothing moves
    SLOW = 1
    NOTE = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One cause: a few words, what is known about it, and what to do. `kind` names the rule's
    answer; `component` is None for the whole topology."""

    kind: str
    severity: Severity
    title: str
    text: str
    component: str | None = None
    trend: str = ""  # rising, falling, steady; empty: not known


@dataclass(frozen=True, slots=True)
class Exit:
    """The last worker that ended without being asked to."""

    reason: str
    worker: str  # HOST:PORT
    age_secs: int
    last_line: str = ""  # of its stderr


@dataclass(frozen=True, slots=True)
class ComponentFacts:
    """What is known about a component. Rates are a second; latencies are means in ms. `busy` is the
    share of its time (0 to 1) that the busiest executor of a bolt spends in `execute`, ticks
    included, and `busy_mean` the mean of all its executors (None: not known). `blocked` is the
    share of its time that it waits for each component downstream.

    `calls_max` is set for a bolt whose calls do not take its worker's thread for as long as they
    last (`async def`, `blocking`): how many all its tasks may have under way. `calls` is how many
    they have on average, and `busy` and `busy_mean` are shares of the limit."""

    name: str
    is_spout: bool
    executors: int
    tasks: int
    emitted: float = 0.0
    executed: float = 0.0
    acked: float = 0.0
    failed: float = 0.0
    execute_ms: float = 0.0
    complete_ms: float = 0.0
    busy: float = 0.0
    busy_mean: float | None = None
    busy_before: float | None = None  # minutes ago
    busiest: str = ""  # which executor, and where
    blocked: Mapping[str, float] = field(default_factory=dict)
    error: str = ""
    error_age_secs: int | None = None
    pending: int = 0  # of a spout: messages in flight
    # Of a spout: the tasks that say that their source has ended; None: it does not say.
    exhausted: int | None = None
    calls: float | None = None
    calls_max: int | None = None
    on_threads: bool = False  # each of its tasks makes its calls on a thread of its own

    @property
    def has_ended(self) -> bool:
        """Whether all tasks of a spout say that their source has ended."""
        return self.is_spout and self.exhausted is not None and self.exhausted >= self.tasks > 0

    @property
    def drained(self) -> bool:
        """Whether a spout's source has ended, and none of its messages is in flight."""
        return self.has_ended and not self.pending

    @property
    def busy_with_tuples(self) -> float:
        """The mean share of its executors' time that tuples take, ticks left out."""
        return self.executed * self.execute_ms / 1000 / max(1, self.executors)

    @property
    def calls_at_once(self) -> float:
        """How many calls of `execute` each task of a bolt has under way, on average."""
        return self.executed * self.execute_ms / 1000 / max(1, self.tasks)

    @property
    def waits_at_once(self) -> bool:
        """Whether it is a bolt whose calls overlap (`async def execute`) and whose limit is not
        known: the time in `execute` does not say how close it is to it."""
        return not self.is_spout and self.calls_max is None and self.calls_at_once > _ONE_AT_A_TIME

    @property
    def takes_the_thread(self) -> bool:
        """Whether it is a bolt whose calls take the time of its worker's thread."""
        return not self.is_spout and self.calls_max is None and not self.waits_at_once

    @property
    def load(self) -> float:
        """The seconds in a second that all its executors take of their workers' threads, in
        `execute`; 0 for a spout."""
        if not self.takes_the_thread:
            return 0.0
        mean = self.busy_with_tuples if self.busy_mean is None else self.busy_mean
        return mean * self.executors


@dataclass(frozen=True, slots=True)
class HeldWorker:
    """A worker in which nothing has run for a while, and the components with tasks there."""

    worker: str  # HOST:PORT
    secs: float
    components: Sequence[str]

    @classmethod
    def of(cls, worker: str, lag_ms: float | None, components: Iterable[str]) -> HeldWorker | None:
        """None if its loop turns, or its lag is not known. System components are left out."""
        if lag_ms is None or lag_ms < _HELD_SECS * 1000:
            return None
        return cls(
            worker, lag_ms / 1000, sorted(one for one in components if not is_system_id(one))
        )


@dataclass(frozen=True, slots=True)
class CheckpointFacts:
    """What is known about a topology's checkpoints."""

    interval_secs: float
    waiting_secs: float  # since one was completed, or the topology began
    epoch: int  # the last complete one; 0: none
    given_up: int = 0
    waited_for: str = ""  # the tasks for which the last one that was given up has waited
    rollbacks: int = 0
    rollback_reason: str = ""
    failure: str = ""  # of the store, since the last complete one


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a topology. Rates of its components cover `rates_secs`; `silent` are the
    workers (HOST:PORT) that have not reported, `held` those in which nothing runs."""

    name: str
    status: str
    health: str
    uptime_secs: int
    rates_secs: int
    workers: int
    silent: Sequence[str] = ()
    held: Sequence[HeldWorker] = ()
    schedule: str = ""  # what Nimbus says about slots
    last_exit: Exit | None = None
    restarts: int = 0  # within a day
    pending_max: int | None = None  # topology.max.spout.pending
    timeout_secs: float = 30.0  # topology.message.timeout.secs
    components: Sequence[ComponentFacts] = ()
    checkpoints: CheckpointFacts | None = None  # None: it takes none, or has not reported
    # Whether all sources have ended, and nothing is in flight; None: a spout does not say.
    finished: bool | None = None
    busy_poll_ms: float = 0.0  # topology.worker.busy.poll.ms

    @property
    def runs(self) -> bool:
        """Whether all its tasks are meant to run, and do."""
        return self.status == "ACTIVE" and self.health in ("", "ok")

    def storm(self, command: str, options: str = "") -> str:
        """A command line about this topology, ready to be pasted."""
        return f"`storm {command} {shlex.quote(self.name)}{options and ' '}{options}`"


def findings(facts: Facts) -> list[Finding]:
    """The worst first; empty if nothing is wrong."""
    found = [one for rule in _RULES for one in rule(facts)]
    return sorted(found, key=lambda one: one.severity)


def _status(facts: Facts) -> Iterator[Finding]:
    if facts.status == "INACTIVE":
        title = "Deactivated"
        text = f"Its spouts emit nothing until {facts.storm('activate')} resumes it."
    elif facts.status == "KILLED":
        title = "Being killed"
        text = "Its spouts have stopped, and what is in flight finishes."
    elif facts.status == "REBALANCING":
        title = "Being rebalanced"
        text = "Its spouts pause until its tasks have been placed."
    else:
        return
    yield Finding("status", Severity.STOPPED, title, text)


_HEALTH = {
    "no supervisor": (
        "No supervisor",
        "No supervisor is connected, so nothing can run. Start one with `storm supervisor`.",
    ),
    "no free slot": (
        "Not enough slots",
        "Some executors have no slot. Start another supervisor, add ports to "
        "supervisor.slots.ports, or use fewer workers.",
    ),
    "supervisor away": (
        "A supervisor is away",
        "A node that runs workers of this topology is not connected. Its tasks move if it stays "
        "away.",
    ),
    "waiting for blobs": (
        "Waiting for files",
        "A supervisor is still downloading the topology's package or its blobs.",
    ),
    "package refused": (
        "Package refused",
        "A supervisor cannot use the topology's package: {errors} says why.",
    ),
    "launch failed": (
        "Workers cannot be started",
        "A supervisor could not start a worker: {errors} says why.",
    ),
    "crash loop": (
        "Crash loop",
        "A worker ends again and again soon after its start: {errors} says why, and what to do.",
    ),
    "starting": ("Starting", "Workers are being started."),
}


def _health(facts: Facts) -> Iterator[Finding]:
    if facts.status != "ACTIVE" or facts.runs:
        return
    title, text = _HEALTH.get(facts.health, (facts.health.capitalize(), ""))
    text = text.replace("{errors}", facts.storm("get-errors"))
    if facts.health == "no free slot" and facts.schedule:
        text = f"{facts.schedule}. {text}"
    last = facts.last_exit
    if facts.health in ("crash loop", "launch failed") and last is not None:
        text += f" The last one, on {last.worker}: {last.reason}."
        if last.last_line:
            text += f" Its last line: {last.last_line}"
    starting = facts.health == "starting"
    yield Finding("health", Severity.NOTE if starting else Severity.STOPPED, title, text.strip())


def _idle(facts: Facts) -> Iterator[Finding]:
    """All workers run, and no message moves."""
    if not facts.runs or facts.silent or facts.held or facts.rates_secs < _IDLE_SECS:
        return
    spouts = [one for one in facts.components if one.is_spout]
    if not spouts or facts.finished or any(one.emitted for one in spouts):
        return
    if all(one.has_ended for one in spouts):
        yield _ended(facts, spouts)
        return
    emit = "emits" if len(spouts) == 1 else "emit"
    text = f"{_names(one.name for one in spouts)} {emit} nothing"
    busy = [one.name for one in facts.components if not one.is_spout and one.executed > 0]
    if busy:
        work = "works" if len(busy) == 1 else "work"
        text += f", while {_names(busy)} still {work} on earlier tuples."
    elif facts.pending_max is not None:
        text += (
            f": the source is empty, or {facts.pending_max:,} messages "
            "(topology.max.spout.pending) wait for their acks."
        )
    else:
        text += ": the source is empty."
    title = "The spout emits nothing" if len(spouts) == 1 else "The spouts emit nothing"
    yield Finding("idle", Severity.STOPPED, title, text)


def _ended(facts: Facts, spouts: Sequence[ComponentFacts]) -> Finding:
    """The sources have ended, and the topology has not finished yet."""
    pending = sum(one.pending for one in spouts)
    if pending:
        text = f"{pending:,} messages are in flight."
    elif facts.checkpoints is not None:
        text = "What sinks have still to write comes with the next checkpoint."
    else:
        text = "Bolts work on the last tuples, or have just finished."
    title = "The source has ended" if len(spouts) == 1 else "The sources have ended"
    return Finding("ended", Severity.NOTE, title, f"All input is read. {text}")


def _finished(facts: Facts) -> Iterator[Finding]:
    if facts.runs and facts.finished:
        yield Finding(
            "finished",
            Severity.NOTE,
            "Finished",
            "All input is read, and nothing is in flight. "
            f"{facts.storm('kill')} removes the topology.",
        )


def _held(facts: Facts) -> Iterator[Finding]:
    """A call that does not return holds all tasks of its worker, which share a thread."""
    if not facts.runs:
        return
    emits = any(one.emitted for one in facts.components if one.is_spout)
    for one in facts.held:
        names = f" of {_names(one.components)}" if one.components else ""
        yield Finding(
            "held",
            Severity.SLOW if emits else Severity.STOPPED,
            "A call holds up a worker",
            f"Nothing has run in worker {one.worker} for {one.secs:.0f} s: a call there takes "
            f"that long or does not return, and all tasks{names} wait for it. "
            f"{facts.storm('profile', f'--stack --worker {one.worker}')} shows where it is. "
            "`blocking = True` in the class gives its calls a thread.",
        )


def _busy(facts: Facts) -> Iterator[Finding]:
    """The bolts that limit the topology, and by what: one key, ticks, their number, or workers
    whose executors fill them together, so that none of them needs to be full."""
    bolts = [one for one in facts.components if one.takes_the_thread]
    if not bolts:
        return
    one = max(bolts, key=lambda bolt: bolt.busy)
    severity = Severity.SLOW if one.busy >= FULL else Severity.NOTE
    trend = trend_of(one.busy_before, one.busy)
    if one.busy >= NEARLY_FULL and _is_skewed(one):
        yield _skewed(one, f"is busy {one.busy:.0%} of its time")
        return
    share = sum(bolt.load for bolt in bolts) / max(1, facts.workers)
    if FULL <= share <= _SHARED:
        yield _full_workers(facts, max(bolts, key=lambda bolt: bolt.load), share)
    elif one.busy >= NEARLY_FULL:
        at_limit = "is the bottleneck" if one.busy >= FULL else "is nearly at its limit"
        yield Finding(
            "slow bolt", severity, f"{one.name} {at_limit}",
            f"Its busiest executor spends {one.busy:.0%} of its time in execute "
            f"({_tuples(one)}, {_count(one.executors, 'executor')}). {_remedy(facts, one)}",
            one.name, trend,
        )  # fmt: skip


def _skewed(one: ComponentFacts, busy: str) -> Finding:
    return Finding(
        "skew",
        Severity.SLOW if one.busy >= FULL else Severity.NOTE,
        f"{one.name} is skewed",
        f"One executor ({one.busiest}) {busy}, all {one.executors} on average {one.busy_mean:.0%}: "
        "a few keys get most of the tuples. More executors do not help; a partial key grouping, or "
        "another key, does.",
        one.name,
        trend_of(one.busy_before, one.busy),
    )


def _calls(facts: Facts) -> Iterator[Finding]:
    """The bolts at their limits of calls, or the one that is nearest to it: async ones, and those
    with a thread for each task. They share nothing, and more executors do not change a limit."""
    bolts = [one for one in facts.components if one.calls_max is not None]
    bolts.sort(key=lambda bolt: bolt.busy, reverse=True)
    for number, one in enumerate(bolts):
        if one.busy >= (FULL if number else NEARLY_FULL):
            yield _at_limit(one)


def _at_limit(one: ComponentFacts) -> Finding:
    if _is_skewed(one):
        return _skewed(one, f"has {one.busy:.0%} of its calls under way")
    full = one.busy >= FULL
    if one.on_threads:
        title = f"{one.name} {'uses all its threads' if full else 'uses nearly all its threads'}"
    else:
        title = f"{one.name} is {'' if full else 'nearly '}at its limit of calls"
    return Finding(
        "slow bolt",
        Severity.SLOW if full else Severity.NOTE,
        title,
        f"{_calls_words(one)} ({_tuples(one)}). {_more_calls(one)}",
        one.name,
        trend_of(one.busy_before, one.busy),
    )


def calls_of(calls: float, calls_max: int, on_threads: bool) -> str:
    """`12 of 100 calls`, `0.8 of 2 threads`: under way on average, and at most."""
    noun = "thread" if on_threads else "call"
    number = f"{calls:,.0f}" if calls >= 9.95 else f"{calls:.1f}"
    return f"{number} of {calls_max:,} {noun}{'' if calls_max == 1 else 's'}"


def _calls_words(one: ComponentFacts) -> str:
    share = calls_of(one.calls or 0.0, one.calls_max or 0, one.on_threads)
    return f"{share} are {'in execute' if one.on_threads else 'under way'} on average"


def _more_calls(one: ComponentFacts) -> str:
    if one.on_threads:
        return (
            f"Each task has one thread, and more executors do not add any: raise tasks= of "
            f"{one.name}, or let what it waits for answer sooner."
        )
    each = max(1, (one.calls_max or 1) // max(1, one.tasks))
    return (
        f"Raise its topology.bolt.async.concurrency ({each:,} for each task), or let what it waits "
        "for answer sooner. More executors do not help."
    )


def _waiting(facts: Facts) -> Iterator[Finding]:
    """The async bolt with the most calls under way, of a worker that does not say how many it makes
    at most."""
    bolts = [one for one in facts.components if one.waits_at_once]
    if not bolts:
        return
    one = max(bolts, key=lambda bolt: bolt.calls_at_once)
    yield Finding(
        "slow bolt",
        Severity.NOTE,
        f"{one.name} waits in many calls at once",
        f"{_each(one.tasks)} has {_rate(one.calls_at_once)} calls of execute "
        f"under way on average ({_tuples(one)}). If tuples queue for it, raise its "
        "topology.bolt.async.concurrency, or let what it waits for answer sooner.",
        one.name,
    )


def _each(tasks: int) -> str:
    return "Its task" if tasks == 1 else f"Each of its {tasks} tasks"


def _is_skewed(one: ComponentFacts) -> bool:
    mean = one.busy_mean
    return one.executors > 1 and bool(mean) and one.busy / (mean or 1.0) >= _SKEW


def _full_workers(facts: Facts, one: ComponentFacts, share: float) -> Finding:
    options = f"-n {facts.workers + 1}"
    if one.executors <= facts.workers < one.tasks:
        options += f" -e {shlex.quote(one.name)}={facts.workers + 1}"
    return Finding(
        "full workers",
        Severity.SLOW,
        "The worker is full" if facts.workers == 1 else "The workers are full",
        f"Bolts spend {share:.0%} of the time of {_count(facts.workers, 'worker')} in execute, "
        f"{one.name} {one.load / max(1, facts.workers):.0%} ({_tuples(one)}). The executors of a "
        f"worker share its thread. Try {facts.storm('rebalance', options)}.",
        one.name,
    )


def _remedy(facts: Facts, one: ComponentFacts) -> str:
    tuples = one.busy_with_tuples
    if one.busy_mean is not None and tuples < one.busy_mean * _EXPLAINED:
        return f"Its tuples take {tuples:.0%} of the time, the rest goes to ticks: do less on each."
    if one.executors < one.tasks:
        options = f"-e {shlex.quote(one.name)}={one.tasks}"
        return f"Try {facts.storm('rebalance', options)}, or make execute faster."
    return f"It has as many executors as tasks: raise tasks= of {one.name}, or make execute faster."


def _blocked(facts: Facts) -> Iterator[Finding]:
    """Who waits for whom, and whether that one is slow, waits itself, or is hard to reach."""
    by_name = {one.name: one for one in facts.components}
    waiting: dict[str, list[tuple[float, str]]] = {}
    for one in facts.components:
        by, share = max(one.blocked.items(), key=lambda item: item[1], default=("", 0.0))
        if share >= _BLOCKED:
            waiting.setdefault(by, []).append((share, one.name))
    for by, found in waiting.items():
        names = [name for _, name in sorted(found, reverse=True)]
        share = max(found)[0]
        wait = "waits" if len(names) == 1 else "wait"
        text = f"{_names(names)} {wait} {_up_to(names)}{share:.0%} of the time because {by} takes "
        text += "no more. "
        kind, target = "blocked", by_name.get(by)
        beyond = target is not None and [
            name for name, part in target.blocked.items() if part >= _BLOCKED
        ]
        if target is None or target.busy >= FULL:
            text += f"{by} is at its limit."
        elif beyond:
            text += f"{by} waits for {_names(beyond)}."
        else:
            kind = "slow peer"
            busy = (
                f"is busy {target.busy:.0%} of its time"
                if target.calls_max is None
                else f"has {calls_of(target.calls or 0.0, target.calls_max, target.on_threads)} "
                "under way"
            )
            text += (
                f"{by} {busy}: its worker, that node or the network is slow, or it waits for "
                "another system."
            )
        yield Finding(kind, Severity.SLOW, f"{_names(names)} {wait} for {by}", text, by)


def _up_to(names: Sequence[str]) -> str:
    return "" if len(names) == 1 else "up to "


def _failing(facts: Facts) -> Iterator[Finding]:
    """Messages that fail, and messages that are about to."""
    limit = f"time out after {facts.timeout_secs:g} s (topology.message.timeout.secs)"
    failing = [bolt.name for bolt in facts.components if not bolt.is_spout and bolt.failed]
    for one in facts.components:
        ended = one.acked + one.failed
        if not one.is_spout or not ended:
            continue
        slow = one.complete_ms >= facts.timeout_secs * 1000 * _NEAR_TIMEOUT
        if one.failed / ended >= _FAILING:
            text = (
                f"{one.failed / ended:.0%} of the messages of {one.name} fail "
                f"({_rate(one.failed)} a second)"
            )
            if failing:
                fail = "fails" if len(failing) == 1 else "fail"
                text += f": {_names(failing)} {fail} tuples. See {facts.storm('get-errors')}."
            elif slow:
                text += f": they take {_ms(one.complete_ms)}, and {limit}."
            elif not one.acked:
                text += f": none is acked, and they {limit}."
            else:
                text += f": a bolt fails them, or they {limit}. See {facts.storm('get-errors')}."
            yield Finding("failing", Severity.SLOW, "Messages fail", text, one.name)
        elif slow:
            yield Finding(
                "near timeout", Severity.SLOW, "Messages are near their timeout",
                f"Messages of {one.name} take {_ms(one.complete_ms)} and {limit}: lower "
                "topology.max.spout.pending, or give the bolts more executors.",
                one.name,
            )  # fmt: skip


def _restarts(facts: Facts) -> Iterator[Finding]:
    """Recent ones cost time: what their workers held is replayed."""
    last = facts.last_exit
    if last is None or facts.health in ("crash loop", "launch failed"):
        return
    number = max(1, facts.restarts)
    recent = last.age_secs <= _RECENT_SECS
    text = (
        f"{_count(number, 'worker')} ended unexpectedly within a day, the last one "
        f"{ago(last.age_secs)} on {last.worker}: {last.reason}. "
    )
    if last.last_line:
        text += f"Its last line: {last.last_line.rstrip('.')}. "
    if recent and facts.checkpoints is not None:
        text += "All tasks went back to the last checkpoint. "
    elif recent:
        text += (
            f"Messages in flight there fail, after {facts.timeout_secs:g} s at the latest "
            "(topology.message.timeout.secs). "
        )
    yield Finding(
        "restart",
        Severity.SLOW if recent else Severity.NOTE,
        "A worker was restarted" if number == 1 else "Workers were restarted",
        f"{text}{facts.storm('get-errors')} says more.",
    )


def _checkpoints(facts: Facts) -> Iterator[Finding]:
    """No checkpoint was completed for five intervals: what sinks write waits for one, and a fault
    would go back far."""
    known = facts.checkpoints
    if known is None or facts.status != "ACTIVE":
        return
    if known.waiting_secs < max(_INTERVALS * known.interval_secs, _CHECKPOINT_SECS):
        return
    last = f"The last one is number {known.epoch}" if known.epoch else "There is none yet"
    text = (
        f"None was completed for {known.waiting_secs:.0f} s, and one is due every "
        f"{known.interval_secs:g} s (topology.checkpoint.interval.secs). {last}: results wait for "
        "the next one, and a fault goes back to it. "
    )
    if known.failure:
        text += f"The store (topology.state.url) has failed: {known.failure.rstrip('.')}. "
    elif known.waited_for:
        text += f"The last one that was given up has waited for {known.waited_for}. "
    elif known.rollback_reason:
        text += f"The last rollback: {known.rollback_reason}. "
    if not known.failure:
        text += "Is a bolt slow, or ZooKeeper or the store (topology.state.url) away? "
    text += f"See {facts.storm('get-errors')}."
    yield Finding("checkpoints", Severity.SLOW, "Checkpoints are not completed", text)


def _silent(facts: Facts) -> Iterator[Finding]:
    if facts.runs and facts.silent and facts.uptime_secs > _SILENT_SECS:
        has, it, hang = (
            ("has", "it", "hangs") if len(facts.silent) == 1 else ("have", "they", "hang")
        )
        yield Finding(
            "silent",
            Severity.NOTE,
            "A worker is silent" if len(facts.silent) == 1 else "Workers are silent",
            f"{_names(facts.silent)} {has} not reported yet: {it} {has} just started, or {hang}.",
        )


def _errors(facts: Facts) -> Iterator[Finding]:
    for one in facts.components:
        if one.error and one.error_age_secs is not None and one.error_age_secs <= _RECENT_SECS:
            yield Finding(
                "error", Severity.NOTE, f"{one.name} reports errors",
                f"{ago(one.error_age_secs)}: {one.error}", one.name,
            )  # fmt: skip


_RULES: tuple[Callable[[Facts], Iterable[Finding]], ...] = (
    _status, _health, _held, _idle, _finished, _busy, _calls, _waiting, _blocked, _failing,
    _checkpoints, _restarts, _silent, _errors,
)  # fmt: skip


def cpu_note(facts: Facts) -> str:
    """Why the CPU of workers says little about their load; empty if it says what it seems to."""
    if not facts.busy_poll_ms or facts.workers < 2:
        return ""
    return (
        "These workers do not sleep while tuples come (topology.worker.busy.poll.ms: "
        f"{facts.busy_poll_ms:g}): up to 100% of CPU each is the price of that, not load. "
        "How busy the bolts are says whether they are full."
    )


def trend_of(before: float | None, now: float) -> str:
    """Of a share, against some minutes ago."""
    if before is None:
        return ""
    if now > before + _TREND:
        return "rising"
    return "falling" if now < before - _TREND else "steady"


def ago(secs: int) -> str:
    """`ago(130)` is `2 min ago`."""
    for size, name in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if secs >= 2 * size:
            return f"{secs // size} {name} ago"
    return f"{secs} s ago"


def _names(names: Iterable[str]) -> str:
    found = list(names)
    if len(found) > 4:
        return f"{', '.join(found[:3])} and {len(found) - 3} more"
    return " and ".join([", ".join(found[:-1]), found[-1]]) if len(found) > 1 else found[0]


def _tuples(one: ComponentFacts) -> str:
    return f"{_rate(one.executed)} tuples/s, {_ms(one.execute_ms)} each"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 9.95 else f"{value:.2g}"


def _ms(value: float) -> str:
    return f"{value / 1000:.3g} s" if value >= 1000 else f"{value:.3g} ms"
