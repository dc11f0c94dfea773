"""Stories with a known course: what went wrong in Apache Storm (STORM-... are its issues), what
each promise is about, and bugs put in on purpose, which these stories must find.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from tests.simulation.invariants import check_end
from tests.simulation.ledger import Ledger
from tests.simulation.loop import Process
from tests.simulation.run import simulate
from tests.simulation.sabotage import BUGS
from tests.simulation.store import ZOOKEEPER
from tests.simulation.test_heartbeats import cut_from_nimbus, dead_supervisors
from tests.simulation.world import World
from tests.support.effort import ORDERS
from tests.support.validated_engine import replaces_methods

from squall import Spout
from squall_common.cluster import codec, paths
from squall_common.config.load import default_conf
from squall_thrift import storm

pytestmark = pytest.mark.timeout(600)

Script = Callable[[World], Coroutine[Any, Any, None]]


def _play(script: Script, **shape: Any) -> None:
    """Play a script, in `make soak` with many different orders of things."""
    for seed in range(1, ORDERS + 1):
        assert simulate(seed, script=script, **shape).violations == []


async def _as_user(world: World, call: Coroutine[Any, Any, str]) -> str:
    task = world.client.start(call)
    world.client.tasks.add(task)
    return await task


async def _running(world: World, *, workers: int = 3) -> Ledger:
    """A cluster with one topology, "alpha", that runs."""
    ledger = world.ledger("alpha", 0.5)
    world.start_all()
    await asyncio.sleep(5)
    assert await _as_user(world, world.submit("alpha", workers=workers)) == "ok"
    await asyncio.sleep(20)
    assert len(world.processes("worker")) == workers
    assert ledger.acked
    return ledger


async def _quiet_end(world: World, ledger: Ledger, secs: float = 40) -> None:
    """Everything that was accepted is acked, and what must run does."""
    ledger.open = False
    await asyncio.sleep(secs)
    assert ledger.lost == []
    assert check_end(world, {"alpha": 1}, set()) == []


def _assignment(world: World) -> tuple[bytes, int]:
    """As it is stored, and the transaction that wrote it."""
    (topology_id,) = world.ensemble.tree.children("/assignments")
    value, stat = world.ensemble.tree.get(paths.assignment(topology_id))
    codec.decode_assignment("", value)
    return value, stat.mzxid


def test_a_hung_worker_is_restarted_in_place_before_it_is_moved() -> None:
    """STORM-589: with equal timeouts Nimbus and supervisor raced."""
    conf = default_conf()
    assert conf["nimbus.task.timeout.secs"] > conf["supervisor.worker.timeout.secs"]

    async def script(world: World) -> None:
        ledger = await _running(world)
        before = _assignment(world)
        hung = world.processes("worker")[0]
        hung.stop()
        await asyncio.sleep(conf["supervisor.worker.timeout.secs"] + 4)
        assert not hung.alive
        assert len(world.processes("worker")) == 3
        await asyncio.sleep(30)
        assert _assignment(world) == before
        await _quiet_end(world, ledger)

    _play(script)


def test_a_fail_over_long_after_the_start_moves_nothing() -> None:
    """STORM-3984: later than 600 s after the start, a new leader moved everything."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        await asyncio.sleep(700)
        before, workers = _assignment(world), world.processes("worker")
        for leader in world.leaders():
            leader.end(-9)
        await asyncio.sleep(90)
        assert len(world.leaders()) == 1
        assert _assignment(world) == before
        assert world.processes("worker") == workers
        await _quiet_end(world, ledger)

    _play(script)


