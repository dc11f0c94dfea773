"""A child may do anything: the error says what it was, and no message is lost."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import wait_dead
from tests.support.shells import raw_bolt, running
from tests.support.validated import validated_children

pytestmark = pytest.mark.integration


@pytest.fixture(autouse=True)
def _validated() -> Iterator[None]:
    """Every child's life, after everything that happens in it."""
    with validated_children() as contradictions:
        yield
    assert not contradictions


# What a child does all the time, and what the error must say. It is not killed for it.
FORGIVEN = {
    "print": "'a stray print'",
    "print-without-newline": "'a stray print'",
    "no-end": "not followed by a line 'end'",
    "unknown-command": "'dance'",
    "no-command": "has no 'command'",
    "ack-of-a-stranger": "it acked '987654321', which was never the id of a tuple",
    "ack-of-a-number": "it acked 5",
    "fail-of-a-stranger": "it failed 'none such'",
    "anchored-to-a-stranger": "an emit was anchored to '987654321'",
    "tuple-is-no-list": "expected a list",
    "no-such-stream": "declares no stream 'x'",
    "too-many-values": "3",
}


@pytest.mark.parametrize("mode", FORGIVEN)
def test_a_protocol_error_is_reported_and_does_no_harm(mode: str, tmp_path: Path) -> None:
    with running(raw_bolt(mode, tmp_path)) as run:
        (pid,) = run.child_pids()
        run.wait_all_acked()
        assert run.child_pids() == [pid]
        assert all(run.account.seen[n] == 1 for n in range(run.count))
        assert not run.account.failed
        wanted = FORGIVEN[mode]
        assert any(wanted.strip("'") in error for error in run.errors()), run.errors()[:3]
        assert len(run.errors()) < 20, "errors are reported about once a second"
        assert all(len(error) < 2_000 for error in run.errors())


# What a child does once, and what the error must say. Another takes its place.
REPLACED = {
    "garbage": "it wrote: 'this is no json'",
    "half": "not a JSON object",
    "long": "topology.multilang.message.bytes.max",
    "hang": "topology.subprocess.timeout.secs",
    "stop": "answered no heartbeat",
    "deaf": "was silent for",
    "mute": "was silent for",
    "exit": "the reason is on stderr\nthe child process of 'shell'",
    "kill": "was ended by SIGKILL",
}


@pytest.mark.parametrize("mode", REPLACED)
def test_a_child_that_cannot_go_on_is_replaced_and_its_tuples_replayed(
    mode: str, tmp_path: Path
) -> None:
    conf = {"topology.subprocess.timeout.secs": 2, "topology.message.timeout.secs": 60}
    with running(raw_bolt(f"once-{mode}", tmp_path), conf=conf) as run:
        (pid,) = run.child_pids()
        run.wait_all_acked()
        assert run.child_pids() != [pid]
        assert all(run.account.seen[n] >= 1 for n in range(run.count))
        assert run.account.failed, "what it held was failed at once, not at the message timeout"
        (error,) = [e for e in run.errors() if "child process of 'shell'" in e]
        assert REPLACED[mode] in error
        assert "were failed" in error
        wait_dead(pid)


def test_a_child_that_always_dies_stops_no_other_component(tmp_path: Path) -> None:
    """It is started again and again, ever more rarely; the other branch goes on."""
    bolt = raw_bolt("exit", tmp_path)
    with running(
        None, more=[lambda builder: builder.bolt("shell", bolt).shuffle("numbers") and None]
    ) as run:
        run.wait(lambda: len(run.account.seen) == run.count or len(run.errors()) >= 4)
        run.wait(lambda: len(run.errors()) >= 4)
        assert run.account.seen, "the sink had numbers in the meantime"
        assert all("exited with status 3" in error for error in run.errors())


def test_a_child_killed_from_outside_again_and_again(tmp_path: Path) -> None:
    with running(raw_bolt("well", tmp_path), count=3_000) as run:
        for part in range(1, 4):
            run.wait(
                lambda part=part: len(run.account.acked) > part * 500 and bool(run.child_pids())
            )
            os.kill(run.child_pids()[0], signal.SIGKILL)
            run.wait(lambda part=part: len(run.errors()) >= part)
        run.wait_all_acked()
        assert all(run.account.seen[n] >= 1 for n in range(run.count))


def test_the_worker_dies_with_a_child_if_configured_as_in_storm(tmp_path: Path) -> None:
    with running(raw_bolt("once-exit", tmp_path), conf={"topology.bolt.die.on.error": True}) as run:
        topologies = run.cluster._topologies
        run.wait(lambda: topologies._running["shells"].died is not None)
        assert "exited with status 3" in str(topologies._running["shells"].died)


def test_the_worker_dies_with_a_spouts_child_too() -> None:
    from squall import ShellSpout

    spout = ShellSpout(sys.executable, "protocol_spout.py", outputs=["what", "value"])
    with running(None, spout=spout, conf={"topology.bolt.die.on.error": True}) as run:
        topologies = run.cluster._topologies
        run.wait(lambda: run.account.seen["told", "ack 1"] == 1)
        os.kill(run.child_pids("numbers")[0], signal.SIGKILL)
        run.wait(lambda: topologies._running["shells"].died is not None)
        assert "was ended by SIGKILL" in str(topologies._running["shells"].died)


def test_a_missing_command_is_reported_at_the_start(tmp_path: Path) -> None:
    from squall import ShellBolt, SquallError

    bolt = ShellBolt("no-such-command", "x", outputs=["n"])
    with (
        pytest.raises(SquallError, match=r"'shell'.*no-such-command.*cannot be started"),
        running(bolt),
    ):
        pass


def test_a_stuck_child_blocks_only_the_components_that_feed_it(tmp_path: Path) -> None:
    """Its inbox is bounded, though the spout would emit forever; the loop goes on."""
    conf = {"topology.max.spout.pending": None, "topology.message.timeout.secs": 60}
    bolt = raw_bolt("once-hang", tmp_path, after=1)
    with running(bolt, count=200_000, conf=conf) as run:
        totals = run.cluster.totals
        emitted: list[int] = []

        def still() -> bool:
            emitted.append(totals("shells")["numbers"]["emitted"])
            return len(emitted) > 20 and emitted[-20] == emitted[-1] > 0

        run.wait(still)
        assert emitted[-1] < 10_000, "65,536 bytes in the pipe, 100 tuples, and the inbox"
