"""A worker process with its tasks, and the coordinator, which lives in one of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.epochs.outside import Name, Record
from tests.simulation.epochs.rules import Rule
from tests.simulation.epochs.tasks import KINDS, SOURCES, BrokerSource, Keyed, Shape, Task, TaskName

if TYPE_CHECKING:
    from tests.simulation.epochs.world import World


@dataclass(frozen=True, slots=True)
class Manifest:
    """What an epoch consists of: names of parts, oldest first, by component."""

    epoch: int
    parts: dict[str, tuple[Name, ...]]


# -- control messages; all may be late, doubled and lost


@dataclass(frozen=True, slots=True)
class Hello:
    worker: int
    incarnation: int
    generation: int
    waits: bool  # for Go


@dataclass(frozen=True, slots=True)
class Restore:
    generation: int
    epoch: int
    shape: Shape
    members: dict[int, int]
    manifest: Manifest | None


@dataclass(frozen=True, slots=True)
class Go:
    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Begin:
    generation: int
    epoch: int
    full: bool


@dataclass(frozen=True, slots=True)
class Release:
    """The epoch holds tasks no longer: all have taken it, or it was given up."""

    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Completed:
    generation: int
    epoch: int


@dataclass(frozen=True, slots=True)
class Report:
    """Of a task: it has taken its snapshot, and whether that is durable."""

    generation: int
    epoch: int
    task: TaskName
    part: Name | None


class Process:
    """One incarnation of a worker."""

    def __init__(self, world: World, worker: int, incarnation: int) -> None:
        self.world = world
        self.worker = worker
        self.incarnation = incarnation
        self.alive = True
        self.generation = 0
        self.running = False
        self.tasks: dict[TaskName, Task] = {}
        self.coordinator = Coordinator(world, self) if worker == 0 else None
        self._durable: dict[TaskName, Name] = {}
        self._begun_writes: set[tuple[int, int, TaskName]] = set()

    def hello(self) -> None:
        waits = not self.running
        self.world.to_coordinator(
            self, Hello(self.worker, self.incarnation, self.generation, waits)
        )

    def step(self) -> bool:
        if self.coordinator is not None and self.world.random.random() < 0.1:
            self.coordinator.step()
        if self.world.random.random() < (0.02 if self.running else 0.1):
            self.hello()
        if not self.running:
            return False
        task = self.world.random.choice(list(self.tasks.values()))
        if self.world.random.random() < (0.2 if task.name not in self._durable else 0.02):
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
        """Write the snapshot and say so, again and again until the coordinator releases it."""
        if task.taken == 0:
            return
        epoch, generation = task.taken, self.generation
        durable = self._durable.get(task.name)
        if durable is not None and durable.epoch != epoch:
            del self._durable[task.name]
            durable = None
        self.world.to_coordinator(self, Report(generation, epoch, task.name, durable))
        if (generation, epoch, task.name) not in self._begun_writes and task.snapshot is not None:
            self._begun_writes.add((generation, epoch, task.name))
            by = generation if self.world.keeps(Rule.GENERATIONS_IN_NAMES) else 0
            name = Name(by, epoch, f"{task.component}/{task.index}")

            def written() -> None:
                if self.generation == generation and task.taken == epoch:
                    self._durable[task.name] = name
                    self._report(task)

            self.world.put(self, name, task.snapshot[1], written)

    # -- what the coordinator says

    def hear(self, message: Any) -> None:
        match message:
            case Restore():
                self._restore(message)
            case Go(generation, epoch) if generation == self.generation and not self.running:
                self._go(epoch)
            case Begin(generation, epoch, full) if generation == self.generation and self.running:
                for task in self.tasks.values():
                    if task.component in SOURCES:
                        task.begin(epoch, full)
            case Release(generation, epoch) if generation == self.generation:
                for task in self.tasks.values():
                    task.release(epoch)
            case Completed(generation, epoch) if generation == self.generation and self.running:
                for task in self.tasks.values():
                    task.completed(epoch)

    def _go(self, epoch: int) -> None:
        self.running = True
        for task in self.tasks.values():
            task.completed(epoch)  # sinks may have rows of it

    def _restore(self, to: Restore) -> None:
        member = to.members.get(self.worker) == self.incarnation
        if not member and self.world.keeps(Rule.MEMBERS_ONLY):
            # An older message, or this process was given up.
            self.alive = self.alive and self.incarnation > to.members.get(self.worker, 0)
            return
        if to.generation <= self.generation:
            return
        old, self.tasks = self.tasks, {}
        self.generation = to.generation
        self.running = False
        self._durable.clear()
        for component, count in to.shape.items():
            parts = self.world.read_parts(to.manifest, component)
            for index in range(count):
                name = (component, index)
                if self.world.worker_of(name) != self.worker:
                    continue
                task = KINDS[component](
                    name,
                    to.generation,
                    to.shape,
                    self.world.around(self),
                    partial(self.send, name),
                )
                task.taken = task.closed = task.begun = to.epoch
                task.barriers = dict.fromkeys(task.barriers, to.epoch)
                task.restore(parts)
                self.tasks[name] = task
        self._hand_over(old)
        if not self.world.keeps(Rule.WAIT_FOR_ALL):
            self._go(to.epoch)
        self.hello()

    def _hand_over(self, old: dict[TaskName, Task]) -> None:
        """What may not be handed over."""
        for name, before in old.items():
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


@dataclass(slots=True)
class Attempt:
    """The epoch that is under way."""

    epoch: int
    full: bool
    taken: set[TaskName] = field(default_factory=set)
    parts: dict[TaskName, Name] = field(default_factory=dict)
    released: bool = False


class Coordinator:
    """Starts epochs and completes them; raises the generation when a process is new.

    phase       what it waits for
    gathering   each worker's hello
    raising     the write that raises the generation
    restoring   every worker to have restored
    idle        the time of the next epoch
    taking      all snapshots to be taken and durable
    deciding    the write that completes the epoch
    """

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.process = process
        self.phase = "gathering"
        self.members: dict[int, int] = {}
        self.record = Record()
        self.shape: Shape = world.shape
        self.attempt: Attempt | None = None
        self.manifest: Manifest | None = None
        self.restored: set[int] = set()
        self.last_begun = 0
        self._first_reading: Record | None = None

    # -- generations

    def _raise(self) -> None:
        """Begin, or begin again, a new generation."""
        self.phase = "raising"
        self.attempt = None
        self.restored.clear()
        self._first_reading = None
        self._read_and_raise()

    def _read_and_raise(self) -> None:
        seen = self.world.znode.record
        if seen.coordinator > self.process.incarnation:
            self.process.alive = False
            return
        if self._first_reading is None:
            self._first_reading = seen
            if not self.world.keeps(Rule.RAISE_THEN_READ):
                return  # the next step goes on
        wanted = replace(
            seen,
            version=seen.version + 1,
            generation=seen.generation + 1,
            coordinator=self.process.incarnation,
        )
        self._write(wanted, self._raised, self._read_and_raise)

    def _raised(self, record: Record) -> None:
        self.record = record
        base = record if self.world.keeps(Rule.RAISE_THEN_READ) else self._first_reading
        assert base is not None
        self.record = replace(record, epoch=base.epoch, manifest=base.manifest)
        self.manifest = self.world.manifest(base.manifest)
        self.last_begun = base.epoch
        self.shape = self.world.shape
        self.phase = "restoring"
        self._say_restore()

    def _say_restore(self) -> None:
        message = Restore(
            self.record.generation, self.record.epoch, self.shape, dict(self.members), self.manifest
        )
        for worker in self.members:
            self.world.to_worker(self.process, worker, message)

    # -- the znode

    def _write(
        self,
        wanted: Record,
        done: Callable[[Record], None],
        refused: Callable[[], None],
        unknown: Callable[[], None] | None = None,
    ) -> None:
        """Compare and set; repeated as it is until its outcome is known."""
        phase, attempt = self.phase, self.attempt

        def outcome(succeeded: bool | None) -> None:
            if (self.phase, self.attempt) != (phase, attempt):
                return
            if succeeded or self.world.znode.record == wanted:
                done(wanted)
            elif succeeded is False:
                refused()
            elif unknown is not None:
                unknown()
            else:
                self._write(wanted, done, refused)

        self.world.write_record(self.process, wanted, outcome)

    # -- epochs

    def step(self) -> None:
        """A timer has fired."""
        match self.phase:
            case "raising":
                if not self.world.keeps(Rule.RAISE_THEN_READ):
                    self._read_and_raise()
            case "restoring":
                self._say_restore()
            case "idle":
                if self.world.asks_for_other_shape():
                    self._raise()
                elif self.world.random.random() < 0.3:
                    self._begin()
                else:
                    self._collect()
            case "taking":
                self._say_begin()
                if self.world.gives_up():
                    self._give_up()

    def _begin(self) -> None:
        self.last_begun += 1
        full = self.manifest is None or self.world.random.random() < 0.2
        self.attempt = Attempt(self.last_begun, full)
        self.phase = "taking"
        self._say_begin()

    def _say_begin(self) -> None:
        assert self.attempt is not None
        message = Begin(self.record.generation, self.attempt.epoch, self.attempt.full)
        for worker in self.members:
            self.world.to_worker(self.process, worker, message)

    def _give_up(self) -> None:
        self.attempt, self.phase = None, "idle"
        self._say_release(self.last_begun)

    def _say_release(self, epoch: int) -> None:
        for worker in self.members:
            self.world.to_worker(self.process, worker, Release(self.record.generation, epoch))

    def _expected(self) -> set[TaskName]:
        return {(c, i) for c, count in self.shape.items() for i in range(count)}

    def _advance(self) -> None:
        attempt = self.attempt
        assert attempt is not None
        if attempt.taken == self._expected() and not attempt.released:
            attempt.released = True
            self._say_release(attempt.epoch)
        durable = self.world.keeps(Rule.COMPLETE_ON_DURABLE)
        if (attempt.parts.keys() if durable else attempt.taken) == self._expected():
            self.phase = "deciding"
            self._write_manifest(attempt)

    def _write_manifest(self, attempt: Attempt) -> None:
        by = self.record.generation if self.world.keeps(Rule.GENERATIONS_IN_NAMES) else 0
        names: dict[str, tuple[Name, ...]] = {}
        for component in self.shape:
            new = tuple(
                attempt.parts.get(task, Name(by, attempt.epoch, f"{task[0]}/{task[1]}"))
                for task in sorted(self._expected())
                if task[0] == component
            )
            keeps_old = issubclass(KINDS[component], Keyed) and not attempt.full
            old = self.manifest.parts[component] if keeps_old and self.manifest else ()
            names[component] = old + new
        manifest = Manifest(attempt.epoch, names)
        name = Name(self.record.generation, attempt.epoch, "manifest")

        def written() -> None:
            if self.attempt is attempt:
                self._decide(attempt, manifest, name)

        self.world.put(self.process, name, manifest, written)

    def _decide(self, attempt: Attempt, manifest: Manifest, name: Name) -> None:
        wanted = replace(
            self.record, version=self.record.version + 1, epoch=attempt.epoch, manifest=name
        )

        def done(record: Record) -> None:
            self.record, self.manifest = record, manifest
            self.attempt, self.phase = None, "idle"
            self._say_completed()

        unknown: Callable[[], None] | None = None
        if not self.world.keeps(Rule.NO_SUCCESS_BY_GUESS):

            def unknown() -> None:
                done(wanted)

        elif self.world.random.random() < 0.5:
            # It was read back, and is not there: it may be written yet. No part of this epoch is
            # removed before a later one completes, so giving it up is as good as writing again.
            unknown = self._give_up
        self._write(wanted, done, self._superseded, unknown)

    def _superseded(self) -> None:
        """The znode is not as this coordinator left it."""
        if self.world.znode.record.coordinator != self.process.incarnation:
            self.process.alive = False
        else:
            self._raise()

    def _say_completed(self) -> None:
        for worker in self.members:
            self.world.to_worker(
                self.process, worker, Completed(self.record.generation, self.record.epoch)
            )

    def _collect(self) -> None:
        """Remove what no generation can need."""
        if self.manifest is None:
            return
        needed = {name for names in self.manifest.parts.values() for name in names}
        if self.record.manifest is not None:
            needed.add(self.record.manifest)
        for name in list(self.world.store.objects):
            old = name.generation <= self.record.generation and name.epoch < self.record.epoch
            if name not in needed and (old or not self.world.keeps(Rule.COLLECT_BY_NAME)):
                del self.world.store.objects[name]

    # -- what processes say

    def hear(self, message: Any) -> None:
        match message:
            case Hello():
                self._greet(message)
            case Report(generation, epoch, task, part) if generation == self.record.generation:
                attempt = self.attempt
                if self.phase in ("taking", "deciding") and attempt and attempt.epoch == epoch:
                    attempt.taken.add(task)
                    if part is not None:
                        attempt.parts[task] = part
                    if attempt.released:
                        self._say_release(epoch)
                    if self.phase == "taking":
                        self._advance()
                elif self.phase not in ("gathering", "raising"):
                    self.world.to_worker(
                        self.process,
                        self.world.worker_of(task),
                        Release(generation, min(epoch, self.last_begun)),
                    )
                    self._say_completed()

    def _greet(self, hello: Hello) -> None:
        known = self.members.get(hello.worker, 0)
        if hello.incarnation < known:
            return
        self.members[hello.worker] = hello.incarnation
        if self.phase == "gathering":
            if len(self.members) == self.world.workers:
                self._raise()
        elif hello.incarnation > known and self.world.keeps(Rule.ROLL_BACK_ALL):
            self._raise()
        elif self.phase == "raising" or hello.generation > self.record.generation:
            return
        elif hello.generation < self.record.generation:
            self._say_restore()
        else:
            self.restored.add(hello.worker)
            if self.phase == "restoring" and len(self.restored) == self.world.workers:
                self.phase = "idle"
            if self.phase != "restoring" and hello.waits:
                go = Go(self.record.generation, self.record.epoch)
                self.world.to_worker(self.process, hello.worker, go)
