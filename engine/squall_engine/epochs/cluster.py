"""The epochs of a topology on a cluster, seen from one of its workers.

    epochs = ClusterEpochs(...)
    engine = EmbeddedEngine(replace(settings, epochs=await epochs.restore()), ...)
    await engine.start()
    epochs.begin(engine)
    ...
    await epochs.close(2.0)

The worker that runs the topology's first task has the coordinator. Its record is a znode. All
messages go over the links between workers; the barriers, too (`dataflow.fence`).

A rollback gives each worker a new *image*: its process starts again in place, so that nothing is
left of the tasks, threads and links before, whatever these do. To the supervisor it is the same
process. To the coordinator it is the same incarnation, which has not restored yet; an image that
has lost something by itself (`renew(..., anew=True)`) is a new one.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from squall_common.cluster import paths
from squall_common.cluster.store import Store
from squall_common.cluster.values import CheckpointReport, StormBase
from squall_common.component.checkpoints import Place, option_refusals
from squall_common.component.refusals import refuse
from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK, is_system_id
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateError, StateStoreError
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import PreparedTopology
from squall_common.topology.serialization import Registry
from squall_engine.core.codec import ValueCodec
from squall_engine.core.known_classes import component_modules
from squall_engine.core.sections import EPOCHS, METRICS, TRACES
from squall_engine.dataflow.fence import Fence
from squall_engine.epochs import coordinator_table as asks
from squall_engine.epochs import wire
from squall_engine.epochs.background import RETRY_SECS, Background
from squall_engine.epochs.coordinating import Coordinating, EpochCounts
from squall_engine.epochs.held_work import HeldWork
from squall_engine.epochs.member import Member, MemberState
from squall_engine.epochs.messages import Hello, Report, Restore, ToCoordinator, ToWorker
from squall_engine.epochs.parts import EpochSettings, PartStore
from squall_engine.epochs.record import RecordZnode, claim
from squall_engine.epochs.savepoints import Savepoints, Taking, begin_with
from squall_engine.epochs.taking_part import Engine, TakingPart

log = get_logger(__name__)

_GREET_SECS = 0.2
_SELDOM = 5
_REPEAT_SECS = 2.0
# An image that has lost something waits so long for a rollback that has begun already.
_LOST_SECS = 3.0
_NO_GENERATION = frozenset({EPOCHS, METRICS, TRACES})
_COMMIT_SECS = 2.0
_MARK_TRIES = 20
_MARK_SECS = 0.5
_FAILURE_MAX = 500  # characters, in each heartbeat
_HALF: Final = 1 << 32


@dataclass(frozen=True, slots=True)
class Image:
    """Which image of its process this is."""

    number: int = 0  # of the images before it
    anew: int = 0  # the number of the last one that was begun anew
    floor: int = 0  # the lowest generation in which it may take part
    reason: str = ""  # why it was begun

    def next(self, floor: int, *, anew: bool, reason: str = "") -> Image:
        """The image that follows."""
        number = self.number + 1
        return Image(number, number if anew else self.anew, max(floor, self.floor), reason)

    def encode(self) -> str:
        """For `decode`."""
        return f"{self.number},{self.anew},{self.floor},{self.reason}"

    @classmethod
    def decode(cls, text: str) -> Image:
        """Raises ValueError."""
        number, anew, floor, *reason = text.split(",", 3)
        return cls(int(number), int(anew), int(floor), "".join(reason))


def incarnation_of(assignment_zxid: int, launch: int, image: Image) -> int:
    """The incarnation of a worker: higher than those of all processes that had its slot before."""
    return (assignment_zxid * _HALF + launch) * _HALF + image.anew


def placement_name(
    topology_id: str, components: Mapping[int, str], routes: Mapping[int, WorkerSlot]
) -> str:
    """A name of where all tasks are. Workers that know the same have the same, and take no notice
    of others. `components`, if the topology was rescaled: what each task is, as before it had
    others of the same numbers."""
    known = "\n".join(
        f"{task} {components.get(task)} {slot}" if components else f"{task} {slot}"
        for task, slot in sorted(routes.items())
    )
    return hashlib.blake2b(f"{topology_id}\n{known}".encode(), digest_size=8).hexdigest()


class ClusterEpochs:
    """The epochs of one topology in one worker, on its event loop."""

    def __init__(
        self,
        prepared: PreparedTopology,
        options: TopologyOptions,
        *,
        name: str,
        topology_id: str,
        own: WorkerSlot,
        routes: Mapping[int, WorkerSlot],
        incarnation: int,
        image: Image,
        store: Store,
        send: Callable[[WorkerSlot, bytes], None],
        renew: Callable[[Image], None],
        on_failure: Callable[[str, int, BaseException], None],
        on_fault: Callable[[SquallError], None],
        on_savepoint: Callable[[], None] = lambda: None,
    ) -> None:
        """`routes`: where every task runs. `incarnation`: see `incarnation_of`. `store`: that of
        the cluster state. `send` takes sections for the engine of another worker, and `renew`
        replaces this process by a new image; `on_savepoint` is called when one is done. Raises
        SquallError."""
        refuse(option_refusals(options, Place.CLUSTER))
        interval, url = options.topology_checkpoint_interval_secs, options.topology_state_url
        assert interval is not None
        assert url is not None
        topology = prepared.topology
        # Others have the name that workers of the version before know.
        rescaled = bool(options.topology_component_tasks)
        components = prepared.task_to_component if rescaled else {}
        self._named = partial(placement_name, topology_id, components)
        self.placement = self._named(routes)
        self._topology = name
        self._topology_id = topology_id
        # Without one this process is new.
        self._reason = image.reason or f"the worker {own}, which coordinates, was started again"
        self._shape = _shape(prepared)
        self._from = options.topology_checkpoint_savepoint
        self._savepoints: Savepoints | None = None  # where the coordinator is
        self._base: StormBase | None = None  # the topology's status, as last read
        self._routes = dict(routes)
        self._image = image
        self._interval = interval
        self._send = send
        self._renew = renew
        self._on_fault = on_fault
        self._on_savepoint = on_savepoint
        self._workers: Sequence[WorkerSlot] = sorted(set(routes.values()), key=str)
        self._chief = routes[min(routes)]
        self._own = own
        self._background = Background(
            name,
            on_failure=lambda error: on_failure(SYSTEM_COMPONENT, SYSTEM_TASK, error),
            on_fault=self._fault,
        )
        self._url = url
        self._mark = f"{name}/coordinator"
        self._checkpoints = CheckpointStore(url)
        self._record = RecordZnode(store, paths.checkpoints(name, url), name)
        codec = ValueCodec(
            Registry.of(options),
            allow_pickle=options.topology_fall_back_on_pickle,
            modules=component_modules(topology),
        )
        self._parts = PartStore(self._checkpoints, name, self._shape, codec)
        self._coordinating: Coordinating | None = None
        self._taking_part = TakingPart(
            Member(self._workers.index(own), incarnation),
            background=self._background,
            parts=self._parts,
            say=self._say_to_coordinator,
            make_tasks=self._make_tasks,
            replaced=self._replaced,
        )
        self._restore: asyncio.Future[Restore] = asyncio.get_running_loop().create_future()
        self._fence: Fence | None = None
        self._failed: SquallError | None = None  # why nothing of this goes on
        self._renewing = False
        self._greetings = 0
        self._held_work = HeldWork()

    # ---- life ----

    async def restore(self) -> EpochSettings:
        """Wait until all workers of the topology are there, and know from which epoch the tasks
        begin. Raises SquallError."""
        if self._chief == self._own:
            self._background.run(self._coordinate())
        self._taking_part.greet()
        self._background.every(_GREET_SECS, self._greet)
        restore = await self._restore
        await self._check_mark()
        manifest = None
        if restore.manifest is not None:
            manifest = await self._background.insist(
                lambda: self._parts.load_manifest(restore.manifest), lambda: True
            )
            if manifest is None:
                raise self._failed or SquallError("the last checkpoint cannot be read")
        log.info(
            "restoring",
            topology=self._topology,
            generation=restore.generation,
            epoch=restore.epoch,
        )
        self._fence = Fence(restore.generation, self._routes)
        self._fence.on_gap = self._lost
        return EpochSettings(
            topology=self._topology,
            generation=restore.generation,
            epoch=restore.epoch,
            history=restore.history,
            manifest=manifest,
            parts=self._parts,
            on_taken=self._taking_part.taken,
            fence=self._fence,
        )

    async def _check_mark(self) -> None:
        """That this worker sees the files that the coordinator writes. Raises SquallError."""
        tries = _MARK_TRIES
        while True:
            try:
                present = (await self._record.read()).coordinator
                mark = await self._background.in_thread(lambda: self._checkpoints.get(self._mark))
                if int(mark) >= present:
                    return
                tries -= 1
            except (FileNotFoundError, ValueError):
                tries -= 1
            except StateStoreError as error:
                self._background.failed(error)  # which says nothing about the files
            if not tries:
                raise SquallError(
                    f"topology.state.url is {self._url}, and there this node does not see what "
                    "another node of the topology has written",
                    hint="use a URL, or a folder that all nodes mount",
                )
            await asyncio.sleep(_MARK_SECS)

    async def _coordinate(self) -> None:
        await self._check_folder()
        if self._from is not None:
            await self._begin_with(self._from)
        while True:
            try:
                incarnation = await claim(self._record, self._topology_id, self._reason)
                break
            except StateStoreError as error:
                self._background.failed(error)
            await asyncio.sleep(RETRY_SECS)
        mark = str(incarnation).encode()

        def write_mark() -> bool:
            self._checkpoints.put(self._mark, mark)
            return True

        if not await self._background.insist(write_mark, lambda: True):
            return
        savepoints = self._savepoints = Savepoints(
            self._topology,
            self._url,
            background=self._background,
            store=self._checkpoints,
            begin_epoch=self._begin_epoch,
            changed=self._on_savepoint,
        )
        self._coordinating = Coordinating(
            self._topology,
            self._shape,
            incarnation=incarnation,
            workers=len(self._workers),
            interval_secs=self._interval,
            background=self._background,
            record=self._record,
            parts=self._parts,
            say=self._say_to_worker,
            on_roll_back=self._roll_back,
            name_of=lambda worker: str(self._workers[worker]),
            savepoints=savepoints,
        )
        self._coordinating.begin()
        if self._base is not None:
            savepoints.follow(self._base.savepoint)
        self._background.every(_REPEAT_SECS, self._repeat)
        log.info("topology_coordinated", topology=self._topology, incarnation=incarnation)

    async def _begin_with(self, place: str) -> None:
        while True:
            try:
                await begin_with(
                    place,
                    topology=self._topology,
                    start=self._topology_id,
                    record=self._record,
                    parts=self._parts,
                    store=self._checkpoints,
                    background=self._background,
                )
                return
            except StateStoreError as error:
                self._background.failed(error)
            await asyncio.sleep(RETRY_SECS)

    def _begin_epoch(self) -> None:
        if self._coordinating is not None:
            self._coordinating.begin_epoch()

    def follow(self, base: StormBase | None) -> None:
        """The topology's status was read: it says whether a savepoint is wanted."""
        self._base = base
        if self._savepoints is not None and base is not None:
            self._savepoints.follow(base.savepoint)

    async def _check_folder(self) -> None:
        """Two clusters, or a cluster and a process, must not share a folder: each would take the
        other's checkpoints for its own garbage."""
        while True:
            try:
                if (await self._record.read()).version:
                    return
                break
            except StateStoreError as error:
                self._background.failed(error)
            await asyncio.sleep(RETRY_SECS)
        found = await self._background.insist(
            lambda: self._checkpoints.names(f"{self._topology}/manifests"), lambda: True
        )
        if found:
            raise StateError(
                f"{self._url}/{self._topology} has checkpoints that this cluster's ZooKeeper knows "
                "nothing of",
                hint="set topology.state.url to another folder, or remove these to begin anew",
            )

    def begin(self, engine: Engine) -> None:
        """The engine has started: its tasks emit once those of all workers are there."""
        self._taking_part.begin(_Opening(engine, self._fence))
        self._background.every(_REPEAT_SECS, self._taking_part.repeat_reports)

    async def close(self, wait_secs: float) -> None:
        """Write no more, and begin no image; wait at most so long for what is being written. What
        is not complete is done again from the last epoch."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + wait_secs
        self._renewing = True
        self._background.end()
        if not self._restore.done():
            self._restore.cancel()
        if self._taking_part.driver is not None:
            await self._taking_part.driver.stop_commits(min(_COMMIT_SECS, wait_secs))
        await self._background.close(max(0.0, deadline - loop.time()))

    @property
    def report(self) -> CheckpointReport | None:
        """What has become of the epochs; None in workers without the coordinator."""
        if self._coordinating is None:
            return None
        report = report_of(self._coordinating.counts, self._interval)
        result = None if self._savepoints is None else self._savepoints.result
        return replace(report, savepoint=result)

    @property
    def store_failure(self) -> str | None:
        """What failed last in the store, since this worker has heard of a complete epoch; None: it
        works, or `report` says it."""
        failure = self._background.failure if self._coordinating is None else ""
        return failure[:_FAILURE_MAX] or None

    def has_drained(self, work: int | None) -> bool:
        """Whether nothing is in flight, an epoch has completed since, and sinks have written their
        rows. To be asked again and again, with what this worker has done so far (None: something is
        in flight): what was done since the last time is in no epoch that had begun then."""
        driver = self._taking_part.driver
        if work is None or driver is None:
            return False
        request = None if self._base is None else self._base.savepoint
        if request is not None and request.stop and self._may_have_halted:
            return not driver.has_batches  # no other epoch completes
        return self._held_work.is_held(driver, work)

    @property
    def _may_have_halted(self) -> bool:
        """Whether a savepoint that stops may have been taken. Only the worker that coordinates
        knows that it has failed; a topology has drained once all of them have."""
        if self._chief != self._own:
            return True
        return self._savepoints is not None and self._savepoints.state is Taking.HALTED

    # ---- messages ----

    def _greet(self) -> None:
        """Often while something may wait for it, and now and then afterwards."""
        self._greetings += 1
        runs = self._taking_part.member.state is MemberState.RUNNING
        if not runs or self._greetings % _SELDOM == 0:
            self._taking_part.greet()

    def receive(self, peer: WorkerSlot, section: bytes) -> None:
        """Take a section of another worker. Raises CodecError."""
        if not section or section[0] != EPOCHS:
            return  # of a generation that is over
        message = wire.decode(self.placement, section)
        if message is None or self._renewing:
            return
        if isinstance(message, Hello | Report):
            if self._coordinating is not None and self._workers[message.worker] == peer:
                self._coordinating.heard(message)
        elif peer == self._chief:
            self._hear(message)

    def _hear(self, message: ToWorker | wire.Renew) -> None:
        member = self._taking_part.member
        if isinstance(message, wire.Renew):
            if member.state is not MemberState.NEW and member.generation <= message.generation:
                self._begin_image(message.generation + 1)
        elif message.generation >= self._image.floor:
            self._taking_part.hear(message)

    def _say_to_coordinator(self, message: ToCoordinator) -> None:
        if self._renewing:
            return
        if self._chief != self._own:
            self._send(self._chief, wire.encode(self.placement, message))
        elif self._coordinating is not None:
            # Not at once: it may answer.
            asyncio.get_running_loop().call_soon(self._heard_here, message)

    def _heard_here(self, message: ToCoordinator) -> None:
        if self._coordinating is not None and not self._renewing:
            self._coordinating.heard(message)

    def _say_to_worker(self, worker: int, message: ToWorker) -> None:
        if isinstance(message, Restore):
            assert self._coordinating is not None
            name = self._coordinating.coordinator.record.manifest
            message = replace(message, manifest=name)
        slot = self._workers[worker]
        if slot != self._own:
            self._send(slot, wire.encode(self.placement, message))
        else:
            asyncio.get_running_loop().call_soon(self._hear_here, message)

    def _hear_here(self, message: ToWorker) -> None:
        if not self._renewing:
            self._hear(message)

    def _repeat(self) -> None:
        if self._coordinating is not None and not self._renewing:
            self._coordinating.happened(asks.RepeatDue())

    # ---- rollbacks ----

    def _make_tasks(self, restore: Restore) -> None:
        if self._restore.done():
            self._begin_image(restore.generation)
        else:
            self._restore.set_result(restore)

    def _roll_back(self, generation: int, reason: str) -> bool:
        """The coordinator is to raise the generation. If this worker has tasks, its next image
        does: it would take the coordinator with it."""
        if self._taking_part.member.state is MemberState.NEW:
            return False
        for slot in self._workers:
            if slot != self._own:
                self._send(slot, wire.encode(self.placement, wire.Renew(generation)))
        self._begin_image(generation + 1, reason=reason)
        return True

    def is_placed(self, routes: Mapping[int, WorkerSlot]) -> bool:
        """Whether all tasks are where this process believes."""
        return self._named(routes) == self.placement

    def placement_changed(self) -> None:
        """Tasks are elsewhere now."""
        self._begin_image(0, anew=True, reason="tasks were moved")

    def sections_dropped(self, sections: Sequence[bytes]) -> None:
        """Sections will never reach their worker."""
        if any(section[:1] and section[0] not in _NO_GENERATION for section in sections):
            self._lost("a worker has been replaced before it had taken all tuples")

    def _lost(self, reason: str) -> None:
        """Something of this generation is lost: it cannot complete another epoch."""
        driver = self._taking_part.driver
        if driver is None or driver.is_broken:
            return
        driver.is_broken = True
        log.warning("generation_broken", topology=self._topology, reason=reason)
        # Mostly another worker has ended, and the rollback has begun.
        begin = partial(self._begin_image, 0, reason=reason)
        asyncio.get_running_loop().call_later(_LOST_SECS, begin)

    def _begin_image(self, floor: int, *, anew: bool | None = None, reason: str = "") -> None:
        if self._renewing:
            return
        self._renewing = True
        self._background.end()
        # Whoever gave no generation does not follow a rollback, but begins one.
        anew = not floor if anew is None else anew
        self._renew(self._image.next(floor, anew=anew, reason=reason))

    def _replaced(self) -> None:
        self._background.fault(SquallError("another process has taken this worker's place"))

    def _fault(self, error: SquallError) -> None:
        self._failed = self._failed or error
        if not self._restore.done():
            self._restore.set_exception(error)
        else:
            self._on_fault(error)


def report_of(counts: EpochCounts, interval_secs: float) -> CheckpointReport:
    """What a worker reports of its topology's epochs."""

    def millis(secs: float | None) -> int | None:
        return None if secs is None else round(secs * 1000)

    longest = counts.longest_task
    return CheckpointReport(
        epoch=counts.epoch,
        interval_ms=round(interval_secs * 1000),
        completed=counts.completed,
        given_up=counts.given_up,
        waiting_ms=round(counts.waiting_secs * 1000),
        duration_ms=millis(counts.duration_secs),
        size_bytes=counts.size_bytes if counts.completed else None,
        longest_task=None if longest is None else f"{longest[0]} ({longest[1]})",
        longest_ms=millis(counts.longest_secs),
        waited_for=counts.waited_for or None,
        failure=counts.failure or None,
        rollbacks=counts.rollbacks,
        rollback_reason=counts.rollback_reason or None,
        rollback_time_ms=counts.rollback_time_ms or None,
        bound_components=counts.bound_components,
    )


class _Opening:
    """An engine whose tuples leave once it is ready."""

    def __init__(self, engine: Engine, fence: Fence | None) -> None:
        self.epochs = engine.epochs
        self.report = engine.report
        self.die = engine.die
        self._engine = engine
        self._fence = fence

    def set_ready(self, ready: bool) -> None:
        """See Engine."""
        assert self._fence is not None
        self._fence.is_open = ready
        self._engine.set_ready(ready)


def _shape(prepared: PreparedTopology) -> dict[str, int]:
    shape: dict[str, int] = {}
    for component in prepared.task_to_component.values():
        if not is_system_id(component):
            shape[component] = shape.get(component, 0) + 1
    return shape
