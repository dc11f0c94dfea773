"""The windows of a task as entries of its state: one for each key group, or one that belongs to the
task, if they cannot move."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from squall_common.errors import SquallError
from squall_common.state.keyed import NO_KEY, KeyedState
from squall_common.state.stored_windows import WINDOWS
from squall_engine.core import UNANCHORED, Source, Tuple
from squall_engine.core.codec import ValueCodec
from squall_engine.plan import Plan


class WindowEntries:
    """The windows of one task."""

    def __init__(
        self, plan: Plan, component: str, shell: Any, state: KeyedState, codec: ValueCodec
    ) -> None:
        """`shell` is a `squall.windows.shell.Shell`."""
        self._plan = plan
        self._component = component
        self._shell = shell
        self._state = state
        self._codec = codec
        self._revision = 0  # of the windows that are in the state

    # ---- out of the state ----

    def restore(self, progress: Iterable[bytes] | None) -> None:
        """Go on from the entries. `progress`: how far the tasks were that had the key groups of
        this one; None in the first run. Raises SquallError if they are of other windows."""
        stored = self._state.get(WINDOWS)
        if stored is not None:
            data, tasks = _windows_in(stored, self._codec)
            self._shell.restore(data, self._codec, self._maker_of_tuples(tasks))
        elif progress is not None:
            self._restore_groups(progress)

    def _restore_groups(self, progress: Iterable[bytes]) -> None:
        found = []
        make_tuple: Callable[[int, str, list[Any]], Tuple] | None = None
        before: Any = None
        for key, stored in self._state.prefix((WINDOWS,)):
            entry = self._state.entry(key)
            assert entry is not None
            data, tasks = _windows_in(stored, self._codec)
            if make_tuple is None or tasks != before:
                before, make_tuple = tasks, self._maker_of_tuples(tasks)
            found.append((key[1], entry.owner, data, make_tuple))
        self._shell.resume_groups(found, progress, self._codec)

    def _maker_of_tuples(
        self, tasks: Sequence[tuple[str, int, int]]
    ) -> Callable[[int, str, list[Any]], Tuple]:
        """What makes the tuples in windows from the number of a task, as it was in `tasks`, a
        stream and values."""
        sources: dict[tuple[int, str], Source] = {}

        def source_of(task: int, stream: str) -> Source:
            name, first = next(
                (name, first) for name, first, count in tasks if first <= task < first + count
            )
            source = self._plan.topology.components.get(name)
            info = None if source is None else source.streams.get(stream)
            if info is None:
                raise SquallError(
                    f"its windows hold tuples of {name!r} (stream {stream!r}), which the topology "
                    "does not have any more",
                    hint="keep the component until these windows have ended",
                )
            now = self._plan.tasks_of[name]
            # A task that is gone: another of its component stands for it.
            return Source(name, now[(task - first) % len(now)], stream, info.fields)

        def make(task: int, stream: str, values: list[Any]) -> Tuple:
            source = sources.get((task, stream))
            if source is None:
                source = sources[task, stream] = source_of(task, stream)
            if len(values) != len(source.fields):
                raise SquallError(
                    f"its windows hold tuples of {source.component!r} with {len(values)} values, "
                    f"and these have {len(source.fields)} fields now",
                    hint="keep the fields until these windows have ended",
                )
            return Tuple(values, 0, UNANCHORED, source)

        return make

    # ---- into the state ----

    def store(self) -> bytes:
        """Put what has changed into the state. Returns how far the windows are, if they move with
        their key groups. Raises SquallError if they cannot be stored."""
        shell, state, codec = self._shell, self._state, self._codec
        tasks = self._tasks_before()
        try:
            if shell.groups is None:
                if shell.revision != self._revision:
                    self._revision = shell.revision
                    rows = ((shell.stored(codec, Tuple), tasks),)
                    state.put(WINDOWS, codec.encode_rows(rows))
                return b""
            for group, owner, data in shell.changed_groups(codec, Tuple):
                state.current = owner
                state.put((WINDOWS, group), codec.encode_rows(((data, tasks),)))
            progress: bytes = shell.progress(codec)
            return progress
        finally:
            state.current = NO_KEY

    def _tasks_before(self) -> list[list[Any]]:
        """[source, number of its first task, number of tasks] of all that feed the component. They
        are stored with windows, as the tuples in these name their source by its number, and another
        topology or a rescaling has other numbers."""
        tasks_of = self._plan.tasks_of
        feeders = sorted(self._plan.feeders[self._component] & tasks_of.keys())
        return [[name, min(tasks_of[name]), len(tasks_of[name])] for name in feeders]


def _windows_in(stored: bytes, codec: ValueCodec) -> tuple[bytes, Any]:
    """What an entry of windows holds, and the tasks that its tuples name. Raises SquallError."""
    (row,) = codec.decode_rows(stored)
    if len(row) != 2:
        raise SquallError(
            "its windows were stored by an older version of Squall, which did not say where their "
            "tuples came from",
            hint="finish with that version, or start with new checkpoints",
        )
    data, tasks = row
    return data, tasks
