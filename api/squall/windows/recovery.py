"""What the windows of a task store, and how another task goes on from it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from squall.windows.evictors import Event
from squall.windows.groups import GroupedWindows
from squall.windows.on_disk import DiskRows
from squall.windows.operators import Operator
from squall.windows.sessions import Contents
from squall.windows.snapshot import FORMAT, Codec, dump, load
from squall.windows.spec import WindowPlan
from squall.windows.watermarks import Watermarks
from squall_common.errors import SquallError

if TYPE_CHECKING:
    from squall_common.component.context import TopologyContext
    from squall_common.component.tuples import Tuple


class Recovery:
    """The half of a `Shell` that checkpoints, and programs that drive windows, use: between two
    batches, when no window that has ended is left (`_rest`)."""

    plan: WindowPlan
    groups: GroupedWindows | None
    timestamp: Callable[[Tuple], Any] | None
    _context: TopologyContext
    _operator: Operator
    _watermarks: Watermarks
    _contents: Contents | None
    _key_of: Callable[[Tuple], Hashable]
    _disk: DiskRows | None
    _ids: set[Hashable] | None
    _held_count: int
    _caught_up_ms: int
    _is_behind: bool
    _rest: object

    def parts(self) -> dict[str, Any]:
        """What it holds, and how far it is, in a form that `snapshot` can store."""
        assert self._rest is None, "a window that has ended is not out"
        return {
            "now_ms": self._now_ms(),
            "operator": self._operator,
            "watermarks": self._watermarks,
            "ids": self._ids,
            "held": self._held_count,
            "caught_up_ms": self._caught_up_ms,
        }

    def fixed_parts(self) -> dict[str, Any]:
        """What those parts refer to and the bolt brings along."""
        return {"key_of": self._key_of, "contents": self._contents}

    def resume(self, parts: Mapping[str, Any]) -> None:
        """Go on from the `parts` of another task."""
        self._operator = parts["operator"]
        self._watermarks = parts["watermarks"]
        self._watermarks.shift(self._now_ms() - parts["now_ms"])
        self._ids = parts["ids"]
        self._held_count = parts["held"]
        if self._disk is not None:
            self._recount_disk()
        self._caught_up_ms = parts["caught_up_ms"]
        self._wait_for_sessions()

    def stored(self, codec: Codec, tuple_class: type) -> bytes:
        """All that the windows hold. Raises SquallError for a value that cannot be stored."""
        return self._stored(self.parts(), codec, tuple_class)

    def _stored(self, what: Mapping[str, Any], codec: Codec, tuple_class: type) -> bytes:
        tuples: list[Any] = []
        try:
            parts = dump(what, self.fixed_parts(), codec, tuple_class, tuples)
            rows = [[tup.source_task, tup.source_stream, list(tup.values)] for tup in tuples]
            return codec.encode_rows([[FORMAT, repr(self.plan), rows, parts]])
        except SquallError:
            raise
        except Exception as error:
            raise SquallError(
                f"the windows of {self._component} hold a value that cannot be stored: {error}"
            ) from error

    def restore(
        self, data: bytes, codec: Codec, make_tuple: Callable[[int, str, list[Any]], Any]
    ) -> None:
        """Go on from what was stored. `make_tuple` gets a task, a stream and values. Raises
        SquallError if it is of another version of squall or of other windows."""
        if self.groups is not None:  # they were stored before they moved with key groups
            self.groups = None
        self.resume(self._read(data, codec, make_tuple))

    def _read(
        self, data: bytes, codec: Codec, make_tuple: Callable[[int, str, list[Any]], Any]
    ) -> Any:
        ((format_, plan, rows, parts),) = codec.decode_rows(data)
        self._check_format(format_)
        if plan != repr(self.plan):
            raise SquallError(
                f"the windows of {self._component} have changed: they were {plan}, and are now "
                f"{self.plan!r}",
                hint="keep them, or start with new checkpoints",
            )
        tuples = [make_tuple(task, stream, values) for task, stream, values in rows]
        if self._disk is not None:
            self._bounded(self._disk, [(0, tup) for tup in tuples])
            self._disk.settle()
            self._held_count += len(tuples)  # (until all are counted)
        return load(parts, self.fixed_parts(), codec, tuples)

    def changed_groups(
        self, codec: Codec, tuple_class: type
    ) -> Iterator[tuple[int, Hashable, bytes]]:
        """The key groups whose windows have changed since the last call, each with a key of it and
        what its windows hold. Raises SquallError for a value that cannot be stored."""
        assert self.groups is not None
        assert self._rest is None, "a window that has ended is not out"
        for group, (owner, operator) in self.groups.changed().items():
            yield group, owner, self._stored({"operator": operator}, codec, tuple_class)

    def progress(self, codec: Codec) -> bytes:
        """How far event time has come in this task."""
        return codec.encode_rows([[FORMAT, self._now_ms(), *self._watermarks.state()]])

    def resume_groups(
        self,
        groups: Iterable[tuple[int, Hashable, bytes, Callable[[int, str, list[Any]], Any]]],
        progress: Iterable[bytes],
        codec: Codec,
    ) -> None:
        """Go on with key groups (number, a key of it, what its windows hold, and what makes their
        tuples, as for `restore`) of other tasks, and from the furthest `progress` of these: the
        windows of a group that was not so far fire with the next call. Raises SquallError as
        `restore` does."""
        now_ms = self._now_ms()
        states = []
        for data in progress:
            ((format_, stored_ms, *state),) = codec.decode_rows(data)
            self._check_format(format_)
            states.append((state, now_ms - stored_ms))
        self._watermarks.join(states)
        found = {
            group: (owner, self._read(data, codec, make_tuple)["operator"])
            for group, owner, data, make_tuple in groups
        }
        if found and self.groups is None:
            raise SquallError(
                f"the windows of {self._component} were stored by the key groups of its input, "
                "which is grouped by fields of the windows' key no longer",
                hint="keep the grouping, or start with new checkpoints",
            )
        if self.groups is None:
            return
        self.groups.resume(found)
        held = list(self.groups.held())
        self._held_count = len(held)
        if self._disk is not None:
            self._recount_disk()
        if self._ids is not None:
            self._ids = {self._id_of(tup) for tup in held}
        if self.timestamp is not None and self._watermarks.current_ms:
            self.groups.resume_at(self._watermarks.current_ms, now_ms)
            self._is_behind = True
        self._wait_for_sessions()

    def _check_format(self, format_: Any) -> None:
        if format_ != FORMAT:
            raise SquallError(
                f"the windows of {self._component} were stored by another version of squall "
                f"(format {format_}; this one reads {FORMAT})",
                hint="finish with that version, or start with new checkpoints",
            )

    @property
    def _component(self) -> str:
        return repr(self._context.this_component_id)

    # -- the shell's --

    def _now_ms(self) -> int:
        raise NotImplementedError

    def _wait_for_sessions(self) -> None:
        raise NotImplementedError

    def _bounded(self, disk: DiskRows, events: list[Event]) -> list[Event]:
        raise NotImplementedError

    def _recount_disk(self) -> None:
        raise NotImplementedError

    def _id_of(self, tup: Tuple) -> Hashable:
        raise NotImplementedError
