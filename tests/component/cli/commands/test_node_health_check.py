"""`storm node-health-check` runs real programs."""

from __future__ import annotations

import json
import time
from pathlib import Path

import jsonschema
import pytest
from tests.support.json_schemas import schemas

from squall_cli.main import run
from squall_common.daemon.health_checks import Check, is_healthy, run_check


def program(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    folder.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("echo fine", ("ok", "")),
        ("echo well; echo 'ERROR disk sda'", ("failed", "ERROR disk sda")),
        ("echo '  ERROR is indented'", ("ok", "")),
        ("exit 3", ("failed", "it ended with status 3")),
        ("kill -9 $$", ("failed", "it ended with status -9")),
        ("yes fine | head -c 3000000", ("ok", "")),
    ],
)
def test_the_result_of_a_program(tmp_path: Path, text: str, expected: tuple[str, str]) -> None:
    found = run_check(program(tmp_path, "check", text), 30)
    assert (found.result, found.detail) == expected


def test_a_program_without_an_interpreter_fails(tmp_path: Path) -> None:
    path = program(tmp_path, "check", "")
    path.write_text("#!/no/such/shell\n")
    assert run_check(path, 5).result == "failed"


def test_a_program_that_hangs_is_killed_with_its_children(tmp_path: Path) -> None:
    began = time.monotonic()
    found = run_check(program(tmp_path, "check", "sleep 60 & sleep 60"), 0.2)
    assert found == Check("check", "timeout", "it took longer than 0.2 s")
    assert time.monotonic() - began < 30


def test_a_timeout_counts_only_if_wanted() -> None:
    checks = [Check("a", "ok"), Check("b", "timeout")]
    assert not is_healthy(checks, fail_on_timeouts=True)
    assert is_healthy(checks, fail_on_timeouts=False)
    assert not is_healthy([Check("a", "failed")], fail_on_timeouts=False)


def test_the_command_fails_on_an_unhealthy_node(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["-c", f"storm.local.dir={tmp_path}", "node-health-check", "--json"]
    assert run(options) == 0
    assert json.loads(capsys.readouterr().out) == {"healthy": True, "checks": []}
    folder = tmp_path / "healthchecks"
    program(folder, "disk", "echo ERROR full")
    program(folder, "network", "true")
    (folder / "README").write_text("not a program")
    assert run(options) == 1
    found = json.loads(capsys.readouterr().out)
    jsonschema.validate(found, schemas()["storm node-health-check"])
    assert [(one["program"], one["result"]) for one in found["checks"]] == [
        ("disk", "failed"), ("network", "ok")
    ]  # fmt: skip
