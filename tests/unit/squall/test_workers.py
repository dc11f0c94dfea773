from squall._workers import ReportedError, deal, rest_of
from squall_common.topology.model import Executor, WorkerSlot


def test_executors_are_dealt_by_turns() -> None:
    executors = [Executor(n, n) for n in (3, 1, 2, 4, 5)]
    slots = [WorkerSlot("local", port) for port in (1, 2)]
    assert deal(executors, slots) == {
        Executor(1, 1): slots[0],
        Executor(2, 2): slots[1],
        Executor(3, 3): slots[0],
        Executor(4, 4): slots[1],
        Executor(5, 5): slots[0],
    }


def test_slots_beyond_the_executors_get_none() -> None:
    slots = [WorkerSlot("local", port) for port in (1, 2, 3)]
    assert set(deal([Executor(1, 1)], slots).values()) == {slots[0]}


def test_the_headline_of_an_error_names_it() -> None:
    text = "Traceback (most recent call last):\n  x\nValueError: seven\nin map(int), jobs.py:12\n"
    assert ReportedError("sink", text, 1).headline == "ValueError: seven"
    assert ReportedError("sink", "", 1).headline == ""


def test_workers_are_at_rest_when_all_sources_have_ended_and_nothing_is_in_flight() -> None:
    at_rest = {"ended": True, "work": 7}
    assert rest_of([at_rest, {"ended": True, "work": 0}], [1, 2]) == [(1, 7), (2, 0)]
    for other in (
        None,  # it does not answer
        {},  # its tasks do not run yet
        {"ended": False, "work": None},
        {"ended": None, "work": None},
        {"ended": True, "work": None},
    ):
        assert rest_of([at_rest, other], [1, 1]) is None


def test_a_worker_that_was_started_again_is_another_one() -> None:
    at_rest = [{"ended": True, "work": 0}]
    assert rest_of(at_rest, [1]) != rest_of(at_rest, [2])
