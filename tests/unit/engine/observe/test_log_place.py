"""Which component a line of the log comes from."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, ClassVar

from squall import Bolt, Spout, TopologyBuilder
from squall.local import LocalCluster
from squall_engine.embed import EmbeddedEngine

SEEN: dict[str, Any] = {}
PLACES: list[Any] = []


def helper() -> Any:
    return PLACES[0]()


class Numbers(Spout):
    outputs: ClassVar[list[str]] = ["n"]

    def open(self, conf: Any, context: Any) -> None:
        self.left = 3

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.left], message_id=self.left)


class Plain(Bolt):
    outputs: ClassVar[list[str]] = []

    def execute(self, tup: Any) -> None:
        SEEN["plain"] = helper()


class Coroutine(Bolt):
    outputs: ClassVar[list[str]] = []

    async def execute(self, tup: Any) -> None:
        await asyncio.sleep(0)
        SEEN["coroutine"] = await self.deeper()

    async def deeper(self) -> Any:
        return helper()


class Blocking(Bolt):
    outputs: ClassVar[list[str]] = []
    blocking = True

    def execute(self, tup: Any) -> None:
        SEEN["blocking"] = helper()


def test_the_component_is_the_one_whose_method_is_on_the_stack(monkeypatch: Any) -> None:
    start = EmbeddedEngine.start

    async def started(self: EmbeddedEngine) -> None:
        PLACES[:] = [self.log_place()]
        await start(self)

    monkeypatch.setattr(EmbeddedEngine, "start", started)
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    for name, bolt in (("plain", Plain()), ("coroutine", Coroutine()), ("blocking", Blocking())):
        builder.bolt(name, bolt).shuffle("numbers")
    with LocalCluster() as local:
        local.submit_topology("placed", {}, builder.build())
        local.wait_until(lambda: len(SEEN) == 3)
        local.kill_topology("placed", 0)
    assert {name: place[0] for name, place in SEEN.items()} == {
        name: name for name in ("plain", "coroutine", "blocking")
    }
    assert helper() is None
    logging.getLogger(__name__).info("not from a component")
