"""Carries out what the coordinator of a topology asks for: time, the record, and manifests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.state.errors import StateStoreError
from squall_common.state.manifest import Manifest, encode_manifest
from squall_engine.epochs import coordinator_table as asks
from squall_engine.epochs.background import RETRY_SECS, RETRY_SECS_MAX, Background
from squall_engine.epochs.coordinator import Attempt, Coordinator
from squall_engine.epochs.coordinator_table import State
from squall_engine.epochs.messages import (
    Hello,
    Name,
    Record,
    Report,
    Shape,
    TaskName,
    ToCoordinator,
    ToWorker,
)
from squall_engine.epochs.parts import PartStore, assemble
from squall_engine.epochs.record import RecordPlace
from squall_engine.epochs.savepoints import Savepoints

log = get_logger(__name__)

# An epoch whose snapshots take longer than this, and than so many intervals, is given up. Writing
# them may take as long as it does: nothing waits for that, and the next epoch would have to write
# as much.
_LIMIT_SECS = 30.0
_LIMIT_INTERVALS = 10


@dataclass(frozen=True, slots=True)
class EpochCounts:
    """What has become of the epochs of a topology since it was started."""

    epoch: int  # the last complete one; 0: none
    completed: int = 0
    given_up: int = 0
    age_secs: float | None = None  # since the last one completed
    duration_secs: float | None = None  # of the last one, from its begin to its completion
    size_bytes: int = 0  # of all segments that the last one needs
    longest_task: TaskName | None = None  # whose snapshot was durable last, of the last one
    longest_secs: float | None = None  # from its begin until then
    waited_for: str = ""  # the tasks for which the last one that was given up has waited
    failure: str = (
        ""  # of the store, the last one since an epoch completed, as this worker knows it
    )
    waiting_secs: float = 0.0  # since the last one completed, or the topology was started
    rollbacks: int = 0  # since the topology was submitted
    rollback_reason: str = ""  # of the last one
    rollback_time_ms: int = 0  # since 1970
    bound_components: tuple[str, ...] = ()  # whose state belongs to tasks


class Coordinating:
    """The coordinator of one topology, on an event loop."""

    def __init__(
        self,
        topology: str,
        shape: Shape,
        *,
        incarnation: int,
        workers: int,
        interval_secs: float,
        background: Background,
        record: RecordPlace,
        parts: PartStore,
        say: Callable[[int, ToWorker], None],
        on_roll_back: Callable[[int, str], bool] | None = None,
        name_of: Callable[[int], str] = str,
        savepoints: Savepoints | None = None,
    ) -> None:
        """`say` gets messages for workers, by number, and `name_of` is how one is shown.
        `on_roll_back` gets the generation that is over, and why; if it returns True, another
        coordinator goes on in place of this one."""
        self.coordinator = Coordinator(incarnation, workers, shape, self._assemble)
        self._topology = topology
        self._shape = dict(shape)
        self._interval = interval_secs
        self._limit = max(_LIMIT_SECS, _LIMIT_INTERVALS * interval_secs)
        self._background = background
        self._record = record
        self._parts = parts
        self._say = say
        self._on_roll_back = on_roll_back
        self._name_of = name_of
        self._savepoints = savepoints
        self._begun_at = 0.0
        self._made_at = time.monotonic()
        self._slow_epoch = 0  # the last one that was reported to be written slowly
        self._completed_at: float | None = None
        self._counts = EpochCounts(0)
        self._longest: tuple[TaskName, float] | None = None

    # ---- what happens ----

    def heard(self, message: ToCoordinator) -> None:
        """A worker has said something."""
        self.happened(asks.Heard(message))

    def happened(self, event: asks.Event) -> None:
        """React to an event."""
        coordinator = self.coordinator
        decides, before = coordinator.state is State.DECIDING, coordinator.record.epoch
        self._note_durable(event)
        commands = coordinator.happened(event, time.monotonic())
        if decides and coordinator.record.epoch > before:
            self._note_completed(coordinator.record.epoch)
        rolls_back = asks.ReadRecord() in commands and coordinator.state is State.RAISING
        if rolls_back and coordinator.record.generation and self._on_roll_back is not None:
            reason = self._reason(event)
            log.warning("topology_rolls_back", topology=self._topology, reason=reason)
            if self._on_roll_back(coordinator.record.generation, reason):
                return
        for command in commands:
            self._carry_out(command)

    def _reason(self, event: asks.Event) -> str:
        """Why an event leads to a rollback."""
        if isinstance(event, asks.Heard) and isinstance(event.message, Hello):
            return f"the worker {self._name_of(event.message.worker)} was started again"
        return "an epoch that was given up has completed late"

    def _note_durable(self, event: asks.Event) -> None:
        """The last task whose snapshot becomes durable is the one that took longest."""
        attempt = self.coordinator.attempt
        if attempt is None or not isinstance(event, asks.Heard):
            return
        report = event.message
        if isinstance(report, Report) and report.part is not None:
            is_its = (report.generation, report.epoch) == (attempt.generation, attempt.epoch)
            if is_its and report.task not in attempt.parts:
                self._longest = (report.task, time.monotonic() - self._begun_at)

    def _carry_out(self, command: asks.Command) -> None:
        run = self._background.run
        match command:
            case asks.Say(worker, message):
                self._say(worker, message)
            case asks.ReadRecord():
                run(self._read_record())
            case asks.WriteRecord(wanted):
                run(self._write_record(wanted))
            case asks.ReadManifest(name):
                run(self._read_manifest(name))
            case asks.WriteManifest(name, manifest):
                run(self._write_manifest(name, manifest))
            case asks.End():
                fault = SquallError("another process coordinates the checkpoints of this topology")
                self._background.fault(fault)

    # ---- time ----

    def begin(self) -> None:
        """Take checkpoints from now on."""
        self._background.every(self._interval, self._tick)

    def _tick(self) -> None:
        if self.coordinator.attempt is None:
            self.begin_epoch()
        elif (secs := time.monotonic() - self._begun_at) > self._limit:
            attempt = self.coordinator.attempt
            missing = sorted(self.coordinator.tasks - attempt.taken)
            if missing:
                self._give_up(missing)
            elif self._slow_epoch != attempt.epoch:
                self._slow_epoch = attempt.epoch
                self._background.warn(
                    StateStoreError(
                        f"checkpoint {attempt.epoch} is still being written after {secs:.0f} s",
                        hint="until it is written there is no newer one; is the disk of "
                        "topology.state.url slow, or the state large for it?",
                    )
                )

    def begin_epoch(self) -> None:
        """Begin an epoch, if none is under way."""
        savepoints = self._savepoints
        if self.coordinator.state is not State.IDLE:
            return
        if savepoints is not None and not savepoints.may_begin:
            return
        self._begun_at = time.monotonic()
        self._longest = None
        # It says so first: in one process the epoch may be complete when this returns.
        if savepoints is not None:
            savepoints.begun(self.coordinator.last_begun + 1)
        self.happened(asks.EpochDue(full=savepoints is not None and savepoints.wants_full))

    def _give_up(self, missing: Sequence[TaskName]) -> None:
        shown = ", ".join(f"{name} ({index})" for name, index in missing[:5])
        log.warning("epoch_given_up", topology=self._topology, waits_for=shown)
        given_up = self._counts.given_up + 1
        self._counts = replace(self._counts, given_up=given_up, waited_for=shown)
        self.happened(asks.TimeIsUp())

    @property
    def counts(self) -> EpochCounts:
        """What has become of the epochs so far."""
        record, now = self.coordinator.record, time.monotonic()
        counts = replace(
            self._counts,
            epoch=record.epoch,
            waiting_secs=self._waiting_secs(now),
            failure=self._background.failure,
            rollbacks=record.rollbacks,
            rollback_reason=record.rollback_reason,
            rollback_time_ms=record.rollback_time_ms,
            bound_components=self._bound(),
        )
        if self._completed_at is None:
            return counts
        return replace(counts, age_secs=now - self._completed_at)

    def _waiting_secs(self, now: float) -> float:
        if self._completed_at is not None:
            return now - self._completed_at
        record = self.coordinator.record
        manifest: Manifest | None = self.coordinator.manifest
        if not record.start:
            return now - self._made_at
        # Another worker may have completed it, by its own clock.
        last_ms = max(record.start_time_ms, 0 if manifest is None else manifest.time_ms)
        return max(now - self._made_at, time.time() - last_ms / 1000)

    def _bound(self) -> tuple[str, ...]:
        manifest: Manifest | None = self.coordinator.manifest
        if manifest is None:
            return ()
        parts = sorted(manifest.components.items())
        return tuple(name for name, part in parts if any(one.bound for one in part.tasks))

    # ---- the record ----

    async def _read_record(self) -> None:
        self.happened(asks.RecordRead(await self._insist_on_record()))

    async def _insist_on_record(self) -> Record:
        wait = RETRY_SECS
        while True:
            try:
                return await self._record.read()
            except StateStoreError as error:
                self._background.failed(error)
            await asyncio.sleep(wait)
            wait = min(2 * wait, RETRY_SECS_MAX)

    async def _write_record(self, wanted: Record) -> None:
        """Write it, and read it back if its outcome is not known."""
        succeeded: bool | None = None
        try:
            succeeded = await self._record.replace(wanted)
        except StateStoreError as error:
            self._background.failed(error)
        present = wanted if succeeded else await self._insist_on_record()
        if succeeded is None and present != wanted:
            await asyncio.sleep(RETRY_SECS)  # before it is written again
        self.happened(asks.RecordWritten(wanted, succeeded, present))

    # ---- manifests ----

    async def _read_manifest(self, name: Name) -> None:
        found = await self._background.insist(
            partial(self._parts.load_manifest, name), lambda: True
        )
        if found is not None:
            self.happened(asks.ManifestRead(name, found))

    async def _write_manifest(self, name: Name, manifest: Manifest) -> None:
        data = encode_manifest(manifest)

        def write() -> bool:
            self._parts.write_manifest(name, data)
            return True

        def is_wanted() -> bool:
            attempt = self.coordinator.attempt
            return attempt is not None and attempt.epoch == name.epoch

        if await self._background.insist(write, is_wanted):
            self.happened(asks.ManifestWritten(name))

    def _assemble(self, before: Any, attempt: Attempt) -> Manifest:
        return assemble(self._topology, self._shape, attempt, int(time.time() * 1000))

    def _note_completed(self, epoch: int) -> None:
        self._completed_at = time.monotonic()
        self._background.failure = ""
        manifest: Manifest = self.coordinator.manifest
        self._counts = replace(
            self._counts,
            epoch=epoch,
            completed=self._counts.completed + 1,
            duration_secs=self._completed_at - self._begun_at,
            size_bytes=manifest.size,
            longest_task=None if self._longest is None else self._longest[0],
            longest_secs=None if self._longest is None else self._longest[1],
        )
        log.debug("epoch_completed", topology=self._topology, epoch=epoch)
        if self._savepoints is not None:
            self._savepoints.completed(self.coordinator.record, manifest)
        generation = self.coordinator.record.generation
        self._background.run(self._collect(generation, epoch, manifest))

    async def _collect(self, generation: int, epoch: int, manifest: Manifest) -> None:
        pinned = None if self._savepoints is None else self._savepoints.pinned
        try:
            await self._background.in_thread(
                partial(self._parts.collect, generation, epoch, manifest, pinned)
            )
        except SquallError as error:
            self._background.failed(error)
