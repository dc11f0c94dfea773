"""Workers' heartbeats over Thrift: what clients see of them, who may send them, and what a new
leader knows."""

import asyncio
from dataclasses import replace

import pytest
from tests.support.nimbus_service import LocalNimbus, LocalPeers, eventually

from squall_common.cluster import codec, convert
from squall_common.cluster.stores.memory import MemoryEnsemble
from squall_common.cluster.values import (
    ExecutorStats,
    SpoutStats,
    SumsReport,
    WorkerHeartbeat,
    WorkerReport,
)
from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.service import liveness
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_thrift.serving.throttle import Throttle

SLOT = WorkerSlot("sup-a", 6700)
WORDS = Executor(4, 4)


@pytest.fixture
async def nimbus(tmp_path):
    async with LocalNimbus(tmp_path, conf={"nimbus.monitor.freq.secs": 3600}) as nimbus:
        await nimbus.leads()
        supervisor = await nimbus.supervisor("sup-a", host="host-a")
        yield nimbus
        await supervisor.close()


@pytest.fixture
async def topology_id(nimbus) -> str:
    return await nimbus.submit()


def heartbeat(topology_id: str, executors: list[Executor], emitted: int) -> bytes:
    count = {":all-time": {"default": emitted}}
    stats = dict.fromkeys(executors)
    if WORDS in stats:
        stats[WORDS] = ExecutorStats(SpoutStats(), emitted=count)
    return codec.encode_heartbeat(WorkerHeartbeat(topology_id, stats, 100 + emitted, 60))


async def report(nimbus, topology_id: str, emitted: int = 7, **changes) -> WorkerReport:
    """Of the only worker."""
    found = await nimbus.state.assignment(topology_id)
    executors = found[0].slots()[SLOT]
    beat = heartbeat(topology_id, executors, emitted)
    fields = {
        "topology_id": topology_id,
        "slot": SLOT,
        "executors": tuple(executors),
        "time_secs": 100 + emitted,
        "run": (5, 1),
        "heartbeat": beat,
        **changes,
    }
    return WorkerReport(**fields)


async def send(nimbus, *reports: WorkerReport, **options) -> None:
    beats = [convert.to_worker_report(one, alone=False, **options) for one in reports]
    await nimbus.call(
        "sendSupervisorWorkerHeartbeats",
        storm.SupervisorWorkerHeartbeats(supervisor_id="sup-a", worker_heartbeats=beats),
    )


async def emitted(nimbus, topology_id: str) -> int | None:
    info = await nimbus.call("getTopologyInfo", topology_id)
    (words,) = [one for one in info.executors if one.component_id == "words"]
    return None if words.stats is None else words.stats.emitted[":all-time"]["default"]


async def judge(nimbus) -> None:
    await nimbus.state.topology_ids()
    await nimbus.nimbus.assigner.judge(nimbus.nimbus.leader_elector.leadership())


async def test_clients_see_the_last_report_at_once(nimbus, topology_id) -> None:
    assert await emitted(nimbus, topology_id) is None
    await send(nimbus, await report(nimbus, topology_id, 7))
    assert await emitted(nimbus, topology_id) == 7
    alone = await report(nimbus, topology_id, 8)
    beat = convert.to_worker_report(alone, alone=True)
    await nimbus.call("sendSupervisorWorkerHeartbeat", beat)
    assert await emitted(nimbus, topology_id) == 8
    (worker,) = (await nimbus.call("getSupervisorPageInfo", "sup-a", None, True)).worker_summaries
    assert (worker.time_secs, worker.uptime_secs) == (108, 60)
    (back,) = await nimbus.call("getWorkerHeartbeats", topology_id)
    assert convert.from_worker_report(back, None) == alone
    assert await nimbus.state.worker_beats(topology_id) == {}


