"""Why a worker ended, and how that is reported."""

from pathlib import Path

import pytest

from squall_common.client.waiting import Reported
from squall_common.cluster.worker_exits import WorkerExit
from squall_common.worker_files.heartbeat_file import Beat, Phase
from squall_supervisor.records.exits import EndReports, RecentExits
from squall_supervisor.slots.slot import Step
from squall_supervisor.slots.table import (
    Event,
    GraceOver,
    HeartbeatTimedOut,
    MemoryExceeded,
    RestartRequested,
    State,
    Unassigned,
    WorkerExited,
)
from squall_supervisor.slots.worker_end import (
    Cause,
    cause_of,
    describe_end,
    describe_overdue,
    headline,
    is_overdue,
    last_lines,
    reason_of,
)
from squall_thrift.storm import ErrorInfo

RUNS, RELAUNCH = State.RUNNING, State.KILL_AND_RELAUNCH


def beat(phase: Phase) -> Beat:
    return Beat(1, 0, 7, phase)


def ends(
    status: int | None, state: State = RUNS, *before: Event, phase: Phase = Phase.RUNNING
) -> Cause:
    steps = [Step(0.0, RUNS, event, state) for event in before]
    if before:
        steps.append(Step(0.5, state, GraceOver(), state))
    steps.append(Step(1.0, state, WorkerExited("w", status), RELAUNCH))
    return cause_of(steps, beat(phase))


@pytest.mark.parametrize("status", [-11, -9, -15, 0, 1, 3, 4, None])
def test_an_end_that_the_supervisor_did_not_cause_is_an_error(status: int | None) -> None:
    """`os._exit(0)` in a component among them."""
    assert not ends(status).asked


def test_a_requested_stop_is_not_an_error_in_any_case() -> None:
    assert ends(0, phase=Phase.STOPPING).asked
    assert ends(4, phase=Phase.STOPPING).asked  # it saw that its slot is another's
    assert not ends(1, phase=Phase.STOPPING).asked  # `die.on.error`, or a start that failed
    assert not ends(-9, phase=Phase.STOPPING).asked


def test_an_end_wanted_by_the_supervisor_is_not_an_error_however_it_happened() -> None:
    assert ends(-9, State.KILL, Unassigned()).asked
    assert ends(0, State.KILL_BLOB_UPDATE).asked
    assert ends(-9, RELAUNCH, RestartRequested()).asked


def test_a_worker_that_is_killed_because_it_does_not_stop_in_time_is_reported() -> None:
    asked = Step(0.0, RUNS, Unassigned(), State.KILL)
    overdue = Step(3.0, State.KILL, GraceOver(), State.KILL)
    exited = Step(3.1, State.KILL, WorkerExited("w", -9), State.KILL)
    assert is_overdue([asked, overdue, exited])
    assert not is_overdue([asked, exited])
    assert not is_overdue([asked, overdue, exited, asked, exited])  # an earlier worker's
    text = describe_overdue("node-1:6700", -9, 3.0)
    assert "node-1:6700" in text
    assert "killed by SIGKILL" in text
    assert "within 3 s (supervisor.worker.shutdown.sleep.secs)" in text


def test_a_worker_ended_for_trouble_is_an_error_with_the_reason() -> None:
    silent = ends(-9, RELAUNCH, HeartbeatTimedOut())
    assert (silent.asked, silent.reported) == (False, False)
    assert "heartbeats stopped" in silent.why
    memory = ends(0, RELAUNCH, MemoryExceeded(5))
    assert (memory.asked, memory.reported) == (False, True)


def test_of_two_endings_the_last_one_counts() -> None:
    steps = [
        Step(0.0, RUNS, RestartRequested(), RELAUNCH),
        Step(0.1, RELAUNCH, WorkerExited("v", 0), RELAUNCH),
        Step(1.0, RUNS, HeartbeatTimedOut(), RELAUNCH),
        Step(1.1, RELAUNCH, WorkerExited("w", -9), RELAUNCH),
    ]
    assert not cause_of(steps, None).asked
    assert cause_of(steps[:2], None).asked


def describe(status: int | None, *, oom_kills: int = 0, lines: tuple[str, ...] = ()) -> str:
    return describe_end(
        "n:6700",
        ends(status),
        status,
        pid=7,
        lived_secs=12.3,
        peak_bytes=200 << 20,
        oom_kills=oom_kills,
        lines=lines,
    )


def test_the_text_names_signal_or_status_memory_and_the_last_lines() -> None:
    text = describe(-11, lines=("boom",))
    assert text == (
        "worker n:6700 ended unexpectedly: killed by SIGSEGV (pid 7, lived 12 s, peak memory "
        "200 MiB)\nlast lines of worker.log.err:\n  boom"
    )
    shown = Reported.of("__system", ErrorInfo(text, 7))
    assert shown.line == text.splitlines()[0]
    assert shown.is_end
    assert "exited with status 3 (pid 7" in describe(3)
    assert "the machine was out of memory" in describe(-9)
    assert "cgroup" in describe(-9, oom_kills=1)


