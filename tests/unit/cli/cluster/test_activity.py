"""What `storm list` gives as the reason when something is wrong with a topology."""

from squall_cli.cluster.activity import Activity, Problem, is_wrong, problem_of
from squall_thrift.storm import ErrorInfo, TopologySummary

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
