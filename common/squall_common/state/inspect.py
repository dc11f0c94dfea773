"""Looks into stored state from outside, without the topology's code.

Types that only the topology knows are shown, not made: see `Shown`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from squall_common.names import decode_znode, encode_znode
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateDamagedError, StateStoreError
from squall_common.state.keyed import KeyedState
from squall_common.state.layouts import Layout, sources
from squall_common.state.manifest import Manifest, decode_manifest
from squall_common.state.segment import Segment, SegmentRef
from squall_common.state.stored_windows import windows_in
from squall_common.state.task_state import RowPacker
from squall_common.state.task_store import layouts_of, read_chain, segment_names

_TRIES = 5

# By the codes of extension types, which are those of tuples between workers.
_TUPLE, _BIG_INT, _UUID, _SURROGATE, _BYTEARRAY, _PICKLE = 1, 4, 10, 16, 17, 15
_NAMES = {
    2: "set",
    3: "frozenset",
    5: "datetime",
    6: "date",
    7: "time",
    8: "timedelta",
    9: "Decimal",
    11: "dataclass",
    12: "enum",
    13: "namedtuple",
    14: "registered",
    18: "complex",
    19: "Path",
    20: "dict",
    21: "PurePosixPath",
    22: "PureWindowsPath",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """A value of a type that is not made here."""

    kind: str
    text: str

    def __repr__(self) -> str:
        return f"{self.kind}({self.text})"


class PlainCodec:
    """Decodes what a topology has encoded. Imports nothing of it and makes none of its objects."""

    def __init__(self) -> None:
        self._unpack = msgspec.msgpack.Decoder(ext_hook=self._from_ext).decode

    def encode_rows(self, rows: Sequence[Sequence[Any]]) -> bytes:
        raise ValueError("it only decodes")

    def surely_encodes(self, value: Any) -> bool:
        return False

    def group_packer(self, groups: int) -> RowPacker:
        raise ValueError("it only decodes")

    def merge_blocks(self, blocks: list[bytes]) -> tuple[bytes, int] | None:
        raise ValueError("it only decodes")

    def decode_rows(self, data: bytes) -> list[list[Any]]:
        try:
            rows: list[list[Any]] = self._unpack(data)
        except msgspec.MsgspecError as error:
            raise ValueError(str(error)) from error
        return rows

    def _from_ext(self, code: int, data: memoryview) -> Any:
        if code == _TUPLE:
            return tuple(self._unpack(data))
        if code == _BIG_INT:
            return int.from_bytes(data, "little", signed=True)
        if code in (_UUID, _BYTEARRAY, _PICKLE):
            kind = {_UUID: "UUID", _BYTEARRAY: "bytearray", _PICKLE: "pickle"}[code]
            return Shown(kind, bytes(data).hex())
        if code == _SURROGATE:
            return bytes(data).decode("utf-8", "surrogatepass")
        return Shown(_NAMES.get(code, f"type {code}"), repr(self._unpack(data)))


@dataclass(frozen=True, slots=True)
class StoredTaskState:
    """The state of one task, as its newest segment describes it."""

    topology: str
    component: str
    task: int  # its index
    folder: str  # empty: it is part of a checkpoint
    store: CheckpointStore = field(repr=False, compare=False)
    segments: tuple[Segment, ...] = ()  # the oldest first; empty if they are damaged
    damage: str | None = None
    groups: range | None = None
    """The key groups that no task of a newer layout has stored yet; None: its own."""

    @property
    def size(self) -> int:
        """Bytes that a restart reads."""
        return sum(segment.ref.size for segment in self.segments)

    def entries(self) -> Iterator[tuple[Any, Any]]:
        """Keys and values; `StoredWindows` in place of the bytes of windows. Raises
        StateDamagedError."""
        segments = self.segments
        if not segments:
            return iter(())
        while True:
            groups = segments[-1].footer.max_parallelism
            state = KeyedState(groups, PlainCodec())
            try:
                wanted = range(groups) if self.groups is None else self.groups
                state.restore([segments], wanted, bound=self.groups is None)
                return _with_windows(state.items())
            except FileNotFoundError:
                if not self.folder:
                    raise StateDamagedError(
                        f"a part of the checkpoint of {self.topology!r} is missing",
                        hint="if the topology runs, it has replaced the checkpoint: try again",
                    ) from None
                # The task has written everything anew since, and deleted what that replaces.
                segments, damage = _read(self.store, self.folder)
                if damage is not None:
                    raise StateDamagedError(damage) from None


def _with_windows(entries: Iterator[tuple[Any, Any]]) -> Iterator[tuple[Any, Any]]:
    decode = PlainCodec().decode_rows
    for key, value in entries:
        yield key, windows_in(key, value, decode) or value


def stored_states(
    store: CheckpointStore, topology: str | None = None, component: str | None = None
) -> Iterator[StoredTaskState]:
    """The states of tasks that are in a store: of all topologies and components, or of those named.
    Raises StateStoreError."""
    topologies = store.names() if topology is None else [encode_znode(topology)]
    for topology_name in topologies:
        found = store.names(topology_name) if component is None else [encode_znode(component)]
        for component_name in found:
            yield from _of_component(store, topology_name, component_name)


def _of_component(
    store: CheckpointStore, topology: str, component: str
) -> Iterator[StoredTaskState]:
    folder = f"{topology}/{component}"
    try:
        layouts = layouts_of(store, folder)
    except StateDamagedError:  # all of the first are
        indexes = [int(index) for index in store.names(folder) if index.isdecimal()]
        layouts = [Layout(folder, 0, max(indexes) + 1)]
    read = {
        layout.task_folder(index): (index, *_read(store, layout.task_folder(index)))
        for layout in layouts
        for index in range(layout.tasks)
    }
    heads = [segments[-1].footer for _, segments, _ in read.values() if segments]
    groups = heads[-1].max_parallelism if heads else 0

    def shown(
        index: int, at: str, segments: tuple[Segment, ...], damage: str | None, part: range | None
    ) -> StoredTaskState:
        names = decode_znode(topology), decode_znode(component)
        return StoredTaskState(*names, index, at, store, segments, damage, part)

    for at, (index, _, damage) in read.items():
        if damage is not None:
            yield shown(index, at, (), damage, None)
    if not heads:
        return
    for source in sources(layouts, range(groups), groups, lambda at: read[at][1]):
        at = source.layout.task_folder(source.index)
        part = None if source.layout is layouts[-1] else source.groups
        yield shown(source.index, at, read[at][1], None, part)


def has_checkpoints(store: CheckpointStore, topology: str) -> bool:
    """Whether a topology has checkpoints in a store. Raises StateStoreError."""
    return bool(store.names(f"{topology}/manifests"))


def last_checkpoint(store: CheckpointStore, topology: str, at_least: int = 0) -> Manifest | None:
    """The manifest of a topology's last complete checkpoint, as far as that can be seen without its
    record: those before it are deleted when it is complete, so it is the oldest there is, from
    `at_least` on. None if there is none. Raises StateError."""
    for _ in range(_TRIES):
        found: dict[int, str] = {}
        for name in store.names(f"{topology}/manifests"):  # sorted: later generations win
            generation, _, epoch = name.partition("-")
            if generation.isdigit() and epoch.isdigit() and int(epoch) >= at_least:
                found[int(epoch)] = name
        if not found:
            return None
        path = f"{topology}/manifests/{found[min(found)]}"
        try:
            return decode_manifest(store.get(path), path)
        except FileNotFoundError:
            continue  # a later one is complete by now
    raise StateStoreError(
        f"the checkpoints of {topology!r} change faster than they can be read", hint="try again"
    )


def checkpoint_states(
    store: CheckpointStore, manifest: Manifest, component: str | None = None
) -> Iterator[StoredTaskState]:
    """The keyed states of tasks in a checkpoint, or in a savepoint (then `store` is its place)."""
    for name, part in sorted(manifest.components.items()):
        if component not in (None, name):
            continue
        for index, task in enumerate(part.tasks):
            if task.segments:
                yield _of_part(store, manifest.topology, name, index, task.segments)


def _of_part(
    store: CheckpointStore, topology: str, component: str, index: int, refs: Sequence[SegmentRef]
) -> StoredTaskState:
    try:
        segments = tuple(
            Segment.open(ref.name, partial(store.get_part, ref.name), ref) for ref in refs
        )
    except (StateDamagedError, FileNotFoundError) as error:
        missing = isinstance(error, FileNotFoundError)
        why = "a segment of it is missing" if missing else str(error)
        return StoredTaskState(topology, component, index, "", store, (), why)
    return StoredTaskState(topology, component, index, "", store, segments)


def _read(store: CheckpointStore, folder: str) -> tuple[tuple[Segment, ...], str | None]:
    """The segments of a task, and what is damaged of them. A task that runs may delete segments
    that it has replaced while they are read: then there are newer ones."""
    names = segment_names(store.names(folder))
    while names:
        try:
            return tuple(read_chain(store, folder, names)), None
        except StateDamagedError as error:
            newer = segment_names(store.names(folder))
            if newer == names:
                return (), error.message
            names = newer
    return (), None
