"""`storm savepoint` asks a topology for savepoints, lists and removes them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.fake_nimbus import FakeNimbus

from squall_common.state.checkpoint_store import CheckpointStore
from squall_common.state.manifest import ComponentPart, Manifest, TaskPart
from squall_common.state.savepoint import HEAD_NAME, Savepoint, encode_savepoint, place_in
from squall_thrift import storm

SUMMARY = storm.TopologySummary(
    id="words-1", name="words", num_tasks=3, num_executors=3, num_workers=1, uptime_secs=9,
    status="ACTIVE",
)  # fmt: skip


def answer(nimbus: FakeNimbus, url: str, **result: Any) -> None:
    """Let the topology `words` take savepoints at once."""
    conf = {"topology.checkpoint.interval.secs": 1, "topology.state.url": url}
    nimbus.answers["getTopologySummaryByName"] = SUMMARY
    nimbus.answers["getTopologyConf"] = json.dumps(conf)
    nimbus.answers["savepoint"] = None
    nimbus.answers["killTopologyWithOpts"] = None

    def page(*_: Any) -> storm.TopologyPageInfo:
        _, request = nimbus.called("savepoint")[-1]
        found = storm.SavepointResult(
            name=request.name, asked_ms=request.asked_ms, place=f"{url}/{request.name}", **result
        )
        report = storm.CheckpointReport(
            epoch=8, interval_ms=1000, completed=8, given_up=0, waiting_ms=5, rollbacks=0,
            savepoint=found,
        )  # fmt: skip
        return storm.TopologyPageInfo(id="words-1", checkpoints=report)

    nimbus.answers["getTopologyPageInfo"] = page


def write(folder: Path, name: str, topology: str = "words") -> None:
    manifest = Manifest("words", 3, 7, {"lines": ComponentPart(0, (TaskPart(),))}, 1000)
    head = encode_savepoint(Savepoint(topology, name, "words@1", manifest))
    CheckpointStore(place_in(str(folder), name)).put(HEAD_NAME, head)


def test_a_savepoint_is_asked_for_and_its_place_printed(command: Any, nimbus: FakeNimbus) -> None:
    answer(nimbus, "s3://bucket", epoch=8, size_bytes=10)
    status, out, err = command("savepoint", "words", "--name", "one")
    assert (status, out) == (0, "s3://bucket/one\n")
    assert "checkpoint 8" in err
    assert not nimbus.called("killTopologyWithOpts")


def test_a_stop_kills_when_the_savepoint_is_there(command: Any, nimbus: FakeNimbus) -> None:
    answer(nimbus, "s3://bucket", epoch=8, size_bytes=10)
    status, out, _ = command("savepoint", "words", "--name", "one", "--stop", "--json")
    assert (status, json.loads(out)["action"]) == (0, "stop")
    ((_, request),) = nimbus.called("savepoint")
    assert request.stop
    ((name, options),) = nimbus.called("killTopologyWithOpts")
    assert (name, options.wait_secs) == ("words", None)


def test_a_savepoint_that_failed_stops_nothing(command: Any, nimbus: FakeNimbus) -> None:
    answer(nimbus, "s3://bucket", error="could not write: no space")
    status, _, err = command("savepoint", "words", "--stop")
    assert status == 1
    assert "the savepoint was not taken: could not write: no space" in err
    assert not nimbus.called("killTopologyWithOpts")
    # A worker that takes over is not to carry it out.
    (_, asked), (_, withdrawn) = nimbus.called("savepoint")
    assert (withdrawn.name, withdrawn.asked_ms) == ("", asked.asked_ms)


def test_a_savepoint_that_takes_too_long_is_withdrawn(command: Any, nimbus: FakeNimbus) -> None:
    answer(nimbus, "s3://bucket")
    nimbus.answers["getTopologyPageInfo"] = storm.TopologyPageInfo(id="words-1")
    status, _, err = command("savepoint", "words", "--stop", "--timeout", "1")
    assert (status, "was not taken within 1 s" in err) == (1, True)
    (_, asked), (_, withdrawn) = nimbus.called("savepoint")
    assert (withdrawn.name, withdrawn.asked_ms) == ("", asked.asked_ms)


def test_a_name_with_a_slash_is_refused_before_anything(command: Any, nimbus: FakeNimbus) -> None:
    answer(nimbus, "s3://bucket")
    status, _, err = command("savepoint", "words", "--name", "a/b")
    assert (status, "it has a /" in err) == (1, True)
    assert not nimbus.called("savepoint")


def test_savepoints_are_listed(command: Any, nimbus: FakeNimbus, tmp_path: Path) -> None:
    answer(nimbus, str(tmp_path))
    folder = tmp_path / "words" / "savepoints"
    write(folder, "one")
    write(folder, "of another", "orders")
    write(folder, "damaged")
    (folder / "damaged" / HEAD_NAME).write_bytes(b"nonsense")
    status, out, _ = command("savepoint", "words", "--list", "--json")
    damaged, one = json.loads(out)
    assert (status, one["name"], one["epoch"], one["problem"]) == (0, "one", 7, None)
    assert "is damaged" in damaged["problem"]
    status, out, _ = command("savepoint", "words", "--list")
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "damaged", "one"]


def test_a_savepoint_is_removed(command: Any, tmp_path: Path) -> None:
    write(tmp_path, "one")
    write(tmp_path, "two", "orders")
    folder = str(tmp_path)
    assert command("savepoint", "words", "--remove", "one", "--to", folder)[0] == 0
    status, _, err = command("savepoint", "words", "--remove", "one", "--to", folder)
    assert (status, "there is no savepoint" in err) == (1, True)
    status, _, err = command("savepoint", "words", "--remove", "two", "--to", folder)
    assert (status, "is of topology 'orders'" in err) == (1, True)


@pytest.mark.parametrize("options", [("--list", "--stop"), ("--list", "--remove", "one")])
def test_options_that_exclude_each_other_are_refused(command: Any, options: Any) -> None:
    status, _, err = command("savepoint", "words", *options)
    assert (status, "--list and --remove" in err) == (2, True)
