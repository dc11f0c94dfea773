"""Questions about messages, over both stores."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.stores import Ensemble, eventually

from squall_common.cluster import paths, questions
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import Store
from squall_common.cluster.values import StormBase, TopologyStatus

ID = "wc-1-17"


@pytest.fixture
async def state(servers: Ensemble) -> ClusterState:
    state = ClusterState(await servers.open())
    await state.start()
    await state.create_topology(ID, StormBase("wc", TopologyStatus.ACTIVE, 1))
    return state


async def answering(store: Store, known: dict[int, str]) -> None:
    """As a worker with spouts does."""
    changed = asyncio.Event()

    def fired(path: str) -> None:
        changed.set()

    while True:
        changed.clear()
        for root in await questions.asked(store, ID, fired) or ():
            if root in known:
                await questions.answer(store, ID, root, known[root])
        await changed.wait()


async def test_each_question_is_answered_by_a_worker_that_knows(
    servers: Ensemble, state: ClusterState
) -> None:
    big = 2**64 - 1
    knowing = [
        asyncio.create_task(answering(await servers.open(), {7: "message id 'seven'"})),
        asyncio.create_task(answering(await servers.open(), {big: "message id 8"})),
    ]
    asker = await servers.open()
    found = await questions.ask(asker, ID, [7, big], 10.0)
    assert found == {7: "message id 'seven'", big: "message id 8"}
    assert await questions.ask(asker, ID, [7, 9], 0.5) == {7: "message id 'seven'"}
    for task in knowing:
        task.cancel()
    await asyncio.gather(*knowing, return_exceptions=True)


async def test_a_question_goes_with_its_asker_and_no_slot_is_seen_in_it(
    servers: Ensemble, state: ClusterState
) -> None:
    asker = await servers.open()
    assert await questions.ask(asker, ID, [7], 0.1) == {}
    assert await questions.asked(state.store, ID, lambda _: None) == [7]
    assert await state.worker_beats(ID) == {}
    await asker.close()

    async def gone() -> bool:
        return await state.store.exists(paths.question(ID, 7)) is None

    await eventually(gone)
    await questions.answer(state.store, ID, 7, "too late")  # does not raise
    assert await questions.asked(state.store, ID, lambda _: None) == []


async def test_a_removed_topology_leaves_nothing(servers: Ensemble, state: ClusterState) -> None:
    asker = await servers.open()
    await questions.ask(asker, ID, [7], 0.1)
    await state.remove_topology(ID)
    assert await state.topologies_with_state() == set()
    assert await questions.ask(asker, ID, [7], 0.1) == {}
    assert await questions.asked(asker, ID, lambda _: None) is None
    assert await state.topologies_with_state() == set()


async def test_an_answer_and_a_list_are_bounded(servers: Ensemble, state: ClusterState) -> None:
    await questions.ask(state.store, ID, [0], 0.1)
    await questions.answer(state.store, ID, 0, "x" * 100_000)
    assert len((await questions.ask(state.store, ID, [0], 5.0))[0]) == 1000
    for root in range(1, questions.QUESTIONS_MAX + 50):
        await state.store.create(paths.question(ID, root))
    found = await questions.asked(state.store, ID, lambda _: None)
    assert found is not None
    assert len(found) == questions.QUESTIONS_MAX
