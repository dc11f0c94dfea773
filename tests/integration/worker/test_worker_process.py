"""Real worker processes over a real ZooKeeper, with the assignment written by hand."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.support.ledger import nothing_lost
from tests.support.servers import free_port
from tests.support.workers import (
    NODE,
    TOPOLOGY_ID,
    Cluster,
    WorkerProcess,
    sys_path,
    wait_until,
)
from tests.support.zookeeper import fresh_root, own_zookeeper, zookeeper  # noqa: F401

from squall import TopologyBuilder
from squall_cli.cluster.zookeeper import DevZooKeeper
from squall_common.cluster.values import SpoutStats, TopologyStatus
from squall_common.topology.model import Executor, Topology, WorkerSlot
from squall_common.worker_files.heartbeat_file import Phase
from squall_worker.process import EXIT_FATAL, EXIT_NOT_OURS, EXIT_STOPPED, EXIT_USAGE
from squall_worker.watch.watchdog import EXIT_STALLED

pytestmark = pytest.mark.integration

LINES = 3000


def words(lines: int = LINES) -> Callable[[ModuleType, str], Topology]:
    def build(module: ModuleType, out: str) -> Topology:
        builder = TopologyBuilder()
        builder.spout("lines", module.Lines(lines, out))
        builder.bolt("split", module.Split(), parallelism=2).shuffle("lines")
        builder.bolt("record", module.Record(out), parallelism=2).fields("split", "word")
        return builder.build()

    return build


def daemon_conf(server: DevZooKeeper, root: str) -> dict[str, Any]:
    return {
        "storm.zookeeper.servers": ["127.0.0.1"],
        "storm.zookeeper.port": server.port,
        "storm.zookeeper.root": root,
        # Neither a supervisor nor a Nimbus is there: workers write their heartbeats themselves.
        "nimbus.seeds": ["127.0.0.1:1"],
        "storm.zookeeper.session.timeout": 4000,
        "storm.zookeeper.connection.timeout": 4000,
        "worker.heartbeat.frequency.secs": 0.2,
        "task.heartbeat.frequency.secs": 0.3,
        "task.refresh.poll.secs": 1,
        "supervisor.worker.shutdown.sleep.secs": 5,
    }


TOPOLOGY_CONF = {
    "topology.workers": 2,
    "topology.acker.executors": 2,
    "topology.max.spout.pending": 200,
    "topology.message.timeout.secs": 30,
}


class Opener:
    """Makes clusters that the test's end closes."""

    def __init__(self, stack: AsyncExitStack, folder: Path) -> None:
        self._stack = stack
        self._folder = folder

    async def __call__(
        self, server: DevZooKeeper, build: Callable[[ModuleType, str], Topology], **conf: Any
    ) -> Cluster:
        cluster = Cluster(
            self._folder, daemon_conf(server, fresh_root()), build, {**TOPOLOGY_CONF, **conf}
        )
        self._stack.push_async_callback(cluster.close)
        await cluster.start()
        return cluster


@pytest.fixture
async def open_cluster(tmp_path: Path) -> AsyncIterator[Opener]:
    async with AsyncExitStack() as stack:
        yield Opener(stack, tmp_path / "cluster")


def spread(ports: tuple[int, int]) -> Callable[[Executor, str], int]:
    """Spout and half of the rest here, the other half there."""

    def where(executor: Executor, component: str) -> int:
        return ports[0] if component == "lines" else ports[executor.task_start % 2]

    return where


@asynccontextmanager
async def two_workers(cluster: Cluster) -> AsyncIterator[tuple[WorkerProcess, WorkerProcess]]:
    ports = (free_port(), free_port())
    await cluster.assign(spread(ports))
    one, two = cluster.launch(ports[0]), cluster.launch(ports[1])
    await one.wait_running()
    await two.wait_running()
    yield one, two


