"""Workers killed under a load of DRPC requests: a right answer or a clear failure, never a wrong
answer, and none that hangs."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.support.devcluster import EXAMPLES, DevCluster
from tests.support.ledger import nothing_lost

from squall_drpc import AsyncDRPCClient, DRPCError

sys.path.append(str(EXAMPLES / "reach"))
from followers import World

pytestmark = [pytest.mark.integration, pytest.mark.chaos]

WORLD = World()
CALLERS = 12
MESSAGE_TIMEOUT_SECS = 8
REQUEST_TIMEOUT_SECS = 60


class Load:
    """Callers that ask for the reach of one URL after the other, and compare."""

    def __init__(self, port: int, urls: list[str]) -> None:
        self.right = 0
        self.failures: list[str] = []
        self.wrong: list[str] = []
        self.longest_secs = 0.0
        self._client = AsyncDRPCClient("127.0.0.1", port, timeout_secs=REQUEST_TIMEOUT_SECS + 10)
        self._urls = urls
        self._going = True

    async def run(self) -> None:
        async with self._client:
            await asyncio.gather(*(self._ask(number) for number in range(CALLERS)))

    def end(self) -> None:
        self._going = False

    async def wait_right(self, more: int, timeout_secs: float = 150.0) -> None:
        """Until so many more answers were right."""
        goal = self.right + more
        async with asyncio.timeout(timeout_secs):
            while self.right < goal:
                with nothing_lost():
                    assert self.wrong == []
                await asyncio.sleep(0.02)

    async def _ask(self, number: int) -> None:
        while self._going:
            url = self._urls[number % len(self._urls)]
            number += CALLERS
            start = time.monotonic()
            try:
                answer = await self._client.execute("reach", url)
            except DRPCError as error:
                self.failures.append(str(error))
            else:
                if int(answer) == WORLD.reach(url):
                    self.right += 1
                else:
                    self.wrong.append(f"{url}: {answer}, not {WORLD.reach(url)}")
            self.longest_secs = max(self.longest_secs, time.monotonic() - start)


@pytest.mark.parametrize("attempts", [1, 5])
def test_never_a_wrong_answer_while_workers_are_killed(tmp_path: Path, attempts: int) -> None:
    urls = [WORLD.url(number) for number in range(60)]
    for url in urls:
        WORLD.reach(url)
    overrides = (
        f"topology.message.timeout.secs={MESSAGE_TIMEOUT_SECS}",
        f"drpc.request.timeout.secs={REQUEST_TIMEOUT_SECS}",
    )
    with DevCluster.start(tmp_path, slots=3, overrides=overrides) as cluster:
        cluster.storm(
            "jar", EXAMPLES / "reach", "reach", "--workers", "3", "--attempts", str(attempts)
        )
        load = Load(cluster.state()["drpc"]["port"], urls)

        async def storm() -> None:
            running = asyncio.ensure_future(load.run())
            try:
                await load.wait_right(30)
                for _ in range(3):
                    workers = await asyncio.to_thread(cluster.worker_pids, 3, 90)
                    victim = sorted(workers)[load.right % 3]
                    os.kill(victim, signal.SIGKILL)
                    await load.wait_right(60)
            finally:
                load.end()
                await running

        asyncio.run(storm())
    with nothing_lost():
        assert load.wrong == []
    assert load.right >= 210
    assert load.longest_secs < REQUEST_TIMEOUT_SECS + 5, "no request hangs"
    known = ("the topology failed the request", "worker that took the request is gone",
             "the topology was deactivated or ended")  # fmt: skip
    assert all(any(text in failure for text in known) for failure in load.failures), load.failures
