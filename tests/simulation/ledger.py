"""The world outside a topology: a source that keeps what was not acked, and a sink.

And the components that connect a topology to it. They find their ledger by name in `LEDGERS`, since
simulated workers share this process; nothing else passes between them that way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from tests.simulation.loop import Process, current_process

from squall import Bolt, Spout
from squall._builder import TopologyBuilder
from squall_common.topology.model import Topology

LEDGERS: dict[str, Ledger] = {}

WORDS = 3  # effects of a message


class Ledger:
    """What one topology accepted, did and acked. `violated` is told of what must never be."""

    def __init__(self, name: str, every_secs: float, violated: Callable[[str], None]) -> None:
        self.name = name
        self.every_secs = every_secs
        self.open = True  # the source gives new messages
        self.violated = violated
        self.accepted: dict[str, None] = {}
        self.effects: dict[str, set[int]] = {}
        self.acked: set[str] = set()
        self.repeats = 0
        self.failed = 0
        # Whether a process may act: not one that slept while its work was moved.
        self.may_act: Callable[[Process], bool] = lambda process: True
        self._unacked: dict[str, Process] = {}
        self._made: dict[int, int] = {}
        self._next_at: dict[int, float] = {}

    def returned(self, index: int) -> str | None:
        """A message whose reader died with it: the source gives it to the next one."""
        for message, owner in self._unacked.items():
            if not owner.alive and message.startswith(f"{index}."):
                self._unacked[message] = current_process()
                return message
        return None

    def new_message(self, index: int, now: float) -> str | None:
        """The next message, when one is due."""
        if not self.open or now < self._next_at.get(index, 0.0):
            return None
        self._next_at[index] = now + self.every_secs
        number = self._made.get(index, 0)
        self._made[index] = number + 1
        message = f"{index}.{number}"
        self.accepted[message] = None
        self._unacked[message] = current_process()
        return message

    def take_effect(self, message: str, word: int) -> None:
        """The sink did it."""
        if not self.may_act(current_process()):
            self.violated(f"{self.name}: {current_process()} woke up and runs what was moved")
        done = self.effects.setdefault(message, set())
        if message not in self.accepted:
            self.violated(f"{self.name}: {message} took effect and was never emitted")
        if word in done:
            self.repeats += 1
        done.add(word)

    def ack(self, message: str) -> None:
        """The source lets go of it."""
        if len(self.effects.get(message, ())) != WORDS:
            self.violated(f"{self.name}: {message} was acked without its effects")
        self.acked.add(message)
        self._unacked.pop(message, None)

    @property
    def lost(self) -> list[str]:
        """Accepted and not acked."""
        return list(self._unacked)


class Source(Spout):
    """Emits what its ledger has; again what failed."""

    outputs = ["message"]

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger

    def open(self, conf: Any, context: Any) -> None:
        self.book = LEDGERS[self.ledger]
        self.index = context.this_task_index
        self.todo: list[str] = []

    async def next_tuple(self) -> None:
        loop = asyncio.get_running_loop()
        message = (
            self.todo.pop(0)
            if self.todo
            else self.book.returned(self.index) or self.book.new_message(self.index, loop.time())
        )
        if message is None:
            await asyncio.sleep(0.5)
        else:
            self.emit([message], message_id=message)

    def ack(self, message: Any) -> None:
        self.book.ack(message)

    def fail(self, message: Any) -> None:
        self.book.failed += 1
        self.todo.append(message)


class Split(Bolt):
    """One tuple a word, on the way through another worker, mostly."""

    outputs = ["message", "word"]

    def execute(self, tup: Any) -> None:
        for word in range(WORDS):
            self.emit([tup["message"], word])


class Sink(Bolt):
    """Records what arrived."""

    def __init__(self, ledger: str) -> None:
        self.ledger = ledger

    def execute(self, tup: Any) -> None:
        LEDGERS[self.ledger].take_effect(tup["message"], tup["word"])


def build(ledger: str, *, spouts: int = 1, bolts: int = 2) -> Topology:
    """source -> split -> sink."""
    builder = TopologyBuilder()
    builder.spout("source", Source(ledger), parallelism=spouts)
    builder.bolt("split", Split(), parallelism=bolts).shuffle("source")
    builder.bolt("sink", Sink(ledger), parallelism=bolts).fields("split", "message", "word")
    return builder.build()
