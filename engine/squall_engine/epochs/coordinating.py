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
from squall_engine.epochs.messages import Name, Record, Shape, TaskName, ToCoordinator, ToWorker
from squall_engine.epochs.parts import PartStore, assemble
from squall_engine.epochs.record import RecordPlace

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
        on_roll_back: Callable[[int], bool] | None = None,
    ) -> None:
        """`say` gets messages for workers, by number. `on_roll_back` gets the generation that is
        over; if it returns True, another coordinator goes on in place of this one."""
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
        self._begun_at = 0.0
        self._slow_epoch = 0  # the last one that was reported to be written slowly
        self._completed_at: float | None = None
        self._counts = EpochCounts(0)

    # ---- what happens ----

    def heard(self, message: ToCoordinator) -> None:
        """A worker has said something."""
        self.happened(asks.Heard(message))

    def happened(self, event: asks.Event) -> None:
        """React to an event."""
        coordinator = self.coordinator
        decides, before = coordinator.state is State.DECIDING, coordinator.record.epoch
        commands = coordinator.happened(event, time.monotonic())
        if decides and coordinator.record.epoch > before:
            self._note_completed(coordinator.record.epoch)
        rolls_back = asks.ReadRecord() in commands and coordinator.state is State.RAISING
        if rolls_back and coordinator.record.generation and self._on_roll_back is not None:
            log.warning("topology_rolls_back", topology=self._topology)
            if self._on_roll_back(coordinator.record.generation):
                return
        for command in commands:
            self._carry_out(command)

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
                self._background.failed(
                    StateStoreError(
                        f"checkpoint {attempt.epoch} is still being written after {secs:.0f} s",
                        hint="until it is written there is no newer one; is the disk of "
                        "topology.state.url slow, or the state large for it?",
                    )
                )

    def begin_epoch(self) -> None:
        """Begin an epoch, if none is under way."""
        if self.coordinator.state is State.IDLE:
            self._begun_at = time.monotonic()
            self.happened(asks.EpochDue())

    def _give_up(self, missing: Sequence[TaskName]) -> None:
        shown = ", ".join(f"{name} ({index})" for name, index in missing[:5])
        log.warning("epoch_given_up", topology=self._topology, waits_for=shown)
        self._counts = replace(self._counts, given_up=self._counts.given_up + 1)
        self.happened(asks.TimeIsUp())

    @property
    def counts(self) -> EpochCounts:
        """What has become of the epochs so far."""
        if self._completed_at is None:
            return replace(self._counts, epoch=self.coordinator.record.epoch)
        return replace(self._counts, age_secs=time.monotonic() - self._completed_at)

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
        manifest: Manifest = self.coordinator.manifest
        self._counts = replace(
            self._counts,
            epoch=epoch,
            completed=self._counts.completed + 1,
            duration_secs=self._completed_at - self._begun_at,
            size_bytes=manifest.size,
        )
        log.debug("epoch_completed", topology=self._topology, epoch=epoch)
        generation = self.coordinator.record.generation
        self._background.run(self._collect(generation, epoch, manifest))

    async def _collect(self, generation: int, epoch: int, manifest: Manifest) -> None:
        try:
            await self._background.in_thread(
                partial(self._parts.collect, generation, epoch, manifest)
            )
        except SquallError as error:
            self._background.failed(error)
