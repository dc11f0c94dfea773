"""When nodes may be closed."""

from __future__ import annotations

import json

from squall_common.cluster.access.opened import META_KEY, awaited, may_close, without_digest
from squall_common.cluster.values import SupervisorInfo


def info(*without: str) -> SupervisorInfo:
    return SupervisorInfo(0, "host", "node", scheduler_meta={META_KEY: json.dumps(without)})


OLD = SupervisorInfo(0, "host", "old")


def test_a_cluster_waits_for_supervisors_that_show_no_digest() -> None:
    assert awaited({"b": OLD, "a": OLD, "c": info("words-1-1")}) == ["a", "b"]
    assert awaited({"c": info()}) == []


def test_a_topology_is_closed_when_all_its_workers_show_a_digest() -> None:
    nodes = {"a": info("other-1-1"), "b": info("words-1-1"), "c": OLD}
    assert may_close("words-1-1", ["a"], nodes)
    assert may_close("words-1-1", [], nodes)
    assert not may_close("words-1-1", ["a", "b"], nodes)
    assert not may_close("words-1-1", ["a", "c"], nodes)
    assert not may_close("words-1-1", ["a", "away"], nodes)


def test_what_cannot_be_read_counts_as_no_digest() -> None:
    for text in ("", "[1]", "7", "null", "{"):
        damaged = SupervisorInfo(0, "host", "node", scheduler_meta={META_KEY: text})
        assert without_digest(damaged) is None, text
