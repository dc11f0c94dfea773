"""One Spark session for all tests of a process: starting one takes ten seconds."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
CONF = [
    ("spark.driver.memory", "768m"),
    ("spark.sql.shuffle.partitions", "2"),
]
# Every Java here, also of commands, lives for seconds only: the optimizing compiler and more
# threads to collect garbage cost it a quarter of its time.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
# Each of two processes takes one file after the other: those that take longest are first, so that
# both end at about the same time.
LONGEST = (
    "test_spark_kafka.py",
    "test_report.py",
    "test_one_answer.py",
    "test_spark_kill.py",
    "test_spark_standalone.py",
    "test_current.py",
    "test_python.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    def place(item: pytest.Item) -> int:
        name = item.path.name
        mine = item.path.parent == Path(__file__).parent
        return LONGEST.index(name) if mine and name in LONGEST else len(LONGEST)

    items.sort(key=place)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session on local[2]; Spark's log is in its temporary folder."""
    from squall_spark.session import spark_session

    folder = tmp_path_factory.mktemp("spark")
    # Spark's workers import tests.support.
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    conf = [
        *CONF,
        ("spark.local.dir", str(folder / "local")),
        ("spark.sql.warehouse.dir", str(folder / "warehouse")),
    ]
    with spark_session("tests", master="local[2]", conf=conf, log_file=folder / "log") as session:
        yield session
