"""What `storm list` gives as the reason when something is wrong with a topology."""

from squall_cli.cluster.activity import Activity, Problem, held_of, is_wrong, problem_of
from squall_thrift.storm import (
    ErrorInfo,
    TopologyPageInfo,
    TopologySummary,
    WorkerSummary,
    WorkerUsage,
)

CRASHES = TopologySummary(health="crash loop", sched_status="", restarts=3)
ENDED = ErrorInfo("worker a:6700 ended unexpectedly: exited with status 1", 101)
RAISED = ErrorInfo(
    "Traceback (most recent call last):\n  import duckdb\nModuleNotFoundError: no duckdb\n", 100
)


def test_the_problem_of_a_crash_loop_is_what_the_component_raised() -> None:
    assert is_wrong(CRASHES, None)
    assert problem_of(CRASHES, None, {"__system": [ENDED], "db": [RAISED]}) == Problem(
        "ModuleNotFoundError: no duckdb", "db", 100
    )


def test_the_end_of_a_worker_is_the_problem_if_no_component_raised_anything() -> None:
    assert problem_of(CRASHES, None, {"__system": [ENDED]}) == Problem(ENDED.error, "__system", 101)
    assert problem_of(CRASHES, None, {}) == Problem("crash loop")


def test_messages_that_fail_without_an_error_have_timed_out() -> None:
    well = TopologySummary(health="ok")
    activity = Activity(secs=60, emitted=10, acked=5, failed=5, complete_ms=1.0)
    assert is_wrong(well, activity)
    assert "no component reported an error" in problem_of(well, activity, {}).reason


def test_a_call_that_does_not_return_is_a_problem_of_a_topology_that_runs() -> None:
    well = TopologySummary(health="ok")
    stuck = WorkerSummary(host="a", port=6700, usage=WorkerUsage(loop_lag_ms=38_100.0))
    turning = WorkerSummary(host="a", port=6701, usage=WorkerUsage(loop_lag_ms=200.0))
    held = held_of(TopologyPageInfo("w-1-1", workers=[stuck, turning, WorkerSummary()]))
    assert is_wrong(well, None, held)
    assert not is_wrong(well, None)
    reason = "a call in worker a:6700 has not returned for 38 s"
    assert problem_of(well, None, {}, held) == Problem(reason)
