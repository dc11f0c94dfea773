"""Scheduling rounds over a whole Nimbus: which executors move, when, and what is written."""

import threading

import pytest
from tests.support.nimbus_service import LocalNimbus, eventually

from squall_common.daemon.clock import ManualClock
from squall_common.topology.model import WorkerSlot
from squall_nimbus.scheduler import assigner
from squall_thrift import storm

A, A2, B = WorkerSlot("sup-a", 6700), WorkerSlot("sup-a", 6701), WorkerSlot("sup-b", 6700)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def nimbus(tmp_path, clock):
    conf = {"nimbus.monitor.freq.secs": 3600}  # rounds are made by the tests
    async with LocalNimbus(tmp_path, conf=conf, clock=clock, session_timeout_secs=20) as nimbus:
        yield await nimbus.leads()


async def judge(nimbus: LocalNimbus) -> None:
    """One round."""
    await nimbus.state.topology_ids()  # an answer: the term is fresh at this time
    leadership = nimbus.nimbus.leader_elector.leadership()
    assert leadership is not None
    await nimbus.nimbus.assigner.judge(leadership)


async def slots(nimbus: LocalNimbus, topology_id: str) -> set[WorkerSlot]:
    found = await nimbus.state.assignment(topology_id)
    return set(found[0].executor_slot.values())


async def beat(nimbus: LocalNimbus, topology_id: str, slot: WorkerSlot) -> None:
    """A new heartbeat of everything on the slot."""
    assignment, _ = await nimbus.state.assignment(topology_id)
    executors = assignment.slots()[slot]
    before = (await nimbus.state.worker_beats(topology_id)).get(slot)
    await nimbus.beat(topology_id, slot, dict.fromkeys(executors))

    async def newer() -> bool:
        return (await nimbus.state.worker_beats(topology_id)).get(slot) != before

    await eventually(newer, "the heartbeat is written")


async def test_a_large_assignment_is_recorded_off_the_loop(nimbus, monkeypatch) -> None:
    """60,000 executors blocked the loop for 200 ms, when all else already ran on the thread."""
    monkeypatch.setattr(assigner, "_EXECUTORS_ON_LOOP_MAX", 1)
    monitor = nimbus.nimbus.assigner._monitor
    put, threads = monitor.put, []

    def noted(*args) -> None:
        threads.append(threading.get_ident())
        put(*args)

    monkeypatch.setattr(monitor, "put", noted)
    await nimbus.supervisor("sup-a", [6700])
    topology_id = await nimbus.submit()
    assert await slots(nimbus, topology_id) == {A}
    assert len(threads) == 1
    assert threads[0] != threading.get_ident()


async def test_a_hung_worker_is_moved_after_the_task_timeout(nimbus, clock) -> None:
    first = await nimbus.supervisor("sup-a", [6700])
    second = await nimbus.supervisor("sup-b", [6700])
    topology_id = await nimbus.submit()
    assert await slots(nimbus, topology_id) == {A}
    await beat(nimbus, topology_id, A)
    await judge(nimbus)
    start_times = (await nimbus.state.assignment(topology_id))[0].executor_start_time_secs
    clock.advance(44)
    await judge(nimbus)
    assert await slots(nimbus, topology_id) == {A}
    clock.advance(2)
    await judge(nimbus)
    assert await slots(nimbus, topology_id) == {B}
    assignment, _ = await nimbus.state.assignment(topology_id)
    assert assignment.node_host == {"sup-b": "host"}
    assert all(assignment.executor_start_time_secs[e] > t for e, t in start_times.items())
    # It has its launch time on the new slot.
    clock.advance(119)
    await judge(nimbus)
    assert await slots(nimbus, topology_id) == {B}
    clock.advance(2)
    await judge(nimbus)
    assert await slots(nimbus, topology_id) == {A}
    # The heartbeat of the slot it left was removed.
    assert await nimbus.state.worker_beats(topology_id) == {}
    await first.close()
    await second.close()


async def test_workers_of_a_supervisor_that_is_only_away_stay(nimbus, clock) -> None:
    away = await nimbus.supervisor("sup-a", [6700])
    topology_id = await nimbus.submit()
    there = await nimbus.supervisor("sup-b", [6700])
    await away.close()
    for _ in range(10):
        await beat(nimbus, topology_id, A)
        await judge(nimbus)
        clock.advance(19)
    assert await slots(nimbus, topology_id) == {A}
    clock.advance(2)
    await judge(nimbus)
    assert await slots(nimbus, topology_id) == {B}
    await there.close()


