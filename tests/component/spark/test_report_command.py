"""`storm report` as a user runs it: no Java, and within seconds."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.support.history_rows import ID, NOW, put, rows

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.timeout(300)
def test_a_report_needs_no_java_and_little_time(tmp_path: Path) -> None:
    history, html, data = tmp_path / "history", tmp_path / "r.html", tmp_path / "r.json"
    age_ms = int((NOW - time.time()) * 1000)
    put(str(history), [row._replace(at_ms=row.at_ms - age_ms) for row in rows()], at=time.time())
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [
            *(sys.executable, "-m", "squall_cli.main", "report", ID, "--history", str(history)),
            *("--html", str(html), "--json", str(data)),
        ],
        cwd=tmp_path,
        env={**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stderr
    assert "src emitted 60k tuples, 100 a second" in done.stdout
    report = json.loads(data.read_text())
    assert report["components"]["work"]["executed"] == 60_000
    assert report["verdict"][0] in " ".join(done.stdout.split())
    assert "<svg" in html.read_text()
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    assert used < 3.0, used
    assert {path.name for path in tmp_path.iterdir()} == {"history", "r.html", "r.json"}
