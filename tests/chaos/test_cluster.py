"""A whole cluster in network namespaces (`tests/support/netcluster.py`), one fault after the other
under load; an external ledger proves that nothing accepted is lost. What was found, with the times
that recovery took, is printed and written to build/chaos/cluster.json.

Times are asserted only as far as a machine that is busy with other things keeps them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.integration.nimbus.test_nimbus_process import upload
from tests.support import netns, wall_clock
from tests.support.chaos_report import Report
from tests.support.devcluster import ROOT, wait_empty, wait_for
from tests.support.effort import SOAK, STORM_SECS, slowdown
from tests.support.footprint import Footprint
from tests.support.ledger import Ledger, text
from tests.support.netcluster import (
    NIMBUSES,
    SESSION_SECS,
    SMALL_DISK,
    SUPERVISORS,
    ZOOKEEPERS,
    NetCluster,
)
from tests.support.nimbus_service import topology
from tests.support.seeds import drawn_seed
from tests.support.submit import LEDGER

from squall_common.client.nimbus import NimbusClient
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusError
from squall_thrift import storm as thrift
from squall_thrift.protocol.messages import ThriftApplicationError

# Far above what any of them takes: on a busy machine 44 kills take minutes.
pytestmark = [pytest.mark.chaos, pytest.mark.timeout(STORM_SECS + 450)]

LINES_PER_SEC = 250.0
WORDS_PER_LINE = 9  # more than the text has
LINES = int(LINES_PER_SEC * (STORM_SECS + 190))  # enough for as long as a scenario may last
WORKERS = 6
# Several times the tasks of the largest component: all of them have worked on a watched line.
WATCHED = 24
# All is well on a busy machine, too; the figures that we promise are in docs/reliability.md.
RECOVERY_SECS_MAX = 40.0
WARM_UP = 4  # kills, before what the daemons hold on to is counted
KILLS = 40 if SOAK else 20
KILLS_OF_TWO = 60 if SOAK else 10
SCENARIOS = 16
ZOOKEEPER_AWAY_SECS = 30.0 if SOAK else 7.5 * SESSION_SECS
MEMORY_GROWTH_MAX = 1.1  # R17
PAUSE_SECS_MAX = 5.0  # R16: without an ack, while all is restarted in turn

PENDING = 100
CONF = {"topology.max.spout.pending": PENDING}
# Nobody waits for the message timeout: what a fault took is failed as soon as it is known (R5).
PATIENT = {**CONF, "topology.message.timeout.secs": 300}


@pytest.fixture(scope="module")
def report() -> Iterator[Report]:
    found = Report()
    yield found
    # A test that runs alone, for the second time perhaps, leaves the whole report as it is.
    name = "cluster.json" if len(found.scenarios) >= SCENARIOS else "cluster-part.json"
    print(found.write(ROOT / "build" / "chaos" / name))


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetCluster]:
    reason = netns.unavailable() or wall_clock.unavailable()
    if reason is not None:
        if os.environ.get("CI"):
            pytest.fail(f"{reason}; CI needs it")
        pytest.skip(reason)
    with NetCluster.start(tmp_path_factory.mktemp("cluster")) as cluster:
        yield cluster


@pytest.fixture
def cluster(shared: NetCluster) -> Iterator[NetCluster]:
    """Whole, and without a topology, whatever the test before did."""
    shared.heal()
    yield shared
    shared.heal()
    for summary in shared.call("getClusterInfo").topologies:
        with contextlib.suppress(thrift.NotAliveException):
            options = thrift.KillOptions(wait_secs=0)
            shared.call("killTopologyWithOpts", summary.name, options)
    wait_for("the workers to end", lambda: not shared.worker_processes(), 90, 0.2)


@contextlib.contextmanager
def load(
    cluster: NetCluster,
    report: Report,
    scenario: str,
    workers: int = WORKERS,
    conf: dict[str, Any] = CONF,
    lines: int = LINES,
    **figures: Any,
) -> Iterator[Ledger]:
    """The ledger's topology, on all slots unless told otherwise, while the block runs; then all
    that was handed out must be done, and is judged. `figures` go into the report, too, and may be
    filled in meanwhile."""
    host = cluster.network.own_address
    with Ledger(text(lines * WORDS_PER_LINE)[:lines], host) as ledger:
        ledger.pace(LINES_PER_SEC)
        address = f"{host}:{ledger.port}"
        options = json.dumps(
            {**conf, "topology.environment": cluster.clocks.environment("workers")}
        )
        cluster.storm("jar", LEDGER, "ledger_topology.py", "ledger", address, str(workers), options)
        cluster.wait_workers(workers)
        ledger.wait_done(50, timeout_secs=120)
        yield ledger
        cluster.heal()
        ledger.serve_up_to(ledger.handed_out())
        ledger.pace(None)
        ledger.wait_done(ledger.handed_out(), timeout_secs=120)
        report.judge(scenario, ledger, **figures)


def signal_worker(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def kill_node(cluster: NetCluster, node: str) -> None:
    """As if its power had gone: nothing says goodbye."""
    cluster.network.pull(node)
    cluster.signal(node, signal.SIGKILL)
    for pid in cluster.worker_processes(node):
        signal_worker(pid, signal.SIGKILL)


async def submit_until_accepted(cluster: NetCluster, name: str) -> None:
    """From the start again whenever there is no leader, or it goes."""
    seeds = tuple(cluster.addresses[node] for node in NIMBUSES)
    options = ClientOptions(nimbus_seeds=seeds, storm_nimbus_retry_times=0)
    async with asyncio.timeout(SESSION_SECS + RECOVERY_SECS_MAX):
        while True:
            try:
                async with asyncio.timeout(5), await NimbusClient.connect(options) as client:
                    handle = await upload(client)  # type: ignore[arg-type]
                    await client.call("submitTopology", name, handle, "{}", topology())
                    return
            except thrift.AlreadyAliveException:
                return
            except (NimbusError, ThriftApplicationError, TimeoutError):
                await asyncio.sleep(0.05)


def test_workers_are_killed_one_after_the_other(cluster: NetCluster, report: Report) -> None:
    """Each kill has at most what was pending done twice, and leaves nothing behind."""
    figures: dict[str, Any] = {}
    scenario = "worker SIGKILL"
    with load(cluster, report, scenario, conf=PATIENT, lines=2 * LINES, figures=figures) as ledger:
        launches = cluster.launches()
        kill_workers(cluster, report, scenario, ledger, WARM_UP, WORKERS, launches)
        before = settled(cluster)
        kill_workers(cluster, report, scenario, ledger, KILLS, WORKERS, launches)
        wait_empty(
            "no daemon to hold on to more than before",
            lambda: Footprint.take(cluster).grown_since(before),
            60,
        )
        memory = Footprint.take(cluster).memory_since(before)
        figures["memory_after_kills"] = memory
        assert max(memory.values()) <= MEMORY_GROWTH_MAX, memory


def test_one_of_two_workers_is_killed(cluster: NetCluster, report: Report) -> None:
    """The one with the spout, or the one that it sends to: Apache Storm takes 45 s for it."""
    scenario = "worker SIGKILL, two workers"
    with load(cluster, report, scenario, workers=2, conf=PATIENT) as ledger:
        kill_workers(cluster, report, scenario, ledger, KILLS_OF_TWO, 2, cluster.launches())


def kill_workers(
    cluster: NetCluster,
    report: Report,
    kind: str,
    ledger: Ledger,
    kills: int,
    workers: int,
    launches: int,
) -> None:
    """One after the other, each when the one before is back. Each loss of a worker (on a busy
    machine one may also be replaced because it was too slow) has at most what was pending done
    twice (R3); there is one spout task. `launches`: of the cluster before the first kill that this
    ledger has seen, since what one kill repeats may come after the next."""
    draw = random.Random(kills)
    for _ in range(kills):
        pids = cluster.wait_workers(workers)
        ledger.watch(WATCHED)
        signal_worker(draw.choice(sorted(pids)), signal.SIGKILL)
        report.recovered(kind, ledger.wait_watched(RECOVERY_SECS_MAX), kills=1)
    cluster.wait_workers(workers)
    lost = cluster.launches() - launches
    assert lost >= kills
    assert ledger.lines_repeated() <= lost * PENDING


def settled(cluster: NetCluster) -> Footprint:
    """What the cluster holds on to when that does not change for longer than a session lasts: those
    of the dead are over then."""
    last = Footprint.take(cluster)
    for _ in range(10):
        time.sleep(1.5 * SESSION_SECS)
        now = Footprint.take(cluster)
        if not now.grown_since(last) and not last.grown_since(now):
            break
        last = now
    return last


def test_killing_the_leader_disturbs_nothing(cluster: NetCluster, report: Report) -> None:
    with load(cluster, report, "Nimbus SIGKILL") as ledger:
        workers = cluster.wait_workers(WORKERS)
        for number in range(3):
            leader = cluster.nimbus_leader()
            cluster.signal(leader, signal.SIGKILL)
            since = time.monotonic()
            asyncio.run(submit_until_accepted(cluster, f"after-{number}"))
            report.recovered("Nimbus SIGKILL to submit", time.monotonic() - since, kills=1)
            ledger.watch(WATCHED)
            ledger.wait_watched(RECOVERY_SECS_MAX)
            cluster.heal()
        assert cluster.worker_processes() == workers


def was_in_time(cluster: NetCluster, away: Sequence[float], losses: int) -> bool:
    """Whether no daemon was missed. On a busy machine a supervisor is, whose session ends before it
    is back: its workers' heartbeats may then be as old as a session, since they first have to find
    out that they must report to Nimbus themselves, and their executors count as dead."""
    return max(away) < SESSION_SECS or cluster.losses() == losses


def test_supervisors_are_killed_and_adopt_their_workers(
    cluster: NetCluster, report: Report
) -> None:
    with load(cluster, report, "supervisor SIGKILL") as ledger:
        workers, away, losses = cluster.wait_workers(WORKERS), [], cluster.losses()
        for node in SUPERVISORS:
            log = cluster.folder / "logs" / node / "supervisor.log"
            killed = time.monotonic()
            cluster.signal(node, signal.SIGKILL)
            read = log.stat().st_size
            cluster.launch(node)
            since = time.monotonic()

            def adopted(log: Path = log, read: int = read) -> bool:
                return log.read_bytes()[read:].count(b"next=RUNNING") >= 2

            wait_for(f"the workers of {node} to be adopted", adopted, RECOVERY_SECS_MAX)
            report.recovered("supervisor SIGKILL to adoption", time.monotonic() - since, kills=1)
            away.append(time.monotonic() - killed)
            ledger.watch(WATCHED)
            ledger.wait_watched(RECOVERY_SECS_MAX)
        if was_in_time(cluster, away, losses):
            assert cluster.worker_processes() == workers


def test_nodes_are_lost_just_after_launch_and_later(cluster: NetCluster, report: Report) -> None:
    with load(cluster, report, "node loss") as ledger:
        for kind, node in (("node loss after launch", "s1"), ("node loss", "s2")):
            ledger.watch(WATCHED)
            lost = len(cluster.worker_processes(node))
            kill_node(cluster, node)
            report.recovered(kind, ledger.wait_watched(RECOVERY_SECS_MAX), kills=1 + lost)
            cluster.heal()
            ledger.watch(WATCHED)
            ledger.wait_watched(RECOVERY_SECS_MAX)


def test_a_node_and_the_leader_are_lost_together(cluster: NetCluster, report: Report) -> None:
    with load(cluster, report, "node and leader loss") as ledger:
        leader = cluster.nimbus_leader()
        ledger.watch(WATCHED)
        lost = len(cluster.worker_processes("s3"))
        cluster.signal(leader, signal.SIGKILL)
        kill_node(cluster, "s3")
        took = ledger.wait_watched(RECOVERY_SECS_MAX)
        report.recovered("node and leader loss", took, kills=2 + lost)


@pytest.mark.parametrize("with_nimbus", [False, True], ids=["alone", "with a Nimbus"])
def test_a_node_that_is_cut_off_stops_its_workers(
    cluster: NetCluster, report: Report, with_nimbus: bool
) -> None:
    """A Nimbus beside it, two of five daemons, is no majority either. There are free slots: nothing
    moves but what ran on that node."""
    cut = ["s1"]
    if with_nimbus:
        cut.append(next(node for node in NIMBUSES if node != cluster.nimbus_leader()))
    scenario = f"cut off: {'a node and a Nimbus' if with_nimbus else 'a node'}"
    with load(cluster, report, scenario, workers=4) as ledger:
        others = cluster.worker_processes("s2") | cluster.worker_processes("s3")
        ledger.watch(WATCHED)
        since = time.monotonic()
        for node in cut:
            cluster.network.pull(node)
        report.recovered("cut off to processing", ledger.wait_watched(RECOVERY_SECS_MAX))
        wait_isolated(cluster, "s1", RECOVERY_SECS_MAX)
        report.recovered("cut off to its workers' end", time.monotonic() - since)
        assert others.keys() <= cluster.worker_processes().keys()  # nobody else was disturbed
        cluster.heal()
        ledger.watch(WATCHED)
        ledger.wait_watched(RECOVERY_SECS_MAX)


def wait_isolated(cluster: NetCluster, node: str, timeout_secs: float) -> None:
    """A node that is cut off must stop its workers: others run their tasks."""
    wait_for(
        f"the workers of {node} to be stopped",
        lambda: not cluster.worker_processes(node),
        timeout_secs,
    )


def test_a_supervisor_that_does_not_fence_is_detected(cluster: NetCluster, report: Report) -> None:
    """The oracle of the test above, with a product that has the fault: it must not pass."""
    cluster.restart_with("s1", "never isolated")
    try:
        with load(cluster, report, "cut off: a supervisor with a fault", workers=4) as ledger:
            ledger.watch(WATCHED)
            cluster.network.pull("s1")
            ledger.wait_watched(RECOVERY_SECS_MAX)
            with pytest.raises(AssertionError, match="workers of s1 to be stopped"):
                wait_isolated(cluster, "s1", 12)
    finally:
        cluster.restart_with("s1", None)


def test_zookeeper_goes_away_and_no_worker_notices(cluster: NetCluster, report: Report) -> None:
    figures: dict[str, Any] = {}
    with load(cluster, report, "ZooKeeper", figures=figures) as ledger:
        workers = cluster.wait_workers(WORKERS)
        cluster.signal(cluster.zookeeper_leader(), signal.SIGKILL)
        ledger.watch(WATCHED)
        report.recovered(
            "ZooKeeper leader SIGKILL", ledger.wait_watched(RECOVERY_SECS_MAX), kills=1
        )
        cluster.heal()
        assert cluster.worker_processes() == workers
        before = rate(ledger, 5)
        for node in ZOOKEEPERS:
            cluster.signal(node, signal.SIGKILL)
        during = best_rate(ledger, ZOOKEEPER_AWAY_SECS)
        assert cluster.worker_processes() == workers
        since = time.monotonic()
        cluster.heal()
        report.recovered("ZooKeeper back to control plane", time.monotonic() - since, kills=3)
        ledger.watch(WATCHED)
        ledger.wait_watched(RECOVERY_SECS_MAX)
        figures |= {"lines_per_sec_before": round(before), "lines_per_sec_during": round(during)}
        assert during > before / 2, figures
        assert cluster.worker_processes() == workers


def test_zookeeper_away_costs_no_throughput(cluster: NetCluster, report: Report) -> None:
    """As fast as two workers go. (The cores are full: what they do besides is not looked at.)"""
    figures: dict[str, Any] = {}
    scenario = "ZooKeeper, as fast as it goes"
    with load(
        cluster, report, scenario, workers=2, conf=PATIENT, lines=2 * LINES, figures=figures
    ) as ledger:
        ledger.pace(None)
        before = rate(ledger, 8)
        for node in ZOOKEEPERS:
            cluster.signal(node, signal.SIGKILL)
        during = best_rate(ledger, 12)
        figures |= {"lines_per_sec_before": round(before), "lines_per_sec_during": round(during)}
        ledger.pace(LINES_PER_SEC)
        assert during > before / 2, figures
        cluster.heal()


def rate(ledger: Ledger, secs: float) -> float:
    """Lines done a second, from now on for so long."""
    done, since = ledger.done, time.monotonic()
    time.sleep(secs)  # what is measured, not waited for
    return (ledger.done - done) / (time.monotonic() - since)


def best_rate(ledger: Ledger, secs: float) -> float:
    """The same of three parts of that time: what others do on this machine slows one or the other,
    a fault of ours slows all."""
    return max(rate(ledger, secs / 3) for _ in range(3))


def test_processes_hang(cluster: NetCluster, report: Report) -> None:
    with load(cluster, report, "SIGSTOP") as ledger:
        victim = min(cluster.worker_processes())
        ledger.watch(WATCHED)
        signal_worker(victim, signal.SIGSTOP)
        report.recovered("worker SIGSTOP", ledger.wait_watched(RECOVERY_SECS_MAX))
        wait_for(
            "it to be replaced",
            lambda: (
                victim not in (now := cluster.worker_processes()) and len(now) == WORKERS
            ),
            RECOVERY_SECS_MAX,
        )  # fmt: skip
        ledger.watch(WATCHED)
        cluster.signal("s2", signal.SIGSTOP)
        report.recovered("supervisor SIGSTOP", ledger.wait_watched(RECOVERY_SECS_MAX))
        leader = cluster.nimbus_leader()
        cluster.signal(leader, signal.SIGSTOP)
        since = time.monotonic()
        asyncio.run(submit_until_accepted(cluster, "after-the-stop"))
        report.recovered("Nimbus SIGSTOP to submit", time.monotonic() - since)
        since = time.monotonic()
        cluster.storm("list")
        report.recovered("storm list beside a Nimbus in SIGSTOP", time.monotonic() - since)
        cluster.heal()
        ledger.watch(WATCHED)
        ledger.wait_watched(RECOVERY_SECS_MAX)


def test_a_disk_is_full(cluster: NetCluster, report: Report) -> None:
    """Its workers die, and so does its supervisor, while nothing can be written: work goes on,
    there or elsewhere, and nobody has to tidy up after."""
    with load(cluster, report, "full disk") as ledger:
        with cluster.full_disk() as fill:
            kills = len(cluster.worker_processes(SMALL_DISK))
            ledger.watch(WATCHED)
            for pid in cluster.worker_processes(SMALL_DISK):
                signal_worker(pid, signal.SIGKILL)
            took = ledger.wait_watched(RECOVERY_SECS_MAX)
            report.recovered("full disk, workers SIGKILL", took, kills=kills)
            assert cluster.runs(SMALL_DISK)
            cluster.signal(SMALL_DISK, signal.SIGKILL)
            cluster.launch(SMALL_DISK)
            ledger.watch(WATCHED)
            took = ledger.wait_watched(RECOVERY_SECS_MAX)
            report.recovered("full disk, supervisor SIGKILL", took, kills=1)
        cluster.heal()
        cluster.wait_workers(WORKERS)
        with cluster.full_disk() as fill:
            # Now not even what they leave is free for those after them.
            kills = len(cluster.worker_processes(SMALL_DISK))
            ledger.watch(WATCHED)
            for pid in cluster.worker_processes(SMALL_DISK):
                signal_worker(pid, signal.SIGKILL)

            def moved() -> bool:
                fill()
                return ledger.watched_are_done()

            wait_for("the work to move", moved, RECOVERY_SECS_MAX, 0.01)
            report.recovered("full disk, moved", ledger.wait_watched(1.0), kills=kills)
        # It takes work again.
        cluster.wait_workers(WORKERS)
        ledger.watch(WATCHED)
        ledger.wait_watched(RECOVERY_SECS_MAX)


def test_all_is_restarted_in_turn(cluster: NetCluster, report: Report) -> None:
    """Politely: every daemon, as a service manager does it, then every worker, by the command."""
    figures: dict[str, Any] = {}
    with load(cluster, report, "rolling restart", figures=figures) as ledger:
        workers, away, losses = cluster.wait_workers(WORKERS), [], cluster.losses()
        ledger.longest_pause()
        for node in (*ZOOKEEPERS, *NIMBUSES, *SUPERVISORS):
            ledger.watch(WATCHED)
            ended = time.monotonic()
            cluster.signal(node, signal.SIGTERM)
            cluster.processes[node].wait(90)
            cluster.heal()
            if node not in ZOOKEEPERS:
                away.append(time.monotonic() - ended)
            report.recovered("daemon restart", ledger.wait_watched(RECOVERY_SECS_MAX))
        figures["away_secs_max"] = round(max(away), 2)
        in_time = was_in_time(cluster, away, losses)
        now = cluster.wait_workers(WORKERS)
        if in_time:
            assert now == workers
        workers = now
        figures["pause_secs_daemons"] = round(ledger.longest_pause(), 2)
        answer = cluster.storm("rolling-restart", "ledger", "--json", timeout_secs=110)
        figures["pause_secs_workers"] = round(ledger.longest_pause(), 2)
        turns = json.loads(answer.stdout)
        assert [turn["result"] for turn in turns] == ["restarted"] * WORKERS
        for turn in turns:
            report.recovered("worker restart", turn["secs"])
        figures["pause_secs_max"] = round(PAUSE_SECS_MAX * slowdown(), 2)
        if in_time:
            assert figures["pause_secs_daemons"] <= figures["pause_secs_max"], figures
        assert figures["pause_secs_workers"] <= figures["pause_secs_max"], figures
        assert max(turn["secs"] for turn in turns) <= RECOVERY_SECS_MAX, turns
        anew = cluster.wait_workers(WORKERS)
        assert not anew.keys() & workers.keys()
        ledger.watch(WATCHED)
        ledger.wait_watched(RECOVERY_SECS_MAX)


def test_clocks_that_jump_move_nothing(cluster: NetCluster, report: Report) -> None:
    """The wall clocks of daemons and workers, an hour ahead and back, and to different hours."""
    draw = random.Random(13)
    figures: dict[str, Any] = {}
    with load(cluster, report, "clock jumps", figures=figures) as ledger:
        workers = cluster.wait_workers(WORKERS)
        daemons = {name: process.pid for name, process in cluster.processes.items()}
        assignment = cluster.assignment("ledger")
        for name, pid in daemons.items():
            assert cluster.clocks.turns(pid, name), f"{name} goes by the machine's clock"
        for pid in workers:
            assert cluster.clocks.turns(pid, "workers"), f"worker {pid} goes by the machine's clock"
        until = time.monotonic() + STORM_SECS
        jumps = 0
        while time.monotonic() < until:
            who = draw.choice([*cluster.addresses, "workers"])
            cluster.clocks.turn(who, draw.choice([-3600, 0, 3600]))
            jumps += 1
            ledger.watch(WATCHED)
            ledger.wait_watched(RECOVERY_SECS_MAX)
            time.sleep(draw.uniform(0, 1))  # what is measured: whatever goes by the clock runs
        assert cluster.storm("list", "--json").returncode == 0
        assert cluster.worker_processes() == workers
        assert cluster.assignment("ledger") == assignment
        assert {n: p.pid for n, p in cluster.processes.items() if p.poll() is None} == daemons
        figures["jumps"] = jumps


def test_nothing_is_lost_in_a_random_storm(cluster: NetCluster, report: Report) -> None:
    with drawn_seed("SQUALL_STORM_SEED") as seed:
        _rage(cluster, report, seed)


def _rage(cluster: NetCluster, report: Report, seed: int) -> None:
    storm = Storm(cluster, seed)
    figures = {"seed": seed, "schedule": storm.schedule}
    try:
        with load(cluster, report, "storm", **figures) as ledger:
            until = time.monotonic() + STORM_SECS
            while time.monotonic() < until:
                ledger.watch(WATCHED)
                kind, kills = storm.strike()
                took = ledger.wait_watched(RECOVERY_SECS_MAX)
                storm.schedule[-1][-1] = round(took, 2)
                report.recovered(f"storm: {kind}", took, kills=kills)
                if len(storm.schedule) % 3 == 0:
                    cluster.heal()
    except BaseException:
        print(json.dumps({"seed": seed, "schedule": storm.schedule}))
        raise


def test_the_run_was_long_enough(report: Report, request: pytest.FixtureRequest) -> None:
    """What docs/reliability.md promises is of so many messages and kills."""
    if len(report.scenarios) < SCENARIOS or request.session.testsfailed:
        pytest.skip("not all scenarios were run to their end")
    found = report.as_json()
    assert found["messages"] >= 200_000
    assert found["kills"] >= 40
    assert found["recovery_secs"]["worker SIGKILL"]["n"] >= 20
    assert found["lost"] == found["unexpected"] == 0


class Storm:
    """Draws faults from a seed. They add up until the cluster is healed."""

    FAULTS = {
        "kill": 5, "stop": 2, "freeze": 2, "nimbus": 1, "supervisor": 2, "node": 1, "cut": 1,
        "blip": 2, "zookeeper": 1, "rebalance": 1, "clock": 2,
    }  # fmt: skip

    def __init__(self, cluster: NetCluster, seed: int) -> None:
        self._cluster = cluster
        self._random = random.Random(seed)
        self.schedule: list[list[Any]] = []  # kind, what it met, seconds until all worked

    def strike(self) -> tuple[str, int]:
        """One fault; its kind, and how many processes it killed."""
        (kind,) = self._random.choices(list(self.FAULTS), weights=list(self.FAULTS.values()))
        self.schedule.append([kind, None, None])
        what, kills = getattr(self, f"_{kind}")()
        self.schedule[-1][1] = what
        return kind, kills

    def _worker(self, number: int) -> tuple[str, int]:
        workers = wait_for("a worker", self._cluster.worker_processes, RECOVERY_SECS_MAX)
        pid = self._random.choice(sorted(workers))
        signal_worker(pid, number)
        return workers[pid], 1 if number == signal.SIGKILL else 0

    def _kill(self) -> tuple[str, int]:
        return self._worker(signal.SIGKILL)

    def _stop(self) -> tuple[str, int]:
        return self._worker(signal.SIGTERM)

    def _freeze(self) -> tuple[str, int]:
        return self._worker(signal.SIGSTOP)  # for good: it is replaced

    def _daemon(self, nodes: tuple[str, ...]) -> tuple[str, int]:
        node = self._random.choice(nodes)
        if not self._cluster.runs(node):
            return f"{node}: was down", 0
        self._cluster.signal(node, signal.SIGKILL)
        return node, 1

    def _nimbus(self) -> tuple[str, int]:
        return self._daemon(NIMBUSES)

    def _supervisor(self) -> tuple[str, int]:
        node, kills = self._daemon(SUPERVISORS)
        if kills:
            self._cluster.launch(node)
        return node, kills

    def _zookeeper(self) -> tuple[str, int]:
        node, kills = self._daemon(ZOOKEEPERS)
        if kills:
            self._cluster.launch(node)
        return node, kills

    def _node(self) -> tuple[str, int]:
        self._cluster.heal()  # one node at a time: two are needed for the slots
        node = self._random.choice(SUPERVISORS)
        kills = 1 + len(self._cluster.worker_processes(node))
        kill_node(self._cluster, node)
        return node, kills

    def _cut(self) -> tuple[str, int]:
        self._cluster.heal()
        node = self._random.choice(SUPERVISORS)
        self._cluster.network.pull(node)
        return node, 0

    def _blip(self) -> tuple[str, int]:
        node = self._random.choice((*ZOOKEEPERS, *NIMBUSES, *SUPERVISORS))
        self._cluster.network.pull(node)
        time.sleep(self._random.uniform(0.1, 1.5))
        self._cluster.network.put_back(node)
        return node, 0

    def _rebalance(self) -> tuple[str, int]:
        self._cluster.heal()
        workers = self._random.choice([2, 4, 6])
        options = thrift.RebalanceOptions(wait_secs=0, num_workers=workers)
        self._cluster.call("rebalance", "ledger", options)
        return str(workers), 0

    def _clock(self) -> tuple[str, int]:
        who = self._random.choice([*self._cluster.addresses, "workers"])
        secs = self._random.choice([-3600, 3600])
        self._cluster.clocks.turn(who, secs)
        return f"{who} {secs:+} s", 0