def test_a_leader_without_the_code_leaves_everything_alone_until_it_has_it() -> None:
    """STORM-1977: such a leader took every topology for a broken one. Here its disk is new, and the
    other Nimbus, which has the code, is cut off."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        old, new = world.nimbus_hosts
        while [leader.host for leader in world.leaders()] != [old]:
            for leader in world.leaders():
                leader.end(-9)
            await asyncio.sleep(30)
        before, workers = _assignment(world), world.processes("worker")
        ways = world.isolate(old)
        world.cut(ways)
        world.daemons[f"nimbus@{new}"].end(-9)
        shutil.rmtree(world.disk.folder(new) / "local" / "nimbus")
        await asyncio.sleep(300)
        (leader,) = world.leaders()
        assert leader.host == new
        assert leader.nimbus.blobs.all_keys() == []  # type: ignore[attr-defined]
        assert _assignment(world) == before
        assert world.processes("worker") == workers
        world.heal(ways)
        await asyncio.sleep(60)
        options = storm.RebalanceOptions(wait_secs=1, num_workers=2)
        assert await _as_user(world, world.ask("rebalance", "alpha", options)) == "ok"
        await asyncio.sleep(30)
        assert len(world.processes("worker")) == 2
        await _quiet_end(world, ledger)

    _play(script)


async def kill_without_supervisors(world: World) -> None:
    await _running(world)
    world.keep_alive = False
    for supervisor in world.processes("supervisor"):
        supervisor.end(-9)
    options = storm.KillOptions(wait_secs=1)
    assert await _as_user(world, world.ask("killTopologyWithOpts", "alpha", options)) == "ok"
    refresh_secs = default_conf()["task.refresh.poll.secs"]
    await asyncio.sleep(2 * refresh_secs + 10)
    assert world.processes("worker") == []


def test_workers_of_a_killed_topology_end_without_their_supervisor() -> None:
    """STORM-3773: zombies survived `storm kill` while their supervisor was down."""
    _play(kill_without_supervisors)


def test_a_quickly_restarted_nimbus_does_not_wait_for_its_old_session() -> None:
    """STORM-3107: it took its own old ephemeral node for a leader."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        (leader,) = world.leaders()
        leader.end(-9)
        await asyncio.sleep(8)  # systemd starts it after at most five; a session lasts twenty
        (leader,) = world.leaders()
        assert await _as_user(world, world.ask("deactivate", "alpha")) == "ok"
        assert await _as_user(world, world.ask("activate", "alpha")) == "ok"
        await _quiet_end(world, ledger)

    _play(script, nimbuses=1)


def test_a_whole_cluster_and_its_zookeeper_come_back_after_a_power_failure() -> None:
    """STORM-3798: it took wiping ZooKeeper to get a cluster up again."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        world.ensemble.stop()
        for host in world.hosts.values():
            world.power_off(host)
        await asyncio.sleep(300)
        for host in world.hosts.values():
            world.power_on(host)
        await asyncio.sleep(10)  # the daemons are there first
        world.ensemble.restart()
        await asyncio.sleep(120)
        await _quiet_end(world, ledger)

    _play(script)


def test_workers_survive_a_peer_that_they_cannot_reach() -> None:
    """STORM-329, STORM-404: one unreachable peer took the others down, one after the other."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        workers = world.processes("worker")
        one, *others = (process.host for process in workers)
        pairs = {(one, other) for other in others if other != one}
        pairs |= {(other, one) for one, other in pairs}
        world.cut(pairs)
        await asyncio.sleep(120)
        world.heal(pairs)
        assert world.processes("worker") == workers
        await asyncio.sleep(30)
        await _quiet_end(world, ledger)

    _play(script)


def test_a_spout_that_was_restarted_on_its_slot_goes_on_where_it_was() -> None:
    """STORM-543, STORM-870, STORM-2426: acks went to a stale task, first tuples failed, clients
    never connected again."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        for _ in range(5):
            for worker in world.processes("worker"):
                worker.end(-9)
                await asyncio.sleep(7)
            before = len(ledger.acked)
            await asyncio.sleep(10)
            assert len(ledger.acked) >= before + 15
        await _quiet_end(world, ledger)

    _play(script)


def test_a_slow_launch_does_not_hold_up_the_supervisor() -> None:
    """STORM-577: launching workers kept the supervisor from its heartbeats."""

    async def script(world: World) -> None:
        for host in world.hosts.values():
            host.launch_secs = (50.0, 60.0)
        ledger = world.ledger("alpha", 0.5)
        world.start_all()
        await asyncio.sleep(5)
        assert await _as_user(world, world.submit("alpha", workers=3)) == "ok"
        tree = world.ensemble.tree
        supervisors = tree.children("/supervisors")
        assert len(supervisors) == 3
        versions = [
            world.ensemble.tree.get(f"/supervisors/{one}")[1].version for one in supervisors
        ]
        await asyncio.sleep(30)
        for one, version in zip(supervisors, versions, strict=True):
            assert tree.get(f"/supervisors/{one}")[1].version >= version + 2
        await asyncio.sleep(60)
        assert ledger.acked
        await _quiet_end(world, ledger)

    _play(script)


@pytest.mark.parametrize("what", ["kill", "rebalance"])
def test_delayed_actions_survive_a_restart_of_nimbus(what: str) -> None:
    """STORM-3516: a kill or a rebalance that was pending was forgotten."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        if what == "kill":
            options: Any = storm.KillOptions(wait_secs=40)
            answer = await _as_user(world, world.ask("killTopologyWithOpts", "alpha", options))
        else:
            options = storm.RebalanceOptions(wait_secs=40, num_workers=1)
            answer = await _as_user(world, world.ask("rebalance", "alpha", options))
        assert answer == "ok"
        for _ in range(3):
            await asyncio.sleep(10)
            for process in list(world.leaders()):
                process.end(-9)
        await asyncio.sleep(120)
        if what == "kill":
            assert check_end(world, {}, {"alpha"}) == []
        else:
            assert len(world.processes("worker")) == 1
            await _quiet_end(world, ledger)

    _play(script)


