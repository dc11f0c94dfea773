"""Logs, files, heartbeats, names and background tasks: what every part of the cluster leans on."""

from __future__ import annotations

import asyncio
import logging
import os
from pathlib import Path

import pytest

from squall_common import names
from squall_common.daemon import logs
from squall_common.daemon.files import write_atomic
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.errors import InvalidTopologyError, describe_fully
from squall_common.topology.model import Component, ComponentKind, ShellObject, StreamInfo, Topology
from squall_common.topology.system import validate_topology
from squall_common.worker_files.heartbeat_file import Beat, HeartbeatWriter, Phase, read_heartbeat
from squall_common.worker_files.launch_spec import Incarnation, LaunchSpec
from squall_thrift.logs import EventLogger


@pytest.fixture
def log_file(tmp_path: Path):
    """A log file that is set up for the test, and everything as before afterwards."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []
    logs.set_up_logging(tmp_path / "logs" / "daemon.log")
    yield tmp_path / "logs" / "daemon.log"
    for handler in root.handlers:
        handler.close()
    root.handlers, root.level = handlers, level


def test_a_log_line_is_an_event_with_its_keys(log_file: Path) -> None:
    logs.get_logger("squall.x").info("worker_started", pid=7, why='said "no"', empty="")
    line = log_file.read_text()
    assert line.endswith('INFO  squall.x worker_started pid=7 why="said \\"no\\"" empty=""\n')


def test_the_thrift_package_logs_by_keys_as_all_others(log_file: Path) -> None:
    EventLogger("squall_thrift.x").warning("call_refused", peer="10.0.0.1:9", error="a b")
    line = log_file.read_text()
    assert line.endswith('WARNING squall_thrift.x call_refused peer=10.0.0.1:9 error="a b"\n')


def test_a_value_can_neither_forge_a_line_nor_reach_a_terminal(log_file: Path) -> None:
    forged = "x\n2026-01-01 ERROR forged \x1b[31mred"
    logs.get_logger("squall.x").info("submitted", name=forged)
    logging.getLogger("user").info(forged)
    text = log_file.read_text()
    assert len(text.splitlines()) == 2
    assert "\x1b" not in text


def test_a_log_is_turned_over(log_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logs, "_FILE_BYTES_MAX", 200)
    monkeypatch.setattr(logs, "_OLD_FILES_MAX", 2)
    logs.set_up_logging(log_file)
    for i in range(50):
        logs.get_logger("squall.x").info("event", i=i)
    assert sorted(p.name for p in log_file.parent.iterdir()) == [
        "daemon.log", "daemon.log.1", "daemon.log.2",
    ]  # fmt: skip
    assert all(p.stat().st_size <= 200 for p in log_file.parent.iterdir())


def test_a_failed_write_leaves_the_old_content_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "state"
    write_atomic(path, b"old", mode=0o600)

    def full(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_atomic(path, b"new")
    assert path.read_bytes() == b"old"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_a_heartbeat_is_what_was_written_last(tmp_path: Path) -> None:
    path = tmp_path / "heartbeat"
    assert read_heartbeat(path) is None
    writer = HeartbeatWriter(path)
    assert read_heartbeat(path) is None  # there is a file, and no heartbeat yet
    for beat in (Beat(1, 0, 42, Phase.STARTING), Beat(2**60, 17, 42, Phase.RUNNING)):
        writer.write(beat)
        assert read_heartbeat(path) == beat
    writer.close()
    assert path.stat().st_blocks * 512 >= 4096  # its block is there: a full disk cannot stop it


@pytest.mark.parametrize("offset", [0, 5, 12, 39])
def test_a_torn_heartbeat_is_none(tmp_path: Path, offset: int) -> None:
    path = tmp_path / "heartbeat"
    writer = HeartbeatWriter(path)
    writer.write(Beat(123456789, 0, 42, Phase.RUNNING))
    writer.close()
    data = bytearray(path.read_bytes())
    data[offset] ^= 0xFF
    path.write_bytes(data)
    assert read_heartbeat(path) is None


def test_a_launch_file_is_private_and_comes_back_as_it_went(tmp_path: Path) -> None:
    spec = LaunchSpec(
        topology_id="wc-1-17", supervisor_id="sup", hostname="h", port=6700, worker_id="w",
        incarnation=Incarnation(0x1A, 3), stormdist=tmp_path / "dist", worker_dir=tmp_path,
        artifacts_dir=tmp_path / "logs", daemon_conf={"storm.zookeeper.port": 2181},
    )  # fmt: skip
    path = tmp_path / "launch.json"
    spec.write(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert LaunchSpec.read(path) == spec
    assert str(spec.incarnation) == "1a.3"
    assert Incarnation(1, 9) < Incarnation(2, 0) < Incarnation(2, 1)


@pytest.mark.parametrize("name", ["wc", "word-count_2", "größe", "my topology", "a  b c"])
def test_names_that_topologies_may_have(name: str) -> None:
    assert names.topology_name_error(name) is None
    topology_id = names.make_topology_id(name, 3, 1_700_000_000)
    assert names.topology_name_of(topology_id) == name


@pytest.mark.parametrize(
    "name",
    ["", "a/b", "a.b", "a:b", "a\\b", " ", " a", "a ", "a\tb", "a\u2003b", "a\n", "x" * 201],
)
def test_names_that_topologies_may_not_have(name: str) -> None:
    assert names.topology_name_error(name)


@pytest.mark.parametrize("component", ["split", "a b/c", ".", "..", "ü%"])
def test_any_component_id_is_one_znode(component: str) -> None:
    znode = names.encode_znode(component)
    assert "/" not in znode
    assert znode not in {".", ".."}
    assert names.decode_znode(znode) == component


async def test_a_crash_of_a_background_task_is_reported() -> None:
    reported: list[tuple[str, str]] = []
    tasks = BackgroundTasks(on_crash=lambda name, error: reported.append((name, str(error))))

    async def crash() -> None:
        raise ValueError("broken")

    task = tasks.start("crasher", crash())
    await asyncio.wait([task])
    assert reported == [("crasher", "broken")]
    await tasks.close()


async def test_a_periodic_action_goes_on_after_an_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    runs = asyncio.Semaphore(0)

    async def action() -> None:
        runs.release()
        raise ValueError("once more")

    tasks = BackgroundTasks()
    tasks.every("polling", 0.001, action)
    for _ in range(3):
        await asyncio.wait_for(runs.acquire(), 5)
    await tasks.close()
    assert "periodic_action_failed action=polling" in caplog.text


MISLEADING = [
    "\x7f",
    "\u202e",
    "\u2066",
    "\u200f",
    "\u2028",
    "\ud800",
    "\ue000",
    "\ufeff",
    "\uffff",
]


@pytest.mark.parametrize("character", MISLEADING)
def test_no_name_has_a_character_that_shows_as_another(character: str) -> None:
    """Topologies, components, streams, fields, blobs, DRPC functions: refused at the door, with the
    character's number."""
    name = f"a{character}b"
    where = f"U+{ord(character):04X}"
    assert where in (names.topology_name_error(name) or "")
    assert where in (names.character_error(name) or "")
    assert names.character_error("größe 数 🙂") is None


@pytest.mark.parametrize("part", ["id", "stream", "field"])
def test_a_topology_with_such_a_name_in_it_is_refused(part: str) -> None:
    word = "a\u202eb"
    spout = Component(
        id=word if part == "id" else "spout",
        kind=ComponentKind.SPOUT,
        object=ShellObject("python", "s.py"),
        streams={
            word if part == "stream" else "default": StreamInfo(
                (word if part == "field" else "field",)
            )
        },
    )
    with pytest.raises(InvalidTopologyError, match=r"U\+202E"):
        validate_topology(Topology({spout.id: spout}))


def test_an_error_in_full_has_its_notes_once_and_keeps_them_when_it_is_cut() -> None:
    error = ValueError("x" * 100)
    assert describe_fully(error, 20) == "ValueError: xxxxxxxx"
    error.add_note("in map(check), a.py:1")
    error.add_note("in map(check), a.py:1")
    assert describe_fully(error) == f"ValueError: {'x' * 100} (in map(check), a.py:1)"
    assert describe_fully(error, 44) == "ValueError: xxxxxxxx (in map(check), a.py:1)"
    error.add_note("y" * 100)
    assert len(describe_fully(error, 50)) == 50
