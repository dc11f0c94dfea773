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
import contextlib
import fcntl
import os
import time
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import msgspec

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateDamagedError, StateStoreError
from squall_common.state.manifest import Manifest, TaskPart, decode_manifest, encode_manifest
from squall_common.topology.model import Topology
from squall_common.topology.serialization import Registry
from squall_engine.core.codec import ValueCodec
from squall_engine.core.known_classes import component_modules
from squall_engine.epochs import coordinator_table as asks
from squall_engine.epochs import member as does
from squall_engine.epochs.coordinator import Attempt, Coordinator
from squall_engine.epochs.coordinator_table import State
from squall_engine.epochs.driver import EpochDriver
from squall_engine.epochs.member import Member
from squall_engine.epochs.messages import Name, Record, Restore, Shape, TaskName, new_history
from squall_engine.epochs.parts import EpochSettings, PartStore, Snapshot, assemble

log = get_logger(__name__)

_T = TypeVar("_T")

_WORKER: Final = 0
_INCARNATION: Final = 1
# An epoch whose snapshots take longer than this, and than so many intervals, is given up. Writing
# them may take as long as it does: nothing waits for that, and the next epoch would have to write
# as much.
_LIMIT_SECS = 30.0
_LIMIT_INTERVALS = 10
_RETRY_SECS = 0.2  # after a failure of the store; then it doubles
_RETRY_SECS_MAX = 5.0
_POLL_SECS = 0.005
_CLOSE_SECS = 10.0
_HEAD = b"SQREC\0\0\x01"  # the last byte is the version of the format


class Engine(Protocol):
    """What is needed of the engine."""

    epochs: EpochDriver | None

    def set_ready(self, ready: bool) -> None: ...
    def report(self, component: str, task: int, error: BaseException) -> None: ...
    def die(self, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True)
class EpochCounts:
    """What has become of the epochs of a topology since it was started."""

    epoch: int  # the last complete one; 0: none
    completed: int = 0
    given_up: int = 0
    age_secs: float | None = None  # since the last one completed
    duration_secs: float | None = None  # of the last one, from its begin to its completion
    size_bytes: int = 0  # of all segments that the last one needs


class RecordFile:
    """The record of a topology as a file of its store. Its methods block."""

    def __init__(self, store: CheckpointStore, topology: str) -> None:
        self._store = store
        self._topology = topology
        self._name = f"{topology}/record"

    def read(self) -> Record:
        """The record; a new one if there is none. Raises StateError."""
        try:
            data = self._store.get(self._name)
        except FileNotFoundError:
            return Record(history=new_history(self._topology))
        head, check, body = data[: len(_HEAD)], data[len(_HEAD) :][:4], data[len(_HEAD) + 4 :]
        why = None
        if head[:-1] != _HEAD[:-1]:
            why = "it is not a record"
        elif head != _HEAD:
            why = f"its format has version {head[-1]}, and this is {_HEAD[-1]}"
        elif check != zlib.crc32(body).to_bytes(4, "little"):
            why = "its checksum differs"
        if why is None:
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.msgpack.decode(body, type=Record)
            why = "it cannot be decoded"
        raise StateDamagedError(
            f"{self._name} in {self._store.url} is damaged: {why}",
            hint="it says which epoch is the last: restore it from a copy",
        )

    def replace(self, wanted: Record) -> bool:
        """Compare and set. Raises StateError; then it is not known whether it was written."""
        if self.read().version + 1 != wanted.version:
            return False
        body = msgspec.msgpack.encode(wanted)
        check = zlib.crc32(body).to_bytes(4, "little")
        self._store.put(self._name, _HEAD + check + body)
        return True


