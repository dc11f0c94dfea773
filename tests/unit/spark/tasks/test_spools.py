"""Sections that wait for their task."""

from __future__ import annotations

import random

from squall_spark.tasks.spools import Spools


def test_sections_come_back_by_task_in_their_order_from_memory_and_from_files() -> None:
    chooser = random.Random(3)
    for limit in (10, 1_000, 10_000_000):
        wanted: dict[int, list[bytes]] = {}
        with Spools(limit) as spools:
            for _ in range(300):
                task = chooser.randrange(5, 9)
                section = chooser.randbytes(chooser.randrange(0, 30))
                wanted.setdefault(task, []).append(section)
                spools.add(task, section)
            assert spools.tasks() == sorted(wanted)
            assert {task: list(spools.take(task)) for task in spools.tasks()} == wanted


def test_a_task_without_sections_is_there() -> None:
    with Spools() as spools:
        spools.add(4, None)
        spools.add(2, None)
        assert [(task, list(spools.take(task))) for task in spools.tasks()] == [(2, []), (4, [])]
