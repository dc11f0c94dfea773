"""How tuples move between the tasks of a worker and to other workers, and which producers pause
when a consumer falls behind.

Emitting never blocks. Emitted tuples wait in the edges of their task until that task, and the tasks
that share these edges, have run (`outgoing`). Then they go to inboxes of this worker, or to other
workers as far as their credit allows. Backpressure has two thresholds: an inbox above its *soft*
one throttles the spouts upstream; above its *hard* one, or without credit, it blocks every task
that feeds it (`blocked_tasks`). Both are in tuples; the hard one is also in bytes, by the size of a
tuple that is sampled now and then. Tasks that do not feed a slow target go on.

A cycle (a strongly connected component) never blocks itself, because it could stop for good: only
the tasks that feed it wait. A cycle that creates more tuples than it finishes would grow without
end, so its tuples fail above the budget of the worker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, groupby
from typing import Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.names import MARK_STREAM
from squall_common.topology.model import WorkerSlot
from squall_engine.backpressure.blocked_tasks import BlockedTasks
from squall_engine.backpressure.credit import (
    Accounts,
    Allowance,
    Inflow,
    Outflow,
    charge,
    section_bytes,
    window_bytes,
)
from squall_engine.backpressure.inbox import EncodedTuples
from squall_engine.backpressure.turn_size import TurnSize
from squall_engine.backpressure.wait_times import WaitTimes
from squall_engine.core import Batch, Edge, Ledger, TurnState
from squall_engine.core.sections import addressee
from squall_engine.dataflow.marks import END
from squall_engine.dataflow.outgoing import OutgoingEdge, OutputGroup, TupleBuffer, output_groups
from squall_engine.dataflow.remote import SECTION_BYTES_MAX, Exchange
from squall_engine.dataflow.traced_edge import TracedEdge
from squall_engine.plan import Plan
from squall_engine.tasks.base import Task
from squall_engine.tasks.bolt import SLICE_TUPLES_MAX, BoltTask, SlicedBolt
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout
from squall_engine.transport import LOAD_MAX, Grant, Transport

_SOFT_TUPLES = 2_048
_UNROUTED_TUPLES_MAX = 10_000  # kept an edge while its task has no worker
_INBOX_BYTES_MIN = 256 * 1024
# The tasks that share an output group take (or spouts emit) as many tuples together before it is
# flushed as one task may in a slice, so batches are large. This may exceed a threshold.
_FLUSH_TUPLES = SLICE_TUPLES_MAX
_SECTION_TUPLES_MAX = 2_048  # decoded in one go
_LOAD_STEP = LOAD_MAX // 64  # a smaller change is not reported

# Spouts emit more in a turn while the bolts take at most so many times as long as a turn should.
_LONG_TURN = 20

# (edge, the outgoing edge that it is in): what stands in its place.
Follow = Callable[[Edge, OutgoingEdge], TupleBuffer]


class CycleOverflowError(Exception):
    """The bolts of a cycle emit more tuples into it than they finish."""


class Flow:
    """The tasks of a worker, wired to each other."""

    def __init__(
        self,
        plan: Plan,
        exchange: Exchange,
        transport: Transport | None,
        options: TopologyOptions,
        turn: TurnState,
    ) -> None:
        """Waits are timed by turns: `turn.now`."""
        self._plan = plan
        self._turn = turn
        self._exchange = exchange
        self._transport = transport
        self.spouts: list[SpoutTask] = []
        self.bolts: list[BoltTask] = []  # in the order of a turn
        self.bolt_of: dict[int, BoltTask] = {}
        self.task_of: dict[int, Task] = {}
        self._groups: list[OutputGroup] = []
        self._group_of: dict[Task, OutputGroup] = {}
        self._sender_of: dict[OutputGroup, Task] = {}
        # In the order of a turn; those that share an output group together.
        self._spouts_by_group: list[tuple[OutputGroup, list[SpoutTask]]] = []
        self._bolts_by_group: list[tuple[OutputGroup, list[BoltTask]]] = []
        self._threaded: list[tuple[ThreadSpout | ThreadBolt, Ledger]] = []
        self._tuples_max = options.topology_executor_receive_buffer_size
        self._budget = options.topology_worker_buffer_bytes
        self._long_turn_secs = _LONG_TURN * options.topology_run_turn_ms / 1000
        self._inbox_bytes = _INBOX_BYTES_MIN
        self._outflow = Outflow()
        self._inflow = Inflow()
        # By output group: its tasks wait for the same targets.
        self._blocked_tasks: BlockedTasks[OutputGroup] = BlockedTasks({})
        self._feeds: dict[OutputGroup, frozenset[str]] = {}  # components that it may wait for
        self._turn_size = TurnSize(0, 0.0)
        self._turn_used = False  # a spout has emitted as much as it may in this turn
        self._blocked_times = WaitTimes()
        self._throttled_times = WaitTimes()  # of spouts
        self._waiting_for_credit: dict[OutgoingEdge, OutputGroup] = {}
        self._throttling: dict[BoltTask, None] = {}  # above the soft mark
        self._congested: frozenset[str] = frozenset()
        self._congested_is_stale = False
        # Spouts whose marks others get, and whether they were told that the source has ended.
        self._ending: dict[SpoutTask, bool] = {}
        self.dropped: Counter[str] = Counter()  # tuples of system streams, by stream
        self.load_reported = False  # it was reported to a worker that an inbox here is not empty

    def wire(self, built: list[Built], follow: Follow | None = None) -> None:
        """Connect the tasks, once all are made. `follow` replaces each edge (see `tracing`)."""
        self.task_of = {one.task.task: one.task for one in built}
        for task_id in self._plan.local_user_tasks():
            task = self.task_of[task_id]
            if isinstance(task, SpoutTask):
                self.spouts.append(task)
            elif isinstance(task, BoltTask):
                self.bolts.append(task)
                self.bolt_of[task_id] = task
        self._inbox_bytes = max(_INBOX_BYTES_MIN, self._budget // 2 // max(1, len(self.bolts)))
        for bolt in self.bolts:
            bolt.set_marks(_SOFT_TUPLES, self._tuples_max, self._inbox_bytes)
            bolt.decode = self._exchange.decode_for
            bolt.on_full = self._check_inbox
        self._group_of = output_groups([one.task for one in built], self.bolt_of, self._plan)
        self._groups = list(dict.fromkeys(self._group_of.values()))
        # Tasks that share their edges sent together: the first of them reports it.
        self._sender_of = {group: task for task, group in reversed(self._group_of.items())}
        if follow is not None:
            for group in self._groups:
                for outgoing in group.outgoing_edges:
                    assert isinstance(outgoing.edge, Edge)
                    outgoing.edge = follow(outgoing.edge, outgoing)
        for one in built:
            task = one.task
            if isinstance(task, SlicedBolt) and self._group_of[task].outgoing_edges:
                task.pause = partial(self._pause, task)
            if isinstance(task, ThreadSpout | ThreadBolt):
                assert one.ledger is not None
                self._threaded.append((task, one.ledger))
            has_end = isinstance(task, SpoutTask) and task.source_end is not None
            if has_end and self._plan.consumers_of(task.component, MARK_STREAM):
                assert isinstance(task, SpoutTask)
                self._ending[task] = False
        of = self._group_of.__getitem__
        self._spouts_by_group = [(group, list(some)) for group, some in groupby(self.spouts, of)]
        self._bolts_by_group = [(group, list(some)) for group, some in groupby(self.bolts, of)]
        feeds = {
            group: [
                outgoing.task
                for outgoing in group.outgoing_edges
                if not (outgoing.inner or outgoing.droppable)
            ]
            for group in self._groups
        }
        # Tasks on threads have edges of their own to the same tasks, which are visited once.
        visited = {
            (outgoing.component, outgoing.stream, outgoing.task)
            for group in self._groups
            for outgoing in group.outgoing_edges
        }
        self._turn_size = TurnSize(len(visited), self._long_turn_secs)
        for spout in self.spouts:
            if spout.takes_turn_size:
                spout.calls_max = self._turn_size.now
        self._blocked_tasks = BlockedTasks(feeds)
        component_of = self._plan.task_to_component
        self._feeds = {
            group: frozenset(component_of[task] for task in fed) for group, fed in feeds.items()
        }
        self.set_routes(self._exchange.routes)

    def wrap_edges(self, wrap: Callable[[Edge], TupleBuffer | None]) -> None:
        """Replace each edge, as the place from which emitted tuples are taken, by what `wrap`
        returns for it (None: the edge itself stays)."""
        for group in self._groups:
            with group.lock:
                for outgoing in group.outgoing_edges:
                    place = outgoing.edge
                    edge = place.inner if isinstance(place, TracedEdge) else place
                    assert isinstance(edge, Edge), "wrapped once"
                    wrapped = wrap(edge)
                    if wrapped is None:
                        continue
                    if isinstance(place, TracedEdge):
                        place.inner = wrapped
                    else:
                        outgoing.edge = wrapped

    def rewrap_edges(self, wrap: Callable[[TupleBuffer, str, str, int], TupleBuffer]) -> None:
        """Replace each edge, or what stands in its place, by what `wrap` returns for it, its
        component, its stream and the task that it leads to. As often as needed."""
        for group in self._groups:
            with group.lock:
                for outgoing in group.outgoing_edges:
                    outgoing.edge = wrap(
                        outgoing.edge, outgoing.component, outgoing.stream, outgoing.task
                    )

    # ---- where the others are ----

    def set_routes(self, routes: Mapping[int, WorkerSlot]) -> None:
        """Set where the tasks of other workers are."""
        self._exchange.set_routes(routes)
        routes = self._exchange.routes
        for group in self._groups:
            for outgoing in group.outgoing_edges:
                if outgoing.target is None:
                    slot = outgoing.slot = routes.get(outgoing.task)
                    outgoing.allowance = outgoing.outbound = None
                    if slot is not None:
                        outgoing.outbound = self._exchange.outbound(slot)
                        outgoing.allowance = self._outflow.allowance(slot, outgoing.task)
                    self._check_allowance(outgoing.task, outgoing.allowance)
                    if outgoing.rest is not None or len(outgoing.edge):
                        self._waiting_for_credit[outgoing] = group
        sources: dict[WorkerSlot, set[str]] = {}
        for source, slot in routes.items():
            sources.setdefault(slot, set()).add(self._plan.task_to_component[source])
        fed = {}
        for slot, of in sources.items():
            tasks = [
                b.task for b in self.bolts if not self._plan.feeders[b.component].isdisjoint(of)
            ]
            if tasks:
                fed[slot] = tasks
        window = window_bytes(self._budget // 2, sum(map(len, fed.values())))
        self._inflow.set_windows({s: dict.fromkeys(tasks, window) for s, tasks in fed.items()})

    def session_began(self, slot: WorkerSlot, sessions: object, waiting: Sequence[bytes]) -> None:
        """A pair of sessions with another worker began; `waiting` goes out first."""
        sent = []
        for section in waiting:
            task, count = addressee(section)
            if count:
                sent.append((task, charge(len(section), count)))
        self._outflow.session_began(slot, sent)
        self._inflow.session_began(slot, sessions)
        self._exchange.session_began(slot)
        for group in self._groups:
            for outgoing in group.outgoing_edges:
                if outgoing.slot == slot:
                    self._check_allowance(outgoing.task, outgoing.allowance)

    def granted(self, slot: WorkerSlot, grants: Sequence[Grant]) -> None:
        """Another worker has sent grants for its tasks."""
        self._exchange.granted(slot, grants)
        self._outflow.granted(slot, grants)
        closed = self._blocked_tasks.closed_targets
        for grant in grants:
            if grant.task in closed and self._exchange.routes.get(grant.task) == slot:
                self._check_allowance(grant.task, self._outflow.allowance(slot, grant.task))

    def _check_allowance(self, task: int, allowance: Allowance | None) -> None:
        if allowance is not None and allowance.left > 0:
            self._open(task)
        else:
            self._close(task)

    def _close(self, target: int) -> None:
        """A target takes no more tuples."""
        if self._blocked_tasks.close_target(target):
            self._congested_is_stale = True
            self._blocked_times.closed(self._plan.task_to_component[target], self._turn.now)

    def _open(self, target: int) -> None:
        """A target takes tuples again."""
        if self._blocked_tasks.open_target(target):
            self._congested_is_stale = True
            self._blocked_times.opened(self._plan.task_to_component[target], self._turn.now)

    # ---- moving ----

    @property
    def is_drained(self) -> bool:
        """Whether nothing is in flight: inboxes and buffers empty, every message settled."""
        return (
            not any(bolt.busy for bolt in self.bolts)
            and not any(spout.pending for spout in self.spouts)
            and not self._waiting_for_credit
            and all(group.outbox.is_empty for group in self._groups)
            and self._exchange.is_empty
        )

    def is_settled(self, task: SpoutTask | BoltTask) -> bool:
        """Whether a task has nothing in hand, and all that it has emitted has left its edges."""
        group = self._group_of[task]
        with group.lock:
            return not task.busy and self._have_left(group)

    def has_sent(self, task: Task) -> bool:
        """Whether all that a task has emitted has left its edges."""
        group = self._group_of[task]
        with group.lock:
            return self._have_left(group)

    def _have_left(self, group: OutputGroup) -> bool:
        """Whether the edges of an output group are empty, once they are flushed."""
        self.flush(group)
        # (The outbox does not know of edges that wait for credit.)
        rests = any(
            outgoing.rest is not None or len(outgoing.edge)
            for outgoing in group.outgoing_edges
            if not outgoing.droppable
        )
        return group.outbox.is_empty and not rests

    def emit_mark(self, task: SpoutTask | BoltTask, mark: Sequence[Any]) -> None:
        """Emit a mark of event time, in no tree."""
        group = self._group_of[task]
        with group.lock:
            if isinstance(task, SpoutTask):
                task.calls.emit(mark, None, MARK_STREAM)
            else:
                task.calls.emit(mark, (), MARK_STREAM)
            self.flush(group)

    def _say_ends(self) -> None:
        """Tell the consumers of spouts whose sources have ended that nothing more will come."""
        for spout, is_said in self._ending.items():
            if spout.has_ended == is_said:
                continue
            if is_said:
                self._ending[spout] = False  # it goes on, as its next tuple says
            elif self.has_sent(spout):
                self._ending[spout] = True
                self.emit_mark(spout, END)

    def flush(self, group: OutputGroup) -> bool:
        """Move the tuples that wait in the edges of an output group to their targets. True when
        something moved. Tuples without credit stay, and are in `_waiting_for_credit`."""
        outbox = group.outbox
        moved = outbox.deliver()
        for outgoing in outbox.take():
            target = outgoing.target
            if target is None:
                moved |= self._send(group, outgoing)
                continue
            batch = outgoing.edge.take()
            n = len(batch)
            if not n:
                continue
            if outgoing.droppable and target.inbox.local > target.hard:
                self.dropped[outgoing.stream] += n
                continue
            if outgoing.inner and target.inbox.local > target.hard_max:
                self._overflow(outgoing, batch)
                continue
            target.inbox.put_from_here(batch)
            moved = True
        return moved

    def _send(self, group: OutputGroup, outgoing: OutgoingEdge) -> bool:
        """Send what waits for a task of another worker, as far as the credit allows."""
        allowance, moved = outgoing.allowance, False
        while allowance is not None:
            left = allowance.limit - allowance.sent
            if left <= 0 and not outgoing.inner:
                break
            batch = outgoing.rest
            if batch is None:
                if not len(outgoing.edge):
                    return moved
                batch = outgoing.edge.take()
            fit = n = len(batch)
            room = SECTION_BYTES_MAX
            if left < room and not outgoing.inner:
                room = left
            if n > _SECTION_TUPLES_MAX or n * outgoing.tuple_bytes > room:
                fit = max(1, min(n, room // outgoing.tuple_bytes, _SECTION_TUPLES_MAX))
            outgoing.rest = None
            if fit < n:
                outgoing.rest = batch
                batch = batch.take(fit)
            if outgoing.inner and -left > self._budget:
                self._overflow(outgoing, batch)
                continue
            assert outgoing.outbound is not None
            used = self._exchange.send_tuples(outgoing.outbound, outgoing.task, batch)
            allowance.sent += used
            outgoing.tuple_bytes = max(1, used // fit)
            outgoing.sent_bytes += section_bytes(used, fit)
            moved = True
            if allowance.sent >= allowance.limit:
                self._close(outgoing.task)
        if outgoing.droppable:
            self._drop(outgoing)
        elif allowance is None:
            outgoing.edge.drop_oldest(_UNROUTED_TUPLES_MAX)
        if outgoing.rest is not None or len(outgoing.edge):
            self._waiting_for_credit[outgoing] = group
        return moved

    def _drop(self, outgoing: OutgoingEdge) -> None:
        for batch in (outgoing.rest, outgoing.edge.take()):
            self.dropped[outgoing.stream] += 0 if batch is None else len(batch)
        outgoing.rest = None

    def _send_waiting(self) -> bool:
        """Send what waited for credit."""
        waiting, self._waiting_for_credit = self._waiting_for_credit, {}
        moved = False
        for outgoing, group in waiting.items():
            with group.lock:
                moved |= self._send(group, outgoing)
        return moved

    def _overflow(self, outgoing: OutgoingEdge, batch: Batch) -> None:
        """Fail tuples of a cycle that exceed the budget."""
        source = batch.source
        cycle = ", ".join(map(repr, self._plan.cycle_of(source.component)))
        consumer = self._plan.task_to_component[outgoing.task]
        error = CycleOverflowError(
            f"the cycle of {cycle} makes more tuples than it finishes: {len(batch)} tuple(s) from "
            f"{source.component!r} to {consumer!r} were failed, because "
            f"topology.worker.buffer.bytes ({self._budget}) of them are already waiting there"
        )
        self._exchange.reject(source.component, source.task, error, batch.roots())

    def catch_up(self, ledger: Ledger) -> bool:
        """Move the tuples that were emitted between two turns, by coroutines, callbacks and
        threads, and in ack, fail, activate ... of spouts. True when there were any."""
        worked = False
        for task, own in self._threaded:
            with task.lock:
                ledger.merge(own)
                worked |= self.flush(self._group_of[task])
                if isinstance(task, ThreadSpout):
                    worked |= task.settle_untracked()
        for spout in self.spouts:
            if not isinstance(spout, ThreadSpout):
                if spout.emitted_more():
                    worked |= self.flush(self._group_of[spout])
                worked |= spout.settle_untracked()
        for bolt in self.bolts:
            if bolt.dirty and not (isinstance(bolt, ThreadBolt) or bolt.holds_back):
                bolt.dirty = False
                worked |= self.flush(self._group_of[bolt])
        return worked

    def flush_all(self) -> None:
        """Move what components emitted in open and prepare."""
        for group in self._groups:
            with group.lock:
                self.flush(group)

    def accounts_of(self, slot: WorkerSlot, sessions: object) -> Accounts:
        """Where the tuples that another worker has sent in a pair of sessions count."""
        return self._inflow.accounts_of(slot, sessions)

    def deliver(self, section: bytes, accounts: Accounts) -> None:
        """Take tuples from another worker (a TUPLES section). They stay encoded until their task
        runs. Raises CodecError."""
        task, count = addressee(section)
        bolt = self.bolt_of.get(task)
        if bolt is None:
            for strayed, batch in self._exchange.tuples_of(section).items():
                if strayed in self.bolt_of:
                    self.bolt_of[strayed].inbox.put(batch)
            return
        size = charge(len(section), count)
        account = accounts[task]
        account.received += size
        bolt.inbox.put_encoded(EncodedTuples(section, count, size, account))

    def send_grants(self) -> None:
        """Grant what was taken in this turn."""
        self._exchange.greet()
        if self._transport is not None:
            for slot, accounts in self._inflow.due():
                grants = [one.grant(self._load(one.task)) for one in accounts]
                self.load_reported |= any(grant.load for grant in grants)
                self._transport.grant(slot, grants, soon=True)

    def _load(self, task: int) -> int:
        bolt = self.bolt_of.get(task)
        return 0 if bolt is None else int(LOAD_MAX * min(1.0, bolt.load()))

    def loads(self, tasks: Iterable[int]) -> dict[int, float]:
        """How full the inboxes of tasks are, here and elsewhere; those that are empty left out."""
        found = {}
        routes = self._exchange.routes
        for task in tasks:
            if task in self.bolt_of:
                load = self._load(task)
            else:
                slot = routes.get(task)
                load = 0 if slot is None else self._outflow.allowance(slot, task).load
            if load:
                found[task] = load / LOAD_MAX
        return found

    # ---- what is observed ----

    def waits(self, task: Task, now: float) -> dict[str, float]:
        """Seconds that a task could not run because of a component that it feeds, and a spout not
        emit because of one downstream; those that never made it wait left out."""
        if isinstance(task, SpoutTask):
            times, components = self._throttled_times, task.downstream
        else:
            times, components = self._blocked_times, self._feeds[self._group_of[task]]
        found = {component: times.secs(component, now) for component in components}
        return {component: secs for component, secs in found.items() if secs > 0}

    def sent(self, task: Task) -> dict[str, int]:
        """Bytes that a task, and those that share its edges, have sent to other workers since this
        one began, by component; all under the first of them."""
        found: dict[str, int] = {}
        group = self._group_of[task]
        if self._sender_of[group] is task:
            for outgoing in group.outgoing_edges:
                if outgoing.sent_bytes and not outgoing.droppable:
                    component = self._plan.task_to_component[outgoing.task]
                    found[component] = found.get(component, 0) + outgoing.sent_bytes
        return found

    def credit(self, tasks: Iterable[Task]) -> dict[str, int]:
        """By component downstream of some tasks, the least credit in bytes for its tasks on other
        workers."""
        found: dict[str, int] = {}
        groups = dict.fromkeys(self._group_of[task] for task in tasks)
        for outgoing in chain.from_iterable(group.outgoing_edges for group in groups):
            if outgoing.target is None and not outgoing.droppable:
                left = 0 if outgoing.allowance is None else max(0, outgoing.allowance.left)
                component = self._plan.task_to_component[outgoing.task]
                found[component] = min(left, found.get(component, left))
        return found

    def report_loads(self) -> None:
        """Tell the other workers how full our inboxes are, where that has changed: with the next
        frame that goes there anyway."""
        if self._transport is None:
            return
        self.load_reported = False
        for slot, accounts in self._inflow.accounts():
            grants = []
            for account in accounts:
                load = self._load(account.task)
                if abs(load - account.load) > _LOAD_STEP or (account.load and not load):
                    grants.append(account.grant(load))
                self.load_reported |= account.load > 0
            if grants:
                self._transport.grant(slot, grants, soon=False)

    def give_up(self) -> list[int]:
        """Empty the inboxes, and what could not be sent; the roots of all that."""
        roots: dict[int, None] = {}
        for bolt in self.bolts:
            for batch in bolt.inbox.empty():
                roots.update(dict.fromkeys(batch.roots()))
        for group in self._groups:
            with group.lock:
                for outgoing in group.outgoing_edges:
                    if outgoing.rest is not None:
                        roots.update(dict.fromkeys(outgoing.rest.roots()))
                        outgoing.rest = None
                    if len(outgoing.edge):  # of thousands most are empty
                        roots.update(dict.fromkeys(outgoing.edge.take().roots()))
        return list(roots)

    # ---- running ----

    def run_spouts(self, now: float, deadline: float, *, may_emit: bool) -> bool:
        """Let the spouts emit that may. True if any did."""
        worked = self._send_waiting() if self._waiting_for_credit else False
        if self._throttling:
            for bolt in list(self._throttling):
                self._check_inbox(bolt)
        if self._congested_is_stale:
            self._find_congested()
        congested = self._congested
        for group, spouts in self._spouts_by_group:
            waiting = 0
            for spout in spouts:
                if not spout.active:
                    continue
                if not may_emit or (congested and not spout.downstream.isdisjoint(congested)):
                    spout.throttle()
                elif now >= spout.idle_until and spout.may_emit:
                    before = spout.calls.emitted()
                    if spout.run(deadline):
                        emitted = spout.calls.emitted() - before
                        self._turn_used |= spout.takes_turn_size and emitted >= spout.calls_max
                        waiting += emitted
                        if waiting >= _FLUSH_TUPLES:
                            self.flush(group)
                            waiting = 0
                        worked = True
            if waiting:
                self.flush(group)
        if self._ending:
            self._say_ends()
        return worked

    def bolts_ran(self, secs: float) -> None:
        """The bolts took so long in this turn."""
        crowded = bool(self._throttling or self._blocked_tasks.blocked)
        if self._turn_size.ended(secs, used=self._turn_used, crowded=crowded):
            for spout in self.spouts:
                if spout.takes_turn_size and spout.emits_in_turns:
                    spout.calls_max = self._turn_size.now
        self._turn_used = False

    def spouts_spoke(self) -> bool:
        """Whether a spout has emitted outside next_tuple since the last turn."""
        for spout in self.spouts:  # noqa: SIM110 (most turns of an idle worker come by here)
            if spout.has_emitted:
                return True
        return False

    def has_spout_to_ask(self, now: float) -> bool:
        """Whether a spout does not rest, as one does that had nothing to emit."""
        for spout in self.spouts:  # noqa: SIM110 (likewise)
            if spout.active and spout.idle_until <= now:
                return True
        return False

    def has_more(self) -> bool:
        """Whether a turn has left work for the next one: that of a bolt that may run, or
        tuples that spouts emitted in ack or fail."""
        blocked, group_of = self._blocked_tasks.blocked, self._group_of
        for bolt in self.bolts:
            if (bolt.inbox or bolt.rest is not None) and group_of[bolt] not in blocked:
                return True
        return self.spouts_spoke()

    def run_bolts(self, deadline: float) -> bool:
        """Run every bolt that has tuples and is not blocked. True if any did anything."""
        worked = False
        blocked = self._blocked_tasks.blocked
        for group, bolts in self._bolts_by_group:
            ran, taken = False, 0
            for bolt in bolts:
                if not bolt.inbox and bolt.rest is None:
                    continue
                bolt.blocked = bool(blocked) and group in blocked
                if bolt.blocked:
                    continue
                queued = bolt.inbox.queued
                if bolt.run(deadline):
                    ran = worked = True
                    taken += queued - bolt.inbox.queued
                    if taken >= _FLUSH_TUPLES and group.on_loop:
                        self.flush(group)
                        ran, taken = False, 0
                    if bolt in self._throttling:
                        self._check_inbox(bolt)
            if ran and group.on_loop:
                self.flush(group)
        return worked

    def _pause(self, task: Task) -> bool:
        """Between two slices of a bolt: whether it has to stop because a target is full."""
        group = self._group_of[task]
        self.flush(group)
        return group in self._blocked_tasks.blocked

    def _check_inbox(self, bolt: BoltTask) -> None:
        waiting = bolt.inbox.local
        if waiting > bolt.inbox.soft:
            if bolt not in self._throttling:
                self._throttling[bolt] = None
                self._congested_is_stale = True
            if waiting > bolt.hard:
                self._close(bolt.task)
        elif bolt in self._throttling:
            del self._throttling[bolt]
            self._open(bolt.task)
            self._congested_is_stale = True

    def _find_congested(self) -> None:
        self._congested_is_stale = False
        component_of = self._plan.task_to_component
        before = self._congested
        self._congested = frozenset(
            {bolt.component for bolt in self._throttling}
            | {component_of[task] for task in self._blocked_tasks.closed_targets}
        )
        self._throttled_times.changed(before, self._congested, self._turn.now)
