"""The loop that says when something holds it."""

import asyncio
import gc
import logging
import threading
import time
from collections.abc import Iterator

import pytest

from squall_common.daemon.loop import watched_loop
from squall_common.daemon.loop.watched_loop import WatchedLoop
from squall_common.daemon.run import watch_loop
from squall_thrift.serving.processor import OPERATION


@pytest.fixture(autouse=True)
def garbage_is_looked_for_again() -> Iterator[None]:
    yield
    gc.unfreeze()


def burn(secs: float) -> None:
    end = time.thread_time() + secs
    while time.thread_time() < end:
        pass


def held(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.getMessage().startswith("loop_held")]


def test_what_holds_the_loop_is_named_with_its_call_and_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        burn(0.1)  # before the daemon has started
        watch_loop()
        OPERATION.set("getTopologyInfo")
        await asyncio.sleep(0)
        burn(0.1)
        await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.get_loop().run_until_complete(runner.get_loop().create_task(main(), name="a call"))
    [line] = held(caplog)
    assert "call=getTopologyInfo" in line
    assert 'task="a call"' in line
    assert int(line.partition("ms=")[2].split()[0]) >= 100


@pytest.mark.parametrize("how", ["call_later", "call_soon_threadsafe"])
def test_callbacks_of_every_kind_are_measured(caplog: pytest.LogCaptureFixture, how: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        done = loop.create_future()

        def callback() -> None:
            burn(0.1)
            done.set_result(None)

        watch_loop()
        if how == "call_later":
            loop.call_later(0.001, callback)
        else:
            threading.Thread(target=loop.call_soon_threadsafe, args=(callback,)).start()
        await done

    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(main())
    [line] = held(caplog)
    assert "callback" in line


def test_neither_waiting_nor_a_thread_beside_it_holds_the_loop(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        watch_loop()
        for _ in range(10):
            await asyncio.sleep(0)
            burn(watched_loop.HELD_SECS_MAX / 10)
        time.sleep(2 * watched_loop.HELD_SECS_MAX)  # noqa: ASYNC251 - no CPU: a busy machine
        await asyncio.to_thread(burn, 2 * watched_loop.HELD_SECS_MAX)

    with caplog.at_level(logging.WARNING), asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(main())
    assert held(caplog) == []


def test_a_collection_does_not_look_at_what_the_start_has_made() -> None:
    async def main() -> None:
        watch_loop()

    made = [[] for _ in range(1000)]
    with asyncio.Runner(loop_factory=WatchedLoop) as runner:
        runner.run(main())
    assert gc.get_freeze_count() > len(made)
