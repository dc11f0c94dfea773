"""Fair order: peers take turns, and so do a peer's connections."""

import asyncio
import threading
import time
from concurrent.futures import Future

import pytest

from squall_thrift.serving.off_loop import CALLER, FairExecutor
from squall_thrift.serving.turns import FairQueue, Turns


def test_a_peer_with_many_connections_gets_no_more_than_a_peer_with_one() -> None:
    queue: FairQueue[str] = FairQueue()
    for connection in range(3):
        for item in range(2):
            queue.add(("greedy", connection), f"greedy {connection}.{item}")
    queue.add(("modest", 0), "modest")
    order = [queue.next() for _ in range(len(queue))]
    assert order == [
        "greedy 0.0",
        "modest",
        "greedy 1.0",
        "greedy 2.0",
        "greedy 0.1",
        "greedy 1.1",
        "greedy 2.1",
    ]
    with pytest.raises(KeyError):
        queue.next()


async def test_one_turn_an_iteration_while_others_wait() -> None:
    turns = Turns()
    order: list[str] = []

    async def call(peer: str, connection: int) -> None:
        await turns.take((peer, connection))
        order.append(f"{peer} {connection}")

    calls = [call("greedy", number) for number in range(4)] + [call("modest", 0)]
    await asyncio.gather(*calls)
    assert order == ["greedy 0", "greedy 1", "modest 0", "greedy 2", "greedy 3"]
    await asyncio.sleep(0)
    await asyncio.wait_for(turns.take(("anyone", 0)), 10)


async def test_a_connection_that_ends_while_it_waits_costs_no_turn() -> None:
    turns = Turns()
    await turns.take(("a", 0))
    waiting = [asyncio.create_task(turns.take((peer, 0))) for peer in ("b", "c")]
    waiting[0].cancel()
    await asyncio.wait_for(waiting[1], 10)


def test_work_is_done_by_turns_of_its_callers() -> None:
    executor = FairExecutor("test")
    begin = threading.Event()
    done: list[str] = []
    futures: list[Future[None]] = [executor.submit(begin.wait, 10)]  # type: ignore[list-item]
    while executor._queue:  # until the thread has taken it
        time.sleep(0.001)
    for peer, text in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1")):
        token = CALLER.set((peer, 0))
        futures.append(executor.submit(done.append, text))
        CALLER.reset(token)
    given_up = executor.submit(done.append, "given up")
    assert given_up.cancel()
    begin.set()
    for future in futures:
        future.result(10)
    assert done == ["a1", "b1", "a2", "a3"]


def test_an_error_of_the_work_is_raised_to_its_caller() -> None:
    with pytest.raises(ZeroDivisionError):
        FairExecutor("test").submit(lambda: 1 / 0).result(10)
