"""The coordinator of a topology: starts epochs and completes them, and raises the generation when a
worker is new. Pure; what changes its state is in `coordinator_table`.

One write decides each time. It is compared with what was there, so that two coordinators cannot
both succeed; and one whose outcome is unknown is read back before anything follows from it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from squall_common.daemon.output.story import Story
from squall_engine.epochs.coordinator_table import (
    TABLE,
    Change,
    Command,
    End,
    EpochDue,
    Event,
    Heard,
    ManifestRead,
    ManifestWritten,
    ReadManifest,
    ReadRecord,
    RecordRead,
    RecordWritten,
    RepeatDue,
    Say,
    ShapeChanged,
    State,
    TimeIsUp,
    WriteManifest,
    WriteRecord,
)
from squall_engine.epochs.messages import (
    Begin,
    Completed,
    Go,
    Hello,
    Name,
    Record,
    Release,
    Report,
    Restore,
    Shape,
    TaskName,
    ToWorker,
)

_UNDER_WAY = frozenset({State.TAKING, State.WRITING, State.DECIDING})
# Workers restore, or have restored, this generation.
_IN_GENERATION = frozenset({State.RESTORING, State.IDLE}) | _UNDER_WAY


@dataclass(slots=True)
class Attempt:
    """The epoch that is under way."""

    generation: int
    epoch: int
    full: bool
    taken: set[TaskName] = field(default_factory=set)
    parts: dict[TaskName, Any] = field(default_factory=dict)  # durable, as they were reported
    released: bool = False


# (the manifest of the last complete epoch, the epoch to complete): the new epoch's manifest.
Assemble = Callable[[Any, Attempt], Any]


class Coordinator:
    """Get an event, and say what is to be done. Times are in seconds, for the story only."""

    def __init__(self, incarnation: int, workers: int, shape: Shape, assemble: Assemble) -> None:
        """`incarnation`: each coordinator of a topology has a higher one than those before it.
        `workers`: how many there are, numbered from 0."""
        self.incarnation = incarnation
        self.workers = workers
        self.shape = dict(shape)
        self.state = State.GATHERING
        self.members: dict[int, int] = {}  # worker: incarnation
        self.record = Record()  # as this coordinator wrote it last
        self.manifest: Any = None  # of `record.epoch`
        self.attempt: Attempt | None = None
        self.restored: set[int] = set()
        self.last_begun = 0
        self._assemble = assemble
        self._next_manifest: Any = None  # of the attempt
        self._asked: Record | None = None  # the write whose outcome matters
        self._commands: list[Command] = []
        self._story = Story()
        self._now = 0.0

    def happened(self, event: Event, now: float) -> list[Command]:
        """React to an event."""
        if self.state is State.ENDED:
            return []
        self._now = now
        match event:
            case Heard(message=Hello() as hello):
                self._greet(hello)
            case Heard(message=Report() as report):
                self._note(report)
            case RecordRead(record=record) if self.state is State.RAISING and self._asked is None:
                self._raise_from(record)
            case RecordWritten():
                self._written(event)
            case ManifestRead(name, manifest):
                if self.state is State.LOADING and name == self.record.manifest:
                    self._loaded(manifest)
            case ManifestWritten(name=name):
                if self.state is State.WRITING and name == self._manifest_name():
                    self._decide()
            case EpochDue(full=full) if self.state is State.IDLE:
                self._begin(full)
            case TimeIsUp() if self.state in _UNDER_WAY:
                self._give_up()
            case ShapeChanged(shape=shape) if self.state is State.IDLE:
                self.shape = dict(shape)
                self._roll_back()
            case RepeatDue():
                self._repeat()
        commands, self._commands = self._commands, []
        return commands

    # -- generations --

    def _roll_back(self) -> None:
        """Begin a new generation, or begin once more."""
        gathered = self.state is State.GATHERING
        self._change(Change.ALL_PRESENT if gathered else Change.ROLLED_BACK)
        self.attempt = self._asked = None
        self.restored.clear()
        self._do(ReadRecord())

    def _raise_from(self, seen: Record) -> None:
        if seen.coordinator > self.incarnation:
            self._end()
            return
        self._write(
            replace(
                seen,
                version=seen.version + 1,
                generation=seen.generation + 1,
                coordinator=self.incarnation,
            )
        )

    def _raised(self, record: Record) -> None:
        # The epoch to go back to is the one in this very write: until then the coordinator before
        # could complete another.
        self.record = record
        self.last_begun = record.epoch
        self._change(Change.RAISED)
        if record.manifest is None:
            self._loaded(None)
        else:
            self._do(ReadManifest(record.manifest))

    def _loaded(self, manifest: Any) -> None:
        self.manifest = manifest
        self._change(Change.LOADED)
        self._say_restore()

    def _say_restore(self) -> None:
        self._say(
            Restore(
                self.record.generation,
                self.record.epoch,
                dict(self.shape),
                dict(self.members),
                self.manifest,
                self.record.history,
            )
        )

    def _greet(self, hello: Hello) -> None:
        known = self.members.get(hello.worker, 0)
        if hello.incarnation < known:
            return
        self.members[hello.worker] = hello.incarnation
        if self.state is State.GATHERING:
            if len(self.members) == self.workers:
                self._roll_back()
        elif self._replaces(hello, known):
            self._roll_back()
        elif self.state not in _IN_GENERATION or hello.generation > self.record.generation:
            return
        elif hello.generation < self.record.generation:
            self._say_restore()
        else:
            self._greet_member(hello)

    def _replaces(self, hello: Hello, known: int) -> bool:
        """Whether a worker is new, so that all tasks of the topology have to go back."""
        return hello.incarnation > known

    def _greet_member(self, hello: Hello) -> None:
        self.restored.add(hello.worker)
        if self.state is State.RESTORING and len(self.restored) == self.workers:
            self._change(Change.ALL_RESTORED)
        if self.state is not State.RESTORING and hello.waits:
            self._do(Say(hello.worker, Go(self.record.generation, self.record.epoch)))

    # -- the record --

    def _write(self, wanted: Record) -> None:
        self._asked = wanted
        self._do(WriteRecord(wanted))

    def _written(self, outcome: RecordWritten) -> None:
        wanted = outcome.wanted
        if wanted != self._asked or self.state not in (State.RAISING, State.DECIDING):
            return
        if outcome.succeeded or outcome.present == wanted:
            self._asked = None
            if self.state is State.RAISING:
                self._raised(wanted)
            else:
                self._completed(wanted)
        elif outcome.succeeded is None:
            self._unknown(wanted)
        else:
            self._refused(outcome.present)

    def _unknown(self, wanted: Record) -> None:
        """It was not written when the record was read, and may be any time: until that is known,
        nothing follows."""
        self._write(wanted)

    def _refused(self, present: Record) -> None:
        self._asked = None
        if self.state is State.RAISING:
            self._do(ReadRecord())
        elif present.coordinator != self.incarnation:
            self._end()
        else:
            self._roll_back()  # an epoch that was given up has completed late

    def _end(self) -> None:
        self._change(Change.SUPERSEDED)
        self.attempt = self._asked = None
        self._do(End())

    # -- epochs --

    def _begin(self, full: bool) -> None:
        self._change(Change.BEGUN)
        self.last_begun += 1
        full = full or self.manifest is None
        self.attempt = Attempt(self.record.generation, self.last_begun, full)
        self._say_begin(self.attempt)

    def _say_begin(self, attempt: Attempt) -> None:
        self._say(Begin(attempt.generation, attempt.epoch, attempt.full))

    def _note(self, report: Report) -> None:
        if report.generation != self.record.generation or self.state not in _IN_GENERATION:
            return
        attempt = self.attempt
        if attempt is not None and attempt.epoch == report.epoch:
            attempt.taken.add(report.task)
            if report.part is not None:
                attempt.parts[report.task] = report.part
            if attempt.released:
                self._say(Release(report.generation, report.epoch))
            if self.state is State.TAKING:
                self._advance(attempt)
        else:
            # It has missed what was said about an epoch that is over.
            epoch = min(report.epoch, self.last_begun)
            self._do(Say(report.worker, Release(report.generation, epoch)))
            self._say_completed()

    @property
    def tasks(self) -> set[TaskName]:
        """All tasks of the topology."""
        return {(name, i) for name, count in self.shape.items() for i in range(count)}

    def _advance(self, attempt: Attempt) -> None:
        tasks = self.tasks
        if not attempt.released and attempt.taken == tasks:
            attempt.released = True
            self._say(Release(attempt.generation, attempt.epoch))
        if self._is_durable(attempt, tasks):
            self._change(Change.ALL_DURABLE)
            manifest = self._assemble(self.manifest, attempt)
            self._do(WriteManifest(self._manifest_name(), manifest))
            self._next_manifest = manifest

    def _is_durable(self, attempt: Attempt, tasks: set[TaskName]) -> bool:
        return attempt.parts.keys() == tasks

    def _manifest_name(self) -> Name:
        assert self.attempt is not None
        return Name(self.attempt.generation, self.attempt.epoch, "manifest")

    def _decide(self) -> None:
        assert self.attempt is not None
        self._change(Change.MANIFEST_WRITTEN)
        self._write(
            replace(
                self.record,
                version=self.record.version + 1,
                epoch=self.attempt.epoch,
                manifest=self._manifest_name(),
            )
        )

    def _completed(self, record: Record) -> None:
        self._change(Change.COMPLETED)
        self.record, self.manifest = record, self._next_manifest
        self.attempt = None
        self._say_completed()

    def _say_completed(self) -> None:
        self._say(Completed(self.record.generation, self.record.epoch))

    def _give_up(self) -> None:
        """Its write may be applied late; nothing of it is removed before a later one completes."""
        self._change(Change.GIVEN_UP)
        self.attempt = self._asked = None
        self._say(Release(self.record.generation, self.last_begun))

    # -- speaking --

    def _repeat(self) -> None:
        if self.state is State.RESTORING:
            self._say_restore()
        elif self.state is State.TAKING:
            assert self.attempt is not None
            self._say_begin(self.attempt)

    def _say(self, message: ToWorker) -> None:
        for worker in self.members:
            self._do(Say(worker, message))

    def _do(self, command: Command) -> None:
        self._commands.append(command)

    def _change(self, change: Change) -> None:
        following = TABLE.get((self.state, change))
        self.state = self._story.step(self.state, change.name, following, self._now)

    # -- checks --

    def validate(self) -> None:
        """Assert what must be true between two events. Raises ContradictionError, which shows what
        led there."""
        with self._story.checking(self):
            under_way = self.state in _UNDER_WAY
            assert (self.attempt is not None) == under_way, "an attempt without its state"
            if self.attempt is not None:
                assert self.attempt.epoch == self.last_begun > self.record.epoch, "an old epoch"
                assert self.attempt.generation == self.record.generation, "an old attempt"
                assert self.attempt.parts.keys() <= self.attempt.taken, "durable, and not taken"
            if self.state is State.DECIDING:
                assert self._asked is not None, "deciding without a write"
            if self._asked is not None:
                assert self.state in (State.RAISING, State.DECIDING), "a write that nothing awaits"
            if self.state in _IN_GENERATION:
                assert self.record.coordinator == self.incarnation, "another's generation"
                assert len(self.members) == self.workers, "a generation without some workers"
            if self.state is State.IDLE or under_way:
                assert len(self.restored) == self.workers, "some have not restored"

    def __str__(self) -> str:
        return (
            f"coordinator {self.incarnation} {self.state.name}, generation "
            f"{self.record.generation}, epoch {self.record.epoch}"
        )
