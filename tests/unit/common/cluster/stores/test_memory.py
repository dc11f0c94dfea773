"""The faults that the memory store can be told to have."""

from __future__ import annotations

import asyncio
import time

import pytest
from tests.support.stores import States, Watched, eventually

from squall_common.cluster import paths
from squall_common.cluster.leader import LeaderElection, Leadership
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import ConnectionLostError, ConnectionState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.daemon.clock import ManualClock

CONNECTED, SUSPENDED, LOST = (
    ConnectionState.CONNECTED,
    ConnectionState.SUSPENDED,
    ConnectionState.LOST,
)


async def two(ensemble: MemoryEnsemble) -> tuple[MemoryStore, MemoryStore]:
    stores = [
        MemoryStore(ensemble, session_timeout_secs=0.2, operation_timeout_secs=0.1)
        for _ in range(2)
    ]
    for store in stores:
        await store.start()
    return stores[0], stores[1]


async def test_a_short_suspension_keeps_the_session_and_fires_all_watches() -> None:
    ensemble = MemoryEnsemble()
    store, other = await two(ensemble)
    states, watched, idle = States(store), Watched(), Watched()
    await store.create("/e", ephemeral=True)
    await store.exists("/e", watched)
    await store.exists("/idle", idle)
    session = store.session_id
    ensemble.suspend(store)
    await other.set("/e", b"changed meanwhile")
    await states.wait(SUSPENDED)
    assert watched.paths == []
    ensemble.resume(store)
    await states.wait(SUSPENDED, CONNECTED)
    assert await watched.wait() == "/e"
    assert await idle.wait() == "/idle"
    assert store.session_id == session
    assert await other.exists("/e") is not None


async def test_a_long_suspension_ends_the_session() -> None:
    ensemble = MemoryEnsemble()
    store, other = await two(ensemble)
    states, gone = States(store), Watched()
    await store.create("/e", ephemeral=True)
    await other.exists("/e", gone)
    session = store.session_id
    ensemble.suspend(store)
    await states.wait(SUSPENDED, LOST)
    assert await gone.wait() == "/e"
    ensemble.resume(store)
    await states.wait(LOST, CONNECTED)
    assert store.session_id != session
    assert await store.exists("/e") is None


async def test_operations_of_a_suspended_client_wait_and_then_give_up() -> None:
    ensemble = MemoryEnsemble()
    store, _ = await two(ensemble)
    ensemble.suspend(store)
    started = time.monotonic()
    with pytest.raises(ConnectionLostError):
        await store.create("/a")
    assert time.monotonic() - started >= 0.1
    waiting = asyncio.create_task(store.create("/b"))
    await asyncio.sleep(0)
    ensemble.resume(store)
    assert await waiting == "/b"
    assert await store.exists("/a") is None


async def test_while_all_servers_are_away_no_session_runs_out() -> None:
    ensemble = MemoryEnsemble()
    store, other = await two(ensemble)
    states = States(store)
    await store.create("/e", ephemeral=True)
    session = store.session_id
    ensemble.stop()
    await states.wait(SUSPENDED, LOST)  # the client must presume so
    ensemble.start()
    await states.wait(LOST, CONNECTED)
    assert store.session_id == session
    assert await other.exists("/e") is not None


async def test_faults_before_a_client_starts_open_no_session() -> None:
    """A process that is about to connect while the network and the servers come and go."""
    ensemble = MemoryEnsemble()
    store = MemoryStore(ensemble)
    ensemble.suspend(store)
    ensemble.resume(store)
    ensemble.stop()
    ensemble.start()
    await store.start()
    await store.create("/a", ephemeral=True)
    await store.close()
    assert ensemble.tree.exists("/a") is None


async def test_a_killed_client_falls_silent_and_its_session_expires() -> None:
    ensemble = MemoryEnsemble()
    store, other = await two(ensemble)
    states, watched, gone = States(store), Watched(), Watched()
    await store.create("/e", ephemeral=True)
    await store.get("/e", watched)
    await other.exists("/e", gone)
    ensemble.kill(store)
    assert await other.exists("/e") is not None
    await gone.wait()
    assert states.seen == []
    assert watched.paths == []
    with pytest.raises(ConnectionLostError):
        await store.get("/e")


async def test_start_waits_for_the_servers() -> None:
    ensemble = MemoryEnsemble()
    ensemble.stop()
    store = MemoryStore(ensemble)
    starting = asyncio.create_task(store.start())
    await asyncio.sleep(0)
    assert not starting.done()
    ensemble.start()
    await starting
    await store.create("/a")


