from __future__ import annotations

import pytest

from squall_common.component.groupings import stable_hash, stable_hash_of_fields
from squall_common.state.key_groups import (
    by_group,
    groups_of_task,
    key_group,
    max_parallelism,
    task_of_group,
)


@pytest.mark.parametrize(("groups", "tasks"), [(128, 1), (128, 3), (128, 128), (200, 7), (5, 5)])
def test_the_ranges_of_all_tasks_are_the_groups_and_agree_with_the_task_of_each(
    groups: int, tasks: int
) -> None:
    found = [groups_of_task(index, tasks, groups) for index in range(tasks)]
    assert [group for part in found for group in part] == list(range(groups))
    for index, part in enumerate(found):
        assert part, "each task has a group"
        assert {task_of_group(group, tasks, groups) for group in part} == {index}


def test_a_task_beyond_the_groups_is_refused() -> None:
    with pytest.raises(ValueError, match="task 3 of 3"):
        groups_of_task(3, 3, 128)
    with pytest.raises(ValueError, match="129"):
        groups_of_task(0, 129, 128)


def test_the_group_of_a_key_is_that_of_a_fields_grouping() -> None:
    assert key_group("the", 128) == stable_hash("the") % 128
    assert key_group(("the", 3), 128) == stable_hash_of_fields(["the", 3]) % 128
    assert key_group(1, 128) == key_group(1.0, 128) == key_group(True, 128)


def test_groups_do_not_depend_on_the_process() -> None:
    # Part of what is stored: these never change.
    assert [key_group(key, 128) for key in ("a", "b", 7, None, ("a", 7))] == [4, 62, 1, 26, 71]


@pytest.mark.parametrize(
    ("tasks", "groups"), [(1, 128), (85, 128), (86, 256), (200, 512), (30_000, 32_768)]
)
def test_there_are_groups_for_half_again_as_many_tasks(tasks: int, groups: int) -> None:
    assert max_parallelism(tasks) == groups


def test_edges_are_laid_out_by_group() -> None:
    assert by_group(["a", "b", "c"], 7) == ["a", "a", "a", "b", "b", "c", "c"]
    assert by_group(["a"], 3) == ["a", "a", "a"]
