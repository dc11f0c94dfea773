"""`storm node-health-check` runs real programs."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import tempfile
import time
from pathlib import Path

import jsonschema
import pytest
from tests.support.json_schemas import schemas

from squall_cli.main import run
from squall_common.daemon.health_checks import Check, is_healthy, run_check, run_checks
from squall_common.errors import SquallError


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


def test_a_program_that_prints_without_end_fills_no_disk(tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(tempfile, "tempdir", f"{folder}/removed")  # as full as a disk can be
        found = run_check(program(tmp_path, "check", "echo ERROR full; exit 0"), 30)
        assert found == Check("check", "failed", "ERROR full")
        found = run_check(program(tmp_path, "check", "exec yes fine"), 0.5)
        assert found == Check("check", "timeout", "it took longer than 0.5 s")


def test_a_program_does_not_wait_for_what_it_leaves_behind(tmp_path: Path) -> None:
    began = time.monotonic()
    leaves = program(tmp_path, "check", "setsid sleep 30 & echo $! >> left; echo 'ERROR disk sda'")
    leaves.write_text(leaves.read_text().replace("left", str(tmp_path / "left")))
    try:
        assert run_check(leaves, 20) == Check("check", "failed", "ERROR disk sda")
        assert time.monotonic() - began < 10
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int((tmp_path / "left").read_text()), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:subprocess .* is still running:ResourceWarning")
def test_a_program_that_cannot_be_killed_does_not_hold_up_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, left = os.killpg, []

    def refused(group: int, number: int) -> None:
        left.append(group)
        raise PermissionError

    monkeypatch.setattr(os, "killpg", refused)
    program(tmp_path, "a", "exec sleep 30")
    program(tmp_path, "b", "true")
    try:
        began = time.monotonic()
        assert [one.result for one in run_checks(tmp_path, 0.2)] == ["timeout", "ok"]
        assert time.monotonic() - began < 20
    finally:
        real(left[0], signal.SIGKILL)


def test_a_program_that_is_removed_meanwhile_fails_no_node(tmp_path: Path) -> None:
    program(tmp_path, "a", f"rm {tmp_path}/b; rm $0; exit 1")
    program(tmp_path, "b", "true")
    assert run_checks(tmp_path, 30) == []


def test_a_folder_that_cannot_be_looked_into_is_an_error_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, "check", "true")

    def refused(path: Path) -> bool:  # a folder without the right to enter it
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refused)
    with pytest.raises(SquallError, match=f"cannot read {tmp_path}: Permission denied"):
        run_checks(tmp_path, 5)


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
