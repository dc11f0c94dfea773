"""Stages of tests/run_all.py as processes: what is counted, run again, and ended by Ctrl-C."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest
from tests import run_all
from tests.run_all import ROOT, Journal, Stage, _pytest, run_stage
from tests.support.devcluster import is_alive, wait_for

# In a folder of a test's own: what tests/conftest.py does.
LIMITS = """
from tests.support import limits
def pytest_configure(config): config.pluginmanager.register(limits)
"""


def test_a_stage_fails_with_any_of_its_commands() -> None:
    fails, passes = ((sys.executable, "-c", f"raise SystemExit({n})") for n in (1, 0))
    assert run_stage(Stage("s", (fails, passes), 1)).failed
    assert run_stage(Stage("s", (passes, fails), 1)).failed
    assert not run_stage(Stage("s", (passes,), 1)).failed


def stage_of(folder: Path, text: str, *options: str) -> Stage:
    """A stage with the tests of one file."""
    file = folder / "test_it.py"
    file.write_text(f"from pathlib import Path\nimport pytest\n{dedent(text)}")
    return Stage("s", (_pytest("-q", "-p", "no:cacheprovider", *options, str(file)),), 1)


# In a test: whether it, or another with the same mark, ran before.
BEFORE = """
def before(name="ran"):
    mark = Path(__file__).with_name(name)
    ran = mark.exists()
    mark.touch()
    return ran
"""
BOTH_WAYS = pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])


def test_a_pytest_stage_counts_and_names_what_was_skipped(tmp_path: Path) -> None:
    stage = stage_of(
        tmp_path,
        """
        def test_a(): pass
        def test_b(): pytest.skip('no such machine')
        def test_c(): assert False
        """,
    )
    result = run_stage(stage)
    assert result.failed
    assert result.counts == {"tests": 3, "failed": 1, "skipped": 1}
    (skipped,) = result.skipped
    assert skipped.endswith("test_b: no such machine")


@BOTH_WAYS
def test_a_test_that_passes_the_second_time_is_listed_with_what_failed_at_first(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """What a file shares is made anew for the second time."""
    text = """
@pytest.fixture(scope="module")
def cluster(): return before()
def test_a(cluster): assert cluster, 'the first time'
def test_b(cluster): pass
def test_c(cluster): assert cluster
"""
    result = run_stage(stage_of(tmp_path, BEFORE + text, *options))
    assert result.verdict == "ok, 2 unsteady"
    assert result.counts == {"tests": 3, "failed": 0, "skipped": 0}
    line = result.unsteady[0]
    assert "test_it.py::test_a: AssertionError: the first time" in line
    assert "test_it.py:" in line.rpartition("(")[2]


def test_a_test_that_fails_twice_fails_its_stage_whatever_else_passes_then(tmp_path: Path) -> None:
    text = "def test_a(): assert before()\ndef test_b(): assert False\n"
    result = run_stage(stage_of(tmp_path, BEFORE + text))
    assert result.failed
    assert result.counts["failed"] == 1


@BOTH_WAYS
def test_a_process_that_dies_takes_no_other_test_with_it(
    tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Its children are ended: one that stays would count as left behind by the tests."""
    text = """
import os, subprocess, sys
def test_a(): pass
def test_b():
    if not before():
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        Path(__file__).with_name("child").write_text(str(child.pid))
        os._exit(1)
def test_c(): pass
"""
    result = run_stage(stage_of(tmp_path, BEFORE + text, *options))
    assert not result.failed
    assert any("test_b" in line for line in result.unsteady)
    child = int((tmp_path / "child").read_text())
    wait_for("the child to end", lambda: not is_alive(child))


