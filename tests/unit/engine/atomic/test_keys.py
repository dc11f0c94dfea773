"""The keys of what a component gets."""

from __future__ import annotations

from typing import Any

from squall_common.state.key_groups import key_group
from squall_common.state.keyed import NO_KEY
from squall_common.topology.model import (
    Component,
    ComponentKind,
    GlobalStreamId,
    Grouping,
    GroupingKind,
    StreamInfo,
    Topology,
)
from squall_common.topology.serialization import Registry
from squall_engine.atomic.keys import InputKeys
from squall_engine.core import UNANCHORED, Source, Tuple

FIELDS = ("user", "page", "at")
TICKS = GlobalStreamId("__system", "__tick")


def by(*fields: str) -> Grouping:
    return Grouping(GroupingKind.FIELDS, fields)


ALL = Grouping(GroupingKind.ALL)


def keys_of(inputs: dict[str, Grouping]) -> InputKeys:
    """The keys of a bolt with these inputs by component, and ticks."""
    streams = {"default": StreamInfo(FIELDS)}
    components: dict[str, Component] = {
        name: Component(name, ComponentKind.SPOUT, None, streams=streams)  # type: ignore[arg-type]
        for name in inputs
    }
    subscribed = {GlobalStreamId(name): one for name, one in inputs.items()} | {TICKS: ALL}
    components["bolt"] = Component("bolt", ComponentKind.BOLT, None, subscribed)  # type: ignore[arg-type]
    return InputKeys(Topology(components), "bolt", Registry())


def source(component: str) -> Source:
    return Source(component, 1, "default", FIELDS)


def tup(component: str, *values: Any) -> Tuple:
    return Tuple([*values], 0, UNANCHORED, source(component))


def test_keys_are_found_by_the_stream_of_a_tuple() -> None:
    keys = keys_of({"clicks": by("user"), "orders": by("at", "user"), "news": ALL})
    tuples = [tup("clicks", "a", 1, 2), tup("orders", "b", 3, 4), tup("news", "c", 5, 6)]
    assert keys.of_tuples(tuples) == ["a", (4, "b"), NO_KEY]
    assert keys.of_values is not None
    assert [keys.of_values(one.source, one.values) for one in tuples] == ["a", (4, "b"), NO_KEY]
    assert [keys.finder(one) for one in tuples] == ["a", (4, "b"), NO_KEY]


def test_the_rows_of_columns_have_keys() -> None:
    columns = [["a", "b"], [1, 2], [3, 4]]
    keys = keys_of({"clicks": by("page"), "news": ALL}).of_columns()
    assert keys(source("clicks"), columns) == [1, 2]
    assert keys(source("news"), columns) == [NO_KEY, NO_KEY]


def test_a_component_without_a_fields_grouping_has_no_keys() -> None:
    keys = keys_of({"news": ALL, "all": by()})  # by no fields: a global grouping
    assert keys.of_values is None
    assert keys.of_tuples([tup("news", "a", 1, 2)]) == ()
    assert keys.of_columns()(source("news"), [["a"], [1], [2]]) == ()
    assert keys.window_grouping(8) is None


def test_windows_are_grouped_if_all_of_their_input_is_grouped_by_the_same_fields() -> None:
    grouping = keys_of({"clicks": by("user", "page"), "orders": by("user", "page")})
    found = grouping.window_grouping(8)
    assert found is not None
    assert found.fields == {"user", "page"}
    assert found.key_of(tup("orders", "a", 1, 2)) == ("a", 1)
    assert found.group_of(("a", 1)) == key_group(("a", 1), 8)


def test_windows_of_input_that_is_grouped_in_several_ways_are_not_grouped() -> None:
    for other in (by("page", "user"), by("user"), by(), ALL):
        keys = keys_of({"clicks": by("user", "page"), "orders": other})
        assert keys.window_grouping(8) is None
    assert keys_of({"clicks": by("user")}).window_grouping(None) is None
