"""Where the record of a topology is kept: a file in one process, a znode on a cluster."""

from __future__ import annotations

import contextlib
import time
import zlib
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import msgspec

from squall_common.cluster import paths
from squall_common.cluster.store import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    Store,
    StoreError,
)
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateDamagedError, StateStoreError, StateVersionError
from squall_engine.epochs.background import Background
from squall_engine.epochs.messages import Record, new_history

_HEAD = b"SQREC\0\0\x01"  # the last byte is the version of the format
_ANY: Final = -1


class RecordPlace(Protocol):
    """The place that is compared and set."""

    async def read(self) -> Record:
        """The record; a new one if there is none. Raises StateError."""
        ...

    async def replace(self, wanted: Record) -> bool:
        """Write it if the version there is the one before. Returns whether it was. Raises
        StateStoreError if that is not known, or another StateError."""
        ...


class RecordFile:
    """The record as a file of a topology's folder, on which this process has the lock."""

    def __init__(
        self, store: CheckpointStore, topology: str, background: Background | None = None
    ) -> None:
        """Without a `background`, only for calls on one's own thread."""
        self._store = store
        self._topology = topology
        self._name = f"{topology}/record"
        self._background = background

    async def read(self) -> Record:
        """See RecordPlace."""
        assert self._background is not None
        return await self._background.in_thread(self.read_now)

    async def replace(self, wanted: Record) -> bool:
        """See RecordPlace."""
        assert self._background is not None
        return await self._background.in_thread(partial(self.replace_now, wanted))

    def read_now(self) -> Record:
        """The same as `read`, on this thread."""
        try:
            data = self._store.get(self._name)
        except FileNotFoundError:
            return Record(history=new_history(self._topology))
        return _decode(data, f"{self._name} in {self._store.url}")

    def replace_now(self, wanted: Record) -> bool:
        """The same as `replace`, on this thread."""
        if self.read_now().version + 1 != wanted.version:
            return False
        self._store.put(self._name, _encode(wanted))
        return True


class RecordZnode:
    """The record as a znode. Late writes of processes that were given up fail, as the version in
    ZooKeeper has changed."""

    def __init__(self, store: Store, path: str, topology: str) -> None:
        self._store = store
        self._topology = topology
        self._path = path
        self._seen = 0  # the highest version

    async def read(self) -> Record:
        """See RecordPlace."""
        return (await self._read())[0]

    async def _read(self) -> tuple[Record, int]:
        try:
            data, stat = await self._store.get(self._path)
            version = stat.version
            if data == paths.NO_RECORD:  # Nimbus has made it, where workers may not
                found = Record(history=new_history(self._topology))
            else:
                found = _decode(data, f"the znode {self._path}")
        except NoNodeError:
            found, version = Record(history=new_history(self._topology)), _ANY
        except StoreError as error:
            raise StateStoreError(f"ZooKeeper does not answer: {error}") from error
        if found.version < self._seen:
            # Sinks would get again what they have got since.
            raise StateStoreError(
                f"ZooKeeper has version {found.version} of {self._path}, which had version "
                f"{self._seen}",
                hint="was it removed, or ZooKeeper put back? Kill the topology; to begin anew, "
                "use another topology.state.url",
            )
        self._seen = found.version
        return found, version

    async def replace(self, wanted: Record) -> bool:
        """See RecordPlace."""
        present, version = await self._read()
        if present.version + 1 != wanted.version:
            return False
        try:
            if version == _ANY:
                await self._store.create(self._path, _encode(wanted), make_parents=True)
            else:
                await self._store.set(self._path, _encode(wanted), version)
        except (NodeExistsError, BadVersionError, NoNodeError):
            return False
        except StoreError as error:
            raise StateStoreError(f"ZooKeeper does not answer: {error}") from error
        self._seen = wanted.version
        return True


async def claim(place: RecordPlace, start: str = "", reason: str = "") -> int:
    """Become the coordinator that the record names: returns its incarnation, which no other has,
    and which is higher than those before. `start` is the id of the topology; in the same start as
    the record's this is a rollback, for which `reason` is noted. Raises StateError."""
    while True:
        seen, now_ms = await place.read(), int(time.time() * 1000)
        wanted = replace(seen, version=seen.version + 1, coordinator=seen.coordinator + 1)
        if seen.start != start:
            wanted = replace(
                wanted,
                start=start,
                start_time_ms=now_ms,
                start_generation=seen.generation,
                rollback_reason="",
                rollback_time_ms=0,
            )
        elif start and seen.generation > seen.start_generation:
            wanted = replace(wanted, rollback_reason=reason, rollback_time_ms=now_ms)
        # Two may try the same at once: only who knows that it has written has succeeded.
        if await place.replace(wanted):
            return wanted.coordinator


def _encode(record: Record) -> bytes:
    body = msgspec.msgpack.encode(record)
    return _HEAD + zlib.crc32(body).to_bytes(4, "little") + body


def _decode(data: bytes, what: str) -> Record:
    head, check, body = data[: len(_HEAD)], data[len(_HEAD) :][:4], data[len(_HEAD) + 4 :]
    why = None
    if head[:-1] != _HEAD[:-1] or not head[-1]:
        why = "it is not a record"
    elif head[-1] > _HEAD[-1]:
        raise StateVersionError(what, head[-1], _HEAD[-1])
    elif check != zlib.crc32(body).to_bytes(4, "little"):
        why = "its checksum differs"
    if why is None:
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.msgpack.decode(body, type=Record)
        why = "it cannot be decoded"
    raise StateDamagedError(
        f"{what} is damaged: {why}",
        hint="it says which epoch is the last: restore it from a copy",
    )
