"""Savepoints: epochs that are kept, each in a place of its own.

    PLACE/savepoint                          the head: everything but the segments
    PLACE/segments/COMPONENT/TASK/NAME       copies of the segments that the epoch needs

The place is a URL. By default it is `topology.state.url/TOPOLOGY/savepoints/NAME`. Nothing outside
of it is needed to start from it, and nothing of a running topology ever deletes it. The head is
written last: a place without one is not a savepoint.

    head    MAGIC and the version of its manifest (8 bytes), CRC-32 of the rest, msgpack `Savepoint`

A savepoint is read without the topology's code: positions and rows of sinks stay opaque.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

import msgspec

from squall_common.names import character_error
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateDamagedError, StateError, StateVersionError
from squall_common.state.manifest import VERSION, ComponentPart, Manifest
from squall_common.state.segment import Segment, SegmentRef, damaged

MAGIC = b"SQSTSAV"
HEAD_NAME = "savepoint"
FOLDER = "savepoints"
_HEAD = struct.Struct("<8sI")
_NAME_CHARS_MAX = 200


class Savepoint(msgspec.Struct, frozen=True, array_like=True):
    """The head of a savepoint. The segments of its manifest are named within the place."""

    topology: str  # its name
    name: str
    history: str  # in which its epoch was counted
    manifest: Manifest
    asked_ms: int = 0  # of the request, since 1970; distinguishes two of one name

    @property
    def size(self) -> int:
        """Bytes of its segments."""
        return self.manifest.size


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Savepoint).decode


def name_problem(name: str) -> str | None:
    """Why a savepoint cannot have this name; None if it can."""
    if not name or len(name) > _NAME_CHARS_MAX or name.startswith("."):
        return f"it is empty, begins with a point, or has more than {_NAME_CHARS_MAX} characters"
    if "/" in name or (why := character_error(name)) is not None:
        return "it has a /" if "/" in name else f"it has {why}"
    return None


def folder_of(state_url: str, topology: str) -> str:
    """The folder in which a topology keeps its savepoints, unless another is asked for."""
    return f"{state_url.rstrip('/')}/{topology}/{FOLDER}"


def place_in(folder: str, name: str) -> str:
    """The place of a savepoint in such a folder."""
    return f"{folder.rstrip('/')}/{name}"


# ---- writing and reading


def kept(manifest: Manifest) -> tuple[Manifest, list[tuple[SegmentRef, SegmentRef]]]:
    """The manifest of a savepoint of this epoch, and what is to be copied: from, to."""
    return _renamed(manifest, lambda name: name.partition("/")[2])


def imported(
    manifest: Manifest, topology: str, generation: int, epoch: int
) -> tuple[Manifest, list[tuple[SegmentRef, SegmentRef]]]:
    """The manifest of an epoch that begins with a savepoint, and what is to be copied: from, to.
    `generation` has been no other's: it makes the names of the copies new."""

    def name_of(name: str) -> str:
        folder, _, base = name.rpartition("/")
        return f"{topology}/{folder}/{generation:08}-{base.partition('-')[2]}"

    found, copies = _renamed(manifest, name_of)
    changed = {"topology": topology, "generation": generation, "epoch": epoch}
    return msgspec.structs.replace(found, **changed), copies


def _renamed(
    manifest: Manifest, name_of: Callable[[str], str]
) -> tuple[Manifest, list[tuple[SegmentRef, SegmentRef]]]:
    copies: list[tuple[SegmentRef, SegmentRef]] = []

    def again(ref: SegmentRef) -> SegmentRef:
        copies.append((ref, msgspec.structs.replace(ref, name=name_of(ref.name))))
        return copies[-1][1]

    components = {
        name: ComponentPart(
            part.max_parallelism,
            tuple(
                msgspec.structs.replace(task, segments=tuple(map(again, task.segments)))
                for task in part.tasks
            ),
        )
        for name, part in manifest.components.items()
    }
    return msgspec.structs.replace(manifest, components=components), copies


def copy_segment(
    source: CheckpointStore, ref: SegmentRef, target: CheckpointStore, copy: SegmentRef
) -> None:
    """Copy a segment, after all of it was checked. Raises StateError."""
    target.put(copy.name, read_segment(source, ref))


def read_segment(store: CheckpointStore, ref: SegmentRef) -> bytes:
    """A whole segment. Raises StateDamagedError, which names it, and StateStoreError."""
    try:
        data = store.get(ref.name)
    except FileNotFoundError:
        raise StateDamagedError(
            f"{ref.name} is missing in {store.url}", hint="restore it from a copy"
        ) from None
    if len(data) != ref.size:
        raise damaged(ref.name, f"it has {len(data)} bytes instead of {ref.size}")

    def part(start: int, length: int) -> bytes:
        start = max(0, len(data) + start) if start < 0 else start
        return data[start : start + length]

    segment = Segment.open(ref.name, part, ref)
    for _ in segment.blocks(block.group for block in segment.footer.blocks):
        pass  # which checks it
    return data


def encode_savepoint(savepoint: Savepoint) -> bytes:
    """The bytes of the head."""
    body = _encode(savepoint)
    return _HEAD.pack(MAGIC + bytes([savepoint.manifest.version]), zlib.crc32(body)) + body


