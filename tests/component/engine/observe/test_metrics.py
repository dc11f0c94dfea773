"""Metrics consumers over two real worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.local_workers import code_of, wait_until

from squall import TopologyBuilder
from squall._workers import LocalWorkers

CODE = """
    import os
    from squall import Bolt, Spout
    from squall.metrics import MetricsConsumer

    class Numbers(Spout):
        outputs = ["n"]

        def open(self, conf, context):
            self.n = 0

        def next_tuple(self):
            if self.n < 50:
                self.n += 1
                self.emit([self.n], message_id=self.n)

    class Sink(Bolt):
        def prepare(self, conf, context):
            self.seen = context.counter("seen")

        def execute(self, tup):
            self.seen.inc()

    class ToFile(MetricsConsumer):
        def prepare(self, conf, argument, context):
            self.file = os.path.join(argument, f"{os.getpid()}-{id(self)}")

        def handle_data_points(self, info, points):
            with open(self.file, "a") as file:
                for point in points:
                    file.write(f"{info.src_worker_port} {info.src_task_id} {point.value}\\n")
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    yield from code_of(tmp_path, monkeypatch, "metered_numbers", CODE)


def topology() -> Any:
    import metered_numbers  # type: ignore[import-not-found]

    builder = TopologyBuilder()
    builder.spout("numbers", metered_numbers.Numbers())
    builder.bolt("sink", metered_numbers.Sink(), parallelism=4).shuffle("numbers")
    return builder.build()


def test_a_consumer_of_one_task_gets_the_data_points_of_all_workers(
    tmp_path: Path, code: Path
) -> None:
    folder = tmp_path / "points"
    folder.mkdir()
    conf = {
        "topology.metrics.consumer.register": [
            {
                "class": "metered_numbers.ToFile",
                "argument": str(folder),
                "parallelism.hint": 1,
                "whitelist": ["seen"],
            }
        ],
        "topology.builtin.metrics.bucket.size.secs": 0.5,
    }
    rows: list[list[int]] = []

    def seen() -> int:
        rows[:] = [
            [int(word) for word in line.split()]
            for file in folder.iterdir()
            for line in file.read_text().splitlines()
        ]
        return sum(value for _, _, value in rows)

    cluster = LocalWorkers(2, code_dir=code)
    try:
        cluster.submit_topology("metered", conf, topology())
        wait_until(cluster, "50 data points", lambda: seen() >= 50)
        assert not cluster.errors("metered")
    finally:
        cluster.shutdown()
    assert seen() == 50
    assert len(list(folder.iterdir())) == 1
    assert len({port for port, _, _ in rows}) == 2
    assert len({task for _, task, _ in rows}) == 4
