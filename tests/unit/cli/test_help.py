"""The whole help of each command, as people see it.

After a change that is meant: SQUALL_UPDATE_SNAPSHOTS=1 pytest tests/unit/cli/test_help.py
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall_cli.main import SECTIONS, run, storm

SNAPSHOTS = Path(__file__).parent / "help"
COMMANDS = [name for names in SECTIONS.values() for name in names]
# Commands of commands; their snapshots have "_" for " ".
NESTED = ["spark report", "spark run", "admin zk_cli", "admin remove_corrupt_topologies"]


def check_snapshot(name: str, text: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("SQUALL_UPDATE_SNAPSHOTS"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.fixture(autouse=True)
def _eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_help_of_storm(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    text = capsys.readouterr().out
    assert "..." not in text.partition("Options:")[2], "a summary was cut"
    check_snapshot("storm", text)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    check_snapshot(name, capsys.readouterr().out)


@pytest.mark.parametrize("name", NESTED)
def test_help_of_each_nested_command(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*name.split(), "--help"]) == 0
    check_snapshot(name.replace(" ", "_"), capsys.readouterr().out)


def test_every_command_of_the_issue_is_there() -> None:
    wanted = (
        "jar local list kill activate deactivate rebalance nimbus supervisor dev-zookeeper dev "
        "version localconfvalue remoteconfvalue get-errors kill_workers"
    )
    assert set(wanted.split()) <= set(COMMANDS)


def test_every_module_of_commands_is_reachable() -> None:
    import squall_cli.commands

    modules = {path.stem for path in Path(squall_cli.commands.__path__[0]).glob("[!_]*.py")}
    assert modules == {name.replace("-", "_") for name in COMMANDS}


def test_no_snapshot_is_left_of_a_command_that_is_gone() -> None:
    assert {path.stem for path in SNAPSHOTS.iterdir()} == {
        "storm",
        *COMMANDS,
        *(name.replace(" ", "_") for name in NESTED),
    }


def test_the_command_is_called_storm() -> None:
    assert storm.name == "storm"
