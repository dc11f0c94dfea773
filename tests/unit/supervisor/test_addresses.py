"""Names of other daemons, and a name server that does not answer."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from squall_supervisor.node.addresses import Addresses

GOOD, SLOW, WRONG = ("good", 6628), ("silent", 6628), ("node..example", 6628)


class Names:
    """What `loop.getaddrinfo` is to be: "silent" is not answered before `answer`."""

    def __init__(self) -> None:
        self.asked: Counter[str] = Counter()
        self.answered = asyncio.Event()
        self.fails = False

    async def getaddrinfo(self, host: str, port: int, **_: Any) -> list[Any]:
        self.asked[host] += 1
        if host == SLOW[0]:
            await self.answered.wait()
        if host == WRONG[0]:
            raise UnicodeError("label empty or too long")
        if self.fails:
            raise OSError("the name server is away")
        return [(0, 0, 0, "", (f"10.0.0.{len(host)}", port))]


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> Names:
    made = Names()
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", made.getaddrinfo)
    return made


async def test_a_name_that_is_not_answered_is_asked_for_once_and_keeps_nobody_waiting(
    names: Names,
) -> None:
    addresses = Addresses()
    for _ in range(20):
        assert await addresses.of([GOOD, SLOW, WRONG], 0.01) == {("10.0.0.4", 6628)}
    assert names.asked["silent"] == 1
    names.answered.set()
    assert await addresses.of([GOOD, SLOW], 30) == {("10.0.0.4", 6628), ("10.0.0.6", 6628)}
    assert names.asked["silent"] == 1
    addresses.close()


async def test_an_address_is_remembered_while_names_are_not_answered(names: Names) -> None:
    addresses = Addresses()
    assert await addresses.of([GOOD], 30) == {("10.0.0.4", 6628)}
    names.fails = True
    assert await addresses.of([GOOD], 30) == {("10.0.0.4", 6628)}
    assert await addresses.of([], 30) == set()  # who is gone is forgotten
    assert await addresses.of([GOOD], 30) == set()


async def test_nothing_goes_on_after_the_end(names: Names) -> None:
    addresses = Addresses()
    await addresses.of([SLOW], 0.01)
    addresses.close()
    others = asyncio.all_tasks() - {asyncio.current_task()}
    await asyncio.gather(*others, return_exceptions=True)
    assert all(task.cancelled() for task in others)
