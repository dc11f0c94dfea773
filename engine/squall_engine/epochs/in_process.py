"""The epochs of a topology that runs in one process: its coordinator, its only worker, and a folder
as the store.

    epochs = InProcessEpochs(prepared.topology, options, shape, name="words")
    engine = EmbeddedEngine(replace(settings, epochs=await epochs.open()), ...)
    await engine.start()
    epochs.begin(engine)
    ...
    await epochs.finish(10.0)
    await engine.stop(0)
    await epochs.close()

The record is a file, which is replaced atomically. Only one process has the folder of a topology at
a time: a lock holds the others off, and ends with the process, however that ends.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from pathlib import Path
from typing import Final

from squall_common.component.checkpoints import Place, option_refusals
from squall_common.component.refusals import refuse
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateStoreError
from squall_common.topology.model import Topology
from squall_common.topology.serialization import Registry
from squall_engine.core.codec import ValueCodec
from squall_engine.core.known_classes import component_modules
from squall_engine.epochs.background import Background
from squall_engine.epochs.coordinating import Coordinating, EpochCounts
from squall_engine.epochs.held_work import HeldWork
from squall_engine.epochs.member import Member
from squall_engine.epochs.messages import Record, Restore, Shape
from squall_engine.epochs.parts import EpochSettings, PartStore
from squall_engine.epochs.record import RecordFile
from squall_engine.epochs.taking_part import Engine, TakingPart

log = get_logger(__name__)

_WORKER: Final = 0
_INCARNATION: Final = 1
_POLL_SECS = 0.005
_CLOSE_SECS = 10.0


class InProcessEpochs:
    """The epochs of one topology in this process. On the event loop of its engine."""

    def __init__(
        self, topology: Topology, options: TopologyOptions, shape: Shape, *, name: str
    ) -> None:
        """`shape` is of users' components; `name` the topology's. Raises SquallError if the
        configuration does not say where, or not a folder."""
        refuse(option_refusals(options, Place.PROCESS))
        interval, url = options.topology_checkpoint_interval_secs, options.topology_state_url
        assert interval is not None
        assert url is not None
        store = CheckpointStore(url)
        self._folder = Path(store.url.removeprefix("file://")) / name
        self._topology = name
        self._interval = interval
        self._shape = dict(shape)
        self._background = Background(name, on_failure=self._report, on_fault=self._fault)
        self._record = RecordFile(store, name, self._background)
        codec = ValueCodec(
            Registry.of(options),
            allow_pickle=options.topology_fall_back_on_pickle,
            modules=component_modules(topology),
        )
        self._parts = PartStore(store, name, shape, codec)
        self._lock: int | None = None
        self._commits_ended = True  # as far as is known
        self._coordinating: Coordinating | None = None
        self._taking_part = TakingPart(
            Member(_WORKER, _INCARNATION),
            background=self._background,
            parts=self._parts,
            say=lambda message: self._here.heard(message),
            make_tasks=self._make_tasks,
            replaced=lambda: None,
        )
        self._restore: asyncio.Future[Restore] | None = None
        self._held_work = HeldWork()
        self._begun_for: int | None = None  # the work for which an epoch was begun, see has_drained

    @property
    def _here(self) -> Coordinating:
        assert self._coordinating is not None
        return self._coordinating

    # ---- life ----

    async def open(self) -> EpochSettings:
        """Take the folder, and begin a new generation. Raises SquallError."""
        try:
            record = await self._background.in_thread(self._take_folder)
            self._coordinating = Coordinating(
                self._topology,
                self._shape,
                incarnation=record.coordinator + 1,  # no other process has the folder
                workers=1,
                interval_secs=self._interval,
                background=self._background,
                record=self._record,
                parts=self._parts,
                say=lambda _, message: self._taking_part.hear(message),
            )
            self._restore = asyncio.get_running_loop().create_future()
            self._taking_part.greet()
            restore = await self._restore
        except BaseException:
            await self.close()
            raise
        if restore.epoch:
            log.info("restoring", topology=self._topology, epoch=restore.epoch)
        return EpochSettings(
            topology=self._topology,
            generation=restore.generation,
            epoch=restore.epoch,
            history=restore.history,
            manifest=restore.manifest,
            parts=self._parts,
            on_taken=self._taking_part.taken,
        )

    def _take_folder(self) -> Record:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StateStoreError(
                f"the folder for checkpoints cannot be used: {error}",
                hint="set topology.state.url to a folder that can be written",
            ) from error
        self._lock = lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SquallError(
                f"topology {self._topology!r} is running with its checkpoints in {self._folder}",
                hint="stop it first, or give this one another name or topology.state.url",
            ) from None
        return self._record.read_now()

    def begin(self, engine: Engine) -> None:
        """The engine has started: let the tasks emit, and take checkpoints from now on."""
        self._taking_part.begin(engine)
        self._here.begin()

    async def finish(self, wait_secs: float) -> bool:
        """Take a last epoch, and wait until the rows of sinks are written; at most so long. Returns
        whether that was done. Nothing is lost without: the next start goes on from the last epoch
        that is complete."""
        driver = self._taking_part.driver
        if self._coordinating is None or driver is None:
            return False
        deadline = time.monotonic() + wait_secs
        wanted = self._here.coordinator.last_begun + 1
        while time.monotonic() < deadline and not self._background.ended:
            self.begin_epoch()
            done = self._here.coordinator.record.epoch >= wanted
            if done and not driver.has_unconfirmed:
                return True
            await asyncio.sleep(_POLL_SECS)
        return False

    def has_drained(self, work: int | None) -> bool:
        """Whether nothing is in flight, an epoch has completed since, and sinks have written their
        rows. To be asked again and again, with what the engine has done so far (None: something is
        in flight). Begins that epoch now: nothing else is to come into it."""
        driver = self._taking_part.driver
        if work is None or driver is None:
            return False
        if self._held_work.is_held(driver, work):
            return True
        if work != self._begun_for:
            last = self._here.coordinator.last_begun
            self.begin_epoch()  # not while another one is under way
            if self._here.coordinator.last_begun > last:
                self._begun_for = work
        return False

    def begin_epoch(self) -> None:
        """Begin an epoch now, if none is under way."""
        self._here.begin_epoch()

    def abandon(self) -> None:
        """The engine has died: take no more checkpoints."""
        self._background.end()

    async def stop_commits(self) -> None:
        """Begin no more commits of sinks, and wait for those that are running: before the sinks are
        closed. The next start commits what is left."""
        driver = self._taking_part.driver
        if driver is None or not self._commits_ended:
            return
        self._commits_ended = await driver.stop_commits(_CLOSE_SECS)
        if not self._commits_ended:
            log.warning("sink_does_not_answer", topology=self._topology, waited_secs=_CLOSE_SECS)

    async def close(self) -> None:
        """Wait for what is being written, and let go of the folder. Idempotent."""
        self.abandon()
        await self.stop_commits()
        if not await self._background.close():
            log.warning("store_does_not_answer", topology=self._topology, keeps=self._folder)
            return  # the lock ends with this process
        # Nor a commit after the commits of another process; the lock ends with this one.
        if self._lock is not None and self._commits_ended:
            os.close(self._lock)
            self._lock = None

    @property
    def counts(self) -> EpochCounts:
        """What has become of the epochs so far."""
        return EpochCounts(0) if self._coordinating is None else self._coordinating.counts

    # ---- the worker ----

    def _make_tasks(self, restore: Restore) -> None:
        assert self._restore is not None
        if self._restore.done():
            self._background.fault(SquallError("the checkpoints of this topology were changed"))
        else:
            self._restore.set_result(restore)

    # ---- what goes wrong ----

    def _report(self, error: SquallError) -> None:
        if self._taking_part.engine is not None:
            self._taking_part.engine.report(SYSTEM_COMPONENT, SYSTEM_TASK, error)

    def _fault(self, error: SquallError) -> None:
        """A failure that ends the topology."""
        if self._restore is not None and not self._restore.done():
            self._restore.set_exception(error)
        elif self._taking_part.engine is not None:
            self._taking_part.engine.die(error)
