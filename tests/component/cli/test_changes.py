"""`storm set_log_level`, `upload-credentials`, `shell` and `admin`, and commands left out."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_nimbus import FakeNimbus

from squall_cli.main import run
from squall_thrift import storm


def level(text: str, until_ms: int | None = None) -> storm.LogLevel:
    return storm.LogLevel(
        action=storm.LogLevelAction.UNCHANGED,
        target_log_level=text,
        reset_log_level_timeout_epoch=until_ms,
    )


def test_set_log_level_sends_changes_and_shows_what_is_set(
    nimbus: FakeNimbus, command: Any
) -> None:
    nimbus.answers["setLogConfig"] = None
    nimbus.answers["getLogConfig"] = storm.LogConfig(
        named_logger_level={"a.b": level("DEBUG", 17_000), "ROOT": level("WARN")}
    )
    changes = ("-l", "a.b=debug:30", "-l", "ROOT=WARN", "-r", "old")
    status, out, err = command("set_log_level", "wordcount", *changes, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["log_levels"] == [
        {"logger": "ROOT", "level": "WARN", "until_secs": None},
        {"logger": "a.b", "level": "DEBUG", "until_secs": 17},
    ]
    ((name, config),) = nimbus.called("setLogConfig")
    assert name == "wordcount"
    sent = config.named_logger_level
    assert sent["old"].action == storm.LogLevelAction.REMOVE
    assert sent["a.b"].target_log_level == "DEBUG"
    assert sent["a.b"].reset_log_level_timeout_secs == 30
    assert sent["ROOT"].reset_log_level_timeout_secs is None


def test_set_log_level_without_changes_only_reads(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getLogConfig"] = storm.LogConfig()
    assert command("set_log_level", "w") == (0, "", "w has no log levels of its own.\n")
    assert not nimbus.called("setLogConfig")


@pytest.mark.parametrize(
    "value", ["a", "=INFO", "a=LOUD", "a=INFO:x", "a=INFO:-1", f"a=INFO:{2**31}"]
)
def test_set_log_level_refuses_what_it_cannot_read(command: Any, value: str) -> None:
    assert command("set_log_level", "w", "-l", value)[0] == 2


def test_upload_credentials_joins_a_file_and_the_command_line(
    nimbus: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    nimbus.answers["uploadNewCredentials"] = None
    file = tmp_path / "creds.properties"
    file.write_text("# secret\nuser = ann\npassword: a\\u00e9\\\n  b\nempty\n")
    options = ("-f", str(file), "-u", "ann", "user", "bob", "--json")
    status, out, _ = command("upload-credentials", "wordcount", *options)
    assert status == 0
    assert json.loads(out)["keys"] == ["empty", "password", "user"]
    ((_, sent),) = nimbus.called("uploadNewCredentials")
    assert sent.creds == {"user": "bob", "password": "aéb", "empty": ""}
    assert sent.topoOwner == "ann"


def test_a_file_of_json_replaces_no_credentials(
    nimbus: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    file = tmp_path / "creds.json"
    file.write_text('{"password": "hunter2"}')
    status, out, err = command("upload-credentials", "wordcount", "-f", str(file))
    assert (status, out) == (1, "")
    assert err.startswith(f"error: {file} holds JSON, not lines of key=value\n")
    assert not nimbus.called("uploadNewCredentials")


def test_no_credentials_change_nothing(nimbus: FakeNimbus, command: Any) -> None:
    assert command("upload-credentials", "w")[0] == 0
    assert command("upload-credentials", "w", "-e")[0] == 1
    assert command("upload-credentials", "w", "key")[0] == 2
    assert command("upload-credentials", "w", "-f", "/no/such")[0] == 1
    assert not nimbus.called("uploadNewCredentials")


def test_shell_uploads_the_folder_and_runs_the_program(
    nimbus: FakeNimbus, command: Any, tmp_path: Path
) -> None:
    (tmp_path / "bolt.py").write_text("pass")
    result = tmp_path.with_suffix(".json")
    program = f"import json, sys; json.dump(sys.argv[1:], open({str(result)!r}, 'w')); sys.exit(7)"
    status, _, _ = command("shell", str(tmp_path), sys.executable, "-c", program, "-x")
    assert status == 7
    (handle,) = nimbus.finished
    assert json.loads(result.read_text()) == ["-x", nimbus.host, str(nimbus.port), handle]


def test_shell_names_a_program_that_cannot_run(command: Any, tmp_path: Path) -> None:
    (tmp_path / "bolt.py").write_text("pass")
    status, _, err = command("shell", str(tmp_path), "/no/such/program")
    assert status == 1
    assert "cannot run /no/such/program" in err


def test_topologies_without_code_are_killed(nimbus: FakeNimbus, command: Any) -> None:
    def of(name: str, status: str = "ACTIVE") -> storm.TopologySummary:
        return storm.TopologySummary(
            id=f"{name}-1-17", name=name, num_tasks=1, num_executors=1, num_workers=1,
            uptime_secs=1, status=status,
        )  # fmt: skip

    nimbus.answers |= {
        "getTopologySummaries": [of("well"), of("lost"), of("gone", "KILLED")],
        "isRemoteBlobExists": lambda key: key != "lost-1-17-stormconf.ser",
        "killTopologyWithOpts": None,
    }
    found = json.loads(command("admin", "remove_corrupt_topologies", "--dry-run", "--json")[1])
    assert found == {"corrupt": ["lost-1-17"], "removed": False}
    assert not nimbus.called("killTopologyWithOpts")
    assert command("admin", "remove_corrupt_topologies")[0] == 0
    assert [name for name, _ in nimbus.called("killTopologyWithOpts")] == ["lost"]


@pytest.mark.parametrize("name", ["sql", "classpath", "server_classpath", "pacemaker", "repl"])
def test_a_command_that_is_left_out_says_why(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name]) == 2
    assert re.search("Squall has no |not supported", capsys.readouterr().err)


def test_a_zookeeper_that_does_not_answer_is_named(command: Any) -> None:
    conf = ("-c", "storm.zookeeper.port=1", "-c", "storm.zookeeper.connection.timeout=300")
    status, _, err = command("heartbeats", "list", "/workerbeats", *conf)
    assert status == 1
    assert "ZooKeeper at localhost:1 does not answer" in err


@pytest.mark.parametrize("path", ["workerbeats", "/workerbeats/", "/a//b"])
def test_a_path_that_is_not_one_is_refused(command: Any, path: str) -> None:
    assert command("heartbeats", "get", path)[0] == 2
