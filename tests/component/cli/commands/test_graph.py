"""`storm graph`: draws what an entry point would submit, and runs nothing of it."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest
from tests.support.devcluster import storm

TOPOLOGY = """\
from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    outputs = {"default": ["n"], "bad": ["n", "why"]}

    def open(self, conf, context):
        raise AssertionError("it runs")

    def next_tuple(self):
        pass


class Add(Bolt):
    outputs = ["sum"]

    def execute(self, tup):
        pass


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("add", Add(), 2, tasks=8).fields("numbers", "n").shuffle("numbers", stream="bad")
    submit_topology("sums", {}, builder.build())
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    (folder / "sums.py").write_text(TOPOLOGY)
    return folder


def test_mermaid_is_printed(package: Path) -> None:
    done = storm("graph", package, "sums", check=True)
    assert done.stdout.splitlines()[0] == "flowchart LR"
    assert '"add<br>Add<br>×2, 8 tasks"' in done.stdout
    assert '-- "bad · shuffle" -->' in done.stdout
    assert done.stderr == ""


def test_svg_is_printed(package: Path) -> None:
    done = storm("graph", "--format", "svg", package, "sums", check=True)
    root = ElementTree.fromstring(done.stdout)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert "numbers" in done.stdout


def test_json_has_everything(package: Path) -> None:
    answer = json.loads(storm("graph", "--json", package, "sums", check=True).stdout)
    assert answer["topology"] == "sums"
    numbers, add = answer["components"]
    assert numbers["streams"] == {"default": ["n"], "bad": ["n", "why"]}
    assert (add["kind"], add["runs"], add["executors"], add["tasks"]) == ("bolt", "Add", 2, 8)
    assert (numbers["plan"], add["plan"]) == ([], [])
    assert {
        "from": "numbers",
        "stream": "default",
        "to": "add",
        "grouping": "fields",
        "fields": ["n"],
    } in answer["edges"]


STREAMS = """\
from sums import Numbers
from squall import StreamBuilder, submit_topology
from squall.windows import tumbling


def double(n):
    return n * 2


if __name__ == "__main__":
    builder = StreamBuilder()
    numbers = builder.source("numbers", Numbers())
    numbers.map(double).key_by().window(tumbling(secs=60)).count().named("count")
    submit_topology("streams", {}, builder.build())
"""


def test_components_of_streams_show_their_steps(package: Path) -> None:
    (package / "streams.py").write_text(STREAMS)
    answer = json.loads(storm("graph", "--json", package, "streams", check=True).stdout)
    plans = {one["id"]: one["plan"] for one in answer["components"]}
    assert plans["map-double"] == [
        {"step": "map(double)", "functions": ["streams:double"], "windows": None},
        {"step": "key_by()", "functions": [], "windows": None},
    ]
    assert plans["count"] == [
        {"step": "count()", "functions": [], "windows": "tumbling 60 s of processing time"}
    ]
    drawn = storm("graph", package, "streams", check=True).stdout
    assert '"numbers<br>Numbers<br>×1"' in drawn
    assert '"map-double<br>map, key_by<br>×1"' in drawn
    assert "count over tumbling 60 s of#8230;" in drawn


def test_a_topology_that_cannot_run_is_explained(package: Path) -> None:
    file = package / "sums.py"
    file.write_text(TOPOLOGY.replace('.fields("numbers"', '.fields("numbrs"'))
    done = storm("graph", package, "sums")
    assert done.returncode == 1
    assert "numbrs" in done.stderr
    assert done.stdout == ""