def test_a_leader_that_was_stopped_writes_nothing_afterwards() -> None:
    """SIGSTOP for longer than a session: another leads; the first finds out before it acts."""

    async def script(world: World) -> None:
        ledger = await _running(world)
        (first,) = world.leaders()
        first.stop()
        await asyncio.sleep(30)
        (second,) = [one for one in world.leaders() if one is not first]
        written: list[Process] = []
        world.ensemble.applied.append(lambda client, ops: written.append(client.process))
        first.resume()
        await asyncio.sleep(30)
        assert world.leaders() == [second]
        assert await _as_user(world, world.ask("deactivate", "alpha")) == "ok"
        assert await _as_user(world, world.ask("activate", "alpha")) == "ok"
        await _quiet_end(world, ledger)

    _play(script, nimbuses=2)


async def stale_submit(world: World) -> None:
    """The leader loses its session while its disk takes long to store a submit; another leads by
    the time that it comes to write it."""
    await _running(world)
    (first,) = world.leaders()
    nimbus = first.nimbus  # type: ignore[attr-defined]
    world.ledger("beta", 1.0)
    submit = world.client.start(world.submit("beta", workers=1))
    world.client.tasks.add(submit)
    while not nimbus.submitter.submitting:  # noqa: ASYNC110
        await asyncio.sleep(0.0001)
    world.loop.slow_disks[first.host] = 100.0  # for what it begins now
    await asyncio.sleep(0.5)
    nimbus.state.store.expire_now()
    await asyncio.sleep(10)
    (second,) = world.leaders()
    assert second is not first
    del world.loop.slow_disks[first.host]
    await submit
    await asyncio.sleep(100)


def test_a_submit_that_a_slow_disk_holds_over_a_change_of_leaders_writes_nothing() -> None:
    _play(stale_submit)


async def zookeeper_outage(world: World) -> None:
    """ZooKeeper away for longer than every timeout; one machine reaches it, and Nimbus, again
    fifteen seconds after the others."""
    ledger = await _running(world)
    before, workers = _assignment(world), world.processes("worker")
    world.ensemble.stop()
    await asyncio.sleep(150)
    host = workers[0].host
    away = {ZOOKEEPER, *world.nimbus_hosts} - {host}
    late = {(host, other) for other in away} | {(other, host) for other in away}
    world.cut(late)
    world.ensemble.restart()
    await asyncio.sleep(15)
    world.heal(late)
    await asyncio.sleep(60)
    assert _assignment(world) == before
    assert world.processes("worker") == workers
    await _quiet_end(world, ledger)


def test_zookeeper_away_stops_and_moves_nothing() -> None:
    _play(zookeeper_outage)


async def worker_lost_without_zookeeper(world: World) -> None:
    """ZooKeeper and every Nimbus away, and workers die one after the other."""
    ledger = await _running(world)
    world.ensemble.stop()
    world.keep_alive = False
    for nimbus in world.processes("nimbus"):
        nimbus.end(-9)
    await asyncio.sleep(15)
    for _ in range(3):
        before, victim = len(ledger.acked), world.processes("worker")[0]
        victim.end(-9)
        await asyncio.sleep(15)
        assert len(world.processes("worker")) == 3
        assert len(ledger.acked) - before >= 10, "two messages a second are given"
    workers, assignment = world.processes("worker"), _assignment(world)
    world.keep_alive = True
    for address in world.nimbus_hosts:
        world.boot(world.hosts[address])
    world.ensemble.restart()
    await asyncio.sleep(90)
    assert world.processes("worker") == workers
    assert _assignment(world) == assignment
    await _quiet_end(world, ledger)


