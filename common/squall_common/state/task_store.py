"""The state of a task in a store, without epochs of the topology: the task's own chain of segments.

    TOPOLOGY/COMPONENT/INDEX/
        000002-9f31c2aa.fence                       task life 2 has begun
        000001-5be0117d-000000000041.segment        epoch 41 of life 1: a base, say
        000002-9f31c2aa-000000000042.segment        and what has changed since

A task that starts writes its *fence* first and lists the folder then; a task that writes a segment
looks for newer fences afterwards, and only then are tuples acked. So a task that was replaced, and
lives on, either has written its segment before the new one listed the folder, or finds the fence
and ends: nothing that was acked is missing. Once the new task has written a segment, what the
replaced one writes is never read, since the names of newer lives sort behind its own.

With another number of tasks the folders are others (`layouts`), and key groups move to them.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from squall_common.names import encode_znode
from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import (
    StateDamagedError,
    StateError,
    StateFencedError,
    StateStoreError,
)
from squall_common.state.key_groups import groups_of_task
from squall_common.state.layouts import Layout, mark_first, noted_layouts, sources
from squall_common.state.segment import Footer, Segment, SegmentRef, damaged
from squall_common.state.segment_file import put_segment
from squall_common.state.task_state import Changes, RowCodec, TaskState

_FENCE = re.compile(r"(?P<life>\d{6}-[0-9a-f]{8})\.fence")
_SEGMENT = re.compile(r"(?P<life>\d{6}-[0-9a-f]{8})-(?P<epoch>\d{12})\.segment")
_LIFE_DIGITS = 6
_CHAIN_MAX = 256  # segments that a restart has to read
_BASE_KEYS_MIN = 1_000


@dataclass(frozen=True, slots=True)
class TaskPlace:
    """Whose state it is."""

    topology: str  # its name
    component: str
    index: int  # of the task among its component's
    tasks: int
    max_parallelism: int

    @property
    def groups(self) -> range:
        return groups_of_task(self.index, self.tasks, self.max_parallelism)

    @property
    def component_folder(self) -> str:
        return f"{encode_znode(self.topology)}/{encode_znode(self.component)}"

    @property
    def folder(self) -> str:
        return f"{self.component_folder}/{self.index:05}"

    def check(self, tasks: int, max_parallelism: int, where: str) -> None:
        """Check that state that was stored with these numbers fits. Raises StateError."""
        self.check_groups(max_parallelism, where)
        if tasks != self.tasks:
            raise StateError(
                f"the state of {self.component!r} in {where} was stored by {tasks} task(s), and "
                f"the bolt has {self.tasks}",
                hint=f"give the bolt {tasks} task(s), or start with another state store",
            )

    def check_groups(self, max_parallelism: int, where: str) -> None:
        """Check that state that was stored with so many key groups fits. Raises StateError."""
        if max_parallelism != self.max_parallelism:
            raise StateError(
                f"the state of {self.component!r} in {where} has {max_parallelism} key groups, and "
                f"the bolt has {self.max_parallelism}",
                hint=f"set topology.state.max.parallelism of the bolt to {max_parallelism}",
            )


class TaskStore(Protocol):
    """Where the state of one task is stored. All calls block; one at a time."""

    def open(self, state: TaskState) -> None:
        """Take over from an earlier task in the same place, and restore what it has left. Raises
        StateError."""
        ...

    def wants_base(self, keys: int) -> bool:
        """Whether the next snapshot should be a base: the state has so many keys."""
        ...

    def write(self, changes: Changes, codec: RowCodec) -> int:
        """Store a snapshot. When this returns, it is what the next `open` restores. Returns the
        number of bytes. Raises StateFencedError once another task has taken over, StateValueError,
        and StateStoreError, after which the same changes, with newer ones, may be written
        again."""
        ...

    @property
    def epoch(self) -> int:
        """The last epoch that was stored. The next one must be higher."""
        ...

    @property
    def size(self) -> int:
        """Bytes that a restart has to read."""
        ...


class SegmentStore:
    """A `TaskStore` of segments behind a URL."""

    def __init__(self, store: CheckpointStore, place: TaskPlace) -> None:
        self._store = store
        self._place = place
        self._layout = Layout(place.component_folder, 0, place.tasks)
        self._older: list[Layout] = []
        self._folder = place.folder
        self._life = ""
        self._chain: list[SegmentRef] = []  # the oldest first
        self.epoch = 0

    @property
    def size(self) -> int:
        return sum(ref.size for ref in self._chain)

    def open(self, state: TaskState) -> None:
        self._choose_layout()
        self._life, names = self._fence(self._folder)
        self._check_fences(names)
        if segment_names(names):
            opened = read_chain(self._store, self._folder, names)
            head = opened[-1].footer
            where = f"{self._store.url}/{self._folder}"
            self._place.check(head.tasks, head.max_parallelism, where)
            state.restore([opened], self._place.groups, bound=True)
            self._chain = [segment.ref for segment in opened]
            self.epoch = head.epoch
        elif self._older:
            self._take_over(state)

    def _choose_layout(self) -> None:
        """Find the folder of the task: in the newest layout, or in a new one, if that has another
        number of tasks."""
        place = self._place
        found = layouts_of(self._store, place.component_folder)
        if not found:
            found = [mark_first(self._store, place.component_folder, place.tasks)]
        if found[-1].tasks == place.tasks:
            self._layout = found.pop()
        else:
            self._layout = found[-1].next(place.tasks)
        self._older = found
        self._folder = self._layout.task_folder(place.index)

    def _fence(self, folder: str) -> tuple[str, list[str]]:
        """Begin a new life of a task. Returns it, and what is in the folder from then on."""
        names = self._store.names(folder)
        lives = [match["life"] for name in names if (match := _match(name)) is not None]
        number = 1 + max((int(life[:_LIFE_DIGITS]) for life in lives), default=0)
        life = f"{number:0{_LIFE_DIGITS}}-{os.urandom(4).hex()}"
        self._store.put(f"{folder}/{life}.fence", b"")
        return life, self._store.names(folder)

    def _take_over(self, state: TaskState) -> None:
        """Restore the key groups of this task from those that had them, and let these write no
        more."""
        place = self._place

        def read(folder: str) -> list[Segment]:
            names = segment_names(self._fence(folder)[1])
            if not names:
                return []
            opened = read_chain(self._store, folder, names)
            head = opened[-1].footer
            place.check_groups(head.max_parallelism, f"{self._store.url}/{folder}")
            if head.bound:
                raise StateError(
                    f"{place.component!r} has state that belongs to its tasks (in "
                    f"{self._store.url}/{folder}), so it goes on with {head.tasks} of them, not "
                    f"{place.tasks}",
                    hint="state that is used under the key of the tuple's fields grouping can move",
                )
            return opened

        most = max(layout.tasks for layout in self._older)
        if most > place.max_parallelism:
            raise StateError(
                f"the state of {place.component!r} was stored by {most} tasks, and the bolt has "
                f"only {place.max_parallelism} key groups",
                hint="set topology.state.max.parallelism of the bolt to that of the old topology",
            )
        found = sources(self._older, place.groups, place.max_parallelism, read)
        state.restore([source.parts for source in found], place.groups, bound=False)

    def wants_base(self, keys: int) -> bool:
        if not self._chain:
            return True
        since = sum(ref.entries for ref in self._chain if not ref.is_base)
        return since >= max(keys, _BASE_KEYS_MIN) or len(self._chain) >= _CHAIN_MAX

    def write(self, changes: Changes, codec: RowCodec) -> int:
        place = self._place
        older = () if changes.is_base else tuple(self._chain)
        name = f"{self._folder}/{self._life}-{changes.epoch:012}.segment"
        footer = Footer(
            topology=place.topology,
            component=place.component,
            task=place.index,
            tasks=place.tasks,
            max_parallelism=place.max_parallelism,
            generation=int(self._life[:_LIFE_DIGITS]),
            epoch=changes.epoch,
            entries=changes.entries,
            keys=changes.keys,
            bound=changes.bound,
            is_base=changes.is_base,
            blocks=(),
            older=older,
        )
        ref = put_segment(self._store, footer, changes.encode(codec), name, place.groups)
        names = self._store.names(self._folder)
        self._check_fences(names)
        self._chain = [*older, ref]
        self.epoch = changes.epoch
        if changes.is_base:
            with contextlib.suppress(StateStoreError):  # the next base tries again
                self._clean(names)
        return ref.size

    def _check_fences(self, names: Sequence[str]) -> None:
        newest = max((m["life"] for name in names if (m := _FENCE.fullmatch(name))), default="")
        if newest > self._life:
            raise StateFencedError(
                f"another worker has taken over the state of task {self._place.index} of "
                f"{self._place.component!r} (in {self._store.url}/{self._folder}), so this one ends"
            )

    def _clean(self, names: Sequence[str]) -> None:
        """Delete what older lives and older bases have left."""
        needed = {ref.name for ref in self._chain}
        for name in names:
            match = _match(name)
            if match is None or match["life"] > self._life:
                continue
            path = f"{self._folder}/{name}"
            if path not in needed and name != f"{self._life}.fence":
                self._store.delete(path)
        self._clean_older()

    def _clean_older(self) -> None:
        """Delete the segments of older layouts, once each task of this one has its own. Their
        fences stay: whoever wrote there must not ack any more."""
        if not self._older:
            return
        for index in range(self._layout.tasks):
            if not segment_names(self._store.names(self._layout.task_folder(index))):
                return
        for layout in self._older:
            for index in range(layout.tasks):
                folder = layout.task_folder(index)
                for name in segment_names(self._store.names(folder)):
                    self._store.delete(f"{folder}/{name}")
        self._older = []


def layouts_of(store: CheckpointStore, component_folder: str) -> list[Layout]:
    """The layouts of a component's state, the oldest first. Raises StateError."""
    found = noted_layouts(store, component_folder)
    if not found or found[0].number > 0:  # or an older version of Squall wrote the first
        tasks = _first_tasks(store, component_folder)
        if tasks is not None:
            found.insert(0, Layout(component_folder, 0, tasks))
    return found


