"""Which of the workers found at a start are taken over."""

from squall_common.topology.model import Executor
from squall_common.worker_files.launch_spec import Incarnation
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.processes import ProcessIdentity
from squall_supervisor.records.worker_record import WorkerRecord
from squall_supervisor.slots.adoption import FoundWorker, plan_adoption

PROCESS = ProcessIdentity(pid=4711, start_ticks=99, boot_id="b")
LAUNCHED = Incarnation(7, 3)


def found(
    worker_id: str = "w1",
    *,
    port: int = 6700,
    launch: int = 3,
    process: ProcessIdentity | None = PROCESS,
    recorded: bool = True,
    launch_file: Incarnation | None = LAUNCHED,
) -> FoundWorker:
    work = PortAssignment("words-1-1", (Executor(1, 1),), zxid=7)
    record = WorkerRecord(worker_id, port, work, launch, 30.0, PROCESS) if recorded else None
    return FoundWorker(worker_id, record, process, launch_file)


def test_a_full_match_is_adopted() -> None:
    worker = found()
    plan = plan_adoption([worker], [6700])
    assert (plan.adopt, plan.end, plan.remove) == ({6700: worker}, [], [])


def test_a_dead_worker_is_only_a_folder() -> None:
    plan = plan_adoption([found(process=None), found("w2", process=None, recorded=False)], [6700])
    assert (plan.adopt, plan.end, plan.remove) == ({}, [], ["w1", "w2"])


def test_another_incarnation_in_the_launch_file_is_not_a_match() -> None:
    for launch_file in (Incarnation(7, 4), Incarnation(8, 3), None):
        plan = plan_adoption([found(launch_file=launch_file)], [6700])
        assert plan.adopt == {}
        assert "do not agree" in plan.end[0][1]


def test_a_record_in_the_wrong_folder_is_not_a_match() -> None:
    worker = FoundWorker("w9", found().record, PROCESS, Incarnation(7, 3))
    assert plan_adoption([worker], [6700]).end[0][0] is worker


def test_a_worker_without_a_record_is_ended() -> None:
    assert "record" in plan_adoption([found(recorded=False)], [6700]).end[0][1]


def test_a_worker_on_a_port_that_is_not_a_slot_any_more_is_ended() -> None:
    assert "not a slot" in plan_adoption([found()], [6701]).end[0][1]


def test_of_two_workers_on_a_port_the_newer_stays() -> None:
    old, new = found("a"), found("b", launch=4, launch_file=Incarnation(7, 4))
    for order in ([old, new], [new, old]):
        plan = plan_adoption(order, [6700])
        assert plan.adopt == {6700: new}
        assert [worker for worker, _ in plan.end] == [old]
