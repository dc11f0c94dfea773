"""Carries out what a worker has to do for the epochs of its topology: it restores its tasks, writes
their snapshots, and says so."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Protocol

from squall_common.state.manifest import TaskPart
from squall_engine.epochs import member as does
from squall_engine.epochs.background import Background
from squall_engine.epochs.driver import EpochDriver
from squall_engine.epochs.member import Member
from squall_engine.epochs.messages import Restore, ToCoordinator, ToWorker
from squall_engine.epochs.parts import Part, PartStore, Snapshot


class Engine(Protocol):
    """What is needed of the engine."""

    epochs: EpochDriver | None

    def set_ready(self, ready: bool) -> None: ...
    def report(self, component: str, task: int, error: BaseException) -> None: ...
    def die(self, error: BaseException) -> None: ...


class TakingPart:
    """A worker's part in the epochs, on an event loop. `say` gets messages for the coordinator,
    `make_tasks` what its tasks are to begin from, and `replaced` is called once another process
    has taken this one's place."""

    def __init__(
        self,
        member: Member,
        *,
        background: Background,
        parts: PartStore,
        say: Callable[[ToCoordinator], None],
        make_tasks: Callable[[Restore], None],
        replaced: Callable[[], None],
    ) -> None:
        self.member = member
        self.engine: Engine | None = None
        self.driver: EpochDriver | None = None
        self._background = background
        self._parts = parts
        self._say = say
        self._make_tasks = make_tasks
        self._replaced = replaced

    def begin(self, engine: Engine) -> None:
        """The engine has started: its tasks are there."""
        assert engine.epochs is not None
        self.engine, self.driver = engine, engine.epochs
        self.member.restored(self.member.generation, engine.epochs.tasks)
        self.greet()

    def greet(self) -> None:
        """Say that this worker exists, and how far it is. To be done often."""
        self._say(self.member.hello())

    def repeat_reports(self) -> None:
        """Say again what the coordinator may have missed."""
        assert self.driver is not None
        for name, task in self.member.tasks.items():
            if task.taken > self.driver.confirmed:
                report = self.member.report(name)
                if report is not None:
                    self._say(report)

    def hear(self, message: ToWorker) -> None:
        """React to what the coordinator has said."""
        for command in self.member.hear(message):
            self._carry_out(command)

    def _carry_out(self, command: does.Command) -> None:
        match command:
            case does.MakeTasks(restore):
                self._make_tasks(restore)
            case does.Start():
                assert self.engine is not None
                self.engine.set_ready(True)
            case does.Confirm(epoch):
                assert self.driver is not None
                if epoch > self.driver.confirmed:  # the store works
                    self._background.failure = ""
                self.driver.confirm(epoch)
            case does.Look():
                if self.driver is not None:
                    self.driver.look()
            case does.EndWorker():
                self._replaced()

    def taken(self, snapshot: Snapshot, groups: int) -> None:
        """A task has taken its snapshot."""
        self._background.run(self._write(snapshot, groups))

    async def _write(self, snapshot: Snapshot, groups: int) -> None:
        """Report that, and once more when it is durable."""
        task = snapshot.task
        report = self.member.report(task)
        if report is not None:
            self._say(report)

        def is_wanted() -> bool:
            known = self.member.tasks.get(task)
            return known is not None and known.taken == snapshot.epoch

        part = await self._background.insist(partial(self._written, snapshot, groups), is_wanted)
        if part is None:
            return
        assert self.driver is not None
        self.driver.wrote(task, snapshot.epoch, part.segments)
        durable = self.member.durable(snapshot.generation, snapshot.epoch, task, Part(groups, part))
        if durable is not None:
            self._say(durable)

    def _written(self, snapshot: Snapshot, groups: int) -> TaskPart:
        """Make it durable. On the thread of the background. Raises StateError."""
        try:
            return self._parts.write(snapshot, groups)
        except ValueError as error:  # of a value without an encoding
            assert self.driver is not None
            raise self.driver.snapshot_error(snapshot.task, snapshot.epoch, error) from error
