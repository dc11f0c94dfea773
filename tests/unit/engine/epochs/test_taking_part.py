"""A worker's part in the epochs: what it knows of the store."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from squall_common.state.errors import StateStoreError
from squall_common.state.manifest import TaskPart
from squall_engine.epochs import background
from squall_engine.epochs.background import Background
from squall_engine.epochs.member import Member
from squall_engine.epochs.messages import Begin, Completed, Go, Restore, ToCoordinator
from squall_engine.epochs.parts import PartStore, Snapshot
from squall_engine.epochs.taking_part import TakingPart
from squall_engine.epochs.task import TaskEpochs

TASK = ("count", 0)


class Driver:
    """The epochs of a task that takes its snapshots when the test says so."""

    def __init__(self) -> None:
        self.tasks = {TASK: TaskEpochs([], 0)}
        self.confirmed = 0

    def confirm(self, epoch: int) -> None:
        self.confirmed = max(self.confirmed, epoch)

    def wrote(self, *_: Any) -> None:
        pass

    def look(self) -> None:
        pass


class Store:
    """Where snapshots go, unless it is full."""

    def __init__(self) -> None:
        self.full = False

    def write(self, snapshot: Snapshot, groups: int) -> TaskPart:
        if self.full:
            raise StateStoreError(f"epoch {snapshot.epoch}: no space left")
        return TaskPart()


async def until(condition: Any) -> None:
    async with asyncio.timeout(10.0):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.001)


async def test_a_failure_of_the_store_is_known_until_an_epoch_is_complete(monkeypatch: Any) -> None:
    monkeypatch.setattr(background, "RETRY_SECS", 0.001)
    failures: list[str] = []
    behind = Background(
        "words",
        on_failure=lambda error: failures.append(error.message),
        on_fault=lambda error: failures.append(f"fault: {error.message}"),
    )
    store, driver, said = Store(), Driver(), list[ToCoordinator]()
    part = TakingPart(
        Member(1, 1),
        background=behind,
        parts=cast(PartStore, store),
        say=said.append,
        make_tasks=lambda restore: None,
        replaced=lambda: None,
    )
    part.hear(Restore(1, 0, {"count": 1}, {0: 1, 1: 1}, None))
    part.begin(cast(Any, SimpleNamespace(epochs=driver, set_ready=lambda ready: None)))
    part.hear(Go(1, 0))

    async def take(epoch: int) -> None:
        part.hear(Begin(1, epoch, full=False))
        driver.tasks[TASK].took(epoch)
        part.taken(Snapshot(TASK, 1, epoch), 0)

    await take(1)
    await until(lambda: part.member.is_durable(TASK))
    part.hear(Completed(1, 1))
    assert behind.failure == ""

    store.full = True
    driver.tasks[TASK].release(1)
    await take(2)
    await until(lambda: len(failures) > 1)
    assert behind.failure == "epoch 2: no space left"
    part.hear(Completed(1, 1))  # again, and late
    part.hear(Go(1, 0))
    assert behind.failure == "epoch 2: no space left"

    store.full = False
    await until(lambda: part.member.is_durable(TASK))
    assert behind.failure == "epoch 2: no space left"  # whether it works, an epoch shows
    part.hear(Completed(1, 2))
    assert behind.failure == ""
    await behind.close()
