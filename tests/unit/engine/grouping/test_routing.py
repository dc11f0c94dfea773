"""A fields grouping into a bolt with key groups, with both cores."""

from __future__ import annotations

import random

import pytest

from squall_common.component.groupings import stable_hash, stable_hash_of_fields
from squall_common.state.key_groups import task_of_group
from squall_common.topology.model import Grouping, GroupingKind
from squall_common.topology.serialization import Registry
from squall_engine.core import compiled, pure
from squall_engine.grouping import routing

KEYS = ["the", "cow", 1, 1.0, True, None, b"x", ("a", 1), "é", "\udc80", 2**70]


@pytest.fixture(params=[pure, compiled], ids=["pure", "compiled"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch):
    for name in ("ByFields", "Edge", "Fixed", "RoundRobin", "Source"):
        monkeypatch.setattr(routing, name, getattr(request.param, name), raising=False)
    return request.param


def grouper(core, fields, tasks, key_groups):
    source = core.Source("words", 1, "default", ("word", "n"))
    targets = routing.Targets(
        [core.Edge(10 + index, source, local=True) for index in range(tasks)], ()
    )
    return routing.make_grouper(
        Grouping(GroupingKind.FIELDS, fields=fields),
        source,
        "count",
        targets,
        rng=random.Random(1),
        registry=Registry(),
        make_custom=lambda grouping, tasks: None,
        key_groups=key_groups,
    )


@pytest.mark.parametrize("tasks", [1, 2, 3, 7, 128])
@pytest.mark.parametrize("key_groups", [128, 256, 1000])
def test_a_key_goes_to_the_task_that_has_its_group(core, tasks, key_groups):
    by_word = grouper(core, ("word",), tasks, key_groups)
    by_both = grouper(core, ("word", "n"), tasks, key_groups)
    for key in KEYS:
        group = stable_hash(key) % key_groups
        expected = 10 + task_of_group(group, tasks, key_groups)
        assert [edge.task for edge in by_word.choose([key, 0])] == [expected]
        group = stable_hash_of_fields((key, 5)) % key_groups
        expected = 10 + task_of_group(group, tasks, key_groups)
        assert [edge.task for edge in by_both.choose([key, 5])] == [expected]


def test_without_key_groups_the_hash_chooses_the_task(core):
    by_word = grouper(core, ("word",), 3, None)
    for key in KEYS:
        assert [edge.task for edge in by_word.choose([key, 0])] == [10 + stable_hash(key) % 3]


def test_fewer_groups_than_tasks_are_refused(core):
    with pytest.raises(ValueError, match="2 key groups are too few for 3 tasks"):
        grouper(core, ("word",), 3, 2)