async def test_two_workers_count_exactly(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """No fault: every word once. Then a graceful stop of both, in order and quick."""
    cluster = await open_cluster(zookeeper, words())
    async with two_workers(cluster) as (one, two):
        await wait_until(lambda: cluster.acked() == LINES, 60, "all lines acked")
        recorded = cluster.recorded()
        with nothing_lost():
            assert len(recorded) == len(set(recorded))
            assert set(recorded) == cluster.expected(LINES)
        for port in (one.spec.port, two.spec.port):
            sinks = list(cluster.out.glob("sink-*"))
            assert len(sinks) == 2, port
        await check_heartbeats(cluster, one, two)
        await cluster.set_status(TopologyStatus.KILLED)
        for worker in (one, two):
            began = time.monotonic()
            worker.process.send_signal(signal.SIGTERM)
            assert await worker.wait_exit() == EXIT_STOPPED
            assert time.monotonic() - began < 15
            assert worker.err.read_text() == ""
            assert "ERROR" not in worker.log


async def check_heartbeats(cluster: Cluster, one: WorkerProcess, two: WorkerProcess) -> None:
    spout = next(e for e in cluster.executors if cluster.task_to_component[e.task_start] == "lines")
    slots = {WorkerSlot(NODE, worker.spec.port) for worker in (one, two)}

    async def reported() -> bool:
        beats = await cluster.state.worker_beats(TOPOLOGY_ID)
        if set(beats) != slots:
            return False
        stats = beats[WorkerSlot(NODE, one.spec.port)][0].executor_stats[spout]
        if stats is None:
            return False
        assert isinstance(stats.specific, SpoutStats)
        return stats.specific.acked.get(":all-time", {}).get("default") == LINES

    await wait_until(reported, 60, "statistics in ZooKeeper")
    beats = await cluster.state.worker_beats(TOPOLOGY_ID)
    executors = [e for slot in slots for e in beats[slot][0].executor_stats]
    assert sorted(executors) == sorted(cluster.executors)
    for worker in (one, two):
        assert worker.beat is not None
        assert worker.beat.phase is Phase.RUNNING


async def test_a_killed_worker_comes_back_and_nothing_is_lost(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """SIGKILL of the worker without the spout, twice, and of the one with it: each word at least
    once, and replay does not wait for the message timeout."""
    lines = 20_000
    conf = {"topology.max.spout.pending": 100, "topology.message.timeout.secs": 3_000}
    cluster = await open_cluster(zookeeper, words(lines), **conf)
    async with two_workers(cluster) as (one, two):
        for share, victim in ((0.1, 1), (0.3, 1), (0.5, 0)):
            await wait_until(lambda s=share: cluster.acked() > s * lines, 60, "progress")  # type: ignore[misc]
            worker = (one, two)[victim]
            worker.kill()
            again = cluster.launch(worker.spec.port)
            await again.wait_running()
            if victim == 1:
                two = again
            else:
                one = again
        await wait_until(lambda: cluster.acked() == lines, 60, "all lines acked")
        with nothing_lost():
            assert set(cluster.recorded()) == cluster.expected(lines)


async def test_a_graceful_restart_under_load_fails_nothing(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """Twice: what the leaving worker has taken it finishes, what it has not waits for the next."""
    lines = 20_000
    cluster = await open_cluster(zookeeper, words(lines), **{"topology.max.spout.pending": 100})
    async with two_workers(cluster) as (one, two):
        await wait_until(lambda: cluster.acked() > 1000, 60, "progress")
        for _ in range(2):
            acked = cluster.acked()
            await wait_until(lambda a=acked: cluster.acked() > a + 1000, 60, "progress")  # type: ignore[misc]
            two.process.send_signal(signal.SIGTERM)
            assert await two.wait_exit() == EXIT_STOPPED
            two = cluster.launch(two.spec.port)
        await wait_until(lambda: cluster.acked() == lines, 60, "all lines acked")
        recorded = cluster.recorded()
        with nothing_lost():
            assert set(recorded) == cluster.expected(lines)
        assert len(recorded) == len(cluster.expected(lines)), "a word was replayed"
        assert "worker_lost" not in one.log


async def test_a_hanging_metrics_consumer_does_not_delay_the_goodbye(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    conf = {"topology.metrics.consumer.register": [{"class": "words.HangingConsumer"}]}
    cluster = await open_cluster(zookeeper, words(100), **conf)
    async with two_workers(cluster) as (one, two):
        await wait_until(lambda: cluster.acked() == 100, 60, "all lines acked")
        two.process.send_signal(signal.SIGTERM)
        assert await two.wait_exit() == EXIT_STOPPED
        stuck = two.log.index("metrics_consumer_stuck")
        assert two.log.index("transport_closed") < stuck
        await wait_until(lambda: "drained=True" in one.log, what="the goodbye")


async def test_deactivation_stops_the_spouts_and_activation_resumes(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    lines = 60_000
    cluster = await open_cluster(zookeeper, words(lines), **{"topology.max.spout.pending": 20})
    async with two_workers(cluster) as (one, two):
        await wait_until(lambda: cluster.acked() > 100, 60, "progress")
        # The second one has no spout, and works before it has read the status. It says nothing of a
        # status that lets no spout run if it has read no other.
        await wait_until(lambda: "spouts_run=True" in two.log, 60, "activation")
        await cluster.set_status(TopologyStatus.INACTIVE)
        await wait_until(lambda: "spouts_run=False" in one.log, 60, "deactivation")
        await wait_until(lambda: "spouts_run=False" in two.log, 60, "deactivation")
        seen = -1

        def still() -> bool:
            nonlocal seen
            before, seen = seen, cluster.acked()
            time.sleep(0.1)
            return before == seen

        await wait_until(still, 60, "silence")
        assert seen < lines
        await cluster.set_status(TopologyStatus.ACTIVE)
        await wait_until(lambda: cluster.acked() > seen + 100, 60, "progress again")


async def test_tasks_that_move_to_another_worker_are_followed_without_a_restart(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """The second worker's work moves to a third slot: the first only re-routes; the second, which
    nobody kills, gives up by itself."""
    lines = 20_000
    cluster = await open_cluster(zookeeper, words(lines), **{"topology.max.spout.pending": 100})
    async with two_workers(cluster) as (one, two):
        await wait_until(lambda: cluster.acked() > 1000, 60, "progress")
        third = free_port()
        await cluster.assign(spread((one.spec.port, third)))
        await cluster.launch(third).wait_running()
        assert await two.wait_exit() == EXIT_NOT_OURS
        await wait_until(lambda: cluster.acked() == lines, 60, "all lines acked")
        with nothing_lost():
            assert set(cluster.recorded()) == cluster.expected(lines)
        assert one.process.poll() is None


async def test_zookeeper_may_come_late_and_go_away(
    own_zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """Absent at the start: the worker waits and says so. Away later: it goes on."""
    lines = 12_000
    # So slow that there are lines left when the server has stopped, on a busy machine, too.
    cluster = await open_cluster(own_zookeeper, words(lines), **{"topology.max.spout.pending": 2})
    ports = (free_port(), free_port())
    await cluster.assign(spread(ports))
    await own_zookeeper.stop()
    one, two = cluster.launch(ports[0]), cluster.launch(ports[1])
    await wait_until(lambda: "waiting_for_zookeeper" in one.log, 60, "word of waiting")
    assert one.beat is not None
    assert one.beat.phase is Phase.STARTING
    await own_zookeeper.start()
    await one.wait_running()
    await two.wait_running()
    await wait_until(lambda: cluster.acked() > 100, 60, "progress")
    await own_zookeeper.stop()
    acked = cluster.acked()
    assert acked < lines - 500, "all was done before: more lines are due"
    await wait_until(lambda: cluster.acked() > acked + 500, 60, "progress without ZooKeeper")
    await own_zookeeper.start()
    await wait_until(lambda: cluster.acked() == lines, 60, "all lines acked")
    with nothing_lost():
        assert set(cluster.recorded()) == cluster.expected(lines)
    assert (one.process.poll(), two.process.poll()) == (None, None)


# -- one worker, and what goes wrong ----------------------------------------------------------


def everything_on(port: int) -> Callable[[Executor, str], int]:
    return lambda executor, component: port


def lines_into(bolt: str) -> Callable[[ModuleType, str], Topology]:
    def build(module: ModuleType, out: str) -> Topology:
        builder = TopologyBuilder()
        builder.spout("lines", module.Lines(50, out))
        made = getattr(module, bolt)(out) if bolt == "Stuck" else getattr(module, bolt)()
        builder.bolt("bolt", made).shuffle("lines")
        return builder.build()

    return build


async def test_errors_of_components_reach_zookeeper_throttled(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    cluster = await open_cluster(
        zookeeper, lines_into("Angry"), **{"topology.max.error.report.per.interval": 3}
    )
    port = free_port()
    await cluster.assign(everything_on(port))
    worker = cluster.launch(port)
    await worker.wait_running()

    async def reported() -> bool:
        errors = await cluster.state.errors(TOPOLOGY_ID, "bolt")
        # Each is written to the list first, then as the last.
        return len(errors) == 3 and await cluster.state.last_error(TOPOLOGY_ID, "bolt") is not None

    await wait_until(reported, 60, "three errors")
    last = await cluster.state.last_error(TOPOLOGY_ID, "bolt")
    assert last is not None
    assert "ValueError: bad line" in last.error
    assert (last.host, last.port) == ("localhost", port)
    assert worker.process.poll() is None
    assert worker.log.count("squall_engine component_error component=bolt") == 3


async def test_a_bolt_that_cannot_start_ends_the_worker_with_its_error(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    cluster = await open_cluster(zookeeper, lines_into("Broken"))
    port = free_port()
    await cluster.assign(everything_on(port))
    worker = cluster.launch(port)
    assert await worker.wait_exit() == EXIT_FATAL
    errors = await cluster.state.errors(TOPOLOGY_ID, "bolt")
    assert len(errors) == 1
    assert "this bolt never starts" in errors[0].error
    assert "worker_fails" in worker.log
    assert "this bolt never starts" in worker.err.read_text().splitlines()[-1]


async def test_a_missing_module_is_named(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    cluster = await open_cluster(zookeeper, words())
    port = free_port()
    await cluster.assign(everything_on(port))
    (cluster.stormdist / "code" / "words.py").unlink()
    worker = cluster.launch(port)
    assert await worker.wait_exit() == EXIT_FATAL
    assert "words" in worker.log
    errors = await cluster.state.all_errors(TOPOLOGY_ID)
    assert any("words" in error.error for found in errors.values() for error in found)


async def test_a_damaged_topology_is_named(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    cluster = await open_cluster(zookeeper, words())
    port = free_port()
    await cluster.assign(everything_on(port))
    (cluster.stormdist / "stormcode.ser").write_bytes(os.urandom(100))
    worker = cluster.launch(port)
    assert await worker.wait_exit() == EXIT_FATAL
    assert "cannot be read" in worker.log
    assert "Traceback" not in worker.log
    errors = await cluster.state.errors(TOPOLOGY_ID, "__system")
    assert "cannot be read" in errors[0].error


async def test_a_port_in_use_ends_the_worker_with_a_clear_message(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    cluster = await open_cluster(zookeeper, words())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        await cluster.assign(everything_on(port))
        worker = cluster.launch(port)
        assert await worker.wait_exit() == EXIT_FATAL
    assert f"cannot bind the worker's port 127.0.0.1:{port}" in worker.log


async def test_a_listener_beyond_loopback_is_refused(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    cluster = await open_cluster(zookeeper, words())
    worker = cluster.launch(free_port(), **{"storm.bind.host": "0.0.0.0"})
    assert await worker.wait_exit() == EXIT_FATAL
    assert "storm.security.insecure" in worker.log


async def test_a_stuck_bolt_shows_in_the_heartbeat_and_its_stacks_can_be_dumped(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """The heartbeats go on, to the file and to ZooKeeper, and the turn's age grows."""
    cluster = await open_cluster(zookeeper, lines_into("Stuck"))
    port = free_port()
    await cluster.assign(everything_on(port))
    worker = cluster.launch(port)
    await worker.wait_running()
    await wait_until(
        lambda: worker.beat is not None and worker.beat.turn_age_ms > 700, 60, "turn age"
    )
    await wait_until(lambda: "call_under_way" in worker.log, 60, "the call is named")
    assert "Stuck.execute" in worker.log
    slot = WorkerSlot(NODE, port)

    async def written() -> int:
        beats = await cluster.state.worker_beats(TOPOLOGY_ID)
        return beats[slot][1] if slot in beats else 0

    await wait_until(
        written, 60, "a heartbeat in ZooKeeper"
    )  # it may be stuck since the first turn
    before = await written()

    async def beats_on() -> bool:
        return await written() > before

    await wait_until(beats_on, 60, "heartbeats in ZooKeeper")
    worker.process.send_signal(signal.SIGUSR1)
    await wait_until(lambda: "in execute" in worker.err.read_text(), 60, "stacks")
    (cluster.out / "go").write_text("")
    await wait_until(
        lambda: worker.beat is not None and worker.beat.turn_age_ms < 700, 60, "a free loop"
    )


async def test_a_call_that_does_not_return_is_an_error_and_ends_its_worker(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """The loop is stuck, so the error comes by another way: by a session of its own."""
    conf = {"topology.message.timeout.secs": 2, "topology.worker.stall.timeout.secs": 4}
    cluster = await open_cluster(zookeeper, lines_into("Stuck"), **conf)
    port = free_port()
    await cluster.assign(everything_on(port))
    worker = cluster.launch(port)
    await worker.wait_running()
    assert await worker.wait_exit() == EXIT_STALLED
    assert "call_overdue" in worker.log
    restarted, overdue = await cluster.state.errors(TOPOLOGY_ID, "bolt")
    assert "Stuck.execute of task " in overdue.error
    assert "given a tuple of lines (task " in overdue.error
    assert ", message id " in overdue.error
    assert "in execute\n" in overdue.error
    assert (overdue.host, overdue.port) == ("localhost", port)
    assert "its worker is restarted" in restarted.error


async def test_the_error_of_a_stuck_call_names_a_message_of_another_workers_spout(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """The spout's worker is asked, while the message is in flight."""
    conf = {"topology.message.timeout.secs": 6}
    cluster = await open_cluster(zookeeper, lines_into("Stuck"), **conf)
    ports = (free_port(), free_port())
    await cluster.assign(lambda _, component: ports[component == "bolt"])
    spout, stuck = cluster.launch(ports[0]), cluster.launch(ports[1])
    await spout.wait_running()
    await stuck.wait_running()

    async def reported() -> bool:
        return bool(await cluster.state.errors(TOPOLOGY_ID, "bolt"))

    await wait_until(reported, 60, "an error")
    (overdue,) = await cluster.state.errors(TOPOLOGY_ID, "bolt")
    assert overdue.port == ports[1]
    said = overdue.error.splitlines()[-1]
    assert re.search(r"a tuple of lines \(task \d+\), stream default, message id \d+ ", said), said
    (cluster.out / "go").write_text("")


async def test_a_call_that_holds_the_interpreter_leaves_its_stack(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """No thread of Python runs any more, so the heartbeats stop: the supervisor will end it."""
    cluster = await open_cluster(zookeeper, lines_into("Backtracking"))
    port = free_port()
    await cluster.assign(everything_on(port))
    worker = cluster.launch(port, **{"supervisor.worker.timeout.secs": 2})
    await wait_until(lambda: "in execute" in worker.err.read_text(), 60, "stacks")
    assert "Timeout (" in worker.err.read_text()
    worker.process.kill()


async def test_a_stop_during_the_start_is_obeyed(
    own_zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    cluster = await open_cluster(own_zookeeper, words())
    await own_zookeeper.stop()
    worker = cluster.launch(free_port())
    await wait_until(lambda: worker.beat is not None, 60, "a heartbeat")
    worker.process.send_signal(signal.SIGTERM)
    assert await worker.wait_exit() == EXIT_STOPPED


def test_wrong_launch_files_are_refused(tmp_path: Path) -> None:
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys_path())}
    bad = tmp_path / "launch.json"
    bad.write_text("{}")
    for arguments in ([], ["t", "s", "1", "w", str(bad)], ["t", "s", "1", "w", "/nonexistent"]):
        done = subprocess.run(
            [sys.executable, "-m", "squall_worker", *arguments],
            env=env, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == EXIT_USAGE
        assert "Traceback" not in done.stderr


async def test_an_idle_worker_uses_next_to_no_cpu(
    zookeeper: DevZooKeeper,  # noqa: F811
    open_cluster: Opener,
) -> None:
    """Two linked workers of a deactivated topology (an active spout is asked for tuples again and
    again), with Storm's default intervals: below 1 % each."""
    cluster = await open_cluster(zookeeper, words(10))
    cluster.conf.update(
        {"worker.heartbeat.frequency.secs": 1, "task.heartbeat.frequency.secs": 3,
         "task.refresh.poll.secs": 10}
    )  # fmt: skip
    async with two_workers(cluster) as (one, two):
        await wait_until(lambda: cluster.acked() == 10, 60, "all lines acked")
        await cluster.set_status(TopologyStatus.INACTIVE)
        await wait_until(lambda: "spouts_run=False" in one.log, 60, "deactivation")
        before = [cpu_secs(worker) for worker in (one, two)]
        began = time.monotonic()
        await wait_until(lambda: time.monotonic() - began > 6, 10)
        secs = time.monotonic() - began
        used = [cpu_secs(w) - b for w, b in zip((one, two), before, strict=True)]
        assert max(used) / secs < 0.01, used


def cpu_secs(worker: WorkerProcess) -> float:
    fields = Path(f"/proc/{worker.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
