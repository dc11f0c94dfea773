"""What an assignment means for one worker."""

from squall_common.cluster.values import Assignment, StormBase, TopologyStatus
from squall_common.topology.model import Executor, WorkerSlot
from squall_worker.cluster.placement import Ownership, place, spouts_run

A, B, C = WorkerSlot("a", 6700), WorkerSlot("b", 6700), WorkerSlot("a", 6701)
ASSIGNMENT = Assignment(
    "dir",
    node_host={"a": "127.0.0.1"},
    executor_slot={Executor(3, 4): A, Executor(1, 2): A, Executor(5, 5): B, Executor(6, 6): C},
)


def test_own_executors_routes_and_peers() -> None:
    placement = place(ASSIGNMENT, A)
    assert placement.executors == (Executor(1, 2), Executor(3, 4))
    assert placement.routes == {1: A, 2: A, 3: A, 4: A, 5: B, 6: C}
    assert placement.hosts == {B: "b", C: "127.0.0.1"}
    assert placement.tasks_by_slot() == {B: frozenset({5}), C: frozenset({6})}


def test_another_port_of_the_same_node_is_another_worker() -> None:
    placement = place(ASSIGNMENT, C)
    assert placement.executors == (Executor(6, 6),)
    assert set(placement.hosts) == {A, B}


def test_a_slot_without_work_has_no_executors() -> None:
    assert place(ASSIGNMENT, WorkerSlot("a", 6702)).executors == ()


def test_only_active_lets_spouts_run() -> None:
    for status in TopologyStatus:
        assert spouts_run(StormBase("t", status, 1)) is (status is TopologyStatus.ACTIVE)
    assert not spouts_run(None)


def test_a_lost_slot_is_given_up_after_the_grace() -> None:
    ours = (Executor(1, 2),)
    ownership = Ownership(ours, grace_secs=10)
    assert ownership.read(ours, 0)
    assert ownership.deadline == float("inf")
    assert not ownership.read((Executor(1, 1),), 5)
    assert not ownership.read((), 8)
    assert ownership.deadline == 15


def test_a_slot_that_comes_back_in_time_is_kept() -> None:
    ours = (Executor(1, 2),)
    ownership = Ownership(ours, grace_secs=10)
    ownership.read((), 5)
    assert ownership.read(ours, 6)
    assert ownership.deadline == float("inf")
    ownership.read((), 20)
    assert ownership.deadline == 30