class InProcessEpochs:
    """The epochs of one topology in this process. On the event loop of its engine."""

    def __init__(
        self, topology: Topology, options: TopologyOptions, shape: Shape, *, name: str
    ) -> None:
        """`shape` is of users' components; `name` the topology's. Raises SquallError if the
        configuration does not say where, or not a folder."""
        interval = options.topology_checkpoint_interval_secs
        url = options.topology_state_url
        assert interval is not None
        if url is None:
            raise SquallError(
                "topology.checkpoint.interval.secs is set, and topology.state.url is not",
                hint="set topology.state.url to the folder for the checkpoints",
            )
        self._store = CheckpointStore(url)
        if not self._store.is_local:
            raise SquallError(
                f"topology.state.url is {url}, and in one process checkpoints go to a folder",
                hint="set it to the path of a folder",
            )
        self._folder = Path(self._store.url.removeprefix("file://")) / name
        self._topology = name
        self._interval = interval
        self._limit = max(_LIMIT_SECS, _LIMIT_INTERVALS * interval)
        self._shape = dict(shape)
        self._record = RecordFile(self._store, name)
        codec = ValueCodec(
            Registry.of(options),
            allow_pickle=options.topology_fall_back_on_pickle,
            modules=component_modules(topology),
        )
        self._parts = PartStore(self._store, name, shape, codec)
        self._lock: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix=f"checkpoints of {name}")
        self._coordinator: Coordinator | None = None
        self._member = Member(_WORKER, _INCARNATION)
        self._restore: asyncio.Future[Restore] | None = None
        self._engine: Engine | None = None
        self._driver: EpochDriver | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._timers: list[asyncio.TimerHandle] = []
        self._ended = False
        self._begun_at = 0.0
        self._commits_ended = True  # as far as is known
        self._slow_epoch = 0  # the last one that was reported to be written slowly
        self._counts = EpochCounts(0)
        self._completed_at: float | None = None

    # ---- life ----

    async def open(self) -> EpochSettings:
        """Take the folder, and begin a new generation. Raises SquallError."""
        try:
            record = await self._in_thread(self._take_folder)
            self._coordinator = Coordinator(record.coordinator + 1, 1, self._shape, self._assemble)
            self._restore = asyncio.get_running_loop().create_future()
            self._happened(asks.Heard(self._member.hello()))
            restore = await self._restore
        except BaseException:
            await self.close()
            raise
        self._counts = EpochCounts(restore.epoch)
        if restore.epoch:
            log.info("restoring", topology=self._topology, epoch=restore.epoch)
        return EpochSettings(
            topology=self._topology,
            generation=restore.generation,
            epoch=restore.epoch,
            history=restore.history,
            manifest=restore.manifest,
            parts=self._parts,
            on_taken=self._taken,
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
        return self._record.read()

    def begin(self, engine: Engine) -> None:
        """The engine has started: let the tasks emit, and take checkpoints from now on."""
        assert engine.epochs is not None
        self._engine, self._driver = engine, engine.epochs
        self._member.restored(self._member.generation, engine.epochs.tasks)
        self._happened(asks.Heard(self._member.hello()))
        self._later(self._interval, self._tick)

    async def finish(self, wait_secs: float) -> bool:
        """Take a last epoch, and wait until the rows of sinks are written; at most so long. Returns
        whether that was done. Nothing is lost without: the next start goes on from the last epoch
        that is complete."""
        if self._coordinator is None or self._driver is None:
            return False
        deadline = time.monotonic() + wait_secs
        wanted = self._coordinator.last_begun + 1
        while time.monotonic() < deadline and not self._ended:
            self._begin_epoch()
            done = self._coordinator.record.epoch >= wanted
            if done and not self._driver.has_unconfirmed:
                return True
            await asyncio.sleep(_POLL_SECS)
        return False

    async def stop_commits(self) -> None:
        """Begin no more commits of sinks, and wait for those that are running: before the sinks are
        closed. The next start commits what is left."""
        if self._driver is None or not self._commits_ended:
            return
        self._commits_ended = await self._driver.stop_commits(_CLOSE_SECS)
        if not self._commits_ended:
            log.warning("sink_does_not_answer", topology=self._topology, waited_secs=_CLOSE_SECS)

    def abandon(self) -> None:
        """The engine has died: take no more checkpoints."""
        self._ended = True
        for timer in self._timers:
            timer.cancel()

    async def close(self) -> None:
        """Wait for what is being written, and let go of the folder. Idempotent."""
        self.abandon()
        await self.stop_commits()
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        # What is being written is not stopped, and must not come after another process's record.
        self._thread.shutdown(wait=False, cancel_futures=True)
        ended = asyncio.to_thread(self._thread.shutdown, wait=True)
        try:
            await asyncio.wait_for(ended, _CLOSE_SECS)
        except TimeoutError:
            log.warning("store_does_not_answer", topology=self._topology, keeps=self._folder)
            return  # the lock ends with this process
        # Nor a commit after the commits of another process; the lock ends with this one.
        if self._lock is not None and self._commits_ended:
            os.close(self._lock)
            self._lock = None

    @property
    def counts(self) -> EpochCounts:
        """What has become of the epochs so far."""
        age = None if self._completed_at is None else time.monotonic() - self._completed_at
        return replace(self._counts, age_secs=age)

    # ---- time ----

    def _later(self, secs: float, call: Callable[[], None]) -> None:
        timer = asyncio.get_running_loop().call_later(secs, call)
        self._timers = [one for one in self._timers if not one.cancelled()][-8:]
        self._timers.append(timer)

    def _tick(self) -> None:
        if self._ended:
            return
        self._later(self._interval, self._tick)
        coordinator = self._coordinator
        assert coordinator is not None
        if coordinator.attempt is None:
            self._begin_epoch()
        elif (secs := time.monotonic() - self._begun_at) > self._limit:
            assert self._driver is not None
            missing = self._driver.not_taken()
            if missing:
                self._give_up(missing)
            elif self._slow_epoch != coordinator.attempt.epoch:
                self._slow_epoch = coordinator.attempt.epoch
                self._report(
                    StateStoreError(
                        f"checkpoint {self._slow_epoch} is still being written after {secs:.0f} s",
                        hint="until it is written there is no newer one; is the disk of "
                        "topology.state.url slow, or the state large for it?",
                    )
                )

    def _begin_epoch(self) -> None:
        assert self._coordinator is not None
        if self._coordinator.state is State.IDLE:
            self._begun_at = time.monotonic()
            self._happened(asks.EpochDue())

    def _give_up(self, missing: Sequence[TaskName]) -> None:
        shown = ", ".join(f"{name} ({index})" for name, index in missing[:5])
        log.warning("epoch_given_up", topology=self._topology, waits_for=shown)
        self._counts = replace(self._counts, given_up=self._counts.given_up + 1)
        self._happened(asks.TimeIsUp())

    # ---- the coordinator ----

    def _happened(self, event: asks.Event) -> None:
        coordinator = self._coordinator
        assert coordinator is not None
        for command in coordinator.happened(event, time.monotonic()):
            match command:
                case asks.Say(message=message):
                    for what in self._member.hear(message):
                        self._carry_out(what)
                case asks.ReadRecord():
                    self._answer(self._record.read, asks.RecordRead)
                case asks.WriteRecord(wanted):
                    self._run(self._write_record(wanted))
                case asks.ReadManifest(name):
                    self._answer(
                        partial(self._read_manifest, name), partial(asks.ManifestRead, name)
                    )
                case asks.WriteManifest(name, manifest):
                    self._run(self._write_manifest(name, manifest))
                case asks.End():
                    self._fault(SquallError("another process coordinates this topology"))

    def _answer(self, call: Callable[[], _T], event: Callable[[_T], asks.Event]) -> None:
        async def answer() -> None:
            try:
                found = await self._in_thread(call)
            except SquallError as error:
                self._fault(error)
            else:
                self._happened(event(found))

        self._run(answer())

    async def _write_record(self, wanted: Record) -> None:
        """Write it, and read it back if its outcome is not known."""
        succeeded: bool | None = None
        present: Record | None = None
        wait = _RETRY_SECS
        try:
            succeeded = await self._in_thread(partial(self._record.replace, wanted))
            present = wanted if succeeded else None
        except StateStoreError as error:
            self._report(error)
        while present is None:
            try:
                present = await self._in_thread(self._record.read)
            except StateStoreError as error:
                self._report(error)
                await asyncio.sleep(wait)
                wait = min(2 * wait, _RETRY_SECS_MAX)
            except SquallError as error:
                self._fault(error)
                return
        if succeeded is None and present != wanted:
            await asyncio.sleep(_RETRY_SECS)  # before it is written again
        self._happened(asks.RecordWritten(wanted, succeeded, present))

    def _read_manifest(self, name: Name) -> Manifest:
        path = self._parts.manifest_path(name)
        return decode_manifest(self._parts.read_manifest(name), path)

    async def _write_manifest(self, name: Name, manifest: Manifest) -> None:
        data = encode_manifest(manifest)
        if await self._insist(name.epoch, partial(self._parts.write_manifest, name, data)):
            self._happened(asks.ManifestWritten(name))

    def _assemble(self, before: Any, attempt: Attempt) -> Manifest:
        assert self._driver is not None
        now_ms = int(time.time() * 1000)
        return assemble(self._topology, self._shape, self._driver.groups, attempt, now_ms)

    # ---- the worker ----

    def _carry_out(self, command: does.Command) -> None:
        match command:
            case does.MakeTasks(restore):
                assert self._restore is not None
                if self._restore.done():
                    self._fault(SquallError("the checkpoints of this topology were changed"))
                else:
                    self._restore.set_result(restore)
            case does.Start():
                assert self._engine is not None
                self._engine.set_ready(True)
            case does.Confirm(epoch):
                assert self._driver is not None
                self._driver.confirm(epoch)
                if epoch > self._counts.epoch:
                    self._completed(epoch)
            case does.Look():
                assert self._driver is not None
                self._driver.look()

    def _taken(self, snapshot: Snapshot, groups: int) -> None:
        self._run(self._write_part(snapshot, groups))

    async def _write_part(self, snapshot: Snapshot, groups: int) -> None:
        """Report that a task has taken its snapshot, and when it is durable."""
        report = self._member.report(snapshot.task)
        if report is not None:
            self._happened(asks.Heard(report))
        found: list[TaskPart] = []
        if not await self._insist(
            snapshot.epoch, lambda: found.append(self._parts.write(snapshot, groups))
        ):
            return
        assert self._driver is not None
        self._driver.wrote(snapshot.task, snapshot.epoch, found[0].segments)
        report = self._member.durable(snapshot.generation, snapshot.epoch, snapshot.task, found[0])
        if report is not None:
            self._happened(asks.Heard(report))

    async def _insist(self, epoch: int, write: Callable[[], None]) -> bool:
        """Write until that has succeeded, or the epoch was given up."""
        wait = _RETRY_SECS
        while True:
            try:
                await self._in_thread(write)
                return True
            except StateStoreError as error:
                self._report(error)
            except SquallError as error:
                self._fault(error)
                return False
            await asyncio.sleep(wait)
            wait = min(2 * wait, _RETRY_SECS_MAX)
            assert self._coordinator is not None
            attempt = self._coordinator.attempt
            if self._ended or attempt is None or attempt.epoch != epoch:
                return False

    def _completed(self, epoch: int) -> None:
        assert self._coordinator is not None
        self._completed_at = time.monotonic()
        manifest: Manifest = self._coordinator.manifest
        self._counts = replace(
            self._counts,
            epoch=epoch,
            completed=self._counts.completed + 1,
            duration_secs=self._completed_at - self._begun_at,
            size_bytes=manifest.size,
        )
        log.debug("epoch_completed", topology=self._topology, epoch=epoch)
        self._run(self._collect(self._member.generation, epoch, manifest))

    async def _collect(self, generation: int, epoch: int, manifest: Manifest) -> None:
        try:
            await self._in_thread(partial(self._parts.collect, generation, epoch, manifest))
        except SquallError as error:
            self._report(error)

    # ---- what goes wrong ----

    def _report(self, error: SquallError) -> None:
        """A failure that is tried again."""
        log.warning("checkpoint_failed", topology=self._topology, error=error)
        if self._engine is not None:
            self._engine.report(SYSTEM_COMPONENT, SYSTEM_TASK, error)

    def _fault(self, error: SquallError) -> None:
        """A failure that ends the topology."""
        if self._restore is not None and not self._restore.done():
            self._restore.set_exception(error)
        elif self._engine is not None:
            self._engine.die(error)
        self.abandon()

    async def _in_thread(self, call: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _run(self, coroutine: Any) -> None:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._running.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and task.exception() is not None:
            error = task.exception()
            log.error("checkpoint_fault", topology=self._topology, error=error)
            fault = SquallError(f"checkpoints have a fault: {error!r}")
            fault.__cause__ = error
            self._fault(fault)
