"""A shell bolt as a subject of the benchmark."""

import json
import subprocess

import pytest
from bench import shell
from bench.runs import RunError


def test_a_users_own_splitter_is_measured_by_its_path(monkeypatch, tmp_path):
    monkeypatch.setattr(shell, "_named", [])
    with pytest.raises(RunError, match="there is no file"):
        shell.use_script(tmp_path / "nothing.py")
    script = tmp_path / "splitsentence.py"
    script.write_text("")
    shell.use_script(script)
    commands = []

    def run(command, **_):
        commands.append(command)
        rates = {"squall": 30_000, "bare": 20_000}
        row = {"words_per_sec": rates, "of_bare": 1.5, "of_storm_2_8_8": 2.0}
        return subprocess.CompletedProcess(command, 0, json.dumps({"results": [row]}), "")

    monkeypatch.setattr(shell.subprocess, "run", run)
    report = shell.take(1, {"splitsentence.py"})
    assert str(script) in commands[0]
    (table,) = shell.tables(report)
    assert table.rows[0][:2] == ["`splitsentence.py`, as given", "30,000"]
