"""Settles a worker's trees between the tasks' ledger, the local ackers, the ackers of other
workers, and the spouts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence

from squall_common.daemon.logs import get_logger
from squall_common.names import ACKER_ACK_STREAM, ACKER_FAIL_STREAM, ACKER_INIT_STREAM
from squall_engine.acking.dead_letters import DeadLetters
from squall_engine.acking.suspects import Suspects
from squall_engine.core import Outcome, Settled, Trees, TurnState
from squall_engine.core.sections import (
    DONE,
    FAILED,
    FAILS,
    KILLED,
    NOTES,
    RESET,
    RESETS,
    AcksSection,
    acker_of,
    parse_acks,
    parse_roots,
)
from squall_engine.core.stats import Totals
from squall_engine.dataflow.remote import Exchange
from squall_engine.plan import Plan
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import ThreadSpout

log = get_logger(__name__)

_NOTES = bytes([NOTES])
_KILLED = bytes([KILLED])
_LOST_ROOTS_A_TURN = 1_000  # failed in a turn after the loss of a worker


class AckCoordinator:
    """Settles the ledger once a turn, and sends the results to ackers and spouts."""

    def __init__(
        self,
        plan: Plan,
        exchange: Exchange,
        turn: TurnState,
        bits: Callable[[int], int],
        *,
        timeouts: bool,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        """`timeouts` False: `topology.enable.message.timeouts` is off."""
        self._dead_letters = dead_letters
        self.suspects: Suspects | None = None  # with topology.max.worker.kills
        self._plan = plan
        self._exchange = exchange
        self._turn = turn
        self._timeouts = timeouts
        self._trees = Trees(len(plan.acker_tasks), plan.local_ackers, bits)
        self.ledger = self._trees.ledger
        self._buckets = 0
        self._lost: dict[SpoutTask, deque[int]] = {}
        self._spouts: dict[int, SpoutTask] = {}  # by task
        self._attached: list[SpoutTask] = []

    def attach(self, spouts: Iterable[SpoutTask]) -> None:
        """Set the spouts of this worker."""
        self._spouts = {spout.task: spout for spout in spouts}
        # The trees of a spout on a thread must not change while it emits.
        self._attached = [s for s in self._spouts.values() if not isinstance(s, ThreadSpout)]
        for spout in self._attached:
            self._trees.attach(spout.task, spout.pending)

    def detach(self) -> None:
        """Forget the spouts of this worker, because they are closed."""
        self._spouts = {}
        self._attached = []

    def __len__(self) -> int:
        """The number of roots that are kept here, in all tables."""
        return len(self._trees)

    # ---- settling ----

    def settle(self) -> bool:
        """Settle what this turn did to the trees: notify spouts of finished ones, and ackers of the
        others. True when there was anything."""
        if self._dead_letters is not None:
            self._dead_letters.flush()  # reasons leave before the fails
        outcome = self._trees.settle()
        if outcome is not None:
            self._notify(outcome)
        worked = outcome is not None
        for spout in self._attached:
            worked |= spout.completed()
        return worked

    def _notify(self, outcome: Outcome) -> None:
        if outcome.failed:
            self._notify_spouts(FAILED, outcome.failed)
        if outcome.done:
            self._notify_spouts(DONE, outcome.done)
        if outcome.reset:
            self._notify_spouts(RESET, outcome.reset)
        for index, sections in outcome.sections.items():
            self._exchange.send_to_acker(index, sections)

    def _notify_spouts(self, kind: int, settled: Settled) -> None:
        for task, roots in settled.items():
            if task in self._spouts:
                self._notify_spout(kind, task, roots)
            else:
                self._exchange.answer(kind, task, roots)

    def _notify_spout(self, kind: int, task: int, roots: Sequence[int]) -> None:
        spout = self._spouts.get(task)
        if spout is None:
            log.warning("answer_for_task_elsewhere", task=task, roots=len(roots))
            return
        with spout.lock:
            if kind == DONE:
                spout.acked(roots)
            elif kind == FAILED:
                spout.failed(roots)
            else:
                spout.reset_timeout(roots, self._turn.bucket)

    # ---- from other workers ----

    def receive_acks(self, section: bytes) -> None:
        """Take an ACKS section for an acker of this worker. One for an acker elsewhere (a stale
        route) is dropped, and its trees fail. Raises CodecError."""
        if acker_of(section) in self._plan.local_ackers:
            self._notify(self._trees.receive_acks(section))
        else:
            self.give_up_acks(parse_acks(section))

    def give_up_acks(self, section: AcksSection) -> None:
        """Fail the trees of a section that never reached its acker. No acker knows the spouts of
        the trees that begin in it, so these are notified directly."""
        self.ledger.fail([root for root in section.acks if root not in section.inits])
        begun: Settled = {}
        for root, spout in section.inits.items():
            begun.setdefault(spout, []).append(root)
        self._notify_spouts(FAILED, begun)

    def receive_roots(self, data: bytes) -> None:
        """Take a section of roots for a spout or an acker of this worker. Raises CodecError."""
        if data[:1] == _NOTES:
            if self._dead_letters is not None:
                self._dead_letters.receive(data)
            return
        if data[:1] == _KILLED:
            if self.suspects is not None:
                self.suspects.receive(data)
            return
        section = parse_roots(data)
        if section.kind in (DONE, FAILED, RESET):
            self._notify_spout(section.kind, section.target, section.roots)
        elif section.kind == FAILS:
            self._notify(self._trees.fail(section.target, section.roots))
        elif section.kind == RESETS:
            self._notify(self._trees.reset_timeout(section.target, section.roots))

    # ---- timeouts and losses ----

    def rotate(self) -> bool:
        """Rotate the timeout buckets, every tenth of the message timeout. True when something timed
        out."""
        self._turn.bucket += 1
        worked = False
        if self._timeouts:
            for spout in self._spouts.values():
                with spout.lock:
                    worked |= spout.expire(self._turn.bucket)
        if self._dead_letters is not None:
            worked |= self._dead_letters.retry()
        if self.suspects is not None:
            worked |= self.suspects.retry()
        self._buckets += 1
        if self._buckets % 10 == 0:
            self._trees.rotate_ackers()
        return worked

    @property
    def has_timeouts(self) -> bool:
        """Whether there is anything that a rotation could expire."""
        return any(spout.pending for spout in self._spouts.values()) or len(self) > 0

    def worker_lost(self, tasks: Collection[int]) -> None:
        """Fail, in the coming turns, the messages that were pending on these tasks."""
        gone = set(tasks)
        component_of = self._plan.task_to_component
        components = {component_of[task] for task in gone if task in component_of}
        for spout in self._spouts.values():
            index = self._plan.acker_of_spout(spout.task)
            acker_gone = index is not None and self._plan.acker_tasks[index] in gone
            if acker_gone or not spout.downstream.isdisjoint(components):
                with spout.lock:
                    self._lost.setdefault(spout, deque()).extend(spout.pending.oldest_first())

    @property
    def has_lost(self) -> bool:
        """Whether there is something for `fail_lost`."""
        return bool(self._lost)

    def fail_lost(self) -> bool:
        """Fail some of the messages that were lost with a worker; True when there were any."""
        if not self._lost:
            return False
        for spout, roots in list(self._lost.items()):
            portion = [roots.popleft() for _ in range(min(len(roots), _LOST_ROOTS_A_TURN))]
            with spout.lock:
                spout.failed(portion, lost=True)
            if not roots:
                del self._lost[spout]
        return True

    def give_up(self) -> None:
        """Fail the trees in the tables of this worker's ackers, because the worker ends."""
        self._notify(self._trees.give_up())

    # ---- statistics ----

    def add_to(self, totals: Totals, acker_task: int) -> None:
        """Add the counts of an acker of this worker."""
        counts = self._trees.counts(self._plan.acker_tasks.index(acker_task))
        for task, n in counts.inits.items():
            component = self._plan.task_to_component.get(task, "")
            for measure in ("executed", "acked"):
                key = (measure, (component, ACKER_INIT_STREAM))
                totals[key] = totals.get(key, 0) + n
        for stream, n in ((ACKER_ACK_STREAM, counts.done), (ACKER_FAIL_STREAM, counts.failed)):
            if n:
                for measure in ("emitted", "transferred"):
                    totals[measure, stream] = totals.get((measure, stream), 0) + n
