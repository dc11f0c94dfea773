"""Stored state in a real Redis server: found again, fenced, and in one piece when it is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.redis_server import RedisServer

from squall_common.state.errors import (
    StateDamagedError,
    StateError,
    StateFencedError,
    StateStoreError,
)
from squall_common.state.keyed import KeyedState
from squall_common.state.redis_store import RedisStore
from squall_common.state.task_store import TaskPlace
from squall_engine.core.codec import ValueCodec

PLACE = TaskPlace("words", "count", 0, 1, 128)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with RedisServer.start(tmp_path_factory.mktemp("redis")) as started:
        yield started


@pytest.fixture
def place(request: pytest.FixtureRequest) -> TaskPlace:
    return TaskPlace(request.node.name, "count", 0, 1, 128)


class Task:
    """A task that was started."""

    def __init__(self, server: RedisServer, place: TaskPlace) -> None:
        self.store = RedisStore(server.url, place)
        self.state = KeyedState(place.max_parallelism, ValueCodec())
        self.store.open(self.state)

    def flush(self) -> None:
        epoch = self.store.epoch + 1
        changes = self.state.snapshot(epoch, base=self.store.wants_base(len(self.state)))
        self.store.write(changes, ValueCodec())
        self.state.completed(epoch)

    def put(self, key: str, value: Any) -> None:
        self.state.current = key
        self.state.put(key, value)


def test_a_task_finds_what_the_one_before_has_flushed(
    server: RedisServer, place: TaskPlace
) -> None:
    task = Task(server, place)
    expected = {}
    for n in range(3_000):
        key = f"k{n % 300}"
        task.put(key, [n])
        expected[key] = [n]
        if n % 50 == 0:
            task.flush()
        if n % 700 == 0:
            task.state.delete("k5")
            expected.pop("k5", None)
    task.flush()
    task.put("lost", 1)
    again = Task(server, place)
    assert dict(again.state.items()) == expected
    assert again.store.size > 0
    assert again.store.epoch == task.store.epoch


def test_a_task_that_was_replaced_writes_nothing_more(
    server: RedisServer, place: TaskPlace
) -> None:
    old = Task(server, place)
    old.put("a", 1)
    old.flush()
    new = Task(server, place)
    old.put("a", 2)
    with pytest.raises(StateFencedError, match="another worker has taken over"):
        old.flush()
    assert dict(new.state.items()) == {"a": 1}
    new.put("a", 3)
    new.flush()
    assert dict(Task(server, place).state.items()) == {"a": 3}


def test_other_numbers_of_tasks_and_groups_are_refused(
    server: RedisServer, place: TaskPlace
) -> None:
    task = Task(server, place)
    task.put("a", 1)
    task.flush()
    with pytest.raises(StateError, match=r"stored by 1 task\(s\), and the bolt has 2"):
        Task(server, TaskPlace(place.topology, "count", 0, 2, 128))
    with pytest.raises(StateError, match="128 key groups, and the bolt has 256"):
        Task(server, TaskPlace(place.topology, "count", 0, 1, 256))


def test_a_damaged_value_is_named(server: RedisServer, place: TaskPlace) -> None:
    task = Task(server, place)
    task.put("a", 1)
    task.flush()
    key = f"squall:state:{place.folder}"
    data = bytearray(task.store._client.hget(key, "1"))
    data[-1] ^= 1
    task.store._client.hset(key, "1", bytes(data))
    with pytest.raises(StateDamagedError, match=f"{key}, epoch 1.*is damaged"):
        Task(server, place)


def test_a_server_that_is_killed_has_all_that_was_flushed(tmp_path: Path) -> None:
    server = RedisServer(tmp_path)
    with server.running():
        task = Task(server, PLACE)
        task.put("a", 1)
        task.flush()
        server.kill()
        task.put("b", 2)
        with pytest.raises(StateStoreError, match="could not write squall:state:words/count/00000"):
            task.flush()
        server.restart()
        task.flush()
        assert dict(Task(server, PLACE).state.items()) == {"a": 1, "b": 2}
