"""Wrong usage is status 2; an expected failure is status 1 with one message and a hint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from squall_cli.main import run
from squall_cli.output import duration, printable


def test_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["lst"]) == 2
    assert "No such command 'lst'. Did you mean 'list'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["help"], ["--help"]),
        (["help", "jar"], ["jar", "--help"]),
        (["help", "blobstore", "cat"], ["blobstore", "cat", "--help"]),
    ],
)
def test_help_is_also_a_command(
    typed: list[str], meant: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(meant) == 0
    expected = capsys.readouterr().out
    assert run(typed) == 0
    assert capsys.readouterr().out == expected


def test_help_for_an_unknown_command_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["help", "lst"]) == 2
    assert "Did you mean 'list'?" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["kill"],
        ["kill", "name", "-w", "soon"],
        ["kill", "name", "-w", "-1"],
        ["rebalance", "name", "-n", "0"],
        ["rebalance", "name", "-e", "split"],
        ["rebalance", "name", "-e", "split=0"],
        ["rebalance", "name", "-t", "[1]"],
        ["rebalance", "name", "-t", "{"],
        ["rebalance", "name", "-r", '{"split": 3}'],
        ["jar", "package"],
        ["list", "-c", "no-equals-sign"],
        ["list", "--unknown"],
        ["dev", "--supervisors", "0"],
    ],
)
def test_wrong_usage_is_status_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Usage: storm" in captured.err


@pytest.mark.parametrize("option", ["--wait", "-c", "--json"])
@pytest.mark.parametrize("command", ["jar", "local", "graph"])
def test_an_option_behind_the_package_is_refused_with_its_place(
    command: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([command, "package", option, "module"]) == 2
    error = capsys.readouterr().err
    assert f"{option} stands after PACKAGE, where ENTRY is expected" in error
    assert f"Options of 'storm {command}' come before PACKAGE" in error


@pytest.mark.parametrize(
    ("given", "secs"),
    [(["--wait"], 120), (["--wait", "60"], 60), (["--wait=7"], 7), (["-c", "a=b", "--wait"], 120)],
)
def test_jar_waits_with_or_without_a_number(
    given: list[str], secs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[tuple[object, ...]] = []

    def run_entry(package: object, entry: object, arguments: object, **keys: object) -> int:
        called.append((str(package), entry, arguments, keys["wait_secs"]))
        return 0

    monkeypatch.setattr("squall_cli.programs.entry.run_entry", run_entry)
    assert run(["jar", *given, "folder", "module", "--wait", "5"]) == 0
    assert called == [("folder", "module", ("--wait", "5"), secs)]


def test_a_package_may_be_called_by_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    called: list[object] = []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "60").mkdir()
    monkeypatch.setattr(
        "squall_cli.programs.entry.run_entry", lambda package, *_, **__: called.append(package)
    )
    run(["jar", "--wait", "60", "module"])
    assert called == [Path("60")]


def test_a_value_of_the_wrong_type_is_one_message(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["list", "-c", "nimbus.thrift.port=abc"]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ")
    assert "nimbus.thrift.port is 'abc'" in captured.err


def test_a_missing_site_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--config", "/nowhere/storm.yaml", "list"]) == 1
    assert "/nowhere/storm.yaml" in capsys.readouterr().err


def test_a_missing_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["jar", "/nowhere/package.zip", "module"]) == 1
    assert "error: there is no package /nowhere/package.zip" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        (["-c", "nimbus.thrift.port=1", "localconfvalue", "nimbus.thrift.port"], 1),
        (["localconfvalue", "nimbus.thrift.port", "-c", "nimbus.thrift.port=2"], 2),
        (
            [
                "-c",
                "nimbus.thrift.port=1",
                "localconfvalue",
                "-c",
                "nimbus.thrift.port=2",
                "nimbus.thrift.port",
            ],
            2,
        ),
    ],
)
def test_overrides_stand_before_or_after_the_command(
    arguments: list[str], value: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run([*arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == value


def test_precedence_of_the_site_file_and_overrides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "storm.yaml").write_text("nimbus.thrift.port: 11\nnimbus.seeds: [a]\n")
    monkeypatch.setenv("STORM_CONF_DIR", str(tmp_path))
    other = tmp_path / "other.yaml"
    other.write_text("nimbus.thrift.port: 12\n")

    def value(*arguments: str) -> str:
        assert run([*arguments, "localconfvalue", "nimbus.thrift.port"]) == 0
        return capsys.readouterr().out

    assert value() == "nimbus.thrift.port: 11\n"
    assert value("--config", str(other)) == "nimbus.thrift.port: 12\n"
    assert value("--config", str(other), "-c", "nimbus.thrift.port=13") == (
        "nimbus.thrift.port: 13\n"
    )


def test_an_unknown_key_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["localconfvalue", "nimbus.seed"]) == 1
    assert capsys.readouterr().err == (
        "error: the configuration has no key 'nimbus.seed'\n"
        "hint: Did you mean nimbus.seeds or nimbus.users?\n"
    )


@pytest.mark.parametrize(
    ("secs", "text"),
    [
        (0, "0s"),
        (59, "59s"),
        (60, "1m"),
        (95, "1m 35s"),
        (3_600, "1h"),
        (90_061, "1d 1h"),
        (86_400 + 59, "1d"),
    ],
)
def test_durations(secs: int, text: str) -> None:
    assert duration(secs) == text


def test_text_from_a_topology_does_not_move_the_cursor() -> None:
    assert printable("a\x1b[2Jb\r\nc\td") == "a\\x1b[2Jb\\r\nc\td"
