"""`storm wait`, and what `storm list` and `storm status` say of topologies whose sources end."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest
from tests.support.fake_nimbus import FakeNimbus

from squall_cli.cluster import finish
from squall_thrift import storm


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "_LOOK_SECS", 0.02)


def summary(**changes: Any) -> storm.TopologySummary:
    fields: dict[str, Any] = {
        "id": "job-1-17", "name": "job", "num_tasks": 3, "num_executors": 3, "num_workers": 1,
        "uptime_secs": 9, "status": "ACTIVE", "health": "ok", **changes,
    }  # fmt: skip
    return storm.TopologySummary(**fields)


def page(
    finished: bool | None, *exhausted: int | None, pending: int = 0, **changes: Any
) -> storm.TopologyPageInfo:
    """Spouts `lines-0`, `lines-1` ... of two tasks each, of which so many have ended."""
    spouts = {
        f"lines-{number}": storm.ComponentAggregateStats(
            common_stats=storm.CommonAggregateStats(
                num_executors=2, num_tasks=2, emitted=0, acked=0, failed=0, queue_tuples=pending
            ),
            specific_stats=storm.SpecificAggregateStats(
                spout=storm.SpoutAggregateStats(exhausted_tasks=ended)
            ),
        )
        for number, ended in enumerate(exhausted)
    }
    return storm.TopologyPageInfo(
        id="job-1-17", topology_conf="{}", id_to_spout_agg_stats=spouts, finished=finished,
        topology_stats=storm.TopologyStats(), **changes,
    )  # fmt: skip


def answers(nimbus: FakeNimbus, *pages: Any, **changes: Any) -> None:
    """Let Nimbus answer with these pages, the last one again and again."""
    left = itertools.chain(pages, itertools.repeat(pages[-1]))

    def answer(*_: Any) -> Any:
        found = next(left)
        if isinstance(found, BaseException):
            raise found
        return found

    nimbus.answers["getTopologySummaryByName"] = summary(**changes)
    nimbus.answers["getTopologyPageInfo"] = answer


def test_a_wait_ends_when_the_topology_has_finished(nimbus: FakeNimbus, command: Any) -> None:
    answers(nimbus, page(False, 0), page(False, 2, pending=7), page(False, 2), page(True, 2))
    status, out, err = command("wait", "job")
    assert (status, out) == (0, "")
    assert err == "Finished: job has read all of its input, and nothing is in flight.\n"
    assert nimbus.called("watchTopology") == [("job-1-17",)] * 2  # once all sources have ended


def test_a_wait_for_programs(nimbus: FakeNimbus, command: Any) -> None:
    answers(nimbus, page(True, 2))
    status, out, _ = command("wait", "job", "--json")
    found = json.loads(out)
    assert (status, found["topology"], found["action"]) == (0, "job", "wait")


CHECKPOINTS = storm.CheckpointReport(
    epoch=8, interval_ms=1000, completed=8, given_up=0, waiting_ms=5, rollbacks=0
)


@pytest.mark.parametrize(
    ("found", "changes", "part"),
    [
        (page(False, 1, 2), {}, "more to read: lines-0 (1 of 2 tasks have ended)"),
        (page(False, 2, pending=1200), {}, "1,200 messages are in flight"),
        (page(False, 2), {}, "a worker has something in flight"),
        (page(False, 2, checkpoints=CHECKPOINTS), {}, "no checkpoint is complete since"),
        (page(False, 0), {"health": "crash loop"}, "its health is: crash loop"),
        (page(False, 0), {"status": "INACTIVE"}, "it is INACTIVE"),
        (page(False), {}, "Nimbus does not know its spouts yet"),
    ],
)
def test_a_wait_says_at_its_timeout_what_is_missing(
    nimbus: FakeNimbus, command: Any, monkeypatch: pytest.MonkeyPatch, found: Any, changes: Any,
    part: str,
) -> None:  # fmt: skip
    answers(nimbus, found, **changes)
    began = time.monotonic()
    status, out, err = command("wait", "job", "--timeout", "1")
    assert (status, out) == (1, "")
    assert "topology 'job' has not finished in 1 s: " in err
    assert part in err
    assert 1.0 <= time.monotonic() - began < 30
    assert err.count("is not well") == (1 if "health" in changes else 0)


def test_a_spout_that_does_not_say_whether_it_ends_is_named(
    nimbus: FakeNimbus, command: Any
) -> None:
    answers(nimbus, page(None, 2, None))
    status, _, err = command("wait", "job")
    assert status == 1
    assert "spout lines-1 does not say whether the source ends" in err
    assert "exhausted()" in err


def test_a_topology_that_does_not_exist_is_not_waited_for(nimbus: FakeNimbus, command: Any) -> None:
    nimbus.answers["getTopologySummaryByName"] = storm.NotAliveException(msg="job is not alive")
    status, _, err = command("wait", "job")
    assert status == 1
    assert "job is not alive" in err


def test_a_topology_that_is_gone_meanwhile_has_not_finished(
    nimbus: FakeNimbus, command: Any
) -> None:
    answers(nimbus, page(False, 0), storm.NotAliveException(msg="job-1-17 is not alive"))
    status, _, err = command("wait", "job")
    assert status == 1
    assert "topology 'job' was removed before it had finished" in err

    found = iter([summary(), summary(id="job-2-18")])
    answers(nimbus, page(False, 0))
    nimbus.answers["getTopologySummaryByName"] = lambda _: next(found)
    status, _, err = command("wait", "job")
    assert status == 1
    assert "another one has its name" in err

    answers(nimbus, page(False, 0), status="KILLED")
    status, _, err = command("wait", "job")
    assert status == 1
    assert "is being killed" in err


def test_a_nimbus_that_is_away_for_a_moment_does_not_end_a_wait(
    nimbus: FakeNimbus, command: Any
) -> None:
    broken = RuntimeError("the store is away")
    answers(nimbus, page(False, 0), broken, broken, page(True, 2))
    assert command("wait", "job")[0] == 0


def test_the_list_says_which_topologies_have_finished(nimbus: FakeNimbus, command: Any) -> None:
    answers(nimbus, page(True, 2))
    nimbus.answers["getTopologySummaries"] = [summary()]
    _, out, _ = command("list")
    assert out.splitlines()[1].split()[:3] == ["job", "ACTIVE", "finished"]
    (found,) = json.loads(command("list", "--json")[1])
    assert (found["health"], found["finished"]) == ("ok", True)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (page(True, 2), "all read, and nothing is in flight"),
        (page(False, 2, 1), "lines-0: drained; lines-1: 1 of 2 tasks have ended"),
        (page(False, 0), "lines-0: has more to read"),
        (page(False, 2, pending=1200), "lines-0: all read, 1,200 messages in flight"),
    ],
)
def test_status_says_how_far_the_sources_are(
    nimbus: FakeNimbus, command: Any, found: Any, words: str
) -> None:
    answers(nimbus, found)
    nimbus.answers["getTopologyInfoWithOpts"] = storm.TopologyInfo(
        id="job-1-17", name="job", uptime_secs=1, executors=[], status="ACTIVE", errors={}
    )
    nimbus.answers["getLogConfig"] = storm.LogConfig(named_logger_level={})
    nimbus.answers["getTopology"] = storm.StormTopology(spouts={}, bolts={}, state_spouts={})
    _, out, _ = command("status", "job")
    assert f"input       {words}\n" in out
    shown = json.loads(command("status", "job", "--json")[1])
    assert shown["finished"] is found.finished
    assert shown["components"][0]["exhausted_tasks"] in (0, 2)
