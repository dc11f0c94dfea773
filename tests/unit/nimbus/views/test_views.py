"""What Nimbus makes of several workers' reports about one topology."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from squall_common.cluster import codec
from squall_common.cluster.state import UndecodedBeat
from squall_common.cluster.values import (
    Assignment,
    CheckpointReport,
    StormBase,
    TopologyStatus,
    WorkerHeartbeat,
)
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.views.views import TopologyView, joined_failures

SLOTS = [WorkerSlot(f"sup-{number}", 6700) for number in range(3)]
HOSTS = {slot.node: f"host-{number}" for number, slot in enumerate(SLOTS)}


def view(report: CheckpointReport | None) -> TopologyView:
    """A topology with a worker on each slot, of which the first coordinates."""
    beats = {}
    for number, slot in enumerate(SLOTS):
        beat = WorkerHeartbeat("t-1-1", {}, 1, 1, checkpoints=None if number else report)
        beats[slot] = UndecodedBeat(f"/{number}", codec.encode_heartbeat(beat))
    placed = {Executor(number + 1, number + 1): slot for number, slot in enumerate(SLOTS)}
    return TopologyView(
        "t-1-1",
        StormBase("t", TopologyStatus.ACTIVE, 3),
        Assignment("", HOSTS, placed),
        0,
        beats=beats,
    )


@pytest.mark.parametrize(
    ("own", "others", "shown"),
    [
        (None, {}, None),
        ("full", {}, "full (host-0:6700)"),
        (None, {SLOTS[1]: "full"}, "full (host-1:6700)"),
        ("full", {SLOTS[2]: "full"}, "full (host-0:6700, host-2:6700)"),
        ("away", {SLOTS[1]: "full"}, "away (host-0:6700); full (host-1:6700)"),
    ],
)
def test_the_workers_whose_store_fails_are_named(
    own: str | None, others: Mapping[WorkerSlot, str], shown: str | None
) -> None:
    report = CheckpointReport(epoch=5, interval_ms=1000, failure=own, completed=3)
    found = view(report).checkpoints_with(others)
    assert found is not None
    assert (found.failure, found.epoch, found.completed) == (shown, 5, 3)


def test_without_a_report_of_checkpoints_there_is_nothing_to_join() -> None:
    assert view(None).checkpoints_with({SLOTS[1]: "full"}) is None


def test_of_many_failures_a_few_are_shown() -> None:
    same = {f"host-{number}:6700": "full" for number in range(10)}
    assert joined_failures(same) == "full (host-0:6700, host-1:6700, host-2:6700 and 7 more)"
    different = {f"host-{number}:6700": f"full {number}" for number in range(5)}
    assert joined_failures(different) == (
        "full 0 (host-0:6700); full 1 (host-1:6700); full 2 (host-2:6700); 2 more workers"
    )