async def test_a_reconnection_grants_a_full_timeout(nimbus, clock) -> None:
    first = await nimbus.supervisor("sup-a", [6700])
    second = await nimbus.supervisor("sup-b", [6700])
    topology_id = await nimbus.submit()
    await beat(nimbus, topology_id, A)
    await judge(nimbus)
    nimbus.ensemble.suspend(nimbus.store)
    clock.advance(44)
    nimbus.ensemble.resume(nimbus.store)

    async def heard_of_it() -> bool:
        return nimbus.nimbus.monitor._granted_at == clock.monotonic()

    await eventually(heard_of_it, "Nimbus hears of the reconnection")
    clock.advance(44)
    await judge(nimbus)
    assert await slots(nimbus, topology_id) == {A}
    clock.advance(2)
    await judge(nimbus)
    assert await slots(nimbus, topology_id) == {B}
    await first.close()
    await second.close()


async def test_a_round_that_changes_nothing_writes_nothing(nimbus) -> None:
    supervisor = await nimbus.supervisor("sup-a")
    topology_id = await nimbus.submit()
    before = await nimbus.state.assignment(topology_id)
    await judge(nimbus)
    assert await nimbus.state.assignment(topology_id) == before  # the zxid too
    await supervisor.close()


async def test_a_topology_with_too_few_workers_spreads_when_slots_come(nimbus) -> None:
    first = await nimbus.supervisor("sup-a", [6700])
    topology_id = await nimbus.submit(conf={"topology.workers": 2})
    assert await slots(nimbus, topology_id) == {A}
    summary = await nimbus.call("getTopologySummary", topology_id)
    assert summary.sched_status == "runs in 1 of 2 workers: not enough slots"
    second = await nimbus.supervisor("sup-b", [6700])

    async def spread() -> bool:
        return await slots(nimbus, topology_id) == {A, B}

    await eventually(spread, "the new supervisor is used at once")
    await first.close()
    await second.close()


async def test_topologies_never_share_a_slot(nimbus) -> None:
    supervisor = await nimbus.supervisor("sup-a", [6700, 6701])
    one = await nimbus.submit("one")
    two = await nimbus.submit("two")
    three = await nimbus.submit("three")
    taken = [await slots(nimbus, i) for i in (one, two, three)]
    assert taken[0] | taken[1] == {A, A2}
    assert taken[0] & taken[1] == set()
    assert taken[2] == set()
    await nimbus.call("killTopologyWithOpts", "one", storm.KillOptions(wait_secs=0))

    async def runs() -> bool:
        return await slots(nimbus, three) == taken[0]

    await eventually(runs, "the slot of the removed one is used at once")
    await supervisor.close()


async def test_an_unreadable_topology_keeps_its_slots_and_does_not_stop_others(nimbus) -> None:
    supervisor = await nimbus.supervisor("sup-a", [6700, 6701])
    damaged = await nimbus.submit("damaged")
    await nimbus.store.set(f"/storms/{damaged}", b"\x00garbage")
    healthy = await nimbus.submit("healthy")
    assert await slots(nimbus, damaged) == {A}
    assert await slots(nimbus, healthy) == {A2}
    summaries = (await nimbus.call("getClusterInfo")).topologies
    assert [one.name for one in summaries] == ["healthy"]
    await supervisor.close()


async def test_a_supervisor_lost_with_work_is_logged_once(nimbus, caplog) -> None:
    caplog.set_level("INFO")
    worker, idle = await nimbus.supervisor("sup-a", [6700]), await nimbus.supervisor("sup-b", [])
    topology_id = await nimbus.submit()

    def said() -> list[str]:
        lines = [record.getMessage() for record in caplog.records]
        return [line for line in lines if line.startswith("supervisor_")]

    await idle.close()
    await judge(nimbus)
    assert said() == []
    await worker.close()
    await judge(nimbus)
    await judge(nimbus)
    assert said() == [f"supervisor_lost supervisor_id=sup-a host=host topologies={topology_id}"]
    back = await nimbus.supervisor("sup-a", [6700])
    await judge(nimbus)
    assert said()[1:] == ["supervisor_back supervisor_id=sup-a"]
    await back.close()