def decode_savepoint(data: bytes, where: str) -> Savepoint:
    """The inverse; `where` is for the error. Raises StateDamagedError."""
    magic, checksum = _HEAD.unpack(data[: _HEAD.size].ljust(_HEAD.size, b"\0"))
    body = data[_HEAD.size :]
    if magic[:-1] != MAGIC or not magic[-1]:
        raise _damaged(where, "it is not the head of a savepoint")
    if magic[-1] > VERSION:
        raise StateVersionError(where, magic[-1], VERSION)
    if zlib.crc32(body) != checksum:
        raise _damaged(where, "its checksum differs")
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        raise _damaged(where, str(error)) from error


def _damaged(where: str, why: str) -> StateDamagedError:
    return StateDamagedError(f"{where} is damaged: {why}", hint="start from another savepoint")


def find_savepoint(store: CheckpointStore) -> Savepoint | None:
    """The head of the savepoint whose place this is; None if there is none. Raises StateError."""
    try:
        data = store.get(HEAD_NAME)
    except FileNotFoundError:
        return None
    return decode_savepoint(data, f"{store.url}/{HEAD_NAME}")


def open_savepoint(place: str, topology: str) -> Savepoint:
    """The head of a savepoint from which this topology is to start. Raises StateError with what is
    wrong with the place."""
    found = find_savepoint(CheckpointStore(place))
    if found is None:
        raise StateError(
            f"there is no savepoint in {place}",
            hint="storm savepoint TOPOLOGY --list lists those of a topology",
        )
    if found.topology != topology:
        raise StateError(
            f"the savepoint in {place} is of topology {found.topology!r}, not of {topology!r}",
            hint="submit the topology under the name that it had",
        )
    return found


def check_segments(place: str, savepoint: Savepoint) -> None:
    """Read all of a savepoint. Raises StateDamagedError, which names what is damaged."""
    store = CheckpointStore(place)
    for ref in savepoint.manifest.segments:
        read_segment(store, ref)


@dataclass(frozen=True, slots=True)
class Listed:
    """One entry of a folder of savepoints."""

    name: str
    place: str
    savepoint: Savepoint | None  # None: it is damaged, or being written
    problem: str | None = None


def list_savepoints(folder: str) -> Iterator[Listed]:
    """What is in a folder of savepoints, by name. Raises StateStoreError."""
    for name in CheckpointStore(folder).names():
        place = place_in(folder, name)
        try:
            found = find_savepoint(CheckpointStore(place))
        except StateDamagedError as error:
            yield Listed(name, place, None, error.message)
            continue
        if found is None:
            if CheckpointStore(place).names("segments"):
                yield Listed(name, place, None, "it is being written, or was not finished")
            continue
        yield Listed(name, place, found)


def remove_savepoint(place: str) -> int:
    """Delete a savepoint, also a damaged one. Returns the number of files. Raises StateError if
    there is none."""
    store = CheckpointStore(place)
    top = "segments"
    folders = [
        f"{top}/{component}/{task}"
        for component in store.names(top)
        for task in store.names(f"{top}/{component}")
    ]
    names = [f"{folder}/{name}" for folder in folders for name in store.names(folder)]
    has_head = HEAD_NAME in store.names()
    if not names and not has_head:
        raise StateError(f"there is no savepoint in {place}")
    for name in [HEAD_NAME] * has_head + names:  # from here on it is none
        store.delete(name)
    store.remove_folders([*folders, *(f"{top}/{one}" for one in store.names(top)), top, ""])
    return len(names) + has_head


# ---- what can start from it


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a topology has in place of a component of an epoch."""

    is_spout: bool
    tasks: int


def restore_problems(
    manifest: Manifest, wanted: Mapping[str, Wanted], *, allow_non_restored: bool
) -> list[str]:
    """Why a topology cannot go on from an epoch, for the user; empty if it can. `wanted` are its
    components. Those that are new begin empty."""
    problems = []
    for name, part in manifest.components.items():
        has_state = any(task.keys for task in part.tasks)
        has_rows = any(task.batches for task in part.tasks)
        has_positions = any(task.positions for task in part.tasks)
        new = wanted.get(name)
        if new is None:
            if (has_state or has_rows or has_positions) and not allow_non_restored:
                problems.append(
                    f"{name!r} has {_kinds(has_state, has_rows, has_positions)} and is not in the "
                    "topology any more"
                )
            continue
        if new.is_spout and (has_state or has_rows):
            problems.append(
                f"{name!r} has {_kinds(has_state, has_rows, False)}, and is a spout now"
            )
        if not new.is_spout and has_positions:
            problems.append(f"{name!r} has positions of a source, and is a bolt now")
        if has_state and new.tasks > part.max_parallelism:
            problems.append(
                f"{name!r} has {new.tasks} tasks, and its state {part.max_parallelism} key groups: "
                "it can have as many tasks as key groups"
            )
        if new.tasks != len(part.tasks) and any(task.bound for task in part.tasks):
            problems.append(
                f"{name!r} has state that belongs to its tasks, so it goes on with "
                f"{len(part.tasks)} of them, not {new.tasks}"
            )
    return problems


def _kinds(state: bool, rows: bool, positions: bool) -> str:
    named = (("state", state), ("rows that are not written yet", rows), ("positions", positions))
    return " and ".join(name for name, has in named if has)


def restore_error(problems: Iterable[str], what: str) -> StateError:
    """The error for these problems; `what` is the epoch."""
    listed = "; ".join(problems)
    return StateError(
        f"the topology cannot go on from {what}: {listed}",
        hint="keep the ids and kinds of components; state of removed ones is dropped with "
        "topology.checkpoint.allow.non.restored.state (--allow-non-restored-state)",
    )


def added(manifest: Manifest, wanted: Mapping[str, Wanted]) -> list[str]:
    """The components that begin empty."""
    return sorted(wanted.keys() - manifest.components.keys())
