"""Calls to Nimbus that are shared."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusConnectionError
from squall_ui.nimbus.gateway import NimbusGateway


class Nimbus:
    """Connections that answer with a number that grows; `fails` of the next calls fail."""

    def __init__(self) -> None:
        self.now = 0.0
        self.takes = 0.0
        self.fails = 0
        self.calls: list[tuple[str, tuple[Any, ...]]] = []
        self.opened = 0
        self.closed = 0
        self.hold: asyncio.Event | None = None

    async def connect(self, options: ClientOptions) -> Nimbus:
        self.opened += 1
        return self

    async def call(self, method: str, *args: Any, timeout_secs: float | None = None) -> int:
        self.calls.append((method, args))
        number = len(self.calls)
        if self.hold is not None:
            await self.hold.wait()
        self.now += self.takes
        if self.fails:
            self.fails -= 1
            raise NimbusConnectionError("gone")
        return number

    async def close(self) -> None:
        self.closed += 1

    def gateway(self) -> NimbusGateway:
        return NimbusGateway(ClientOptions(), connect=self.connect, clock=lambda: self.now)


async def test_an_answer_serves_until_it_is_too_old() -> None:
    nimbus = Nimbus()
    gateway = nimbus.gateway()
    assert await gateway.read("a") == 1
    nimbus.now = 0.15
    assert await gateway.read("a") == 1
    nimbus.now = 0.25
    assert await gateway.read("a") == 2
    assert await gateway.read("a", "other") == 3


async def test_the_last_answer_serves_while_a_newer_one_is_read() -> None:
    nimbus = Nimbus()
    gateway = nimbus.gateway()
    assert await gateway.read_last("a", max_age_secs=3.0) == 1
    nimbus.now = 4.0
    nimbus.hold = asyncio.Event()
    assert await gateway.read_last("a", max_age_secs=3.0) == 1
    assert await gateway.read_last("a", max_age_secs=3.0) == 1
    nimbus.hold.set()
    assert await gateway.read("a") == 2
    assert len(nimbus.calls) == 2
    # Also one of long ago, which nobody has asked for meanwhile.
    nimbus.now, nimbus.hold = 3_600.0, asyncio.Event()
    assert await gateway.read_last("a", max_age_secs=3.0) == 2
    nimbus.hold.set()
    assert await gateway.read("a") == 3


async def test_what_costs_nimbus_much_is_asked_for_seldom() -> None:
    """An answer that takes 0.2 s is kept for 10 s: a fiftieth of Nimbus' time."""
    nimbus = Nimbus()
    nimbus.takes = 0.2
    gateway = nimbus.gateway()
    await gateway.read("a")
    assert gateway.pause_secs("a") == pytest.approx(10)
    nimbus.now += 9.9
    await gateway.read("a")
    assert len(nimbus.calls) == 1
    nimbus.now += 0.2
    await gateway.read("a")
    assert len(nimbus.calls) == 2


async def test_one_answer_that_had_to_wait_is_not_taken_for_a_dear_one() -> None:
    """Nimbus was busy with something else, or the machine was."""
    nimbus = Nimbus()
    gateway = nimbus.gateway()
    for takes in (0.004, 0.3, 0.004, 0.004):
        nimbus.takes = takes
        await gateway.read("a")
        assert gateway.pause_secs("a") == pytest.approx(0.2)
        nimbus.now += 1
    nimbus.takes = 0.3
    for _ in range(20):
        await gateway.read("a")
        nimbus.now += 30
    assert gateway.pause_secs("a") == pytest.approx(15)


async def test_readers_at_the_same_time_share_a_call_also_if_one_hangs_up() -> None:
    nimbus = Nimbus()
    nimbus.hold = asyncio.Event()
    gateway = nimbus.gateway()
    readers = [asyncio.ensure_future(gateway.read("a")) for _ in range(3)]
    await asyncio.sleep(0)
    readers[0].cancel()
    await asyncio.sleep(0)
    nimbus.hold.set()
    assert await readers[1] == await readers[2] == 1


async def test_a_read_is_repeated_once_on_a_new_connection() -> None:
    nimbus = Nimbus()
    nimbus.fails = 1
    gateway = nimbus.gateway()
    assert await gateway.read("a") == 2
    assert (nimbus.opened, nimbus.closed) == (2, 1)
    nimbus.fails = 2
    with pytest.raises(NimbusConnectionError):
        await gateway.read("b")
    assert await gateway.read("b") == 5  # an error is not kept


async def test_a_change_is_never_repeated() -> None:
    nimbus = Nimbus()
    nimbus.fails = 1
    gateway = nimbus.gateway()
    with pytest.raises(NimbusConnectionError):
        await gateway.change("kill", "words")
    assert nimbus.calls == [("kill", ("words",))]


async def test_after_a_change_no_answer_from_before_is_used() -> None:
    nimbus = Nimbus()
    gateway = nimbus.gateway()
    assert await gateway.read("a") == 1
    nimbus.hold = asyncio.Event()
    early = asyncio.ensure_future(gateway.read("b"))
    await asyncio.sleep(0)
    nimbus.hold.set()
    await gateway.change("kill")
    await early
    assert await gateway.read("a") > 3
    assert await gateway.read("b") > 4