async def test_sums_come_back_as_they_were_reported_beside_workers_without_any(
    nimbus, topology_id
) -> None:
    one = await report(nimbus, topology_id)
    await send(nimbus, one)
    sums = SumsReport(topology_id, SLOT, one.run, b"sums")
    (none,) = await nimbus.call("getWorkerSums", topology_id)
    assert (none.supervisor_id, none.port, none.sums) == ("sup-a", 6700, None)
    await nimbus.call(
        "sendSupervisorWorkerHeartbeats",
        storm.SupervisorWorkerHeartbeats(
            supervisor_id="sup-a", worker_heartbeats=[convert.to_sums_report(sums, alone=False)]
        ),
    )
    (back,) = await nimbus.call("getWorkerSums", topology_id)
    assert convert.from_sums_report(back, None) == sums
    assert nimbus.nimbus.heartbeats.reports(topology_id) == [one]


async def test_supervisors_learn_which_of_their_topologies_are_watched(nimbus, topology_id) -> None:
    async def answer() -> dict[str, float]:
        beat = convert.to_worker_report(await report(nimbus, topology_id, 7), alone=False)
        found: dict[str, float] = await nimbus.call(
            "sendSupervisorWorkerHeartbeats",
            storm.SupervisorWorkerHeartbeats(supervisor_id="sup-a", worker_heartbeats=[beat]),
        )
        return found

    assert await answer() == {}
    await nimbus.call("watchTopology", topology_id)
    assert await answer() == {topology_id: 0.25}
    with pytest.raises(storm.NotAliveException):
        await nimbus.call("watchTopology", "ended-9-9")
    with pytest.raises(ThriftApplicationError, match="topologyId is missing"):
        await nimbus.call("watchTopology", None)


async def test_a_worker_that_writes_to_zookeeper_is_seen_beside_others(nimbus, topology_id) -> None:
    """As one of an earlier version, or one that does not reach Nimbus. Once it reports, its node is
    removed."""
    old = await report(nimbus, topology_id, 3)
    await nimbus.state.put_worker_report(old)
    assert await emitted(nimbus, topology_id) == 3
    await judge(nimbus)
    monitor, now = nimbus.nimbus.monitor, nimbus.nimbus.clock.monotonic()
    ports = {"sup-a": {6700, 6701}}
    assert monitor.dead(topology_id, ports, now + 46) == set(old.executors)
    await send(nimbus, await report(nimbus, topology_id, 9))
    assert await emitted(nimbus, topology_id) == 9
    await judge(nimbus)
    assert SLOT in await nimbus.state.worker_beats(topology_id)
    await send(nimbus, await report(nimbus, topology_id, 10))
    await judge(nimbus)
    assert await nimbus.state.worker_beats(topology_id) == {}
    assert await emitted(nimbus, topology_id) == 10


async def test_reports_for_what_is_not_there_change_nothing(nimbus, topology_id) -> None:
    other = await report(nimbus, topology_id, 7, slot=WorkerSlot("sup-a", 6701))
    ended = replace(other, topology_id="ended-9-9")
    await send(nimbus, other, ended)
    assert nimbus.nimbus.heartbeats.reports(topology_id) == []
    beat = convert.to_worker_report(ended, alone=True)
    with pytest.raises(storm.NotAliveException):
        await nimbus.call("sendSupervisorWorkerHeartbeat", beat)
    with pytest.raises(storm.NotAliveException):
        await nimbus.call("getWorkerHeartbeats", "ended-9-9")
    for method in (
        "sendSupervisorWorkerHeartbeats",
        "getWorkerHeartbeats",
        "getWorkerSums",
        "watchTopology",
    ):
        with pytest.raises(ThriftApplicationError, match="is missing"):
            await nimbus.call(method, None)


async def test_executors_that_only_the_heartbeat_lists_are_alive(
    nimbus, topology_id, caplog
) -> None:
    one = await report(nimbus, topology_id)
    await send(nimbus, one, executors_max=0)
    assert nimbus.nimbus.heartbeats.reports(topology_id) == [one]
    many = [Executor(task, task) for task in range(1, 100)]
    for beat, why in (
        (heartbeat(topology_id, many, 1), "lists 99 executors"),
        (b"nonsense", "cannot be read"),
        (codec.zip_bytes(bytes(2_000_000)), "too large"),
    ):
        wrong = await report(nimbus, topology_id, heartbeat=beat)
        with pytest.raises(ThriftApplicationError, match=why):
            await nimbus.call(
                "sendSupervisorWorkerHeartbeat",
                convert.to_worker_report(wrong, alone=True, executors_max=0),
            )
        # Among others it is only logged: they, and their supervisor, are not to suffer.
        newer = replace(one, time_secs=one.time_secs + 1)
        await send(nimbus, wrong, newer, executors_max=0)
        assert nimbus.nimbus.heartbeats.reports(topology_id) == [newer]
    assert caplog.text.count("heartbeat_refused") == 1