def test_lost_tuples_and_what_was_drawn_fail_at_once(tmp_path: Path) -> None:
    """Whatever was raised in the handling of it."""
    text = """
from hypothesis import given, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, rule
from tests.support.ledger import TuplesLost
@settings(derandomize=False)
@given(strategies.integers())
def test_drawn(number): assert False
@settings(derandomize=True, database=None)
@given(strategies.integers())
def test_drawn_alike(number): assert False
class Machine(RuleBasedStateMachine):
    @rule()
    def fails(self): assert False
Drawn = Machine.TestCase
Drawn.settings = settings(derandomize=False)
class Alike(Drawn):
    settings = settings(derandomize=True, database=None)
def test_raised(): raise TuplesLost('3 of 9')
def test_covered():
    try:
        raise TuplesLost('3 of 9')
    finally:
        raise ValueError('the cluster did not end')
def test_in_a_group(): raise ExceptionGroup('two', [ValueError(), TuplesLost('3 of 9')])
def test_other(): assert False
"""
    result = run_stage(stage_of(tmp_path, text))
    assert result.failed
    assert not result.unsteady
    journal = tmp_path / "journal"
    (command,) = stage_of(tmp_path, text).commands
    env = {**os.environ, "SQUALL_TEST_JOURNAL": str(journal)}
    subprocess.run(command, cwd=ROOT, env=env, check=False, timeout=100)
    final = {test.partition("::")[2] for test in Journal.read(journal).final}
    expected = {"test_drawn", "Drawn::runTest", "test_raised", "test_covered", "test_in_a_group"}
    assert final == expected


def test_what_cannot_be_collected_fails_its_stage(tmp_path: Path) -> None:
    result = run_stage(stage_of(tmp_path, "import squall.no_such_module\n"))
    assert result.failed
    assert result.counts["failed"] == 1


def test_a_stage_that_stands_still_is_cut_and_names_what_it_was_doing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    # Long enough for a start of pytest on a busy machine.
    monkeypatch.setattr(run_all, "STILL_SECS_MAX", 20.0)
    text = "import time\n@pytest.mark.timeout(600)\ndef test_a(): time.sleep(600)\n"
    result = run_stage(stage_of(tmp_path, text, "-n", "1"))
    assert result.failed
    shown = capfd.readouterr()
    assert re.search(r"=== s: cut, .*test_it.py::test_a", shown.out)
    assert "in test_a" in shown.err  # the stacks


def test_a_test_that_hangs_fails_with_its_stacks_and_ends_its_fixtures(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "conftest.py").write_text(LIMITS)
    text = """
import asyncio
@pytest.fixture
def cluster():
    yield
    Path(__file__).with_name("ended").touch()
async def forever(): await asyncio.Event().wait()
@pytest.mark.timeout(2)
async def test_a(cluster):
    if not before(): await forever()
def test_b(): pass
"""
    result = run_stage(stage_of(tmp_path, BEFORE + text, "-o", "asyncio_mode=auto"))
    assert result.verdict == "ok, 1 unsteady"
    shown = capfd.readouterr().out
    assert "still ran after 2 s" in shown
    assert "async def forever(): await asyncio.Event().wait()" in shown
    assert (tmp_path / "ended").exists()


def test_a_fixture_that_hangs_for_good_ends_its_process_and_no_other_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SQUALL_TEST_GRACE_SECS", "2")
    (tmp_path / "conftest.py").write_text(LIMITS)
    text = """
import signal, time
@pytest.fixture
def cluster():
    yield
    if not before():
        signal.signal(signal.SIGALRM, signal.SIG_IGN)
        time.sleep(600)
@pytest.mark.timeout(2)
def test_a(cluster): pass
def test_b(): pass
"""
    result = run_stage(stage_of(tmp_path, BEFORE + text, "-n", "1"))
    assert not result.failed
    assert result.counts == {"tests": 2, "failed": 0, "skipped": 0}
    assert "in cluster" in capfd.readouterr().err


def without_ctrl_c(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a shell without job control runs it in the background."""
    return subprocess.run(
        ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *command],
        cwd=ROOT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip


_ONE_STAGE = """
import sys
from tests import run_all
from tests.run_all import Stage
asked = "import signal, sys; sys.exit(signal.getsignal(signal.SIGINT) == signal.SIG_IGN)"
run_all.STAGES = (Stage("one", ((sys.executable, "-c", asked),), 60),)
sys.exit(run_all.main([]))
"""


def test_ctrl_c_ends_the_processes_of_a_stage_even_if_the_shell_ignores_it() -> None:
    done = without_ctrl_c(sys.executable, "-c", _ONE_STAGE)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("options", [(), ("-n", "1")], ids=["one process", "xdist"])
def test_ctrl_c_is_tested_even_if_the_shell_ignores_it(options: tuple[str, ...]) -> None:
    test = "tests/component/squall/test_entry.py::test_ctrl_c_ends_local_mode"
    with_pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = without_ctrl_c(*with_pytest, "--timeout", "60", *options, test)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
