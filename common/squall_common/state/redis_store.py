"""The state of a task in Redis: a hash of the task's entries, and one of what is known about them.

    squall:state:TOPOLOGY/COMPONENT/INDEX          number of a frame -> encoded rows, as in segments
    squall:state:TOPOLOGY/COMPONENT/INDEX:about    life, epoch, tasks, groups, keys

The frames are those of a segment's blocks, so a restart reads them as it reads segments, the oldest
first. A base replaces them all. One transaction writes a snapshot and checks that the task's life
is still the newest: a task that was replaced writes nothing.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, TypeVar

import msgspec

from squall_common.errors import describe
from squall_common.state.errors import StateDamagedError, StateFencedError, StateStoreError
from squall_common.state.task_state import Changes, RowCodec, TaskState
from squall_common.state.task_store import TaskPlace

_T = TypeVar("_T")
_PREFIX = "squall:state:"
_READ_AT_ONCE = 64
_CHAIN_MAX = 1_024
_BASE_KEYS_MIN = 1_000
# KEYS: frames, about. ARGV: life, epoch, is_base, number, frame, about as pairs.
_WRITE = """
if redis.call('HGET', KEYS[2], 'life') ~= ARGV[1] then return 0 end
if ARGV[2] == '1' then redis.call('DEL', KEYS[1]) end
redis.call('HSET', KEYS[1], ARGV[3], ARGV[4])
redis.call('HSET', KEYS[2], unpack(ARGV, 5))
return 1
"""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(tuple[int, dict[int, bytes]]).decode


class _Stored:
    """One snapshot, as `StoredState`."""

    def __init__(self, name: str, blocks: dict[int, bytes]) -> None:
        self.name = name
        self._blocks = blocks

    def blocks(self, groups: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        wanted = set(groups)
        return (entry for entry in self._blocks.items() if entry[0] in wanted)


class RedisStore:
    """A `TaskStore` in Redis. What it has written is as durable as the server's configuration
    makes it (`appendonly`, `appendfsync`)."""

    def __init__(self, url: str, place: TaskPlace) -> None:
        """`url`: redis://HOST:PORT/DATABASE."""
        import redis

        self._client: Any = redis.Redis.from_url(
            url, client_name="squall", socket_timeout=10, socket_connect_timeout=5
        )
        self._errors = redis.RedisError
        self._place = place
        self._key = f"{_PREFIX}{place.folder}"
        self._about = f"{self._key}:about"
        self._life = os.urandom(8).hex()
        self._numbers: list[int] = []
        self._since = 0  # entries since the last base
        self._sizes = 0
        self.epoch = 0

    @property
    def size(self) -> int:
        return self._sizes

    def open(self, state: TaskState) -> None:
        self._call("take over", lambda: self._client.hset(self._about, "life", self._life))
        about = self._call("read", lambda: self._client.hgetall(self._about))
        if b"epoch" not in about:
            return
        self._place.check(int(about[b"tasks"]), int(about[b"groups"]), f"Redis at {self._key}")
        self._numbers = sorted(
            int(number) for number in self._call("read", lambda: self._client.hkeys(self._key))
        )
        state.restore([self._stored()], self._place.groups, bound=True)
        self._since = int(about[b"since"])
        self.epoch = int(about[b"epoch"])

    def _stored(self) -> Iterator[_Stored]:
        for start in range(0, len(self._numbers), _READ_AT_ONCE):
            numbers = self._numbers[start : start + _READ_AT_ONCE]
            found = self._call("read", partial(self._client.hmget, self._key, numbers))
            for number, data in zip(numbers, found, strict=True):
                name = f"{self._key}, epoch {number}"
                self._sizes += len(data or b"")
                try:
                    checksum, blocks = _decode(data or b"")
                except msgspec.MsgspecError as error:
                    raise _damaged(name, str(error)) from error
                if checksum != _checksum(blocks):
                    raise _damaged(name, "its checksum differs")
                yield _Stored(name, blocks)

    def wants_base(self, keys: int) -> bool:
        numbers = len(self._numbers)
        return not numbers or self._since >= max(keys, _BASE_KEYS_MIN) or numbers >= _CHAIN_MAX

    def write(self, changes: Changes, codec: RowCodec) -> int:
        blocks = dict(changes.encode(codec))
        frame = _encode((_checksum(blocks), blocks))
        since = 0 if changes.is_base else self._since + changes.entries
        about = {
            "epoch": changes.epoch,
            "tasks": self._place.tasks,
            "groups": self._place.max_parallelism,
            "keys": changes.keys,
            "bound": changes.bound,
            "since": since,
        }
        pairs = [part for pair in about.items() for part in pair]
        base = int(changes.is_base)
        args = [self._life, base, changes.epoch, frame, *pairs]
        written = self._call(
            "write", lambda: self._client.eval(_WRITE, 2, self._key, self._about, *args)
        )
        if not written:
            raise StateFencedError(
                f"another worker has taken over the state of task {self._place.index} of "
                f"{self._place.component!r} (in Redis, {self._key}), so this one ends"
            )
        if changes.is_base:
            self._numbers, self._sizes = [], 0
        self._numbers.append(changes.epoch)
        self._sizes += len(frame)
        self._since = since
        self.epoch = changes.epoch
        return len(frame)

    def _call(self, what: str, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except (self._errors, OSError) as error:
            raise StateStoreError(
                f"could not {what} {self._key} in Redis: {describe(error)}",
                hint="check that the server of topology.state.provider.config is up, and has room",
            ) from error


def _checksum(blocks: dict[int, bytes]) -> int:
    found = 0
    for group in sorted(blocks):
        found = zlib.crc32(blocks[group], zlib.crc32(b"%d" % group, found))
    return found


def _damaged(name: str, why: str) -> StateDamagedError:
    return StateDamagedError(
        f"the state in Redis ({name}) is damaged: {why}", hint="restore it from a copy"
    )
