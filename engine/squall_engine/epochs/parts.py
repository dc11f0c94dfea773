"""The parts of an epoch: what a task's snapshot becomes in the store, and how it comes back."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from squall_common.component.groupings import stable_hash
from squall_common.daemon.logs import get_logger
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import (
    AFTER_A_LOSS,
    StateDamagedError,
    StateError,
    StateStoreError,
    StateVersionError,
)
from squall_common.state.key_groups import BOUND, groups_of_task
from squall_common.state.keyed import KeyedState
from squall_common.state.manifest import (
    ComponentPart,
    Manifest,
    TaskPart,
    decode_manifest,
)
from squall_common.state.segment import Footer, Segment, SegmentRef
from squall_common.state.segment_file import put_segment
from squall_common.state.task_state import Changes, RowCodec
from squall_engine.dataflow.fence import Fence
from squall_engine.epochs.coordinator import Attempt
from squall_engine.epochs.messages import Name, Shape, TaskName

log = get_logger(__name__)

# After so many segments a task writes all its state again.
SEGMENTS_MAX = 100
_BASE_BYTES_MIN = 65_536  # what is smaller is not worth the care
_MERGED_BYTES_MAX = 256 * 1024 * 1024  # segments that are in memory while they are merged


class Batch(NamedTuple):
    """Names the rows of a sink that one of its tasks has got in an epoch of a history."""

    task: int  # its index
    epoch: int
    history: str = ""  # "": from before histories had names

    def writer(self, topology: str, component: str) -> str:
        """The name under which sinks note that the rows are written."""
        return f"{self.history or topology}/{component}/{self.task}"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a task had at its snapshot. It does not change any more."""

    task: TaskName
    generation: int
    epoch: int
    changes: Changes | None = None  # of keyed state
    older: tuple[SegmentRef, ...] = ()  # segments that are needed with the changes
    merged: bool = False  # with these the changes become a base, if that can be done
    positions: Mapping[Hashable, Any] | None = None  # of a source, by split
    batches: Mapping[Batch, Sequence[Any]] = field(default_factory=dict)  # of a sink
    progress: bytes = b""  # of windows that move with their key groups


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochSettings:
    """Where the tasks begin, and where their snapshots go."""

    topology: str  # its name
    generation: int
    epoch: int  # 0: none is complete yet
    history: str  # in which epochs are counted
    manifest: Manifest | None  # of that epoch
    parts: PartStore
    on_taken: Callable[[Snapshot, int], None]
    """(snapshot, the number of its component's key groups): a task has taken its snapshot."""
    fence: Fence | None = None  # None: the topology runs in one process


