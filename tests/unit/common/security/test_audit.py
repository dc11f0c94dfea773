"""The audit log: what has a line, and what is in it."""

from __future__ import annotations

import json
import logging.handlers
from pathlib import Path

import pytest

from squall_common.security.acl import Node, OwnToken, Topology, TopologyAcl
from squall_common.security.audit import AuditFile, AuditLog
from squall_common.security.authorize import Allowed, Denied
from squall_common.security.identity import Channel, Principal, Role

ALICE = Principal(Role.USER, "alice", Channel.CERTIFICATE)
THING = Topology("count-1-1700000000", "count", TopologyAcl("alice"))


def test_changes_and_refusals_have_a_line_and_reads_have_none() -> None:
    lines: list[str] = []
    log = AuditLog(lines.append, lambda: 1_700_000_000.5)
    log.decided(Allowed("the owner"), "killTopology", THING, ALICE, "10.0.0.7:5")
    log.decided(Allowed("the owner"), "getTopologyInfo", THING, ALICE, "10.0.0.7:5")
    for _ in range(3):
        log.decided(Denied("no\nreason"), "getTopologyInfo", THING, None, "10.0.0.8:6")
    log.stranger("10.0.0.9:7", "TLS: x")
    assert [json.loads(line) for line in lines] == [
        {
            "time": "2023-11-14T22:13:20.500Z",
            "decision": "allowed",
            "action": "killTopology",
            "principal": "user:alice",
            "host": "10.0.0.7:5",
            "object": "count-1-1700000000",
            "reason": "the owner",
        },
        {
            "time": "2023-11-14T22:13:20.500Z",
            "decision": "refused",
            "action": "getTopologyInfo",
            "principal": None,
            "host": "10.0.0.8:6",
            "object": "count-1-1700000000",
            "reason": "no\nreason",
        },
        {
            "time": "2023-11-14T22:13:20.500Z",
            "decision": "refused",
            "action": "authenticate",
            "principal": None,
            "host": "10.0.0.9:7",
            "reason": "TLS: x",
        },
    ]
    assert all("\n" not in line for line in lines)


def test_only_its_owner_reads_the_file(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "audit.log"
    for number in range(2):
        file = AuditFile(path)
        file(f'{{"a": {number}, "percent": "%s"}}')
        file.close()
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == '{"a": 0, "percent": "%s"}\n{"a": 1, "percent": "%s"}\n'


def test_names_that_a_caller_makes_up_do_not_push_older_lines_out() -> None:
    lines: list[str] = []
    log = AuditLog(lines.append, lambda: 1_700_000_000.5)
    for number in range(50):
        for thing in (Node(f"{number}" + "x" * 60_000), OwnToken(f"{number}" + "y" * 60_000)):
            log.decided(Denied("no"), f"of {type(thing).__name__}", thing, ALICE, "10.0.0.7:5")
    assert len(lines) == 2
    assert all(len(line) < 1_000 for line in lines)


def test_the_daemon_s_log_says_that_a_line_could_not_be_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    file = AuditFile(tmp_path / "audit.log")
    monkeypatch.setattr(logging.handlers.RotatingFileHandler, "shouldRollover", full)
    for _ in range(3):
        file("{}")
    monkeypatch.setattr(logging.handlers.RotatingFileHandler, "flush", full)
    file.close()
    assert [one.levelname for one in caplog.records] == ["ERROR"]
    assert "audit_line_not_written" in caplog.text
    assert capfd.readouterr().err == ""
