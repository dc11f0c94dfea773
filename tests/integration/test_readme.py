"""What the README tells a newcomer to type does what it says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import ROOT, STORM, DevCluster, environment, storm, wait_for

pytestmark = pytest.mark.integration

README = (ROOT / "README.md").read_text()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    folder = tmp_path_factory.mktemp("readme")
    with DevCluster.start(folder, supervisors=1, slots=4) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: DevCluster) -> Iterator[DevCluster]:
    yield shared
    shared.kill_all()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.S)


def typed_in(package: str, tmp_path: Path, cluster: DevCluster) -> str:
    """The output of the block of commands that submits a package of the examples. `storm` is this
    tree's, and STORM_CONF_DIR says where the cluster is: its ports are free ones here, the usual
    ones in the README."""
    (commands,) = [block for block in blocks("sh") if f"storm jar examples/{package}" in block]
    typed = [line for line in commands.splitlines() if not line.startswith(". .venv")]
    (tmp_path / "bin").mkdir()
    for name, program in (("storm", STORM), ("python", [sys.executable])):
        script = tmp_path / "bin" / name
        script.write_text(f'#!/bin/sh\nexec {" ".join(program)} "$@"\n')
        script.chmod(0o755)
    env = environment()
    env["PATH"] = f"{tmp_path / 'bin'}:{env['PATH']}"
    env["STORM_CONF_DIR"] = str(cluster.data_dir)
    work = tmp_path / "work"
    work.mkdir()
    (work / "examples").symlink_to(ROOT / "examples")
    result = subprocess.run(
        ["sh", "-ec", "\n".join(typed)],
        cwd=work, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def test_the_commands_of_the_second_terminal(cluster: DevCluster, tmp_path: Path) -> None:
    said = typed_in("wordcount", tmp_path, cluster)
    assert "the counts are exact" in said
    assert "wordcount" in said
    cluster.wait_gone("wordcount")


def test_a_question_over_drpc(cluster: DevCluster, tmp_path: Path) -> None:
    assert typed_in("reach", tmp_path, cluster).split()[-1].isdigit()


def test_the_topology_runs_locally(tmp_path: Path) -> None:
    (program,) = [block for block in blocks("python") if "submit_topology" in block]
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be\n" * 50)
    assert "/usr/share/common-licenses/GPL-3" in program
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "topology.py").write_text(
        program.replace("/usr/share/common-licenses/GPL-3", str(text))
    )
    result = storm("local", "--local-ttl", "3", tmp_path / "package", "topology.py")
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr


def test_no_line_that_fails_is_lost(tmp_path: Path) -> None:
    """The README's own components, with a `Split` that fails each line once."""
    (program,) = [block for block in blocks("python") if "submit_topology" in block]
    text = tmp_path / "text.txt"
    text.write_text("".join(f"line{number} of text\n" for number in range(50)))
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "topology.py").write_text(program)
    (tmp_path / "package" / "failing.py").write_text(_FAILING)
    counts = tmp_path / "counts.json"
    result = storm(
        *("local", "--local-ttl", "4", tmp_path / "package", "failing:main"), text, counts
    )
    assert result.returncode == 0, result.stderr
    expected = {f"line{number}": 1 for number in range(50)} | {"of": 50, "text": 50}
    assert json.loads(counts.read_text()) == expected


_FAILING = """
import json
from squall import TopologyBuilder, submit_topology
from topology import Count, Sentences, Split

class FailsOnce(Split):
    seen = set()
    def execute(self, tup):
        if tup["sentence"] not in self.seen:
            self.seen.add(tup["sentence"])
            raise ValueError("for the first time")
        super().execute(tup)

class Tally(Count):
    def __init__(self, path):
        self.path = path
    def execute(self, tup):
        super().execute(tup)
        if self.counts.total() == 150:
            with open(self.path, "w") as file:
                json.dump(self.counts, file)

def main(argv):
    builder = TopologyBuilder()
    builder.spout("sentences", Sentences(path=argv[0]))
    builder.bolt("split", FailsOnce()).shuffle("sentences")
    builder.bolt("count", Tally(argv[1])).fields("split", "word")
    submit_topology("failing", {}, builder.build())
"""


def counted_in(folder: Path) -> dict[str, int]:
    texts = [made.read_text().rpartition("\n")[0] for made in folder.glob("*")]  # whole lines
    rows = [json.loads(row) for text in texts for row in text.splitlines()]
    return {row["word"]: row["count"] for row in rows}


def test_the_history_example_runs_without_any_preparation(
    cluster: DevCluster, tmp_path: Path
) -> None:
    """Relative paths are the user's, and the folder of results need not exist."""
    line = "storm local     examples/history words --records 'in/*.jsonl' --folder out"
    assert line in (ROOT / "examples" / "history" / "README.md").read_text()
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "1.jsonl").write_text('{"text": "a b a"}\n{"text": "c a"}\n')
    history = ROOT / "examples" / "history"
    words = ("words", "--records", "in/*.jsonl", "--folder", "out")
    result = storm("local", "--local-ttl", "5", history, *words, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    expected = {"a": 3, "b": 1, "c": 1}
    assert counted_in(tmp_path / "out") == expected
    words = ("words", "--records", "in/*.jsonl", "--folder", "out-of-cluster")
    conf = ("--config", cluster.conf_file)
    storm(*conf, "jar", history, *words, cwd=tmp_path, check=True)
    made = tmp_path / "out-of-cluster"
    wait_for("the counts", lambda: counted_in(made) == expected, 60)
    words = ("words", "--records", "typo/*.jsonl", "--folder", "out", "--name", "typo")
    storm(*conf, "jar", history, *words, cwd=tmp_path, check=True)
    errors = ("get-errors", "typo")
    wait_for("the error", lambda: "no file matches" in cluster.storm(*errors).stdout, 60)