def test_the_last_lines_are_its_own_bounded_and_safe_to_print(tmp_path: Path) -> None:
    path = tmp_path / "worker.log.err"
    path.write_bytes(
        b"of the one before\n" + b"x" * 40_000 + b"\n\x1b[2Jred\tx\xff\n\n" + b"y\n" * 3
    )
    assert last_lines(path, 18) == ["\\x1b[2Jred x\ufffd", "y", "y", "y"]
    assert last_lines(path, path.stat().st_size) == []
    # The worker has cut the file since: all of it is new.
    assert last_lines(path, path.stat().st_size + 1) == last_lines(path, 0)
    path.write_bytes(b"\n".join(b"z" * 1000 for _ in range(100)))
    assert all(len(line) <= 300 for line in last_lines(path, 0))
    link = tmp_path / "link"
    link.symlink_to(path)
    assert last_lines(link, 0) == last_lines(tmp_path / "none", 0) == []


def test_only_the_stack_of_the_crashed_thread_is_shown(tmp_path: Path) -> None:
    """A worker has many threads, and its last message comes before their stacks."""
    path = tmp_path / "worker.log.err"
    other = "Thread 0x00007f1 (most recent call first):\n" + '  File "t.py", line 1 in run\n' * 9
    current = (
        'Current thread 0x00007f2 (most recent call first):\n  File "b.py", line 2 in execute\n'
    )
    fault = "Fatal Python error: Segmentation fault\n\n"
    path.write_text(f"about to die\n{fault}" + f"{other}\n" * 9 + f"{current}\n{other}the end\n")
    assert last_lines(path, 0) == [
        "about to die",
        "Fatal Python error: Segmentation fault",
        "Current thread 0x00007f2 (most recent call first):",
        '  File "b.py", line 2 in execute',
        "the end",
    ]


def test_a_crash_loop_is_reported_a_few_times_and_says_so() -> None:
    reports = EndReports(limit=3, secs=300.0)
    reported = [reports.suffix("t", now) for now in (0.0, 1.0, 3.0, 7.0, 15.0)]
    assert reported[:2] == ["", ""]
    assert reported[2] is not None
    assert "within 300 s" in reported[2]
    assert reported[3:] == [None, None]
    assert reports.suffix("other", 16.0) == ""
    later = reports.suffix("t", 301.0)
    assert later is not None
    assert "2 more exits" in later


def test_a_reason_is_one_line() -> None:
    assert reason_of(Cause(asked=False), -11) == "killed by SIGSEGV"
    assert reason_of(Cause(asked=False, why="its heartbeats stopped"), 1) == (
        "exited with status 1; its heartbeats stopped"
    )
    assert reason_of(Cause(asked=False), -9, oom_kills=1) == (
        "killed by SIGKILL; the kernel killed it for using too much memory"
    )


def test_the_most_informative_line_is_shown() -> None:
    assert headline([]) == ""
    assert headline(["Traceback (most recent call last):", "ValueError: no database"]) == (
        "ValueError: no database"
    )
    crash = [
        "about to die",
        "Fatal Python error: Segmentation fault",
        "Current thread 0x00007f (most recent call first):",
        '  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at',
        '  File "shop.py", line 58 in execute',
        "Extension modules: msgspec._core (total: 1)",
    ]
    assert headline(crash) == (
        'Fatal Python error: Segmentation fault: File "/usr/lib/python3.11/ctypes/__init__.py", '
        "line 519 in string_at"
    )
    assert headline(crash[:2]) == crash[1]


def test_the_last_exit_of_each_topology_is_kept_for_a_day() -> None:
    exits = RecentExits(topologies_max=2)
    old, new = (WorkerExit(at, "h", 6700, "killed by SIGSEGV", "") for at in (1000, 2000))
    exits.note("a", old)
    exits.note("b", old)
    exits.note("a", new)
    assert exits.listed(2001) == {"b": old, "a": new}
    assert exits.listed(1001 + 86_400) == {"a": new}
    exits.note("c", new)
    assert set(exits.listed(2001)) == {"a", "c"}


def test_exits_are_counted_for_a_day_and_each_one_once() -> None:
    exits = RecentExits(topologies_max=2)
    first, second = (WorkerExit(at, "h", 6700, "killed by SIGKILL", "") for at in (1000, 2000))
    exits.note("a", first)
    exits.note("a", second)
    exits.note("a", second, amends=True)  # the kernel killed it, as is found out later
    exits.note("b", second)
    assert exits.counts(2001) == {"a": 2, "b": 1}
    assert exits.counts(1001 + 86_400) == {"a": 1, "b": 1}
    assert exits.counts(2001 + 86_400) == {}
    exits.note("c", second)
    assert set(exits.counts(2001)) == {"b", "c"}
