"""A driver killed in mid-stream: the restarted query gives what an undisturbed one gives."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pyarrow.parquet as pq
import pytest
from tests.leftovers import processes_of

ROOT = Path(__file__).resolve().parents[2]
FILES, LINES = 5, 40


def wait_until(condition: Callable[[], bool], timeout_secs: float = 90.0) -> None:
    deadline = time.monotonic() + timeout_secs
    while not condition():
        assert time.monotonic() < deadline, "not so in time"
        time.sleep(0.02)


def start(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    command = [
        *(sys.executable, "-m", "squall_cli.main", "spark", "run", "--streaming"),
        *("--checkpoint", "cp", "--master", "local[2]", "--trigger-secs", "0"),
        *("--spark-conf", "spark.driver.memory=512m"),
        *("--spark-conf", "spark.driver.extraJavaOptions=-XX:TieredStopAtLevel=1"),
        *("--spark-conf", f"spark.local.dir={folder}/local"),
        *("--input", "records=json:in", "--output", "count=out", *options),
        *("--current", "count=now", "--key", "count=word"),
        *(str(ROOT / "examples" / "history"), "words"),
    ]
    with (folder / "messages").open("ab") as messages:
        return subprocess.Popen(command, cwd=folder, stderr=messages, stdout=messages)


def kill(process: subprocess.Popen[bytes]) -> None:
    """kill -9 of the driver alone. `storm` ends with it; the JVM and its workers have to."""
    for child in psutil.Process(process.pid).children():
        child.kill()
    process.wait(timeout=30)


def end_all(process: subprocess.Popen[bytes], folder: Path) -> None:
    """End what a failed test left."""
    if process.poll() is None:
        process.kill()
        process.wait(timeout=30)
    for pid in processes_of(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 9)


# Two Sparks start, one after the other.
@pytest.mark.timeout(500)
def test_killing_the_driver_mid_stream_loses_and_repeats_nothing(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    words = [f"w{n % 7}" for n in range(FILES * LINES)]

    def arrive(number: int) -> None:
        lines = words[number * LINES : (number + 1) * LINES]
        text = "".join(json.dumps({"text": f"{word} x"}) + "\n" for word in lines)
        (tmp_path / f".{number}").write_text(text)
        (tmp_path / f".{number}").rename(tmp_path / "in" / f"{number}.json")

    def messages() -> str:
        return (tmp_path / "messages").read_text()

    arrive(0)
    first = start(tmp_path)
    try:
        for number in range(1, 3):
            batch = tmp_path / "out" / f"batch={number - 1}"
            wait_until(lambda b=batch: b.exists() or first.poll() is not None)  # type: ignore[misc]
            assert first.poll() is None, messages()
            arrive(number)
        # Its output has begun; whether it has been committed, nobody knows.
        wait_until((tmp_path / "out" / "batch=1").exists)
        second = start(tmp_path)  # at once, without a JVM
        assert second.wait(timeout=110) == 1
        assert "--checkpoint" in messages()
        assert re.search(r"cp is in use by process \d+ on ", messages())
        kill(first)
        wait_until(lambda: not processes_of(tmp_path), timeout_secs=60)
    finally:
        end_all(first, tmp_path)
    assert first.returncode != 0
    for number in range(3, FILES):
        arrive(number)
    again = start(tmp_path, "--available-now")
    try:
        assert again.wait(timeout=150) == 0, messages()
    finally:
        end_all(again, tmp_path)
    rows = [
        tuple(row.values())
        for part in (tmp_path / "out").glob("batch=*")
        for row in pq.read_table(part, partitioning=None).to_pylist()
    ]
    counts = Counter([*words, *["x"] * len(words)])
    assert Counter(rows) == Counter(
        (word, n) for word, most in counts.items() for n in range(1, most + 1)
    )
    now = pq.read_table(tmp_path / "now" / "current").to_pylist()
    assert {row["word"]: row["count"] for row in now} == counts
    assert len(now) == len(counts)