class PartStore:
    """Segments and manifests of one topology. Its methods block; for one thread at a time."""

    def __init__(
        self, store: CheckpointStore, topology: str, shape: Shape, codec: RowCodec
    ) -> None:
        self._store = store
        self._topology = topology
        self._shape = shape
        self._codec = codec

    # -- writing --

    def can_merge(self, segments: Sequence[SegmentRef]) -> bool:
        """Whether it costs little to read and merge these. From any thread."""
        size = sum(ref.size for ref in segments)
        return not segments or (self._store.is_local and size <= _MERGED_BYTES_MAX)

    def write(self, snapshot: Snapshot, max_parallelism: int) -> TaskPart:
        """Make a snapshot durable. Raises StateError."""
        segments, keys, bound = snapshot.older, 0, 0
        changes = snapshot.changes
        if changes is not None:
            keys, bound = changes.keys, changes.bound
            if changes.is_base or changes.entries or snapshot.merged:
                segment = self._write_segment(snapshot, changes, max_parallelism)
                segments = (segment,) if segment.is_base else (*segments, segment)
        return TaskPart(
            segments=segments,
            keys=keys,
            bound=bound,
            positions=self._encoded((snapshot.positions or {}).items()),
            batches=tuple(
                self._encoded([batch, *([row] for row in rows)])
                for batch, rows in sorted(snapshot.batches.items())
            ),
            progress=snapshot.progress,
        )

    def _encoded(self, rows: Iterable[Sequence[Any]]) -> bytes:
        found = [list(row) for row in rows]
        return self._codec.encode_rows(found) if found else b""

    def _write_segment(
        self, snapshot: Snapshot, changes: Changes, max_parallelism: int
    ) -> SegmentRef:
        component, index = snapshot.task
        tasks = self._shape[component]
        groups = groups_of_task(index, tasks, max_parallelism)
        blocks = changes.encode(self._codec)
        older, entries, is_base = snapshot.older, changes.entries, changes.is_base
        if snapshot.merged and isinstance(blocks, Mapping):
            merged = self._merged(snapshot, blocks, groups, changes.keys)
            if merged is not None:
                blocks, older, entries, is_base = merged, (), changes.keys, True
        stem = f"{snapshot.generation:08}-{snapshot.epoch:012}"
        name = f"{self._topology}/segments/{component}/{index:05}/{stem}"
        footer = Footer(
            topology=self._topology,
            component=component,
            task=index,
            tasks=tasks,
            max_parallelism=max_parallelism,
            generation=snapshot.generation,
            epoch=snapshot.epoch,
            entries=entries,
            keys=changes.keys,
            bound=changes.bound,
            is_base=is_base,
            blocks=(),
            older=older,
        )
        return put_segment(self._store, footer, blocks, name, groups)

    def _merged(
        self, snapshot: Snapshot, newest: Mapping[int, bytes], groups: range, keys: int
    ) -> dict[int, bytes] | None:
        """The blocks of a base: what the older segments of a snapshot and its newest changes leave
        together. None: they cannot be read or merged.

        Then the epoch needs the older segments, also one that cannot be read: the snapshot has
        nothing of the keys that have not changed. The task still has them, and makes the next base
        itself, without older segments. Until that is complete, a restore meets the segment; as it
        would have without this epoch, since the one before needs it too.
        """
        found: dict[int, list[bytes]] = {}
        try:
            for segment in self._open(snapshot.older):
                for group, data in segment.blocks([BOUND, *groups]):
                    found.setdefault(group, []).append(data)
        except (StateDamagedError, StateStoreError) as error:
            component, index = snapshot.task
            log.warning(
                "segment_not_merged",
                component=component,
                task=index,
                epoch=snapshot.epoch,
                error=error.message,
                consequence="a restart needs it until the next checkpoint is complete",
            )
            return None
        except MemoryError:
            return None
        for group, data in newest.items():
            found.setdefault(group, []).append(data)
        merged: dict[int, bytes] = {}
        rows = 0
        for group, blocks in found.items():
            try:
                one = self._codec.merge_blocks(blocks)
            except MemoryError:
                return None
            if one is None:
                return None
            blocks.clear()
            rows += one[1]
            if one[1]:
                merged[group] = one[0]
        # The task has counted: what differs from that is not what it has.
        return merged if rows == keys else None

    def write_manifest(self, name: Name, data: bytes) -> None:
        """Raises StateError."""
        self._store.put(self.manifest_path(name), data)

    # -- reading --

    def manifest_path(self, name: Name) -> str:
        return f"{self._topology}/manifests/{name.generation:08}-{name.epoch:012}"

    def read_manifest(self, name: Name) -> bytes:
        """Raises StateError."""
        path = self.manifest_path(name)
        try:
            return self._store.get(path)
        except FileNotFoundError:
            raise StateDamagedError(
                f"{path} is missing in {self._store.url}, and the last epoch is in it",
                hint=AFTER_A_LOSS,
            ) from None

    def load_manifest(self, name: Name) -> Manifest:
        """The same, decoded. Raises StateError."""
        try:
            where = f"{self.manifest_path(name)} in {self._store.url}"
            return decode_manifest(self.read_manifest(name), where)
        except StateVersionError:
            raise
        except StateDamagedError as error:
            raise StateDamagedError(
                f"{self._topology!r} cannot start from checkpoint {name.epoch}: {error.message}",
                hint=error.hint,
            ) from error

    def restore_state(self, part: ComponentPart, task: TaskName, state: KeyedState) -> None:
        """Read the keyed state of a task. Raises StateError."""
        component, index = task
        tasks = self._shape[component]
        same = tasks == len(part.tasks)
        if not same and any(one.bound for one in part.tasks):
            raise StateError(
                f"{component!r} has state that belongs to its tasks, so it goes on with "
                f"{len(part.tasks)} of them, not {tasks}",
                hint="state that is used under the key of the tuple's fields grouping can move, "
                "and so can windows whose key has these fields",
            )
        wanted = groups_of_task(index, tasks, part.max_parallelism)
        first, last = wanted.start, wanted.stop - 1
        chosen = [part.tasks[index]] if same else part.tasks
        state.restore(
            [
                self._open(ref for ref in one.segments if _meet(ref.groups, (first, last)) or same)
                for one in chosen
            ],
            wanted,
            bound=same,
        )

    def _open(self, refs: Iterable[SegmentRef]) -> Iterator[Segment]:
        for ref in refs:
            try:
                yield Segment.open(ref.name, partial(self._store.get_part, ref.name), ref)
            except FileNotFoundError:
                raise StateDamagedError(
                    f"{ref.name} is missing in {self._store.url}, and the last epoch needs it",
                    hint=AFTER_A_LOSS,
                ) from None

    def positions_of(self, part: ComponentPart, task: TaskName) -> dict[Hashable, Any]:
        """The positions of the splits that a task has."""
        component, index = task
        found: dict[Hashable, Any] = {}
        for one in part.tasks:
            for split, position in self._codec.decode_rows(one.positions) if one.positions else ():
                if stable_hash(split) % self._shape[component] == index:
                    found[split] = position
        return found

    def progress_of(self, part: ComponentPart, task: TaskName) -> list[bytes]:
        """How far the windows were of the tasks that had the key groups of this one."""
        component, index = task
        groups, then = part.max_parallelism, len(part.tasks)
        mine = groups_of_task(index, self._shape[component], groups)
        had = (groups_of_task(one, then, groups) for one in range(then))
        return [
            one.progress
            for one, theirs in zip(part.tasks, had, strict=True)
            if one.progress and theirs.start < mine.stop and mine.start < theirs.stop
        ]

    def batches_of(self, part: ComponentPart, task: TaskName) -> dict[Batch, list[Any]]:
        """The batches that a task has to write. Those of one writer stay together."""
        component, index = task
        found: dict[Batch, list[Any]] = {}
        for one in part.tasks:
            for data in one.batches:
                head, *rows = self._codec.decode_rows(data)
                batch = Batch(*head)
                if batch.task % self._shape[component] == index:
                    found[batch] = [row[0] for row in rows]
        return found

    # -- garbage --

    def collect(
        self, generation: int, epoch: int, manifest: Manifest, pinned: Manifest | None = None
    ) -> int:
        """Delete the objects that are older than an epoch by their names, and that neither its
        manifest nor a `pinned` one needs. Returns how many. Raises StateError."""
        needed = {ref.name for ref in manifest.segments}
        if pinned is not None:
            needed |= {ref.name for ref in pinned.segments}
        folders = [f"{self._topology}/manifests"]
        top = f"{self._topology}/segments"
        for component in self._store.names(top):
            folders += [f"{top}/{component}/{i}" for i in self._store.names(f"{top}/{component}")]
        deleted = 0
        for folder in folders:
            for name in self._store.names(folder):
                path = f"{folder}/{name}"
                of_generation, _, of_epoch = name.partition("-")
                if not (of_generation.isdigit() and of_epoch.isdigit()):
                    continue  # not ours
                old = int(of_generation) <= generation and int(of_epoch) < epoch
                if old and path not in needed:
                    self._store.delete(path)
                    deleted += 1
        return deleted


