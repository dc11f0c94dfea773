"""Takes savepoints of a running topology, in the worker that coordinates it, and begins a topology
with one.

A request is in the topology's StormBase, so it outlives this worker. The next epoch is taken in
full and, once it is complete, copied to the savepoint's place; what it needs is kept meanwhile. A
request with `stop` lets no epoch begin after its own: nothing that comes later takes effect,
neither in state nor in sinks, until the topology is killed or another savepoint is asked for.

    UNKNOWN --status was read--> IDLE --request--> LOOKING --not there--> WANTED --epoch--> TAKING
    TAKING --complete--> COPYING --copied, or failed--> IDLE, or HALTED with `stop`
    TAKING --given up, or another has completed--> WANTED
    LOOKING --it is there, from before a fault--> as after COPYING
    LOOKING --it is not there, and was asked for long ago--> IDLE
"""

from __future__ import annotations

import asyncio
import enum
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from squall_common.cluster.values import SavepointRequest, SavepointResult
from squall_common.daemon.logs import get_logger
from squall_common.errors import SquallError
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateError, StateStoreError
from squall_common.state.manifest import Manifest, encode_manifest
from squall_common.state.savepoint import (
    HEAD_NAME,
    Savepoint,
    copy_segment,
    encode_savepoint,
    find_savepoint,
    folder_of,
    imported,
    kept,
    open_savepoint,
    place_in,
)
from squall_engine.epochs.background import Background
from squall_engine.epochs.messages import Name, Record, new_history
from squall_engine.epochs.parts import PartStore
from squall_engine.epochs.record import RecordPlace, claim

log = get_logger(__name__)

# A request that is older is not carried out any more: whoever asked has given up.
_REQUEST_SECS_MAX = 600.0
_LOOK_SECS = 2.0  # until the place is looked at again


class Taking(enum.Enum):
    """How far the request is."""

    UNKNOWN = "the topology's status was not read yet: no epoch begins"
    IDLE = "there is no request, or its result is known"
    LOOKING = "whether it was carried out before a fault is being read"
    WANTED = "the next epoch is to be the savepoint's"
    TAKING = "its epoch is under way"
    COPYING = "its epoch is complete, and is being copied"
    HALTED = "it is there, and no other epoch begins"


