"""The other column of the pages for migrating: those programs run, and count the same words."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import maven
from tests.support.pages import DOCS
from tests.support.thirdparty import others_python, streamparse_env, unavailable

CODE = DOCS / "code" / "migrate"
RUN_JAVA = Path(__file__).parent / "java" / "RunWordCount.java"
STORM_VERSION = "2.8.3"
EXPECTED = {"to": 2, "be": 2, "or": 1, "not": 1}

DRIVERS = {
    "bytewax": """
from bytewax.testing import run_main
import bytewax_words as words
run_main(words.flow)
found = dict(words.results)
""",
    "celery": """
import celery_words as words
words.app.conf.task_always_eager = True
for line in ("to be", "or not to be"):
    words.split.delay(line)
found = dict(words.counts)
""",
    # Faust's own way to test agents without a broker.
    "faust": """
import asyncio
from unittest.mock import AsyncMock, patch
import faust_words as words

async def main():
    sent = []
    async def send(*, key, value):
        sent.append(value)
    with patch.object(words.words, "send", send):
        async with words.split.test_context() as split:
            for line in ("to be", "or not to be"):
                await split.put(line)
    async with words.count.test_context() as count:
        for word in sent:
            await count.put(word)

asyncio.run(main())
found = dict(words.counts)
""",
}


@pytest.mark.timeout(450)  # it installs them
@pytest.mark.parametrize("name", DRIVERS)
def test_the_other_program_counts_the_same_words(name: str) -> None:
    driver = f"{DRIVERS[name]}\nimport json\nprint(json.dumps(found))"
    done = subprocess.run(
        [others_python(), "-c", driver],
        cwd=CODE,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED


COLLECT = """
from squall import Bolt

found = {}

class Collect(Bolt):
    def execute(self, tup):
        found[tup["word"]] = tup["count"]
"""
RUN_STREAMPARSE = """
import json, sys
from collect import Collect, found
from squall import LocalCluster, ShellBolt, ShellSpout, TopologyBuilder

def shell(kind, name, *outputs):
    return kind(sys.argv[1], f"streamparse_words.{name}", outputs=list(outputs))

builder = TopologyBuilder()
builder.spout("lines", shell(ShellSpout, "Lines", "line"))
builder.bolt("split", shell(ShellBolt, "Split", "word"), parallelism=2).shuffle("lines")
count = builder.bolt("count", shell(ShellBolt, "Count", "word", "count"), parallelism=2)
count.fields("split", "word")
builder.bolt("collect", Collect()).global_("count")
with LocalCluster() as cluster:
    cluster.submit_topology("words", {}, builder.build())
    cluster.wait_until(lambda: sum(found.values()) >= 6, timeout_secs=50)
print(json.dumps(found))
"""


@pytest.mark.timeout(450)
def test_the_streamparse_program_counts_the_same_words(tmp_path: Path) -> None:
    """Its components are children of streamparse's own program, as they are on Storm."""
    shutil.copy(CODE / "streamparse_words.py", tmp_path)
    (tmp_path / "collect.py").write_text(COLLECT)
    done = subprocess.run(
        [sys.executable, "-c", RUN_STREAMPARSE, streamparse_env() / "bin" / "streamparse_run"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED


@pytest.mark.timeout(400)  # mvn resolves Storm's jars once
def test_storm_runs_the_java_program(tmp_path: Path) -> None:
    """Compiled against Storm's published artifacts, and run by its LocalCluster."""
    if shutil.which("javac") is None:
        unavailable("there is no Java compiler on this machine")
    jars = maven.jars("storm", STORM_VERSION, [f"org.apache.storm:storm-server:{STORM_VERSION}"])
    assert STORM_VERSION in (DOCS / "how-to" / "from-storm-java.md").read_text()
    sources = (CODE / "WordCount.java", RUN_JAVA)
    subprocess.run(["javac", "-d", tmp_path, "-cp", f"{jars}/*", *sources], check=True, timeout=100)
    done = subprocess.run(
        [
            *("java", "-Xmx384m", f"-Djava.io.tmpdir={tmp_path}", "-cp", f"{tmp_path}:{jars}/*"),
            "RunWordCount",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    found = re.findall(r"^counted (\w+) (\d+)$", done.stdout, re.M)
    assert {word: int(count) for word, count in found} == EXPECTED, done.stdout[-3000:]
