"""From Nimbus' assignments to one piece of work a port."""

from collections.abc import Mapping

from squall_common.cluster.values import Assignment
from squall_common.topology.model import Executor, WorkerSlot
from squall_supervisor.records.assignments import UNREADABLE, PortAssignment, desired_ports

ONE, TWO, THREE = Executor(1, 1), Executor(2, 3), Executor(4, 4)


def assignment(slots: Mapping[Executor, WorkerSlot]) -> Assignment:
    return Assignment(master_code_dir="", executor_slot=slots)


def work(topology: str, *executors: Executor, zxid: int = 5) -> PortAssignment:
    return PortAssignment(topology, executors, zxid)


def test_only_this_nodes_slots_count_and_executors_are_sorted() -> None:
    read = assignment(
        {
            THREE: WorkerSlot("me", 6700),
            ONE: WorkerSlot("me", 6700),
            TWO: WorkerSlot("another", 6700),
        }
    )
    desired = desired_ports({"words": (read, 5)}, "me", [6700, 6701], {})
    assert desired.ports == {6700: work("words", ONE, THREE)}
    assert desired.problems == ()


def test_work_that_stays_the_same_keeps_its_zxid() -> None:
    read = assignment({ONE: WorkerSlot("me", 6700), TWO: WorkerSlot("me", 6701)})
    held = {6700: work("words", ONE), 6701: work("words", TWO, THREE)}
    desired = desired_ports({"words": (read, 9)}, "me", [6700, 6701], held)
    assert desired.ports == {6700: work("words", ONE, zxid=5), 6701: work("words", TWO, zxid=9)}


def test_a_topology_without_an_assignment_loses_its_ports() -> None:
    assert desired_ports({}, "me", [6700], {6700: work("words", ONE)}).ports == {}


def test_an_unreadable_assignment_keeps_its_ports() -> None:
    held = {6700: work("words", ONE)}
    desired = desired_ports({"words": UNREADABLE}, "me", [6700], held)
    assert desired.ports == held
    assert "words cannot be read" in desired.problems[0]


def test_a_readable_claim_wins_over_an_unreadable_one() -> None:
    held = {6700: work("words", ONE)}
    read = assignment({TWO: WorkerSlot("me", 6700)})
    desired = desired_ports({"words": UNREADABLE, "more": (read, 8)}, "me", [6700], held)
    assert desired.ports == {6700: work("more", TWO, zxid=8)}


def test_a_port_that_is_not_a_slot_is_left_alone_and_named() -> None:
    read = assignment({ONE: WorkerSlot("me", 9999)})
    desired = desired_ports({"words": (read, 5)}, "me", [6700], {})
    assert desired.ports == {}
    assert "port 9999" in desired.problems[0]


def test_of_two_claims_the_holder_stays_or_else_the_newer_wins() -> None:
    claims = {
        "old": (assignment({ONE: WorkerSlot("me", 6700)}), 5),
        "young": (assignment({ONE: WorkerSlot("me", 6700)}), 9),
    }
    assert desired_ports(claims, "me", [6700], {}).ports[6700].topology_id == "young"
    held = {6700: work("old", ONE)}
    desired = desired_ports(claims, "me", [6700], held)
    assert desired.ports == held
    assert "old gets it" in desired.problems[0]