class Savepoints:
    """The savepoints of one topology. On the event loop."""

    def __init__(
        self,
        topology: str,
        state_url: str,
        *,
        background: Background,
        store: CheckpointStore,
        begin_epoch: Callable[[], None],
        changed: Callable[[], None],
    ) -> None:
        """`store` has the epochs. `changed` is called when there is a result."""
        self.state = Taking.UNKNOWN
        self.result: SavepointResult | None = None
        self.pinned: Manifest | None = None  # whose segments are being copied
        self._topology = topology
        self._folder = folder_of(state_url, topology)
        self._background = background
        self._store = store
        self._begin_epoch = begin_epoch
        self._changed = changed
        self._request: SavepointRequest | None = None
        self._outdated = False  # another was asked for in LOOKING
        self._epoch = 0  # in TAKING
        self._history = ""

    # ---- what happens

    def follow(self, request: SavepointRequest | None) -> None:
        """The topology's status was read."""
        # What was asked for before may have been carried out by another worker.
        inherited = self.state is Taking.UNKNOWN
        if inherited:
            self.state = Taking.IDLE
        if request == self._request:
            return
        if request is None:
            self._withdraw()
            return
        if self.state is Taking.LOOKING:
            self._outdated = True  # the status is read again
        elif self.state is not Taking.COPYING:
            self._request, self.state, self._outdated = request, Taking.LOOKING, False
            self._background.run(self._look(request, inherited=inherited))

    def _withdraw(self) -> None:
        """The request was withdrawn. A copy that is under way is finished, and stops nothing."""
        self._request = None
        if self.state is Taking.LOOKING:
            self._outdated = True
        elif self.state is not Taking.COPYING:
            self.state = Taking.IDLE

    @property
    def may_begin(self) -> bool:
        """Whether an epoch may begin."""
        halts = self._request is not None and self._request.stop
        if self.state is Taking.COPYING or self.state is Taking.LOOKING:
            return not halts
        return self.state not in (Taking.UNKNOWN, Taking.HALTED)

    @property
    def wants_full(self) -> bool:
        """Whether the next epoch is to have all state."""
        return self.state in (Taking.WANTED, Taking.TAKING)

    def begun(self, epoch: int) -> None:
        """An epoch was begun."""
        if self.wants_full:
            self.state, self._epoch = Taking.TAKING, epoch

    def completed(self, record: Record, manifest: Manifest) -> None:
        """An epoch is complete."""
        if self.state is not Taking.TAKING:
            return
        if record.epoch != self._epoch:
            self.state = Taking.WANTED
            return
        assert self._request is not None
        self.state, self.pinned, self._history = Taking.COPYING, manifest, record.history
        self._background.run(self._copy(self._request, manifest))

    # ---- what is done

    def place_of(self, request: SavepointRequest) -> str:
        """Where it is to be."""
        return place_in(request.folder or self._folder, request.name)

    async def _look(self, request: SavepointRequest, *, inherited: bool) -> None:
        place = self.place_of(request)
        while True:
            try:
                found = await self._background.in_thread(
                    lambda: find_savepoint(CheckpointStore(place))
                )
                break
            except SquallError as error:
                # It may be there, and then nothing may take effect any more.
                if not (inherited and request.stop and isinstance(error, StateStoreError)):
                    self._finish(request, error=error)
                    return
                self._background.failed(error)
            await asyncio.sleep(_LOOK_SECS)
            if self._outdated:
                self._request, self.state = None, Taking.IDLE
                return
        self._looked(request, found)

    def _looked(self, request: SavepointRequest, found: Savepoint | None) -> None:
        """What is at the place was read; None: there is no savepoint."""
        place = self.place_of(request)
        if self._request is None:
            self.state = Taking.IDLE
            return
        if found is not None and (found.topology, found.asked_ms) == (
            self._topology,
            request.asked_ms,
        ):
            self._finish(request, found)
        elif time.time() - request.asked_ms / 1000 > _REQUEST_SECS_MAX:
            # Also with `stop`: to halt a topology that nobody is about to kill would be a loss.
            why = StateError(
                f"it was asked for more than {_REQUEST_SECS_MAX:g} s ago by this node's clock"
            )
            self._finish(request, error=why)
        elif found is None:
            self.state = Taking.WANTED
            self._begin_epoch()
        else:
            why = StateError(f"there is a savepoint in {place} already")
            self._finish(request, error=why)

    async def _copy(self, request: SavepointRequest, manifest: Manifest) -> None:
        target = CheckpointStore(self.place_of(request))
        found, copies = kept(manifest)
        savepoint = Savepoint(self._topology, request.name, self._history, found, request.asked_ms)
        try:
            # One at a time: snapshots of the next epoch are written in between.
            for ref, copy in copies:
                await self._background.in_thread(
                    partial(copy_segment, self._store, ref, target, copy)
                )
            await self._background.in_thread(
                lambda: target.put(HEAD_NAME, encode_savepoint(savepoint))
            )
        except SquallError as error:
            self._finish(request, error=error)
        else:
            self._finish(request, savepoint)

    def _finish(
        self,
        request: SavepointRequest,
        savepoint: Savepoint | None = None,
        error: SquallError | None = None,
    ) -> None:
        place = self.place_of(request)
        result = SavepointResult(request.name, request.asked_ms, place)
        if savepoint is not None:
            log.info("savepoint_taken", topology=self._topology, place=place)
            manifest = savepoint.manifest
            self.result = replace(result, epoch=manifest.epoch, size_bytes=manifest.size)
            halts = request.stop and request == self._request
            self.state = Taking.HALTED if halts else Taking.IDLE
        else:
            assert error is not None
            log.warning("savepoint_failed", topology=self._topology, place=place, error=error)
            self.result = replace(result, error=error.message)
            self.state = Taking.IDLE
        self.pinned = None
        self._changed()


async def begin_with(
    place: str,
    *,
    topology: str,
    start: str,
    record: RecordPlace,
    parts: PartStore,
    store: CheckpointStore,
    background: Background,
) -> None:
    """Make a savepoint the last epoch of a topology, once for this start of it (its id). What the
    topology had before stays in the store until an epoch is complete. Raises SquallError."""
    while True:
        seen = await record.read()
        if seen.start == start:
            return
        if not seen.version:
            await claim(record)  # from here on the folder is known to be its own
            continue
        load = partial(_import, place, topology, seen, parts, store)
        name = await background.in_thread(load)
        wanted = replace(
            seen,
            version=seen.version + 1,
            generation=name.generation,
            coordinator=seen.coordinator + 1,
            epoch=name.epoch,
            manifest=name,
            # Sinks may have got later epochs of the history before.
            history=new_history(topology),
            start=start,
            start_time_ms=int(time.time() * 1000),
            start_generation=name.generation,
            rollback_reason="",
            rollback_time_ms=0,
        )
        try:
            if await record.replace(wanted):
                log.info("begun_with_savepoint", topology=topology, place=place, epoch=name.epoch)
                return
        except StateStoreError as error:
            background.failed(error)  # whether it was written is read above


def _import(
    place: str, topology: str, seen: Record, parts: PartStore, store: CheckpointStore
) -> Name:
    """Copy a savepoint to where the epochs of a topology are. Returns the name of its manifest
    there. Raises StateError."""
    savepoint, source = open_savepoint(place, topology), CheckpointStore(place)
    epoch = max(seen.epoch, savepoint.manifest.epoch)
    name = Name(seen.generation + 1, epoch, "manifest")
    manifest, copies = imported(savepoint.manifest, topology, name.generation, epoch)
    for ref, copy in copies:
        copy_segment(source, ref, store, copy)
    parts.write_manifest(name, encode_manifest(manifest))
    return name
