"""`JoinBolt`: joins the streams that it gets, window by window, as Storm's JoinBolt does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast

from squall.windows.bolt import WindowedBolt
from squall_common.component.component import Stream
from squall_common.errors import InvalidTopologyError

if TYPE_CHECKING:
    from squall.windows.tuple_window import TupleWindow
    from squall_common.component.tuples import Tuple

SelectBy = Literal["component", "stream"]
JoinKind = Literal["from", "inner", "left"]


@dataclass(frozen=True, slots=True)
class Path:
    """A field, perhaps inside other fields, of one input or of any: "orders:customer.id"."""

    source: str | None
    names: tuple[str, ...]
    text: str

    @classmethod
    def parse(cls, text: str) -> Path:
        """Raises InvalidTopologyError for an empty name."""
        source, colon, path = text.rpartition(":")
        names = tuple(name.strip() for name in path.split("."))
        if not all(names) or (colon and not source.strip()):
            raise InvalidTopologyError(
                f"{text!r} is not a field", hint='write "field", "a.b" or "source:field"'
            )
        return cls(source.strip() or None, names, text.strip())


@dataclass(frozen=True, slots=True)
class Joined:
    """One input of the join."""

    source: str
    field: Path
    kind: JoinKind
    prior: str | None = None  # the input that it is joined to


@dataclass(frozen=True, slots=True)
class Join:
    """What is joined with what, and which fields come of it; immutable."""

    by: SelectBy
    inputs: tuple[Joined, ...]
    fields: tuple[Path, ...] = ()

    def matches(self, tuples: Sequence[Tuple]) -> Iterator[tuple[list[Any], list[Tuple]]]:
        """The rows of the join, each with the tuples that it is made of. Raises
        InvalidTopologyError for a tuple of an input that is not joined."""
        found: dict[str, list[Tuple]] = {one.source: [] for one in self.inputs}
        for tup in tuples:
            source = self._source(tup)
            if source not in found:
                raise InvalidTopologyError(
                    f"a tuple came from {self.by} {source!r}, which is not joined "
                    f"(joined are {', '.join(map(repr, found))})"
                )
            found[source].append(tup)
        rows: list[list[Tuple]] = [[tup] for tup in found[self.inputs[0].source]]
        for joined in self.inputs[1:]:
            rows = self._join(rows, found[joined.source], joined)
        for row in rows:
            yield [self._first(row, path) for path in self.fields], row

    def _join(
        self, rows: list[list[Tuple]], tuples: Sequence[Tuple], joined: Joined
    ) -> list[list[Tuple]]:
        by_value: dict[Any, list[Tuple]] = {}
        for tup in tuples:
            by_value.setdefault(_hashable(self._value(tup, joined.field)), []).append(tup)
        prior = next(one for one in self.inputs if one.source == joined.prior)
        result = []
        for row in rows:
            value = self._first(row, prior.field)
            if value is None:  # like NULL in SQL, equal to nothing
                continue
            matching = by_value.get(_hashable(value), ())
            result += [[*row, match] for match in matching]
            if not matching and joined.kind == "left":
                result.append(row)
        return result

    def _first(self, row: Sequence[Tuple], path: Path) -> Any:
        return next((found for tup in row if (found := self._value(tup, path)) is not None), None)

    def _value(self, tup: Tuple, path: Path) -> Any:
        if path.source is not None and path.source != self._source(tup):
            return None
        found: Any = tup.get(path.names[0])
        for name in path.names[1:]:
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _source(self, tup: Tuple) -> str:
        return tup.source_component if self.by == "component" else tup.source_stream


class JoinBolt(WindowedBolt):
    """Joins the tuples of a window by equal values.

        join = (
            JoinBolt("orders", "customer")
            .join("customers", "id", "orders")
            .left_join("payments", "order", "orders")
            .select("orders:id, name, payments:amount")
        )
        builder.bolt("joined", join, parallelism=2).windowed(tumbling(secs=10)).fields(
            "orders", "customer"
        ).fields("customers", "id").fields("payments", "customer")

    `source` is the id of the component whose tuples these are, or with `by="stream"` the name of
    their stream. `field` is the field that is compared; "a.b" is the key "b" of a dict in field
    "a". The inputs must be grouped so that tuples that match reach the same task. A result is
    anchored to the tuples that it is made of.

    `join`, `left_join` and `select` return a new bolt.
    """

    def __init__(
        self,
        source: str,
        field: str,
        *,
        by: SelectBy = "component",
        stream: str = "default",
        joined: Sequence[Sequence[str]] = (),
        select: str | None = None,
    ) -> None:
        """`stream` is the stream to emit to. `joined` and `select` are what `join`, `left_join` and
        `select` add. Raises InvalidTopologyError."""
        if by not in ("component", "stream"):
            raise InvalidTopologyError(f'by is {by!r}; expected "component" or "stream"')
        self._arguments = (source, field)
        self._options: dict[str, Any] = {"by": by, "stream": stream}
        self._joined = [list(one) for one in joined]
        self._select = select
        inputs = [Joined(source, _field_of(source, field), "from")]
        for kind, other, other_field, prior in self._joined:
            if kind not in ("inner", "left"):
                raise InvalidTopologyError(f"a join is {kind!r}; expected inner or left")
            known = [one.source for one in inputs]
            if other in known:
                raise InvalidTopologyError(f"{other!r} is already part of the join")
            if prior not in known:
                raise InvalidTopologyError(
                    f"{other!r} is joined to {prior!r}, which is not part of the join before it "
                    f"(there is {', '.join(map(repr, known))})"
                )
            field_of_other = _field_of(other, other_field)
            inputs.append(Joined(other, field_of_other, cast(JoinKind, kind), prior))
        join = Join(by, tuple(inputs))
        if select is not None:
            join = replace(join, fields=_selected(select, join))
        self._join = join
        self._stream = stream
        self.outputs = {stream: Stream([path.text for path in join.fields])}

    def join(self, source: str, field: str, prior: str) -> JoinBolt:
        """Join a further input to `prior`, one that is part of the join already: rows for which no
        tuple matches are left out."""
        return self._with(["inner", source, field, prior])

    def left_join(self, source: str, field: str, prior: str) -> JoinBolt:
        """Join a further input to `prior`: rows for which no tuple matches stay, with None for its
        fields."""
        return self._with(["left", source, field, prior])

    def select(self, fields: str) -> JoinBolt:
        """Choose the fields of the results, separated by commas: "orders:id, name". Without a
        source, the first input that has the field counts. The names of the output fields are
        written the same."""
        return type(self)(*self._arguments, **self._options, joined=self._joined, select=fields)

    def _with(self, joined: list[str]) -> JoinBolt:
        return type(self)(
            *self._arguments,
            **self._options,
            joined=[*self._joined, joined],
            select=self._select,
        )

    def execute_window(self, window: TupleWindow) -> None:
        for values, tuples in self._join.matches(window.get()):
            self.emit(values, anchors=tuples, stream=self._stream)


def _hashable(value: Any) -> Any:
    """What has a hash, and is equal where the values are: lists and dicts by what they hold."""
    if isinstance(value, list | tuple):
        return tuple(map(_hashable, value))
    if isinstance(value, dict):
        return frozenset((name, _hashable(of)) for name, of in value.items())
    return value


def _field_of(source: str, field: str) -> Path:
    path = Path.parse(field)
    if path.source is not None:
        raise InvalidTopologyError(
            f"field {field!r} of {source!r} names a source", hint="leave out what is before the ':'"
        )
    return replace(path, source=source)


def _selected(fields: str, join: Join) -> tuple[Path, ...]:
    found = tuple(Path.parse(text) for text in fields.split(","))
    known = [one.source for one in join.inputs]
    for path in found:
        if path.source is not None and path.source not in known:
            raise InvalidTopologyError(
                f"select: {path.text!r} names {path.source!r}, which is not part of the join "
                f"(there is {', '.join(map(repr, known))})"
            )
    return found
