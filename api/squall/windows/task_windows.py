"""The windows of one task: what they hold, how far they are, what of it is stored, and how another
task goes on from that. They have no clock, and no collector: a `Shell` has.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from squall.windows.groups import GroupedWindows
from squall.windows.held import Held
from squall.windows.operators import Operator
from squall.windows.sessions import Contents
from squall.windows.snapshot import FORMAT, Codec, dump, load
from squall.windows.spec import WindowPlan
from squall.windows.watermarks import Watermarks
from squall_common.errors import SquallError

if TYPE_CHECKING:
    from squall_common.component.tuples import Tuple

MakeTuple = Callable[[int, str, list[Any]], Any]
"""Makes a tuple that was stored, from a task, a stream and values."""


class TaskWindows:
    """What the windows of one task consist of. All times are milliseconds."""

    def __init__(
        self,
        component: str,
        plan: WindowPlan,
        operator: Operator,
        watermarks: Watermarks,
        held: Held,
        *,
        key_of: Callable[[Tuple], Hashable],
        contents: Contents | None,
        event_time: bool,
        now_ms: int,
    ) -> None:
        self.operator = operator
        self.watermarks = watermarks
        self.held = held
        self.caught_up_ms = now_ms  # by the clock, where a program drives them
        self.is_behind = False  # windows of some groups have to fire: see `resume_groups`
        self._component = repr(component)
        self._plan = plan
        self._event_time = event_time
        # What they refer to and the bolt brings along.
        self._fixed = {"key_of": key_of, "contents": contents}

    @property
    def groups(self) -> GroupedWindows | None:
        """The windows, if they move with key groups."""
        operator = self.operator
        return operator if isinstance(operator, GroupedWindows) else None

    # -- as a whole --

    def stored(self, codec: Codec, tuple_class: type, now_ms: int) -> bytes:
        """All that they hold. Raises SquallError for a value that cannot be stored."""
        parts = {
            "now_ms": now_ms,
            "operator": self.operator,
            "watermarks": self.watermarks,
            "ids": self.held.ids,
            "held": self.held.count,
            "caught_up_ms": self.caught_up_ms,
        }
        return self._stored(parts, codec, tuple_class)

    def _stored(self, what: Mapping[str, Any], codec: Codec, tuple_class: type) -> bytes:
        tuples: list[Any] = []
        try:
            parts = dump(what, self._fixed, codec, tuple_class, tuples)
            rows = [[tup.source_task, tup.source_stream, list(tup.values)] for tup in tuples]
            return codec.encode_rows([[FORMAT, repr(self._plan), rows, parts]])
        except SquallError:
            raise
        except Exception as error:
            message = f"the windows of {self._component} hold a value that cannot be stored"
            kind = getattr(error, "kind", None)  # of a `ValueNotEncodableError`
            if kind is None:
                raise SquallError(f"{message}: {error}") from error
            reason = getattr(error, "reason", None)
            raise SquallError(f"{message}: its type {kind} has no encoding", hint=reason) from error

    def restore(self, data: bytes, codec: Codec, make_tuple: MakeTuple, now_ms: int) -> None:
        """Go on from what was stored, also before the windows moved with key groups. Raises
        SquallError if it is of another version of squall or of other windows."""
        parts = self._read(data, codec, make_tuple)
        self.operator = parts["operator"]
        self.watermarks = parts["watermarks"]
        self.watermarks.shift(now_ms - parts["now_ms"])
        self.held.ids = parts["ids"]
        self.held.count = parts["held"]
        self.held.recount(self.operator.held())
        self.caught_up_ms = parts["caught_up_ms"]

    def _read(self, data: bytes, codec: Codec, make_tuple: MakeTuple) -> Any:
        ((format_, plan, rows, parts),) = codec.decode_rows(data)
        self._check_format(format_)
        if plan != repr(self._plan):
            raise SquallError(
                f"the windows of {self._component} have changed: they were {plan}, and are now "
                f"{self._plan!r}",
                hint="keep them, or start with new checkpoints",
            )
        tuples = [make_tuple(task, stream, values) for task, stream, values in rows]
        held = self.held
        if held.disk is not None:
            held.put_on_disk(tuples[held.room :])
            held.disk.settle()
            held.count += len(tuples)  # (until all are counted)
        return load(parts, self._fixed, codec, tuples)

    # -- by key group --

    def changed_groups(
        self, codec: Codec, tuple_class: type
    ) -> Iterator[tuple[int, Hashable, bytes]]:
        """The key groups whose windows have changed since the last call, each with a key of it and
        what its windows hold. Raises SquallError for a value that cannot be stored."""
        assert self.groups is not None
        for group, (owner, operator) in self.groups.changed().items():
            yield group, owner, self._stored({"operator": operator}, codec, tuple_class)

    def progress(self, codec: Codec, now_ms: int) -> bytes:
        """How far event time has come in this task."""
        return codec.encode_rows([[FORMAT, now_ms, *self.watermarks.state()]])

    def resume_groups(
        self,
        stored: Iterable[tuple[int, Hashable, bytes, MakeTuple]],
        progress: Iterable[bytes],
        codec: Codec,
        now_ms: int,
    ) -> None:
        """Go on with key groups (number, a key of it, what its windows hold, and what makes their
        tuples) of other tasks, and from the furthest `progress` of these: the windows of a group
        that was not so far fire with the next call. Raises SquallError as `restore` does."""
        states = []
        for data in progress:
            ((format_, stored_ms, *state),) = codec.decode_rows(data)
            self._check_format(format_)
            states.append((state, now_ms - stored_ms))
        self.watermarks.join(states)
        found = {
            group: (owner, self._read(data, codec, make_tuple)["operator"])
            for group, owner, data, make_tuple in stored
        }
        groups = self.groups
        if found and groups is None:
            raise SquallError(
                f"the windows of {self._component} were stored by the key groups of its input, "
                "which is grouped by fields of the windows' key no longer",
                hint="keep the grouping, or start with new checkpoints",
            )
        if groups is None:
            return
        groups.resume(found)
        tuples = list(groups.held())
        self.held.count = len(tuples)
        self.held.recount(tuples)
        if self.held.ids is not None:
            self.held.ids = {self.held.id_of(tup) for tup in tuples}
        if self._event_time and self.watermarks.current_ms:
            groups.resume_at(self.watermarks.current_ms, now_ms)
            self.is_behind = True

    def _check_format(self, format_: Any) -> None:
        if format_ != FORMAT:
            raise SquallError(
                f"the windows of {self._component} were stored by another version of squall "
                f"(format {format_}; this one reads {FORMAT})",
                hint="finish with that version, or start with new checkpoints",
            )
