"""Which supervisors are lost: those with work that are not connected."""

from squall_common.cluster.values import Assignment
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.scheduler.lost_nodes import Lost, LostNodes


def assignment(*nodes: str) -> Assignment:
    return Assignment(
        "",
        node_host={node: f"host of {node}" for node in nodes},
        executor_slot={Executor(i, i): WorkerSlot(node, 6700) for i, node in enumerate(nodes)},
    )


def test_each_supervisor_is_reported_when_it_goes_and_when_it_comes_back() -> None:
    nodes = LostNodes()
    work = {"one": assignment("a", "b"), "two": assignment("b")}
    assert nodes.look(["a", "b"], work) == ([], [])
    assert nodes.look(["a"], work) == ([Lost("b", "host of b", ("one", "two"))], [])
    assert nodes.look(["a"], work) == ([], [])
    assert nodes.look(["a", "b"], work) == ([], ["b"])
    assert nodes.look(["a", "b"], work) == ([], [])


def test_a_supervisor_without_work_is_not_reported() -> None:
    nodes = LostNodes()
    assert nodes.look(["a", "b"], {"one": assignment("a")}) == ([], [])
    assert nodes.look(["a"], {"one": assignment("a")}) == ([], [])


def test_a_supervisor_whose_work_was_moved_is_not_reported_back() -> None:
    nodes = LostNodes()
    nodes.look(["a"], {"one": assignment("b")})
    assert nodes.look(["a"], {"one": assignment("a")}) == ([], [])
    assert nodes.look(["a", "b"], {"one": assignment("a")}) == ([], [])