def _first_tasks(store: CheckpointStore, component_folder: str) -> int | None:
    damage: StateDamagedError | None = None
    for index in store.names(component_folder):
        folder = f"{component_folder}/{index}"
        if index.isdecimal() and (names := segment_names(store.names(folder))):
            try:
                return _open(store, f"{folder}/{names[-1]}").footer.tasks
            except StateDamagedError as error:  # any other task's says it as well
                damage = damage or error
    if damage is not None:
        raise damage
    return None


def _match(name: str) -> re.Match[str] | None:
    return _FENCE.fullmatch(name) or _SEGMENT.fullmatch(name)


def segment_names(names: Sequence[str]) -> list[str]:
    """Those of these names that are segments, the oldest first."""
    return sorted(name for name in names if _SEGMENT.fullmatch(name))


def read_chain(store: CheckpointStore, folder: str, names: Sequence[str]) -> list[Segment]:
    """The segments that the newest of these names needs, itself included; the oldest first. Raises
    StateDamagedError, and StateStoreError."""
    names = segment_names(names)
    head = names[-1]
    try:
        newest = _open(store, f"{folder}/{head}")
        older = [_open(store, ref.name, ref) for ref in newest.footer.older]
    except StateDamagedError as error:
        if len(names) < 2:
            raise
        raise StateDamagedError(
            error.message,
            hint=f"restore it from a copy; or delete {folder}/{head} to go back to the state "
            f"before it, {names[-2]}, without what was acked since",
        ) from error
    return [*older, newest]


def _open(store: CheckpointStore, name: str, expected: SegmentRef | None = None) -> Segment:
    try:
        return Segment.open(name, partial(store.get_part, name), expected)
    except FileNotFoundError:
        raise damaged(name, "it is missing") from None
