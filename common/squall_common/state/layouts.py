"""How the state of a component is divided into folders, one for each task, and what happens when
the number of its tasks changes.

    TOPOLOGY/COMPONENT/layout-000000-00002          a marker: there were 2 tasks at first
    TOPOLOGY/COMPONENT/INDEX/                       of these
    TOPOLOGY/COMPONENT/layout-000001-00005/INDEX/   then there were 5 of them
    TOPOLOGY/COMPONENT/layout-000002-00002/INDEX/   and then 2

Each *layout* is made by the first task that finds another number of tasks than its own in the one
before. A task without segments in the newest layout reads its key groups from those tasks of the
layout before that had them; where these have no segments either, from the layout before that. So
an end in the middle of such a move loses nothing: each group is read from the newest task that has
stored it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.errors import StateError
from squall_common.state.key_groups import groups_of_task
from squall_common.state.segment import Segment

_LAYOUT = re.compile(r"layout-(?P<number>\d{6})-(?P<tasks>\d{5})")
_FIRST = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """The folders of so many tasks."""

    component_folder: str
    number: int  # 0: the first
    tasks: int

    @property
    def folder(self) -> str:
        if self.number == _FIRST:
            return self.component_folder
        return f"{self.component_folder}/layout-{self.number:06}-{self.tasks:05}"

    def task_folder(self, index: int) -> str:
        return f"{self.folder}/{index:05}"

    def next(self, tasks: int) -> Layout:
        """The layout after it, of another number of tasks."""
        return Layout(self.component_folder, self.number + 1, tasks)


@dataclass(frozen=True, slots=True)
class Source:
    """Where some key groups of a component are stored last."""

    layout: Layout
    index: int  # of the task
    segments: Sequence[Segment]  # the oldest first
    groups: range

    @property
    def parts(self) -> list[PartOfSegment]:
        """The segments, as far as they have these groups."""
        return [PartOfSegment(segment, self.groups) for segment in self.segments]


class PartOfSegment:
    """A `StoredState`: some groups of a segment."""

    def __init__(self, segment: Segment, groups: range) -> None:
        self.name = segment.name
        self.is_base = segment.is_base
        self._segment, self._groups = segment, groups

    def blocks(self, groups: Iterable[int]) -> Iterator[tuple[int, bytes]]:
        return self._segment.blocks(set(self._groups).intersection(groups))


def noted_layouts(store: CheckpointStore, component_folder: str) -> list[Layout]:
    """The layouts, the oldest first; the first one if it has a marker, as older versions of Squall
    wrote none. Raises StateStoreError."""
    return sorted(
        (
            Layout(component_folder, int(match["number"]), int(match["tasks"]))
            for name in store.names(component_folder)
            if (match := _LAYOUT.fullmatch(name)) is not None
        ),
        key=lambda one: (one.number, one.tasks),
    )


def mark_first(store: CheckpointStore, component_folder: str, tasks: int) -> Layout:
    """Make the first layout. Raises StateError if others do so meanwhile, with another number of
    tasks; and StateStoreError."""
    marker = f"{component_folder}/layout-{_FIRST:06}-{tasks:05}"
    store.put(marker, b"")
    found = noted_layouts(store, component_folder)
    if any(one.tasks != tasks for one in found if one.number == _FIRST):
        store.delete(marker)
        raise StateError(
            f"the state in {component_folder} of {store.url} is begun by different numbers of "
            "tasks at the same time",
            hint="end the topology of this name that should not run",
        )
    return found[0]


def sources(
    layouts: Sequence[Layout],
    groups: range,
    max_parallelism: int,
    read: Callable[[str], Sequence[Segment]],
) -> Iterator[Source]:
    """Where these groups are stored: `layouts` are the oldest first, `read` opens the segments of
    a task's folder."""
    if not layouts:
        return
    *older, newest = layouts
    for index in range(newest.tasks):
        theirs = groups_of_task(index, newest.tasks, max_parallelism)
        both = range(max(theirs.start, groups.start), min(theirs.stop, groups.stop))
        if not both:
            continue
        segments = read(newest.task_folder(index))
        if segments:
            yield Source(newest, index, segments, both)
        else:
            yield from sources(older, both, max_parallelism, read)