async def test_a_lost_answer_was_a_write_and_a_lost_request_was_none() -> None:
    ensemble = MemoryEnsemble()
    store, _ = await two(ensemble)
    ensemble.lose_answers(store)
    with pytest.raises(ConnectionLostError):
        await store.create("/done")
    ensemble.lose_requests(store)
    with pytest.raises(ConnectionLostError):
        await store.create("/never")
    assert await store.children("/") == ["done"]


async def test_last_answered_stands_still_while_suspended() -> None:
    ensemble, clock = MemoryEnsemble(), ManualClock()
    store = MemoryStore(ensemble, clock=clock)
    await store.start()
    clock.advance(5)
    assert store.last_answered_secs == clock.monotonic()
    ensemble.suspend(store)
    clock.advance(5)
    assert store.last_answered_secs == clock.monotonic() - 5
    ensemble.resume(store)
    assert store.last_answered_secs == clock.monotonic()
    await store.close()


async def test_the_latest_heartbeat_of_a_suspension_is_written_after_it() -> None:
    ensemble = MemoryEnsemble()
    store, other = await two(ensemble)
    ensemble.suspend(store)
    for number in range(5):
        store.put_nowait("/beat", b"%d" % number)
    assert await other.exists("/beat") is None
    ensemble.resume(store)
    value, stat = await other.get("/beat")
    assert value == b"4"
    assert stat.version == 0


# The election under lost answers


@pytest.mark.parametrize("fault", ["lose_answers", "lose_requests"])
@pytest.mark.parametrize("count", [1, 2, 3])
async def test_an_election_survives_lost_messages(fault: str, count: int) -> None:
    """Whatever is lost, the candidate finds its node again, leads, and leaves nothing behind."""
    ensemble = MemoryEnsemble()
    store, other = await two(ensemble)
    await ClusterState(other).start()
    terms: list[Leadership] = []
    election = LeaderElection(store, "a:1", on_gained=terms.append, on_lost=lambda: None)
    getattr(ensemble, fault)(store, count)
    await election.start()
    await eventually(lambda: bool(terms))
    assert terms[0].active(time.monotonic())
    await terms[0].transaction([])
    assert len(await other.children(paths.LEADER_LOCK)) == 1
    await election.close()
    assert await other.children(paths.LEADER_LOCK) == []


async def test_a_leader_is_inactive_before_its_session_ends_and_active_when_it_did_not() -> None:
    ensemble, clock = MemoryEnsemble(), ManualClock()
    store = MemoryStore(ensemble, session_timeout_secs=30, clock=clock)
    await store.start()
    terms: list[Leadership] = []
    election = LeaderElection(
        store, "a:1", on_gained=terms.append, on_lost=lambda: None, clock=clock
    )
    await election.start()
    await eventually(lambda: bool(terms))
    ensemble.suspend(store)
    clock.advance(19.9)
    assert terms[0].active(clock.monotonic())
    clock.advance(0.2)
    assert not terms[0].active(clock.monotonic())
    assert not terms[0].ended
    ensemble.resume(store)
    assert terms[0].active(clock.monotonic())
    await election.close()
    assert not terms[0].active(clock.monotonic())
    await store.close()


async def test_a_state_that_starts_waits_also_for_what_goes_away_in_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("squall_common.cluster.state._RETRY_SECS", 0.001)
    ensemble = MemoryEnsemble()
    store = MemoryStore(ensemble)
    ensemble.lose_requests(store, 2)
    await asyncio.wait_for(ClusterState(store).start(), 10)
    for path in paths.LAYOUT:
        assert await store.exists(path) is not None
    other = MemoryStore(ensemble := MemoryEnsemble())
    ensemble.lose_answers(other, 3)
    await asyncio.wait_for(ClusterState(other).start(), 10)
    for path in paths.LAYOUT:
        assert await other.exists(path) is not None


async def test_a_state_that_is_closed_while_it_starts_waits_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("squall_common.cluster.state._RETRY_SECS", 0.001)
    ensemble = MemoryEnsemble()
    store = MemoryStore(ensemble, operation_timeout_secs=0.01)
    ensemble.lose_requests(store, 1_000_000)
    state = ClusterState(store)
    starting = asyncio.create_task(state.start())
    await eventually(lambda: store._requests_to_lose < 999_990)
    await state.close()
    with pytest.raises(ConnectionLostError):
        await asyncio.wait_for(starting, 10)
