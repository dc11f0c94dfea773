"""The samples of a topology's checkpoints."""

from __future__ import annotations

from squall_common.cluster.values import CheckpointReport
from squall_common.telemetry.samples import WORKER_FAMILIES
from squall_worker.report.samples import checkpoint_samples


def test_checkpoints_become_samples_of_listed_families() -> None:
    report = CheckpointReport(
        epoch=57, interval_ms=1000, completed=50, given_up=2, waiting_ms=300, duration_ms=120,
        size_bytes=4096, longest_task="count (b) (2)", longest_ms=80, rollbacks=3,
    )  # fmt: skip
    found = {one.family: one for one in checkpoint_samples(report)}
    assert found.keys() <= WORKER_FAMILIES.keys()
    assert all(tuple(one.labels) == WORKER_FAMILIES[name].labels for name, one in found.items())
    assert found["squall_checkpoint_age_seconds"].value == 0.3
    assert found["squall_rollbacks"].value == 3
    longest = found["squall_checkpoint_longest_task_seconds"]
    assert (longest.labels, longest.value) == ({"component": "count (b)"}, 0.08)


def test_before_the_first_checkpoint_there_are_no_figures_of_one() -> None:
    report = CheckpointReport(epoch=0, interval_ms=1000, waiting_ms=300)
    names = {one.family for one in checkpoint_samples(report)}
    assert "squall_checkpoint_age_seconds" in names
    assert "squall_checkpoint_duration_seconds" not in names
