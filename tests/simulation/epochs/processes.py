"""A worker process with its tasks, and the coordinator, which lives in one of them.

Both are the engine's own (`squall_engine.epochs`); what is here carries out what they ask for. A
rule of theirs is broken by a subclass.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from tests.simulation.epochs.rules import Rule
from tests.simulation.epochs.savepoints import ModelSavepoints, begin_with
from tests.simulation.epochs.tasks import KINDS, BrokerSource, Keyed, Task

from squall_engine.epochs import coordinator_table as asks
from squall_engine.epochs import member as does
from squall_engine.epochs.coordinator import Attempt, Coordinator
from squall_engine.epochs.coordinator_table import State
from squall_engine.epochs.member import Member, MemberState
from squall_engine.epochs.messages import (
    Go,
    Hello,
    Name,
    Record,
    Restore,
    TaskName,
    ToCoordinator,
    ToWorker,
)

if TYPE_CHECKING:
    from tests.simulation.epochs.world import World


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an epoch consists of: names of parts, oldest first, by component."""

    epoch: int
    parts: dict[str, tuple[Name, ...]]
    size: int = 0  # of which the model knows nothing


class BreakableMember(Member):
    def __init__(self, world: World, worker: int, incarnation: int) -> None:
        super().__init__(worker, incarnation)
        self._world = world

    def _takes_part(self, incarnation: int) -> bool:
        breaks = not self._world.keeps(Rule.MEMBERS_ONLY)
        return breaks or super()._takes_part(incarnation)


class BreakableCoordinator(Coordinator):
    def __init__(self, world: World, incarnation: int) -> None:
        super().__init__(incarnation, world.workers, world.shape, self._manifest_of)
        self._world = world
        self._first_reading: Record | None = None

    def _roll_back(self) -> None:
        self._first_reading = None
        super()._roll_back()

    def _raise_from(self, seen: Record) -> None:
        if self._first_reading is None:
            self._first_reading = seen
            if not self._world.keeps(Rule.RAISE_THEN_READ):
                return  # `_repeat` goes on
        super()._raise_from(seen)

    def _repeat(self) -> None:
        waits = self.state is State.RAISING and self._asked is None
        if waits and not self._world.keeps(Rule.RAISE_THEN_READ):
            self._do(asks.ReadRecord())
        super()._repeat()

    def _raised(self, record: Record) -> None:
        if not self._world.keeps(Rule.RAISE_THEN_READ):
            assert self._first_reading is not None
            first = self._first_reading
            record = replace(record, epoch=first.epoch, manifest=first.manifest)
        super()._raised(record)

    def _replaces(self, hello: Hello, known: int) -> bool:
        return self._world.keeps(Rule.ROLL_BACK_ALL) and super()._replaces(hello, known)

    def _unknown(self, wanted: Record) -> None:
        if self.state is State.DECIDING and not self._world.keeps(Rule.NO_SUCCESS_BY_GUESS):
            self._asked = None
            self._completed(wanted)
        else:
            super()._unknown(wanted)

    def _is_durable(self, attempt: Attempt, tasks: set[TaskName]) -> bool:
        if not self._world.keeps(Rule.COMPLETE_ON_DURABLE):
            return attempt.taken == tasks
        return super()._is_durable(attempt, tasks)

    def _manifest_of(self, before: Manifest | None, attempt: Attempt) -> Manifest:
        names: dict[str, tuple[Name, ...]] = {}
        name_of = self._world.name_of
        for component in self.shape:
            new = tuple(
                attempt.parts.get(task)
                or name_of(attempt.generation, attempt.epoch, task)
                or self._world.name_of(attempt.generation, attempt.epoch, task)
                for task in sorted(self.tasks)
                if task[0] == component
            )
            keeps_old = issubclass(KINDS[component], Keyed) and not attempt.full
            old = before.parts[component] if keeps_old and before else ()
            names[component] = old + new
        return Manifest(attempt.epoch, names)


