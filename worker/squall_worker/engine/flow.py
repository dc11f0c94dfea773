"""How tuples move between the tasks of a worker, and to other workers: flushing, arriving, and the
gates that stop spouts when what they feed is behind."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall.model import WorkerSlot
from squall_worker.engine.building import Built
from squall_worker.engine.core import Batch, Edge, Ledger, Output
from squall_worker.engine.exchange import Exchange
from squall_worker.engine.executors import BoltTask, SpoutTask, Task
from squall_worker.engine.executors_thread import ThreadBolt, ThreadSpout
from squall_worker.engine.plan import Plan
from squall_worker.transport import Transport

_UNROUTED_TUPLES_MAX = 10_000  # kept an edge while its task has no worker
_INBOX_TUPLES_MAX = 2_048  # above it, the spouts that feed the bolt wait


class Flow:
    """The tasks of a worker, wired to each other."""

    def __init__(
        self,
        plan: Plan,
        exchange: Exchange,
        transport: Transport | None,
        conf: Mapping[str, Any],
    ) -> None:
        self._plan = plan
        self._exchange = exchange
        self._transport = transport
        self.spouts: list[SpoutTask] = []
        self.bolts: list[BoltTask] = []  # in the order of a turn
        self.bolt_of: dict[int, BoltTask] = {}
        self.task_of: dict[int, Task] = {}
        self._ways: dict[Task, list[tuple[Output, Edge, BoltTask | None]]] = {}
        self._threaded: list[tuple[ThreadSpout | ThreadBolt, Ledger]] = []
        receive_buffer = int(conf.get("topology.executor.receive.buffer.size") or 32_768)
        self._inbox_max = min(_INBOX_TUPLES_MAX, receive_buffer)
        self._receive_max = receive_buffer
        self._backlog_max = int(conf.get("topology.worker.buffer.bytes") or 33_554_432) // 4
        self._congested: frozenset[str] = frozenset()
        self._behind: frozenset[WorkerSlot] = frozenset()
        self._peers_of: dict[SpoutTask, frozenset[WorkerSlot]] = {}
        self.is_full = False
        """An inbox is so long that the transport is left alone: then its backlog grows, and stops
        the senders."""

    def wire(self, built: list[Built]) -> None:
        """Connect the tasks, once all are made."""
        self.task_of = {one.task.task: one.task for one in built}
        for task_id in self._plan.local_user_tasks():
            task = self.task_of[task_id]
            if isinstance(task, SpoutTask):
                self.spouts.append(task)
            elif isinstance(task, BoltTask):
                self.bolts.append(task)
                self.bolt_of[task_id] = task
        for one in built:
            task = one.task
            self._ways[task] = [
                (output, edge, self.bolt_of.get(edge.task))
                for output in task.outputs
                for edge in output.edges
            ]
            if isinstance(task, ThreadSpout | ThreadBolt):
                assert one.ledger is not None
                self._threaded.append((task, one.ledger))
        self.set_routes({})

    def set_routes(self, routes: Mapping[int, WorkerSlot]) -> None:
        """Where the tasks of other workers are."""
        self._exchange.set_routes(routes)
        routes = self._exchange.routes
        for spout in self.spouts:
            self._peers_of[spout] = frozenset(
                slot
                for task, slot in routes.items()
                if self._plan.task_to_component[task] in spout.downstream
            )

    @property
    def is_drained(self) -> bool:
        """Whether nothing is in flight: inboxes and buffers empty, every message settled."""
        return (
            not any(bolt.busy for bolt in self.bolts)
            and not any(spout.pending for spout in self.spouts)
            and not any(len(edge) for ways in self._ways.values() for _, edge, _ in ways)
            and self._exchange.is_empty
        )

    # ---- moving ----

    def flush(self, task: Task) -> bool:
        """Move a task's buffers to where they go. True when there was anything in them."""
        moved = False
        remote: dict[tuple[Output, WorkerSlot], list[tuple[int, Batch]]] | None = None
        for output, edge, target in self._ways[task]:
            n = len(edge)
            if not n:
                continue
            if target is not None:
                target.inbox.append(edge.take())
                target.queued += n
            else:
                slot = self._exchange.routes.get(edge.task)
                if slot is None:
                    edge.drop_oldest(_UNROUTED_TUPLES_MAX)
                    continue
                remote = {} if remote is None else remote
                remote.setdefault((output, slot), []).append((edge.task, edge.take()))
            output.transferred += n
            moved = True
        if remote is not None:
            for (output, slot), batches in remote.items():
                self._exchange.send_tuples(output, slot, batches)
        return moved

    def catch_up(self, ledger: Ledger) -> bool:
        """What was emitted between two turns, by coroutines, callbacks and threads, and in ack,
        fail, activate ... of spouts. True when there was anything."""
        worked = False
        for task, own in self._threaded:
            with task.lock:
                ledger.merge(own)
                worked |= self.flush(task)
                if isinstance(task, ThreadSpout):
                    worked |= task.settle_untracked()
        for spout in self.spouts:
            if not isinstance(spout, ThreadSpout):
                worked |= self.flush(spout) | spout.settle_untracked()
        for bolt in self.bolts:
            if not (isinstance(bolt, ThreadBolt) or bolt.holds_back):
                worked |= self.flush(bolt)
        return worked

    def flush_all(self) -> None:
        """What components emitted in open and prepare."""
        for task in self._ways:
            with task.lock:
                self.flush(task)

    def deliver(self, section: bytes) -> None:
        """Tuples that came from another worker (a TUPLES section). Raises CodecError."""
        for task, batch in self._exchange.tuples_of(section).items():
            bolt = self.bolt_of.get(task)
            if bolt is not None:
                bolt.deliver(batch)

    def give_up(self) -> list[int]:
        """Empty the inboxes; the roots of what was in them."""
        roots: dict[int, None] = {}
        for bolt in self.bolts:
            for batch in bolt.inbox:
                roots.update(dict.fromkeys(batch.roots()))
            bolt.inbox.clear()
            bolt.queued = 0
        return list(roots)

    # ---- running ----

    def run_spouts(self, now: float, deadline: float, calls_max: int, *, may_emit: bool) -> bool:
        """Let the spouts emit that may. True if any did."""
        worked = False
        if self._transport is not None:
            backlog, limit = self._transport.backlog_bytes, self._backlog_max
            peers = set(self._exchange.routes.values())
            self._behind = frozenset([slot for slot in peers if backlog(slot) > limit])
        for spout in self.spouts:
            if not spout.active:
                continue
            if not (may_emit and self._has_room_for(spout)):
                spout.close_gate()
            elif now >= spout.idle_until and spout.may_emit and spout.run(calls_max, deadline):
                self.flush(spout)
                worked = True
        return worked

    def _has_room_for(self, spout: SpoutTask) -> bool:
        """Whether what the spout feeds can take more."""
        if self._congested and not spout.downstream.isdisjoint(self._congested):
            return False
        return not self._behind or self._behind.isdisjoint(self._peers_of[spout])

    def run_bolts(self, deadline: float) -> bool:
        """Run every bolt that has something. True if any did anything."""
        worked = False
        congested: set[str] = set()
        longest = 0
        for bolt in self.bolts:
            if not bolt.inbox:
                continue
            if bolt.run(deadline):
                worked = True
                if not isinstance(bolt, ThreadBolt):
                    self.flush(bolt)
            if bolt.queued > self._inbox_max:
                congested.add(bolt.component)
                longest = max(longest, bolt.queued)
        if congested or self._congested:
            self._congested = frozenset(congested)
            self.is_full = longest > self._receive_max
        return worked
