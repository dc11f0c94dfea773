"""The keys of what a component gets: the values of the fields by which its input is grouped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from squall_common.names import is_system_id
from squall_common.state.keyed import NO_KEY
from squall_common.topology.model import GroupingKind, Topology
from squall_common.topology.serialization import Registry
from squall_engine.atomic.batches import ColumnKeysOf
from squall_engine.atomic.windows import WindowGrouping
from squall_engine.core import KeyFinder, Source, Tuple


class InputKeys:
    """What finds the keys of one component's input. What no fields grouping leads to it has
    `NO_KEY`."""

    def __init__(self, topology: Topology, component: str, registry: Registry) -> None:
        """`registry`: of the topology's own types."""
        inputs = topology.components[component].inputs
        places = _places(topology, component)
        self._registry = registry
        self._groupings = [
            grouping for stream, grouping in inputs.items() if not is_system_id(stream.component)
        ]
        self.finder = KeyFinder(places, NO_KEY)
        """Finds the keys of tuples."""
        self.of_values = _key_of(places)
        """Finds the key of a tuple from its source and its values, or from its columns; None: no
        fields grouping leads to the component."""

    def of_tuples(self, tuples: Iterable[Tuple]) -> Iterable[Any]:
        """The keys of tuples; none where no fields grouping leads to the component."""
        key_of = self.of_values
        if key_of is None:
            return ()
        return [key_of(tup.source, tup.values) for tup in tuples]

    def of_columns(self) -> ColumnKeysOf:
        """What finds the keys of the rows of columns."""
        key_of = self.of_values

        def keys(source: Source, lists: Sequence[Sequence[Any]]) -> Iterable[Any]:
            if key_of is None:
                return ()
            return [key_of(source, row) for row in zip(*lists, strict=True)]

        return keys

    def window_grouping(self, groups: int | None) -> WindowGrouping | None:
        """How the input is divided into so many key groups, if all of it is grouped by the same
        fields; otherwise None."""
        key_of = self.of_values
        if not all(one.kind is GroupingKind.FIELDS and one.fields for one in self._groupings):
            return None
        if key_of is None or groups is None:
            return None
        # In one order: the key group of (a, b) is not that of (b, a).
        if len(ways := {tuple(one.fields or ()) for one in self._groupings}) != 1:
            return None
        return WindowGrouping(frozenset(*ways), groups, key_of, self._registry)


def _places(topology: Topology, component: str) -> dict[tuple[str, str], tuple[int, ...]]:
    """The places of the fields by which the input is grouped, of each stream that is."""
    places: dict[tuple[str, str], tuple[int, ...]] = {}
    for stream, grouping in topology.components[component].inputs.items():
        if grouping.kind is GroupingKind.FIELDS and grouping.fields:
            fields = topology.components[stream.component].streams[stream.stream].fields
            at = tuple(fields.index(name) for name in grouping.fields)
            places[stream.component, stream.stream] = at
    return places


def _key_of(
    places: Mapping[tuple[str, str], tuple[int, ...]],
) -> Callable[[Source, Any], Any] | None:
    if not places:
        return None
    getters: dict[tuple[str, str], Callable[[Any], Any]] = {
        stream: itemgetter(*at) for stream, at in places.items()
    }

    def key_of(source: Source, values: Any) -> Any:
        getter = getters.get(source.key)
        return NO_KEY if getter is None else getter(values)

    return key_of
