"""ClusterState over both stores."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.stores import Ensemble, States, Watched, eventually

from squall_common.cluster import codec, paths
from squall_common.cluster import state as cluster_state
from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.state import ERRORS_KEPT, ClusterState
from squall_common.cluster.store import (
    ConnectionState,
    NodeExistsError,
    NoNodeError,
    Op,
    StoreError,
)
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import (
    Assignment,
    Credentials,
    ErrorInfo,
    LogConfig,
    LogLevel,
    LogLevelAction,
    NimbusInfo,
    ProfileAction,
    ProfileRequest,
    StormBase,
    SupervisorInfo,
    TopologyStatus,
    WorkerHeartbeat,
)
from squall_common.topology.model import Executor, WorkerSlot

BASE = StormBase("wc", TopologyStatus.INACTIVE, 1)
ASSIGNMENT = Assignment(
    "/code", {"sup-1": "host"}, {Executor(1, 1): WorkerSlot("sup-1", 6700)}, {Executor(1, 1): 17}
)
ID = "wc-1-17"
SLOT = WorkerSlot("sup-1", 6700)


@pytest.fixture
async def state(servers: Ensemble) -> ClusterState:
    state = ClusterState(await servers.open())
    await state.start()
    return state


async def other_state(servers: Ensemble) -> ClusterState:
    return ClusterState(await servers.open())


def supervisor(hostname: str = "host", uptime_secs: int = 0) -> SupervisorInfo:
    return SupervisorInfo(17, hostname, "sup-1", meta=(6700, 6701), uptime_secs=uptime_secs)


# Topologies


async def test_an_empty_cluster(state: ClusterState) -> None:
    assert await state.topology_ids() == []
    assert await state.storm_base(ID) is None
    assert await state.storm_bases() == {}
    assert await state.assignments() == []
    assert await state.assignment(ID) is None
    assert await state.supervisors() == {}
    assert await state.worker_beats(ID) == {}
    assert await state.all_errors(ID) == {}
    assert await state.errors(ID, "words") == []
    assert await state.nimbuses() == []
    assert await state.credentials(ID) is None
    assert await state.log_config(ID) is None
    assert await state.profile_requests(ID) == []
    assert await state.topologies_with_state() == set()
    await state.remove_topology(ID)
    await state.remove_assignment(ID)


async def test_starting_twice_is_fine(servers: Ensemble, state: ClusterState) -> None:
    second = ClusterState(await servers.open())
    await second.start()
    assert await second.topology_ids() == []


async def test_a_topology_is_created_once_and_changed(state: ClusterState) -> None:
    await state.create_topology(ID, BASE)
    assert await state.topology_ids() == [ID]
    assert await state.storm_base(ID) == BASE
    with pytest.raises(NodeExistsError):
        await state.create_topology(ID, BASE)
    active = StormBase("wc", TopologyStatus.ACTIVE, 1)
    await state.put_storm_base(ID, active)
    assert await state.storm_bases() == {ID: active}


async def test_a_removed_topology_is_not_brought_back_by_a_late_write(state: ClusterState) -> None:
    await state.create_topology(ID, BASE)
    await state.remove_topology(ID)
    with pytest.raises(NoNodeError):
        await state.put_storm_base(ID, BASE)
    assert await state.topology_ids() == []


async def left_by_storm(state: ClusterState, credentials: Credentials) -> None:
    value = codec.encode_credentials(credentials)
    await state.store.create(paths.credentials(ID), value)


async def test_removal_leaves_nothing(state: ClusterState) -> None:
    await state.create_topology(ID, BASE)
    await state.put_assignment(ID, ASSIGNMENT)
    await left_by_storm(state, Credentials({"k": "v"}))
    await state.put_log_config(ID, LogConfig())
    await state.put_profile_request(ID, ProfileRequest(SLOT, ProfileAction.JMAP_DUMP))
    for component in ("words", "count"):
        await state.report_error(ID, component, ErrorInfo("boom", 17))
    beat = WorkerHeartbeat(ID, {}, 17, 1)
    state.put_worker_beat_nowait(SLOT, beat)
    await eventually_beats(state, 1)
    other = "other-1-1"
    await state.create_topology(other, BASE)
    await state.remove_topology(ID)
    assert await state.topologies_with_state() == {other}
    assert await state.topology_ids() == [other]


async def eventually_beats(state: ClusterState, count: int) -> None:
    async def there() -> bool:
        return len(await state.worker_beats(ID)) == count

    await eventually(there)


async def test_half_done_removals_are_found(state: ClusterState) -> None:
    """A crash in the middle of the removal keeps /storms/ID; foreign leftovers are found too."""
    await state.create_topology(ID, BASE)

    class Crash(Exception):
        pass

    class CrashAfter:
        def __init__(self, steps: int) -> None:
            self.steps = steps

        async def transaction(self, ops: Sequence[Op]) -> None:
            if self.steps == 0:
                raise Crash
            self.steps -= 1
            await state.store.transaction(ops)

    await state.put_assignment(ID, ASSIGNMENT)
    for steps in (0, 1, 1):  # assignment; heartbeats; errors
        with pytest.raises(Crash):
            await state.remove_topology(ID, guard=CrashAfter(steps))
        assert await state.topology_ids() == [ID]
        assert await state.topologies_with_state() == {ID}
    await state.remove_topology(ID)
    assert await state.topologies_with_state() == set()
    await state.store.create(f"{paths.WORKERBEATS}/left-1-1")
    assert await state.topologies_with_state() == {"left-1-1"}


async def test_a_topology_with_very_many_nodes_is_removed(state: ClusterState) -> None:
    await state.create_topology(ID, BASE)
    await asyncio.gather(
        *(state.store.create(f"{paths.workerbeats(ID)}/n-{port}", b"x") for port in range(450))
    )
    await state.remove_topology(ID)
    assert await state.topologies_with_state() == set()


async def test_the_watch_of_an_unknown_topology_waits_for_it(
    servers: Ensemble, state: ClusterState
) -> None:
    reader = await other_state(servers)
    appeared, listed = Watched(), Watched()
    assert await reader.storm_base(ID, appeared) is None
    assert await reader.topology_ids(listed) == []
    await state.create_topology(ID, BASE)
    assert await appeared.wait() == paths.storm(ID)
    assert await listed.wait() == paths.STORMS


@pytest.mark.parametrize("on_loop", [True, False], ids=["small", "large"])
async def test_an_assignment_is_decoded_when_it_changes_and_not_at_each_reading(
    servers: Ensemble, state: ClusterState, monkeypatch: pytest.MonkeyPatch, on_loop: bool
) -> None:
    decoded = []

    def decode(path: str, data: bytes) -> Assignment:
        decoded.append(path)
        return real(path, data)

    real = codec.decode_assignment
    monkeypatch.setattr(codec, "decode_assignment", decode)
    if not on_loop:
        monkeypatch.setattr(cluster_state, "_DECODE_HERE_BYTES_MAX", 0)
    reader = await other_state(servers)
    await state.put_assignment(ID, ASSIGNMENT)
    for _ in range(2):
        both = await asyncio.gather(reader.all_assignments(), reader.all_assignments())
        for read in both:
            assert {i: one for i, (one, _) in read.items()} == {ID: ASSIGNMENT}
    assert decoded == [paths.assignment(ID)]
    moved = replace(ASSIGNMENT, executor_slot={Executor(1, 1): WorkerSlot("sup-2", 6700)})
    await state.put_assignment(ID, moved)
    assert (found := await reader.assignment(ID)) is not None
    assert found[0] == moved
    await state.remove_assignment(ID)
    assert await reader.all_assignments() == {}
    await state.put_assignment(ID, moved)
    assert (found := await reader.assignment(ID)) is not None
    assert found[0] == moved
    assert len(decoded) == 3  # what is gone is not kept
    await state.store.set(paths.assignment(ID), b"damaged")
    for _ in range(2):
        with pytest.raises(CorruptStateError):
            await reader.assignment(ID)
    assert len(decoded) == 5


async def test_an_assignment_comes_with_the_zxid_that_wrote_it(
    servers: Ensemble, state: ClusterState
) -> None:
    reader = await other_state(servers)
    changed = Watched()
    assert await reader.assignment(ID, changed) is None
    await state.put_assignment(ID, ASSIGNMENT)
    await changed.wait()
    first = await reader.assignment(ID, changed)
    await state.put_assignment(ID, ASSIGNMENT)
    await changed.wait()
    second = await reader.assignment(ID)
    assert first is not None
    assert second is not None
    assert first[0] == second[0] == ASSIGNMENT
    assert 0 < first[1] < second[1]
    assert await reader.all_assignments() == {ID: second}
    await state.remove_assignment(ID)
    assert await reader.all_assignments() == {}


# Supervisors and Nimbus


async def test_a_supervisor_is_there_while_its_session_lives(
    servers: Ensemble, state: ClusterState
) -> None:
    daemon = await other_state(servers)
    changed = Watched()
    assert await state.supervisors(changed) == {}
    await daemon.register_supervisor("sup-1", supervisor())
    await changed.wait()
    assert await state.supervisors(changed) == {"sup-1": supervisor()}
    await daemon.register_supervisor("sup-1", supervisor(uptime_secs=5))
    assert await state.supervisors(changed) == {"sup-1": supervisor(uptime_secs=5)}
    await daemon.close()
    await changed.wait()
    assert await state.supervisors() == {}


async def test_a_restarted_supervisor_replaces_the_node_of_its_former_process(
    servers: Ensemble, state: ClusterState
) -> None:
    """STORM-3107's trap: the old node would go when the old session expires, and the restarted
    daemon with it."""
    old, new = await servers.open(session_timeout_secs=4), await other_state(servers)
    changed = Watched()
    await ClusterState(old).register_supervisor("sup-1", supervisor("old"))
    await state.supervisors(changed)
    await new.register_supervisor("sup-1", supervisor("new"))
    await changed.wait()
    assert await state.supervisors(changed) == {"sup-1": supervisor("new")}
    stat = await state.store.exists(paths.supervisor("sup-1"))
    assert stat is not None
    assert stat.ephemeral_owner == new.store.session_id
    await old.close()
    assert await state.supervisors() == {"sup-1": supervisor("new")}


async def test_a_supervisor_registers_again_after_its_session_was_lost(
    servers: Ensemble, state: ClusterState
) -> None:
    daemon = await other_state(servers)
    states = States(daemon.store)
    await daemon.register_supervisor("sup-1", supervisor())
    await servers.expire(daemon.store)
    await states.wait(ConnectionState.LOST, ConnectionState.CONNECTED)
    await daemon.register_supervisor("sup-1", supervisor())
    assert set(await state.supervisors()) == {"sup-1"}


async def test_nimbuses_are_listed_in_order(servers: Ensemble, state: ClusterState) -> None:
    other = await other_state(servers)
    b, a = NimbusInfo("b", 6627, 1, False, "0.1"), NimbusInfo("a", 6628, 1, True, "0.1")
    await state.register_nimbus(b)
    await other.register_nimbus(a)
    assert await state.nimbuses() == [a, b]
    await other.close()
    await eventually_nimbuses(state, [b])


async def eventually_nimbuses(state: ClusterState, nimbuses: list[NimbusInfo]) -> None:
    async def there() -> bool:
        return await state.nimbuses() == nimbuses

    await eventually(there)


# Heartbeats


async def test_a_heartbeat_is_new_if_its_zxid_is(state: ClusterState) -> None:
    await state.setup_heartbeats(ID)
    await state.setup_heartbeats(ID)
    beat = WorkerHeartbeat(ID, {Executor(1, 2): None}, 17, 1)
    state.put_worker_beat_nowait(SLOT, beat)
    await eventually_beats(state, 1)
    [(slot, (read, first))] = (await state.worker_beats(ID)).items()
    assert (slot, read) == (SLOT, beat)
    state.put_worker_beat_nowait(SLOT, beat)  # the very same bytes

    async def renewed() -> bool:
        return (await state.worker_beats(ID))[SLOT][1] > first

    await eventually(renewed)
    await state.remove_worker_beat(ID, SLOT)
    await state.remove_worker_beat(ID, SLOT)
    assert await state.worker_beats(ID) == {}


async def test_a_worker_that_still_beats_after_the_removal_leaves_nothing(
    state: ClusterState,
) -> None:
    await state.create_topology(ID, BASE)
    beat = WorkerHeartbeat(ID, {}, 17, 1)
    state.put_worker_beat_nowait(SLOT, beat)
    await eventually_beats(state, 1)
    await state.remove_topology(ID)
    state.put_worker_beat_nowait(SLOT, beat)
    assert not await state.report_error(ID, "words", ErrorInfo("late", 18))
    await eventually(lambda: state.store.put_errors > 0)
    assert await state.topologies_with_state() == set()


# Errors


async def test_the_newest_ten_errors_are_kept_newest_first(state: ClusterState) -> None:
    await state.create_topology(ID, BASE)
    component = "a b/c-last-error"
    reported = [ErrorInfo(f"error {n}", n, "host", 6700) for n in range(ERRORS_KEPT + 4)]
    for error in reported:
        assert await state.report_error(ID, component, error)
    assert await state.errors(ID, component) == reported[:3:-1]
    assert await state.last_error(ID, component) == reported[-1]
    await state.report_error(ID, "words", reported[0])
    assert await state.all_errors(ID) == {component: reported[:3:-1], "words": [reported[0]]}


async def test_concurrent_error_reports_do_not_interfere(
    servers: Ensemble, state: ClusterState
) -> None:
    await state.create_topology(ID, BASE)
    others = [await other_state(servers) for _ in range(3)]
    await asyncio.gather(
        *(one.report_error(ID, "words", ErrorInfo(f"{n}", n)) for one in others for n in range(12))
    )
    assert len(await state.errors(ID, "words")) == ERRORS_KEPT


# Small things


async def test_credentials_log_levels_and_profiling(state: ClusterState) -> None:
    credentials = Credentials({"k": "v"}, "ann")
    await left_by_storm(state, credentials)
    assert await state.credentials(ID) == credentials
    for _ in range(2):
        await state.remove_credentials(ID)
        assert await state.credentials(ID) is None
    config = LogConfig({"ROOT": LogLevel(LogLevelAction.UPDATE, "DEBUG")})
    changed = Watched()
    assert await state.log_config(ID, changed) is None
    await state.put_log_config(ID, config)
    await changed.wait()
    assert await state.log_config(ID) == config
    requests = [
        ProfileRequest(SLOT, ProfileAction.JMAP_DUMP, 1),
        ProfileRequest(SLOT, ProfileAction.JSTACK_DUMP, 2),
    ]
    for request in requests:
        await state.put_profile_request(ID, request)
    assert await state.profile_requests(ID) == requests
    await state.remove_profile_request(ID, requests[0])
    await state.remove_profile_request(ID, requests[0])
    assert await state.profile_requests(ID) == requests[1:]


# What cannot be read is not absent


@pytest.mark.parametrize("garbage", [b"", b"garbage", b"\x1f\x8b"])
async def test_damaged_values_raise_with_their_path(state: ClusterState, garbage: bytes) -> None:
    await state.store.create(paths.storm(ID), garbage)
    await state.store.create(paths.assignment(ID), garbage)
    await state.store.create(paths.supervisor("s"), garbage)
    with pytest.raises(CorruptStateError, match=f"/storms/{ID}"):
        await state.storm_base(ID)
    with pytest.raises(CorruptStateError, match=f"/storms/{ID}"):
        await state.storm_bases()
    with pytest.raises(CorruptStateError, match=f"/assignments/{ID}"):
        await state.assignment(ID)
    assert await state.supervisors() == {}
    unreadable = (await state.read_assignments())[ID]
    assert isinstance(unreadable, CorruptStateError)
    assert await state.all_assignments() == {}
    assert not issubclass(CorruptStateError, StoreError)
    assert await state.topology_ids() == [ID]


async def test_one_damaged_node_does_not_hide_other_heartbeats() -> None:
    """Foreign names under a topology's heartbeats are passed over."""
    store = MemoryStore(MemoryEnsemble())
    state = ClusterState(store)
    await state.start()
    await state.setup_heartbeats(ID)
    await store.create(f"{paths.workerbeats(ID)}/stranger", b"?")
    assert await state.worker_beats(ID) == {}
    await state.close()