def _meet(one: tuple[int, int], other: tuple[int, int]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


class Part(NamedTuple):
    """What a task reports of its durable snapshot."""

    groups: int  # key groups of its component; 0: it has no keyed state
    task: TaskPart


def assemble(topology: str, shape: Shape, attempt: Attempt, time_ms: int) -> Manifest:
    """The manifest of an epoch, from the parts (each a `Part`) that its tasks have reported."""
    parts: Mapping[TaskName, Part] = attempt.parts
    return Manifest(
        topology=topology,
        generation=attempt.generation,
        epoch=attempt.epoch,
        components={
            component: ComponentPart(
                max(parts[component, index].groups for index in range(tasks)),
                tuple(parts[component, index].task for index in range(tasks)),
            )
            for component, tasks in shape.items()
        },
        time_ms=time_ms,
    )


class Chain:
    """The segments that one task's state needs, the oldest first: in the last epoch of which the
    task knows that it is complete, and in those that it has written since."""

    def __init__(self, segments: Sequence[SegmentRef] = (), *, is_whole: bool = True) -> None:
        """`is_whole`: its state was in no others, as after another number of tasks."""
        self.older = tuple(segments)
        self._is_whole = is_whole
        self.written: dict[int, tuple[SegmentRef, ...]] = {}  # by epoch
        self._merging: set[int] = set()  # epochs whose snapshots were to be merged
        self._merges = True  # that has not failed yet

    @property
    def size(self) -> int | None:
        """Bytes of its segments in the last complete epoch of which it knows; None: there, its
        state is in segments of other tasks."""
        return sum(ref.size for ref in self.older) if self._is_whole else None

    def wants_base(self, state: KeyedState, *, full: bool = False, can_merge: bool = False) -> bool:
        """Whether the next snapshot has to copy all state: there are no segments yet, or they have
        grown, and what there is cannot be merged. Or the snapshot must be `full`, without older
        segments. Or a later one, which may be complete without the task's knowing, does without
        one of these: then that may be deleted."""
        older, merges = self.older, can_merge and self._merges
        if not older:
            return not (merges and state.is_all_new)
        if full or (self._has_grown() and not merges):
            return True
        return any(not set(older).issubset(later) for later in self.written.values())

    def merges(self, epoch: int) -> bool:
        """Whether the snapshot of an epoch, which is not a base but may be merged, should become
        one when it is written: out of its changes and the older segments."""
        if not self.older or self._has_grown():
            self._merging.add(epoch)
        return epoch in self._merging

    def _has_grown(self) -> bool:
        """Whether what was written since the base is larger than that, or is too many segments to
        read them fast."""
        since = sum(ref.size for ref in self.older[1:])
        large = since > max(self.older[0].size, _BASE_BYTES_MIN) if self.older else False
        return large or len(self.older) >= SEGMENTS_MAX

    def wrote(self, epoch: int, segments: tuple[SegmentRef, ...]) -> None:
        """The snapshot of an epoch is durable, and needs these."""
        self.written[epoch] = segments
        failed = any(one.epoch == epoch and not one.is_base for one in segments)
        if failed and epoch in self._merging:
            self._merges = False

    def completed(self, epoch: int) -> None:
        """An epoch is complete. May be said again, and late."""
        self._is_whole |= epoch in self.written
        self.older = self.written.get(epoch, self.older)
        self.written = {at: refs for at, refs in self.written.items() if at > epoch}
        self._merging = {at for at in self._merging if at > epoch}