class Process:
    """One incarnation of a worker."""

    def __init__(self, world: World, worker: int, incarnation: int) -> None:
        self.world = world
        self.worker = worker
        self.incarnation = incarnation
        self.alive = True
        self.member = BreakableMember(world, worker, incarnation)
        self.tasks: dict[TaskName, Task] = {}
        self.coordinator: Coordinator | None = None
        self.savepoints: ModelSavepoints | None = None
        self.start, self.placement = world.starts, world.placements
        self.begun = True  # with the savepoint that its start goes on from
        if worker == 0:
            self.coordinator = BreakableCoordinator(world, incarnation)
            self.savepoints = ModelSavepoints(self)
            if not world.has_savepoints:
                self.savepoints.follow(None)
            if world.begins_with is not None:
                self.begun = False
                begin_with(self, world.begins_with)
        self._begun_writes: set[tuple[int, int, TaskName]] = set()

    @property
    def generation(self) -> int:
        return self.member.generation

    @property
    def running(self) -> bool:
        return self.member.state is MemberState.RUNNING

    def hello(self) -> None:
        self.world.to_coordinator(self, self.member.hello())

    def step(self) -> bool:
        if self.coordinator is not None and self.begun and self.world.random.random() < 0.1:
            self._step_coordinator(self.coordinator)
        if self.savepoints is not None and self.world.user.random() < 0.05:
            self.savepoints.follow(self.world.request_of(self))
            self.world.require(self.savepoints.validate())
        if self.world.random.random() < (0.02 if self.running else 0.1):
            self.hello()
        if not self.running:
            return False
        task = self.world.random.choice(list(self.tasks.values()))
        durable = self.member.is_durable(task.name)
        if self.world.random.random() < (0.02 if durable else 0.2):
            self._report(task)
        return task.step()

    # -- links

    def send(self, sender: TaskName, to: TaskName, frame: Any) -> None:
        self.world.link(self, sender, to).append((self.generation, frame))

    def receive(self, sender: TaskName, to: TaskName, generation: int, frame: Any) -> None:
        task = self.tasks.get(to)
        same = generation == self.generation or not self.world.keeps(Rule.FILTER_GENERATIONS)
        if task is not None and sender in task.inbox and same:
            task.inbox[sender].append(frame)

    # -- parts

    def _report(self, task: Task) -> None:
        """Say that a snapshot is taken, and write it if that was not begun."""
        report = self.member.report(task.name)
        if report is None:
            return
        self.world.to_coordinator(self, report)
        generation, epoch = report.generation, report.epoch
        if (generation, epoch, task.name) not in self._begun_writes and task.snapshot is not None:
            self._begun_writes.add((generation, epoch, task.name))
            name = self.world.name_of(generation, epoch, task.name)

            def written() -> None:
                report = self.member.durable(generation, epoch, task.name, name)
                if report is not None:
                    self.world.to_coordinator(self, report)

            self.world.put(self, name, task.snapshot[1], written)

    # -- what the coordinator says

    def hear(self, message: ToWorker) -> None:
        for command in self.member.hear(message):
            match command:
                case does.MakeTasks(restore):
                    self._restore(restore)
                case does.Confirm(epoch):
                    for task in self.tasks.values():
                        task.completed(epoch)
                case does.EndWorker():
                    self.alive = False
        self.member.validate()

    def _restore(self, to: Restore) -> None:
        old, self.tasks = self.tasks, {}
        for component, count in to.shape.items():
            parts = self.world.read_parts(to.manifest, component)
            if not self.world.keeps(Rule.PARTS_OF_ITS_EPOCH):
                parts = parts[:count]
            for index in range(count):
                name = (component, index)
                if self.world.worker_of(name) != self.worker:
                    continue
                around = self.world.around(self)
                send = partial(self.send, name)
                history = to.history
                task = KINDS[component](name, to.epoch, dict(to.shape), around, send, history)
                task.restore(parts)
                self.tasks[name] = task
        self._hand_over(old)
        epochs = {name: task.epochs for name, task in self.tasks.items()}
        self.member.restored(to.generation, epochs)
        if not self.world.keeps(Rule.WAIT_FOR_ALL):
            self.hear(Go(to.generation, to.epoch))
        self.hello()

    def _hand_over(self, old: dict[TaskName, Task]) -> None:
        """What may not be handed over."""
        for name, before in old.items():
            before.end()
            after = self.tasks.get(name)
            if after is None:
                continue
            if not self.world.keeps(Rule.DROP_UNTAKEN):
                for upstream, frames in before.inbox.items():
                    if upstream in after.inbox:
                        after.inbox[upstream].extend(frames)
            remembers = not self.world.keeps(Rule.ACK_WHAT_IS_RESTORED)
            if remembers and isinstance(before, BrokerSource) and isinstance(after, BrokerSource):
                after.unacknowledged.update(before.unacknowledged)

    # -- the coordinator

    def _step_coordinator(self, coordinator: Coordinator) -> None:
        """A timer has fired."""
        random = self.world.random
        if coordinator.state is State.IDLE:
            if self.world.asks_for_other_shape():
                self.coordinate(asks.ShapeChanged(dict(self.world.shape)))
            elif random.random() < 0.3:
                self.begin_epoch()
            else:
                self._collect(coordinator)
            return
        self.coordinate(asks.RepeatDue())
        if coordinator.attempt is not None and self.world.gives_up():
            self.coordinate(asks.TimeIsUp())

    def begin_epoch(self) -> None:
        """Begin one, if it is time."""
        coordinator, savepoints = self.coordinator, self.savepoints
        if coordinator is None or savepoints is None or coordinator.state is not State.IDLE:
            return
        if savepoints.may_begin:
            savepoints.begun(coordinator.last_begun + 1)
            full = savepoints.wants_full or self.world.random.random() < 0.2
            self.coordinate(asks.EpochDue(full=full))

    def hear_as_coordinator(self, message: ToCoordinator) -> None:
        self.coordinate(asks.Heard(message))

    def coordinate(self, event: asks.Event) -> None:
        """Have the coordinator react, and carry out what it asks for."""
        coordinator = self.coordinator
        if coordinator is None or not self.alive or not self.begun:
            return
        decides, before = coordinator.state is State.DECIDING, coordinator.record.epoch
        commands = coordinator.happened(event, self.world.steps)
        if decides and coordinator.record.epoch > before and self.savepoints is not None:
            self.savepoints.completed(coordinator.record, coordinator.manifest)
        for command in commands:
            match command:
                case asks.Say(worker, message):
                    self.world.to_worker(self, worker, message)
                case asks.ReadRecord():
                    self.world.later(self, asks.RecordRead(self.world.znode.record))
                case asks.WriteRecord(wanted):
                    self._write(wanted)
                case asks.ReadManifest(name):
                    found = asks.ManifestRead(name, self.world.manifest(name))
                    self.world.later(self, found)
                case asks.WriteManifest(name, manifest):

                    def written(name: Name = name) -> None:
                        self.coordinate(asks.ManifestWritten(name))

                    self.world.put(self, name, manifest, written)
                case asks.End():
                    self.alive = False
        coordinator.validate()

    def _write(self, wanted: Record) -> None:
        def outcome(succeeded: bool | None) -> None:
            present = self.world.znode.record
            self.coordinate(asks.RecordWritten(wanted, succeeded, present))

        self.world.write_record(self, wanted, outcome)

    def _collect(self, coordinator: Coordinator) -> None:
        """Remove what no generation can need."""
        record, manifest = coordinator.record, coordinator.manifest
        if manifest is None:
            return
        needed = {name for names in manifest.parts.values() for name in names}
        needed.add(record.manifest)
        pinned = None if self.savepoints is None else self.savepoints.pinned
        if pinned is not None and self.world.keeps(Rule.PINNED):
            needed |= {name for names in cast(Any, pinned).parts.values() for name in names}
        for name in list(self.world.store.objects):
            old = name.generation <= record.generation and name.epoch < record.epoch
            if name not in needed and (old or not self.world.keeps(Rule.COLLECT_BY_NAME)):
                del self.world.store.objects[name]
