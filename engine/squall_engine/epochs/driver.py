"""The tasks of one engine in the epochs of their topology: opens their state, takes their
snapshots, and passes the barriers on.

A barrier needs no place in an inbox. Nothing comes behind it, because a task that has taken its
snapshot is silent: so a task has all that comes before the barrier once its inbox is empty, and its
upstream tasks have taken their snapshots and have nothing left in their edges. Once a turn the
driver looks at the tasks in the order in which tuples flow, and takes the snapshots of those that
have settled.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from squall_common.component.checkpoints import structure_refusals
from squall_common.component.component import Bolt
from squall_common.component.delivery.rewinding import RewindableSpout
from squall_common.component.delivery.transactional import RowBatch, TransactionalSink
from squall_common.component.refusals import refuse
from squall_common.component.state import KeyValueState
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError, describe, note_once
from squall_common.names import DEAD_LETTER_STREAM, is_system_id
from squall_common.state.errors import (
    SnapshotError,
    StateError,
    StateStoreError,
    StateValueError,
)
from squall_common.state.key_checks import KeyChecks
from squall_common.state.key_groups import max_parallelism
from squall_common.state.keyed import KeyedState
from squall_common.state.manifest import ComponentPart
from squall_common.state.savepoint import Wanted, restore_error, restore_problems
from squall_common.state.segment import SegmentRef
from squall_common.topology.model import ComponentKind, GroupingKind, WorkerSlot
from squall_common.topology.serialization import Registry
from squall_engine.atomic.bolt import AtomicBolt, AtomicCalls
from squall_engine.atomic.concurrent import ConcurrentCalls, DraftState
from squall_engine.atomic.keys import InputKeys
from squall_engine.atomic.letters import BoltLetters
from squall_engine.atomic.tries import Tries
from squall_engine.atomic.undo import BatchState, SinkRows, UndoableRows, UndoableState, hot
from squall_engine.core import HotState, PositionedEmit
from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.invocation import InvocationMode
from squall_engine.dataflow.fence import Barrier
from squall_engine.epochs.messages import TaskName
from squall_engine.epochs.parts import Batch, Chain, EpochSettings, Snapshot
from squall_engine.epochs.task import TaskEpochs, TaskState
from squall_engine.epochs.undelivered import UndeliveredLetters
from squall_engine.epochs.window_entries import WindowEntries
from squall_engine.loading import ComponentStartError
from squall_engine.options import EngineOptions
from squall_engine.plan import Plan
from squall_engine.state.backends import make_state
from squall_engine.state.keys import key_fields
from squall_engine.tasks.base import Task
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask
from squall_engine.tasks.thread import ThreadBolt, ThreadSpout, made_by, on_thread

if TYPE_CHECKING:
    from squall_engine.dataflow.flow import Flow

_COMMIT_WAIT_SECS = 0.1  # after the first failure; then it doubles
_COMMIT_WAIT_SECS_MAX = 10.0
_STATES: Mapping[InvocationMode, Callable[[KeyedState, ValueCodec], KeyValueState]] = {
    InvocationMode.SYNC: UndoableState,
    InvocationMode.THREAD: UndoableState,
    InvocationMode.ASYNC: DraftState,
    InvocationMode.ASYNC_BATCH: DraftState,
}


class EpochHost(Protocol):
    """What the driver needs from the engine."""

    plan: Plan
    options: EngineOptions

    @property
    def has_fault(self) -> bool: ...

    def report(self, component: str, task: int, error: BaseException) -> None: ...
    def wake(self) -> None: ...
    def die(self, error: BaseException) -> None: ...


@dataclass(slots=True, eq=False)
class _Kept:
    """A task, and what of it outlives it."""

    name: TaskName
    epochs: TaskEpochs
    downstream: tuple[TaskName, ...]
    task: Task | None = None
    user: Any = None
    mode: InvocationMode = InvocationMode.SYNC
    atomic: Tries | ConcurrentCalls | None = None
    shown: KeyValueState | None = None  # the state, as the bolt sees it
    state: KeyedState | None = None
    windows: WindowEntries | None = None  # in `state`
    chain: Chain = field(default_factory=Chain)  # of keyed state
    pending: dict[Batch, list[Any]] = field(default_factory=dict)  # rows that are not confirmed
    committing: asyncio.Task[None] | None = None
    pending_max: int | None = None  # of a spout, while it is not silent
    flushing: int = 0  # the epoch for which `flush` was called
    flushed: asyncio.Future[None] | None = None


class EpochDriver:
    """The epochs of an engine's tasks. On its loop, except that bolts with threads make their calls
    on these."""

    def __init__(
        self,
        host: EpochHost,
        settings: EpochSettings,
        make_codec: Callable[[], ValueCodec],
        registry: Registry,
        *,
        worker: str = "",
    ) -> None:
        """`registry`: of the topology's own types. Raises SquallError for a topology that cannot
        have epochs."""
        self._host = host
        self._plan = plan = host.plan
        self._settings = settings
        self._make_codec = make_codec
        self._registry = registry
        self._worker = worker
        refuse(structure_refusals(plan.topology, host.options.topology))
        self._refuse_changes()
        self._name_of: dict[int, TaskName] = {}
        for component in plan.topology.components:
            for index, task in enumerate(plan.tasks_of.get(component, ())):
                self._name_of[task] = (component, index)
        fed: dict[str, list[str]] = {}
        users = {name for name in plan.topology.components if not is_system_id(name)}
        for component in users:
            for source in plan.feeders[component] & users:
                fed.setdefault(source, []).append(component)
        self._kept: dict[TaskName, _Kept] = {}
        for task in plan.local_user_tasks():  # in the order in which tuples flow
            component, _ = name = self._name_of[task]
            upstream = [
                self._name_of[one]
                for source in sorted(plan.feeders[component] & users)
                for one in plan.tasks_of[source]
            ]
            downstream = tuple(
                self._name_of[one]
                for consumer in sorted(fed.get(component, ()))
                for one in plan.tasks_of[consumer]
            )
            self._kept[name] = _Kept(name, TaskEpochs(upstream, settings.epoch), downstream)
        self._flow: Flow | None = None
        self._fence = settings.fence
        if self._fence is not None:
            self._fence.on_barrier = self._receive
        self.is_broken = False  # something of this generation was lost: no snapshot counts any more
        self._confirmed = settings.epoch
        self._closed = asyncio.Event()
        self._left_commits = False  # some run that nothing here waits for any more
        self.groups: dict[str, int] = {}  # of components with keyed state
        self.under_way = False  # a snapshot is due, or a task is silent
        self._undelivered = UndeliveredLetters(plan, make_codec(), worker, host.die)

    @property
    def tasks(self) -> dict[TaskName, TaskEpochs]:
        """The epochs of each task here."""
        return {name: kept.epochs for name, kept in self._kept.items()}

    # ---- what cannot go on from its epoch ----

    def _refuse_changes(self) -> None:
        manifest = self._settings.manifest
        if manifest is None:
            return
        components = self._plan.topology.components
        wanted = {
            name: Wanted(one.kind is ComponentKind.SPOUT, len(self._plan.tasks_of.get(name, ())))
            for name, one in components.items()
            if not is_system_id(name)
        }
        allow = self._host.options.topology.topology_checkpoint_allow_non_restored_state
        problems = restore_problems(manifest, wanted, allow_non_restored=allow)
        if problems:
            raise restore_error(problems, f"checkpoint {manifest.epoch}")

    # ---- while tasks are made ----

    def admit(self, task: int, user: Any, mode: InvocationMode) -> None:
        """Remember the object of a task, which can have epochs."""
        kept = self._kept[self._name_of[task]]
        kept.user, kept.mode = user, mode

    def _part_of(self, component: str) -> ComponentPart | None:
        manifest = self._settings.manifest
        return None if manifest is None else manifest.components.get(component)

    def groups_of(self, component: str) -> int | None:
        """The number of key groups of a component, if a fields grouping leads to it."""
        inputs = self._plan.topology.components[component].inputs.values()
        if not any(one.kind is GroupingKind.FIELDS and one.fields for one in inputs):
            return None
        part = self._part_of(component)
        if part is not None and part.max_parallelism:
            return part.max_parallelism
        wanted = self._host.options.of(component).topology_state_max_parallelism
        return wanted or max_parallelism(len(self._plan.tasks_of[component]))

    def open_state(self, component: str, task: int) -> KeyValueState:
        """The state of a StatefulBolt, as it was in the epoch. Raises ComponentStartError."""
        kept = self._kept[self._name_of[task]]
        groups = self.groups_of(component)
        assert groups is not None
        codec = self._make_codec()
        options, ttl_secs = self._host.options.of(component), kept.user.state_ttl_secs
        with self._restoring(component, task):
            empty = make_state(options, groups, codec, ttl_secs=ttl_secs, registry=self._registry)
            empty.key_checks.fields = key_fields(self._plan.topology.components[component])
            state = self._restored(kept, groups, empty)
        shown = _STATES.get(kept.mode, BatchState)(state, codec)
        kept.shown = hot(shown) if isinstance(shown, UndoableState) else shown
        return kept.shown

    @contextmanager
    def _restoring(self, component: str, task: int) -> Iterator[None]:
        """What fails in it is named with the task, which the error of a stored file is not. Raises
        ComponentStartError."""
        try:
            yield
        except ComponentStartError:
            raise
        except Exception as error:
            manifest = self._settings.manifest
            where = "" if manifest is None else f" from checkpoint {manifest.epoch}"
            what, hint = describe(error), None
            if isinstance(error, SquallError):
                what, hint = error.message, error.hint
            elif isinstance(error, CodecError):
                hint = "does the topology still have the classes of its values?"
            if isinstance(error, StateStoreError):
                hint = hint or "see that the store answers: the worker tries again when it restarts"
            message = f"component {component!r} (task {task}) cannot start{where}: {what}"
            # An error of the component's own has a traceback to show.
            cause = None if isinstance(error, CodecError) else error
            raise ComponentStartError(component, task, message, hint=hint) from cause

    def _restored(self, kept: _Kept, groups: int, state: KeyedState) -> KeyedState:
        component, index = kept.name
        self.groups[component] = groups
        part = self._part_of(component)
        if part is not None:
            self._settings.parts.restore_state(part, kept.name, state)
            assert self._settings.manifest is not None
            state.completed_epoch = self._settings.manifest.epoch
            same = len(part.tasks) == len(self._plan.tasks_of[component])
            kept.chain = Chain(part.tasks[index].segments) if same else Chain(is_whole=False)
        kept.state = state
        return state

    def stored_bytes(self, task: int) -> int | None:
        """What the last complete epoch has of a task's state; None: it has none, or its key groups
        were those of other tasks then."""
        kept = self._kept[self._name_of[task]]
        return None if kept.state is None else kept.chain.size

    def make_atomic(
        self,
        component: str,
        task: int,
        options: TopologyOptions,
        execute: Callable[[Any], Any],
    ) -> AtomicCalls:
        """`execute` of a bolt, in its mode, made atomic."""
        kept = self._kept[self._name_of[task]]
        tries_max = options.topology_checkpoint_tries
        streams = self._plan.topology.components[component].streams
        made = AtomicBolt(
            component=component,
            user=kept.user,
            mode=kept.mode,
            keys=InputKeys(self._plan.topology, component, self._registry),
            groups=self.groups_of(component),
            key_checks=KeyChecks(self._make_codec(), self._registry),
            codec=self._make_codec(),
            arity={name: (len(info.fields), info.direct) for name, info in streams.items()},
            letters=BoltLetters(
                component,
                task,
                self._worker,
                consumed=bool(self._plan.consumers_of(component, DEAD_LETTER_STREAM)),
                tries=tries_max,
                codec=self._make_codec(),
                fault=self._host.die,
            ),
            tries_max=tries_max,
            report=partial(self._host.report, component, task),
            fault=self._host.die,
        ).around(execute)
        kept.atomic = made.tries
        return made

    async def restore(self, built: Built) -> None:
        """A component is open: give it what it had in the epoch. Raises ComponentStartError."""
        kept = self._kept[self._name_of[built.task.task]]
        with self._restoring(built.task.component, built.task.task):
            await self._restore(built, kept)

    async def _restore(self, built: Built, kept: _Kept) -> None:
        part = self._part_of(kept.name[0])
        user = kept.user
        if isinstance(user, TransactionalSink):
            object.__setattr__(user, "_rows", SinkRows(self._make_codec()))
        if isinstance(kept.atomic, Tries):
            if isinstance(kept.shown, UndoableState | HotState):
                kept.atomic.parts.append(kept.shown)
            if isinstance(user, TransactionalSink):
                kept.atomic.parts.append(UndoableRows(user._rows))
        elif kept.atomic is not None and isinstance(kept.shown, DraftState):
            kept.atomic.state = kept.shown
        if getattr(user, "_squall_windowed", False):
            self._restore_windows(kept)
        self._refuse_another_kind(kept, built.task.task)
        if isinstance(user, RewindableSpout):
            positions = {} if part is None else self._settings.parts.positions_of(part, kept.name)
            await self._rewind(built.task, user, positions, is_first_run=part is None)
        elif isinstance(user, TransactionalSink) and part is not None:
            kept.pending = self._settings.parts.batches_of(part, kept.name)

    def _refuse_another_kind(self, kept: _Kept, task: int) -> None:
        """A component cannot go on with what its class does not take: that would be in no later
        epoch. Raises ComponentStartError."""
        component, part = kept.name[0], self._part_of(kept.name[0])
        allow = self._host.options.topology.topology_checkpoint_allow_non_restored_state
        if part is None or allow:
            return
        has = None
        if any(one.batches for one in part.tasks) and not isinstance(kept.user, TransactionalSink):
            has = "rows that are not written yet, and is not a TransactionalSink any more"
        elif any(one.keys for one in part.tasks) and kept.state is None:
            has = "state, and is neither a StatefulBolt nor a WindowedBolt any more"
        if has is not None:
            error = restore_error([f"{component!r} has {has}"], "the last checkpoint")
            raise ComponentStartError(component, task, error.message, hint=error.hint)

    def _restore_windows(self, kept: _Kept) -> None:
        component, part = kept.name[0], self._part_of(kept.name[0])
        groups = self.groups_of(component) or max_parallelism(len(self._plan.tasks_of[component]))
        codec = self._make_codec()
        options = self._host.options.of(component)
        empty = make_state(options, groups, codec, registry=self._registry)
        state = self._restored(kept, groups, empty)
        shell = kept.user._squall_shell
        kept.windows = WindowEntries(self._plan, component, shell, state, codec)
        kept.windows.restore(
            None if part is None else self._settings.parts.progress_of(part, kept.name)
        )

    async def _rewind(
        self,
        task: Task,
        spout: RewindableSpout,
        positions: Mapping[Hashable, Any],
        *,
        is_first_run: bool,
    ) -> None:
        rewind = partial(spout._rewind, positions, is_first_run=is_first_run)
        try:
            if isinstance(task, ThreadSpout):
                await on_thread(task, rewind)
            else:
                rewind()
        except Exception as error:
            manifest = self._settings.manifest
            where = "" if manifest is None else f" from checkpoint {manifest.epoch}"
            named = f"seek() of {task.component!r} (task {task.task}){where}"
            note_once(error, f"in {named}")  # its traceback is what is reported
            what, hint = describe(error), None
            if isinstance(error, SquallError):
                what, hint = error.message, error.hint
            message = f"{named} failed: {what}"
            raise ComponentStartError(task.component, task.task, message, hint=hint) from error

    # ---- running ----

    def wire(self, flow: Flow) -> None:
        """The tasks are connected."""
        self._flow = flow
        for kept in self._kept.values():
            for number, name in self._name_of.items():
                if name == kept.name:
                    kept.task = flow.task_of[number]
            if isinstance(kept.task, SpoutTask):
                kept.pending_max = kept.task.pending_max
                if kept.pending_max is not None:
                    kept.user._number_messages()
                kept.user._speed_up(_positioned)

    def look(self) -> None:
        """An epoch was begun or released."""
        self.under_way = False
        for kept in self._kept.values():
            flows = kept.epochs.state is TaskState.FLOWING
            self.under_way |= not flows
            if isinstance(kept.task, SpoutTask):
                # 0: it is not asked, whatever its kind.
                kept.task.pending_max = kept.pending_max if flows else 0
                kept.task.wake()
        self._host.wake()

    def turn(self) -> bool:
        """Take the snapshots of tasks that have settled. True if there were any."""
        worked = self._undelivered.has_some and self._undelivered.emit()
        if not self.under_way or self.is_broken:
            return worked
        for kept in self._kept.values():
            epoch = kept.epochs.due
            if epoch is not None and self._has_settled(kept, epoch):
                # Looked at last: a task may have settled by failing the tuple that ends the engine.
                if self._host.has_fault:
                    return worked
                self._take(kept, epoch)
                worked = True
        return worked

    def rejected(self, component: str, task: int, error: Exception) -> None:
        """A tuple that a task has emitted cannot be delivered: it becomes a dead letter, or ends
        the engine. From any thread."""
        kept = self._kept.get(self._name_of.get(task, (component, -1)))
        sender = None if kept is None else kept.task
        if isinstance(sender, SpoutTask | BoltTask):
            self._undelivered.add(sender, error)
            self._host.wake()
        else:
            self._host.die(error)

    @property
    def begun(self) -> int:
        """The last epoch of which a task here has heard."""
        return max((kept.epochs.begun for kept in self._kept.values()), default=0)

    @property
    def confirmed(self) -> int:
        """The last epoch of which it is known here that it is complete."""
        return self._confirmed

    def not_taken(self) -> list[TaskName]:
        """The tasks whose snapshots are due, or wait for those of others."""
        last = self.begun
        return [kept.name for kept in self._kept.values() if kept.epochs.taken < last]

    def _has_settled(self, kept: _Kept, epoch: int) -> bool:
        """Whether a task has finished what it has begun, and all that it has emitted has left."""
        task, flow = kept.task, self._flow
        assert isinstance(task, SpoutTask | BoltTask)
        assert flow is not None
        if not self._has_left(task):
            return False
        if isinstance(task, BoltTask) and kept.flushing < epoch:
            kept.flushing = epoch
            self._flush(kept, task)
        if kept.flushed is not None and not kept.flushed.done():
            return False
        return self._has_left(task)

    def _has_left(self, task: SpoutTask | BoltTask) -> bool:
        """Whether a task is at rest, and all that it has emitted is on its way, or in letters."""
        assert self._flow is not None
        # In this order: that a tuple cannot be sent is noticed when it leaves.
        return self._flow.is_settled(task) and not self._undelivered.has_some

    def _flush(self, kept: _Kept, task: BoltTask) -> None:
        if type(kept.user).flush is Bolt.flush:
            return
        kept.flushed = asyncio.ensure_future(self._flushing(kept, task))
        kept.flushed.add_done_callback(lambda _: self._host.wake())

    async def _flushing(self, kept: _Kept, task: BoltTask) -> None:
        try:
            if isinstance(task, ThreadBolt):
                await on_thread(task, kept.user.flush)
            else:
                result = kept.user.flush()
                if inspect.isawaitable(result):
                    await result
        except Exception as error:
            where = f"flush() of {kept.name[0]!r} (task {task.task})"
            fault = SquallError(f"{where} failed: {describe(error)}")
            fault.__cause__ = error
            self._host.die(fault)

    def _take(self, kept: _Kept, epoch: int) -> None:
        full = kept.epochs.wants_full(epoch)
        changes, older, positions, merged = None, kept.chain.older, None, False
        progress = b""
        if kept.windows is not None:
            try:
                progress = kept.windows.store()
            except StateStoreError as error:
                self._host.die(error)
                return
            except SquallError as error:
                self._host.die(self.snapshot_error(kept.name, epoch, error))
                return
        batches: Mapping[Batch, list[Any]] = {}
        if kept.state is not None:
            can_merge = not kept.state.has_times and self._settings.parts.can_merge(older)
            base = kept.chain.wants_base(kept.state, full=full, can_merge=can_merge)
            try:
                changes = kept.state.snapshot(epoch, base=base)
            except StateError as error:  # of state on disk
                is_value = isinstance(error, StateValueError)
                self._host.die(self.snapshot_error(kept.name, epoch, error) if is_value else error)
                return
            older = () if base else older
            merged = can_merge and not base and kept.chain.merges(epoch)
        elif isinstance(kept.user, RewindableSpout):
            positions = dict(kept.user._positions_now())
        elif isinstance(kept.user, TransactionalSink):
            rows: list[Any] = kept.user._rows
            if rows:
                kept.pending[Batch(kept.name[1], epoch, self._settings.history)] = rows[:]
                rows.clear()
            batches = dict(kept.pending)
        kept.epochs.took(epoch)
        snapshot = Snapshot(
            kept.name,
            self._settings.generation,
            epoch,
            changes,
            older,
            merged,
            positions,
            batches,
            progress,
        )
        self._settings.on_taken(snapshot, self.groups.get(kept.name[0], 0))
        elsewhere: dict[WorkerSlot, None] = {}
        for name in kept.downstream:
            below = self._kept.get(name)
            if below is not None:
                below.epochs.barrier(kept.name, epoch, full)
            elif self._fence is not None:
                task = self._plan.tasks_of[name[0]][name[1]]
                elsewhere[self._fence.routes[task]] = None
        for slot in elsewhere:
            assert self._fence is not None
            self._fence.add_barrier(slot, Barrier(*kept.name, epoch, full))

    def snapshot_error(self, name: TaskName, epoch: int, error: Exception) -> SnapshotError:
        """The error of a task whose snapshot has something that cannot be stored."""
        component, index = name
        return SnapshotError(component, self._plan.tasks_of[component][index], epoch, error)

    def _receive(self, barrier: Barrier) -> None:
        """A task of another worker has taken its snapshot."""
        name = (barrier.component, barrier.task_index)
        for kept in self._kept.values():
            kept.epochs.hear(name, barrier.epoch, barrier.full)
        self.look()

    def wrote(self, task: TaskName, epoch: int, segments: tuple[SegmentRef, ...]) -> None:
        """A snapshot is durable."""
        self._kept[task].chain.wrote(epoch, segments)

    # ---- complete epochs ----

    def confirm(self, epoch: int) -> None:
        """An epoch is complete. May be said again, and late."""
        self._confirmed = max(self._confirmed, epoch)
        for kept in self._kept.values():
            if kept.state is not None:
                kept.state.completed(epoch)
            kept.chain.completed(epoch)
            idle = kept.committing is None and not self._closed.is_set()
            if idle and self._ready_batches(kept):
                kept.committing = asyncio.ensure_future(self._commit(kept))

    @property
    def has_unconfirmed(self) -> bool:
        """Whether rows of complete epochs are not written yet."""
        return any(self._ready_batches(kept) for kept in self._kept.values())

    @property
    def has_batches(self) -> bool:
        """Whether rows of any epoch are not written yet."""
        return any(kept.pending for kept in self._kept.values())

    def _ready_batches(self, kept: _Kept) -> list[Batch]:
        return sorted(batch for batch in kept.pending if batch.epoch <= self._confirmed)

    async def _commit(self, kept: _Kept) -> None:
        """Have a sink write the rows of complete epochs, again and again until it has."""
        wait = _COMMIT_WAIT_SECS
        topology = self._settings.topology
        try:
            while not self._closed.is_set() and (ready := self._ready_batches(kept)):
                batches = [
                    RowBatch(one.writer(topology, kept.name[0]), one.epoch, kept.pending[one])
                    for one in ready
                ]
                try:
                    await _on_own_thread(partial(kept.user.commit, batches), kept.name[0])
                except Exception as error:
                    assert kept.task is not None
                    component, number = kept.name[0], kept.task.task
                    note_once(
                        error, f"in commit() of {component!r} (task {number}), {_span(ready)}"
                    )
                    self._host.report(component, number, error)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._closed.wait(), wait)
                    wait = min(2 * wait, _COMMIT_WAIT_SECS_MAX)
                    continue
                wait = _COMMIT_WAIT_SECS
                for batch in ready:
                    del kept.pending[batch]
        finally:
            kept.committing = None

    async def stop_commits(self, wait_secs: float) -> bool:
        """Begin no more commits, and wait for those that are running, which cannot be stopped, at
        most so long. Returns whether they have ended. What is not confirmed is in the last
        epoch. Idempotent."""
        self._closed.set()
        running = [kept.committing for kept in self._kept.values() if kept.committing is not None]
        if running:
            _, left = await asyncio.wait(running, timeout=wait_secs)
            for waiting in left:  # the call goes on on its thread, and the loop may end before it
                waiting.cancel()
            if left:
                self._left_commits = True
                await asyncio.wait(left)
        return not self._left_commits


def _span(batches: Sequence[Batch]) -> str:
    """The checkpoints of batches, in order, in words."""
    first, last = batches[0].epoch, batches[-1].epoch
    return f"checkpoint {first}" if first == last else f"checkpoints {first} to {last}"


def _positioned(send: Any, positions: dict[Any, Any], ids: Any, otherwise: Any) -> Any:
    return PositionedEmit(send, positions, ids, otherwise).emit


async def _on_own_thread(call: Callable[[], None], name: str) -> None:
    """Call it on a thread that holds up neither the end of the loop nor that of the process, as one
    of a pool would if the call does not return."""

    def start(run: Callable[[], None]) -> None:
        threading.Thread(target=run, name=f"commit of {name}", daemon=True).start()

    await made_by(start, call)