def test_a_worker_that_dies_while_zookeeper_is_away_is_replaced_and_traffic_goes_on() -> None:
    _play(worker_lost_without_zookeeper)


async def worker_lost_for_good_without_zookeeper(world: World) -> None:
    """No supervisor is there to start another: its peers learn of it all the same, and what was in
    flight does not wait for the message timeout."""
    ledger = await _running(world)
    world.ensemble.stop()
    world.keep_alive = False
    victim = next(
        process
        for process in world.processes("worker")
        if not any(isinstance(user, Spout) for user in process.worker._engine.users())  # type: ignore[attr-defined]
    )
    world.daemons[f"supervisor@{victim.host}"].end(-9)
    await asyncio.sleep(5)
    assert ledger.failed == 0
    victim.end(-9)
    await asyncio.sleep(8)
    assert ledger.failed
    world.keep_alive = True
    world.boot(world.hosts[victim.host])
    world.ensemble.restart()
    await asyncio.sleep(90)
    await _quiet_end(world, ledger)


def test_the_loss_of_a_worker_without_a_successor_is_noticed_without_zookeeper() -> None:
    _play(worker_lost_for_good_without_zookeeper)


async def supervisor_lost_without_zookeeper(world: World) -> None:
    """A supervisor dies together with its worker while ZooKeeper is away; the next one knows."""
    ledger = await _running(world)
    world.ensemble.stop()
    await asyncio.sleep(40)
    worker = world.processes("worker")[0]
    world.daemons[f"supervisor@{worker.host}"].end(-9)
    worker.end(-9)
    await asyncio.sleep(20)
    before = len(ledger.acked)
    await asyncio.sleep(10)
    assert len(ledger.acked) - before >= 10
    world.ensemble.restart()
    await asyncio.sleep(90)
    await _quiet_end(world, ledger)


def test_a_worker_and_its_supervisor_may_both_die_while_zookeeper_is_away() -> None:
    _play(supervisor_lost_without_zookeeper)


async def machine_back_without_zookeeper(world: World) -> None:
    """A machine was off while its work moved; ZooKeeper is away when it comes back."""
    ledger = await _running(world)
    host = world.hosts[world.processes("worker")[0].host]
    world.power_off(host)
    await asyncio.sleep(90)
    assert len(world.processes("worker")) == 3, "they run elsewhere"
    world.ensemble.stop()
    world.power_on(host)
    await asyncio.sleep(60)
    owners = [p for p in world.processes("worker") if getattr(p.worker, "_report", None)]  # type: ignore[attr-defined]
    assert {p.host for p in owners} == set(world.supervisor_hosts) - {host.address}
    world.ensemble.restart()
    await asyncio.sleep(90)
    await _quiet_end(world, ledger)


def test_a_machine_that_comes_back_without_zookeeper_does_not_run_what_was_moved() -> None:
    _play(machine_back_without_zookeeper)


async def node_that_sleeps(world: World) -> None:
    """A machine is suspended until its work runs elsewhere, and wakes up, as busy as it was."""
    ledger = await _running(world)
    host = world.hosts[world.processes("worker")[0].host]
    asleep = list(host.processes.values())
    for process in asleep:
        process.stop()
    await asyncio.sleep(90)
    assert len([p for p in world.processes("worker") if not p.stopped]) == 3, "they run elsewhere"
    for process in asleep:
        process.resume()
    assert world.sometimes["a worker woke up after its work was moved"]
    await asyncio.sleep(40)
    await _quiet_end(world, ledger)


def test_a_node_that_wakes_up_after_its_work_was_moved_does_none_of_it() -> None:
    _play(node_that_sleeps)


async def node_that_dozes(world: World) -> None:
    """Every machine with workers is suspended for longer than a session timeout, ZooKeeper too:
    nothing was moved, and the workers go on where they were."""
    ledger = await _running(world)
    workers = world.processes("worker")
    world.ensemble.stop()
    asleep = [p for host in world.hosts.values() for p in host.processes.values()]
    for process in asleep:
        process.stop()
    await asyncio.sleep(25)
    world.ensemble.restart()
    for process in asleep:
        process.resume()
    await asyncio.sleep(40)
    assert world.processes("worker") == workers
    await _quiet_end(world, ledger)


