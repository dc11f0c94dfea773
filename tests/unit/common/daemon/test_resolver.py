"""Names of hosts, and a name server that does not answer."""

import asyncio
import socket
from collections import Counter
from typing import Any

import pytest

from squall_common.daemon.resolver import Resolver

GOOD, SLOW, WRONG = "good", "silent", "node..example"


class Names:
    """What `loop.getaddrinfo` is to be: "silent" is not answered before `answered`."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answered = asyncio.Event()
        self.fails = False

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked[host] += 1
        if host == SLOW:
            await self.answered.wait()
        if host == WRONG:
            raise UnicodeError("label empty or too long")
        if self.fails:
            raise OSError("the name server is away")
        return [
            (socket.AF_INET6, 0, 0, "", (f"fd00::{len(host)}", port, 0, 0)),
            (socket.AF_INET, 0, 0, "", (f"10.0.0.{len(host)}", port)),
        ]


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made = Names()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", made.getaddrinfo)
    return made


async def test_a_name_that_is_not_answered_is_looked_up_once_and_delays_no_other(
    names: Names, caplog: pytest.LogCaptureFixture
) -> None:
    resolver = Resolver()
    for _ in range(20):
        assert await resolver.resolve([GOOD, SLOW, WRONG], 0.01) == {GOOD: "10.0.0.4"}
    assert names.asked[SLOW] == 1
    names.answered.set()
    assert await resolver.resolve([GOOD, SLOW], 30) == {GOOD: "10.0.0.4", SLOW: "10.0.0.6"}
    assert names.asked[SLOW] == 1
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if "host=silent" in line] == [
        'host_not_resolved host=silent error="no answer within 0.01 s"'
    ], "once, not at each reading"
    assert sum("host=node..example" in line for line in logged) == 1
    resolver.close()


async def test_an_address_is_remembered_while_names_are_not_answered(names: Names) -> None:
    resolver = Resolver()
    assert await resolver.resolve([GOOD], 30) == {GOOD: "10.0.0.4"}
    names.fails = True
    assert await resolver.resolve([GOOD], 30) == {GOOD: "10.0.0.4"}
    assert await resolver.resolve([], 30) == {}  # those that are gone are forgotten
    assert await resolver.resolve([GOOD], 30) == {}


async def test_a_numeric_host_needs_no_name_server(names: Names) -> None:
    hosts = ["127.0.0.1", "::1"]
    assert await Resolver().resolve(hosts, 30) == {host: host for host in hosts}
    assert not names.asked


async def test_nothing_goes_on_after_the_end(names: Names) -> None:
    resolver = Resolver()
    await resolver.resolve([SLOW], 0.01)
    resolver.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
    assert all(task.cancelled() for task in others)
