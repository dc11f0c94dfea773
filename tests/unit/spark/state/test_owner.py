"""Whose an entry is: it follows the value that its tuple was grouped by."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.support import spark_topologies as st

from squall import StatefulBolt, TopologyBuilder
from squall_common.component.groupings import stable_hash, stable_hash_of_fields
from squall_common.topology.serialization import Registry
from squall_spark.state.owner import (
    BOUND,
    FIRST,
    OUTSIDE,
    CurrentOwner,
    task_of,
)


class Notes(StatefulBolt):
    def __init__(self) -> None:
        self.seen: list[int] = []

    def execute(self, tup: Any) -> None:
        self.seen.append(self.owner())


class NotesAsync(Notes):
    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0)
        self.seen.append(self.owner())


class FakeTuple:
    def __init__(self, *values: Any) -> None:
        self.source_component, self.source_stream = "pair", "default"
        self.values = values


def following(bolt: Any, grouping: str, *fields: str) -> Any:
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(1))
    builder.bolt("pair", st.Pair(3)).shuffle("numbers")
    getattr(builder.bolt("b", bolt), grouping)("pair", *fields)
    topology = builder.build()
    bolt.owner = CurrentOwner(topology, topology.components["b"], Registry())
    bolt.owner.follow(bolt)
    return bolt


@pytest.mark.parametrize(
    ("grouping", "fields", "expected"),
    [
        ("fields", ("key",), stable_hash("k1")),
        ("fields", ("number", "key"), stable_hash_of_fields([1, "k1"])),
        ("global_", (), FIRST),
        ("shuffle", (), BOUND),
        ("all", (), BOUND),
        ("partial_key", ("key",), BOUND),
    ],
)
def test_an_owner_is_the_hash_of_a_fields_grouping(
    grouping: str, fields: tuple[str, ...], expected: int
) -> None:
    bolt = following(Notes(), grouping, *fields)
    assert bolt.owner() == OUTSIDE
    bolt.execute(FakeTuple("k1", 1))
    assert bolt.seen == [expected]
    assert bolt.owner() == OUTSIDE


async def test_tuples_that_are_executed_at_once_have_their_own_owners() -> None:
    bolt = following(NotesAsync(), "fields", "key")
    await asyncio.gather(*(bolt.execute(FakeTuple(f"k{n}", n)) for n in range(3)))
    assert sorted(bolt.seen) == sorted(stable_hash(f"k{n}") for n in range(3))


def test_an_owner_goes_to_the_task_of_its_tuples() -> None:
    assert task_of(FIRST, 5, 128) == 0
    assert task_of(stable_hash("the"), 5, 128) == stable_hash("the") % 128 * 5 // 128