async def test_made_up_slots_do_not_fill_the_log(nimbus, topology_id, caplog, monkeypatch) -> None:
    monkeypatch.setattr(liveness, "_throttle", Throttle())
    one = await report(nimbus, topology_id, heartbeat=b"nonsense")
    made_up = [replace(one, slot=WorkerSlot("sup-a", port)) for port in range(100)]
    await send(nimbus, *made_up, executors_max=0)
    await send(nimbus, *made_up, executors_max=0)
    assert caplog.text.count("heartbeat_refused") == 1


async def test_a_nimbus_that_does_not_lead_refuses_reports_and_asks_the_leader(tmp_path) -> None:
    ensemble, peers = MemoryEnsemble(), LocalPeers()
    conf = {"nimbus.monitor.freq.secs": 3600}
    async with (
        LocalNimbus(tmp_path / "a", ensemble=ensemble, peers=peers, conf=conf) as leader,
    ):
        await leader.leads()
        supervisor = await leader.supervisor("sup-a", host="host-a")
        async with LocalNimbus(
            tmp_path / "b", ensemble=ensemble, peers=peers, port=6628, conf=conf
        ) as other:
            topology_id = await leader.submit()
            one = await report(leader, topology_id)
            with pytest.raises(ThriftApplicationError, match="is not the leader"):
                await send(other, one)
            with pytest.raises(ThriftApplicationError, match="is not the leader"):
                await other.call("watchTopology", topology_id)
            await send(leader, one)

            async def has_code() -> bool:
                try:
                    return await emitted(other, topology_id) == 7
                except ThriftApplicationError:
                    return False

            await eventually(has_code, "the other Nimbus shows what was reported")
            await leader.state.put_worker_report(await report(leader, topology_id, 9))
            assert await emitted(other, topology_id) == 9  # it no longer reaches the leader
            await leader.state.remove_worker_beat(topology_id, SLOT)
            peers.cut.add(6627)
            assert await emitted(other, topology_id) is None
            peers.cut.clear()
            # The leader writes who reports, and dies.
            await judge(leader)
            await leader.crash()
            await other.leads()

            async def judged() -> bool:
                return bool(other.nimbus.monitor.executors(topology_id))

            await eventually(judged, "the new leader has made a round")
            monitor, now = other.nimbus.monitor, other.nimbus.clock.monotonic()
            ports = {"sup-a": {6700, 6701}}
            assert monitor.dead(topology_id, ports, now + 40) == set()
            assert monitor.dead(topology_id, ports, now + 50) == set(one.executors)
            await send(other, await report(other, topology_id, 8))
            assert await emitted(other, topology_id) == 8
        await supervisor.close()


async def test_what_the_leader_writes_about_heartbeats_costs_no_round(nimbus, topology_id) -> None:
    """A topology that was removed meanwhile, and a node that somebody has damaged."""
    await send(nimbus, await report(nimbus, topology_id))
    await judge(nimbus)
    written = await nimbus.state.topology_heartbeats(topology_id)
    assert [one.slot for one in written.workers] == [SLOT]
    await nimbus.store.set(f"/workerbeats/{topology_id}", b"damaged")
    assert await nimbus.state.topology_heartbeats(topology_id) is None
    assert await nimbus.state.topology_heartbeats("ended-9-9") is None
    nimbus.nimbus.assigner._term = None  # as a new leader
    await judge(nimbus)
    await asyncio.sleep(0)
    assert nimbus.nimbus.monitor.executors(topology_id) == 4