def test_workers_that_slept_and_lost_nothing_go_on() -> None:
    _play(node_that_dozes)


async def isolated_node(world: World) -> None:
    """A supervisor's machine cut off from everybody."""
    ledger = await _running(world)
    await asyncio.sleep(20)  # it knows its neighbours
    address = world.processes("worker")[0].host
    ways = world.isolate(address)
    world.cut(ways)
    await asyncio.sleep(35 + 4)  # the worker timeout and 5 s; an end takes up to 4
    assert address not in {process.host for process in world.processes("worker")}
    await asyncio.sleep(60)
    workers = world.processes("worker")
    assert len(workers) == 3, "they run elsewhere"
    world.heal(ways)
    await asyncio.sleep(60)
    assert world.processes("worker") == workers
    await _quiet_end(world, ledger)


def test_an_isolated_node_stops_its_workers_which_run_elsewhere() -> None:
    _play(isolated_node)


async def cut_with_a_minority(world: World) -> None:
    """The machine of a supervisor and of one Nimbus of two, together with nobody else."""
    await _running(world)
    await asyncio.sleep(20)
    address = world.nimbus_hosts[1]
    assert address in world.supervisor_hosts
    world.cut(world.isolate(address))
    await asyncio.sleep(90)
    assert address not in {process.host for process in world.processes("worker")}
    assert [process.host for process in world.leaders()] == world.nimbus_hosts[:1]


def test_a_node_cut_off_together_with_a_minority_nimbus_is_isolated() -> None:
    _play(cut_with_a_minority)


async def bad_network(world: World) -> None:
    """A third of the frames are lost, repeated, late, or end their connection."""
    ledger = await _running(world)
    world.network.mangling = 0.3
    await asyncio.sleep(60)
    world.network.mangling = 0.0
    await _quiet_end(world, ledger)


def test_frames_that_are_lost_repeated_and_late_lose_nothing() -> None:
    _play(bad_network)


async def power_failure(world: World) -> None:
    """All machines, twice."""
    ledger = await _running(world)
    for _ in range(2):
        for host in world.hosts.values():
            world.power_off(host)
        await asyncio.sleep(30)
        for host in world.hosts.values():
            world.power_on(host)
        await asyncio.sleep(120)
    await _quiet_end(world, ledger)


def test_confirmed_data_survives_a_power_failure() -> None:
    _play(power_failure)


async def pid_used_again(world: World) -> None:
    """A worker dies while its supervisor is down, and a stranger gets its pid."""
    ledger = await _running(world)
    worker = world.processes("worker")[0]
    host = world.hosts[worker.host]
    world.daemons[f"supervisor@{worker.host}"].end(-9)
    worker.end(-9)
    stranger = Process(world.loop, "stranger", worker.host)
    stranger.pid, stranger.start_ticks = worker.pid, int(world.loop.time() * 100) + 1
    host.processes[stranger.pid] = stranger
    await asyncio.sleep(25)
    assert len(world.processes("worker")) == 3
    await asyncio.sleep(60)
    assert stranger.alive
    await _quiet_end(world, ledger)


def test_a_process_that_got_a_workers_pid_is_neither_adopted_nor_killed() -> None:
    _play(pid_used_again)


async def nothing_happens(world: World) -> None:
    ledger = await _running(world)
    await _quiet_end(world, ledger)
    assert ledger.repeats == 0
    assert ledger.failed == 0


def test_without_faults_nothing_is_repeated() -> None:
    _play(nothing_happens)


FOUND_BY: dict[str, Script] = {
    "missing fence": stale_submit,
    "no grant": zookeeper_outage,
    "no report alone": dead_supervisors,
    "no way around": cut_from_nimbus,
    "adoption by pid": pid_used_again,
    "no isolation": isolated_node,
    "no self-stop": kill_without_supervisors,
    "forgetful link": bad_network,
    "early ack": bad_network,
    "dropped acks": nothing_happens,
    "skipped fsync": power_failure,
}


@replaces_methods
@pytest.mark.parametrize("bug", sorted(BUGS))
def test_a_planted_bug_is_found(bug: str) -> None:
    """The same stories, with the product broken: the oracle must see it."""
    with BUGS[bug]():
        assert any(simulate(seed, script=FOUND_BY[bug]).violations for seed in (1, 2)), bug
