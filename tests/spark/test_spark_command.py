"""`storm spark run` from outside."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.support.wheels import make_wheel

ROOT = Path(__file__).resolve().parents[2]
STORM = [sys.executable, "-m", "squall_cli.main"]

WORD_COUNT = """
from collections import Counter
from squall import Bolt, Spout, TopologyBuilder, submit_topology
import helpers

class Sentences(Spout):
    outputs = ["sentence"]
    def next_tuple(self):
        pass

class Split(Bolt):
    outputs = ["word"]
    def execute(self, tup):
        for word in helpers.words(tup["sentence"]):
            self.emit([word])

class Count(Bolt):
    outputs = ["word", "count"]
    def prepare(self, conf, context):
        self.counts = Counter()
    def execute(self, tup):
        self.counts[tup["word"]] += 1
    def flush(self):
        for pair in self.counts.items():
            self.emit(list(pair))

def main():
    builder = TopologyBuilder()
    builder.spout("sentences", Sentences())
    builder.bolt("split", Split(), parallelism=2).shuffle("sentences")
    builder.bolt("count", Count(), parallelism=2).fields("split", "word")
    submit_topology("wordcount", {}, builder.build())
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "wordcount.py").write_text(WORD_COUNT)
    # Its own module, and one from a wheel.
    (folder / "helpers.py").write_text(
        "import splitting\ndef words(text):\n    return splitting.split(text)\n"
    )
    files = {"splitting.py": "def split(text):\n    return text.split()\n"}
    make_wheel(tmp_path / "wheels", "splitting", files=files)
    (tmp_path / "in.txt").write_text("the cow\nthe moon\n")
    return folder


def storm(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*STORM, "spark", "run", *arguments],
        cwd=folder,
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        timeout=110,
    )


def counts(folder: Path) -> dict[str, int]:
    return {row["word"]: row["count"] for row in pq.read_table(folder).to_pylist()}


def test_word_count_from_the_command_line(package: Path) -> None:
    here = package.parent
    done = storm(
        here, "--master", "local[2]", "--spark-conf", "spark.driver.memory=512m",
        "--input", "sentences=in.txt", "--output", "out", "--wheels", "wheels",
        "package", "wordcount:main",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr + (here / "spark.log").read_text()[-3000:]
    assert counts(here / "out" / "count") == {"the": 2, "cow": 1, "moon": 1}
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert lines[0].startswith("dependencies: 1 wheel, ")
    assert lines[1].startswith("running topology 'wordcount' on Spark at local[2] (its log: ")
    assert [line for line in lines if line.startswith("starting Spark: done in ")]
    assert lines[-5:] == [
        f"wrote 3 tuples of 'count' to {here}/out/count",
        "sentences: took 0 tuples, emitted 2",
        "split: took 2 tuples, emitted 4",
        "count: took 4 tuples, emitted 3",
        "topology 'wordcount' has run",
    ]
    assert not [line for line in lines if "WARN" in line or "Exception" in line]
    assert "WARN" in (here / "spark.log").read_text()


def test_the_plan_is_explained_without_java(package: Path, tmp_path: Path) -> None:
    done = storm(
        package.parent, "--explain", "--input", "sentences=in.txt", "--parallelism", "count=5",
        "--wheels", "wheels", "--output", "out", "package", "wordcount:main",
        PATH=str(tmp_path), JAVA_HOME="",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"sentences    text:{package.parent}/in.txt (1 file, 17 bytes)" in done.stdout
    assert "count (5 tasks)" in done.stdout
    assert "Spark" not in done.stderr
    assert not (package.parent / "out").exists()


def test_without_java_there_is_one_clear_error(package: Path, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    done = storm(
        package.parent, "--input", "sentences=in.txt", "package", "wordcount:main",
        PATH=str(tmp_path / "bin"), JAVA_HOME="",
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "error: Spark needs a Java runtime: none on PATH"
    assert not (package.parent / "spark.log").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "error: spout 'sentences' has no end"),
        (("--input", "nonsense"), "error: --input 'nonsense' is not COMPONENT=PATH"),
        (("--input", "cnt=x.csv"), "error: 2 things are wrong with this topology"),
    ],
)
def test_problems_are_reported_before_spark_starts(
    package: Path, arguments: tuple[str, ...], message: str
) -> None:
    done = storm(package.parent, *arguments, "--wheels", "wheels", "package", "wordcount:main")
    assert done.returncode == 1
    assert any(line.startswith(message) for line in done.stderr.splitlines())
    assert "Traceback" not in done.stderr
    assert not (package.parent / "spark.log").exists()
