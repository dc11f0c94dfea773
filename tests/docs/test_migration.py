"""The other column of the pages for migrating: those programs run, and count the same words."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from tests.support.pages import DOCS
from tests.support.thirdparty import others_python, streamparse_env

CODE = DOCS / "code" / "migrate"
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


@pytest.mark.timeout(280)  # it installs them
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


@pytest.mark.timeout(280)
def test_streamparse_runs_its_bolt(tmp_path: Path) -> None:
    """As Storm would: a child process, spoken to in the multilang protocol."""
    handshake = {
        "conf": {},
        "pidDir": str(tmp_path),
        "context": {"taskid": 1, "task->component": {}},
    }
    line = {"id": "1", "comp": "lines", "stream": "default", "task": 2, "tuple": ["to be"]}
    # Each emit of the bolt asks for the tasks that got it; then an end of the input.
    messages = [handshake, line, [3], [3]]
    done = subprocess.run(
        [streamparse_env() / "bin" / "streamparse_run", "streamparse_words.Split"],
        cwd=CODE,
        input="".join(f"{json.dumps(message)}\nend\n" for message in messages),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    said = [json.loads(part) for part in done.stdout.split("\nend\n") if part.strip()]
    emitted = [one["tuple"] for one in said if one.get("command") == "emit"]
    assert emitted == [["to"], ["be"]], done.stderr
    assert {"command": "ack", "id": "1"} in said
