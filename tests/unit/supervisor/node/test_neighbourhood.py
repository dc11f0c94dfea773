"""Whom a supervisor asks whether it is cut off."""

import asyncio

import pytest
from tests.support.nimbus_service import eventually

from squall_common.cluster import paths
from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryEnsemble, MemoryStore
from squall_common.cluster.values import SupervisorInfo
from squall_supervisor.node.neighbourhood import Neighbourhood
from squall_supervisor.records.neighbours import NOBODY, Neighbours


class Standstill:
    """A clock on which the next regular reading never comes."""

    def boottime(self) -> float:
        return self.monotonic()

    def monotonic(self) -> float:
        return 100.0

    def time(self) -> float:
        return 100.0


def neighbourhood_of(state: ClusterState, found: list[Neighbours]) -> Neighbourhood:
    """That of sup-a, which knows no neighbours yet; `found` gets those that it finds."""
    return Neighbourhood(
        state,
        supervisor_id="sup-a",
        timeout_secs=1.0,
        known=NOBODY,
        on_known=found.append,
        on_isolated=lambda: None,
        clock=Standstill(),
    )


async def test_neighbours_are_looked_for_again_at_once_until_there_is_another_supervisor(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Supervisors that start together do not find each other at their first reading."""
    state = ClusterState(MemoryStore(MemoryEnsemble()))
    await state.start()
    found: list[Neighbours] = []
    asked = 0
    supervisor_ids = state.supervisor_ids

    async def counted() -> list[str]:
        nonlocal asked
        asked += 1
        return await supervisor_ids()

    async def read() -> bool:
        return asked > 0

    monkeypatch.setattr(state, "supervisor_ids", counted)
    running = asyncio.create_task(neighbourhood_of(state, found).run())
    try:
        await eventually(read, "it has read, and found no neighbours")
        assert found == []
        other = SupervisorInfo(0, "127.0.0.1", "sup-b", meta=(6700,), server_port=6628)
        await state.register_supervisor("sup-b", other)

        async def known() -> bool:
            return bool(found)

        await eventually(known, "the other one is known")
        assert found == [Neighbours((("127.0.0.1", 6628),), supervisors=True)]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await state.close()


async def test_a_damaged_entry_of_another_daemon_does_not_end_the_supervisor() -> None:
    """Each node reads the others' entries: all of them read the mistakes of any one."""
    state = ClusterState(MemoryStore(MemoryEnsemble()))
    await state.start()
    for name, host in (
        ("sup-dots", "node..example"),
        ("sup-long", "n" * 64),
        ("sup-b", "127.0.0.1"),
    ):
        info = SupervisorInfo(0, host, name, meta=(6700,), server_port=6628)
        await state.register_supervisor(name, info)
    await state.store.create(paths.supervisor("sup-torn"), b"\x00torn")
    await state.store.create(f"{paths.NIMBUSES}/torn:6627", b"\x00torn")
    found: list[Neighbours] = []
    running = asyncio.create_task(neighbourhood_of(state, found).run())
    try:

        async def known() -> bool:
            return bool(found) or running.done()

        await eventually(known, "the neighbours are read")
        assert not running.done(), running.exception()
        assert found == [Neighbours((("127.0.0.1", 6628),), supervisors=True)]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await state.close()
