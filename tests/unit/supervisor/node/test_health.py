"""When a node counts as unhealthy."""

from __future__ import annotations

from pathlib import Path

from squall_common.daemon.health_checks import Check
from squall_supervisor.node.health import NodeHealth

GOOD = [Check("cpu.sh", "ok"), Check("disk.sh", "ok")]
BAD = [Check("cpu.sh", "ok"), Check("disk.sh", "failed", "ERROR sda is read-only")]
SLOW = [Check("net.sh", "timeout", "it took longer than 5 s")]


def health(*, fail_on_timeouts: bool = True) -> tuple[NodeHealth, list[str | None]]:
    changes: list[str | None] = []
    made = NodeHealth(
        Path("/nowhere"),
        timeout_secs=5.0,
        fail_on_timeouts=fail_on_timeouts,
        changed=lambda: changes.append(made.problem),
    )
    return made, changes


def test_one_bad_result_makes_a_node_unhealthy_and_says_why() -> None:
    made, changes = health()
    made.found(GOOD)
    assert changes == []
    made.found(BAD)
    made.found(BAD)
    assert changes == ["disk.sh: ERROR sda is read-only"]


def test_it_is_healthy_again_after_two_good_results_in_a_row() -> None:
    made, changes = health()
    made.found(BAD)
    made.found(GOOD)
    made.found(BAD)
    made.found(GOOD)
    assert made.problem is not None
    made.found(GOOD)
    assert made.problem is None
    assert changes[1:] == [None]


def test_a_timeout_counts_only_if_it_is_wanted() -> None:
    made, _ = health()
    made.found(SLOW)
    assert made.problem == "net.sh: it took longer than 5 s"
    made, changes = health(fail_on_timeouts=False)
    made.found(SLOW)
    assert changes == []


async def test_a_node_without_checks_is_healthy(tmp_path: Path) -> None:
    made = NodeHealth(tmp_path / "no", timeout_secs=1, fail_on_timeouts=True, changed=lambda: None)
    await made.look()
    assert made.problem is None
