"""Finding who leads among several Nimbus, some of which may hang.

The search asks the first seed; if it has not answered within a second, the search also asks the
next one, and any Nimbus that an answer names. The Nimbus that names itself is the leader. Only "who
leads?" is ever asked twice.

    connection = await LeaderSearch(seeds, ask).run()
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Protocol, TypeVar

Address = tuple[str, int]

# An election may be over between two answers, each right in its moment.
_ANSWERS_MAX = 2

# Far above what a healthy Nimbus takes to answer, far below what a person waits gladly.
_NEXT_SECS = 1.0


class Connection(Protocol):
    async def close(self) -> None: ...


_C = TypeVar("_C", bound=Connection)

# How Nimbus begins the refusal of a call that ZooKeeper is needed for while it has none.
WITHOUT_ZOOKEEPER = "Nimbus could not reach ZooKeeper"


class UnreachableError(Exception):
    """One Nimbus was of no help; another one may be. `answered`: it said so itself."""

    def __init__(self, reason: str, *, answered: bool = False) -> None:
        super().__init__(reason)
        self.answered = answered


class NoLeaderError(Exception):
    """No leader was found: why, for each that was asked. `answered`: at least one runs;
    `without_zookeeper`: and all that run are cut off from ZooKeeper."""

    def __init__(self, reasons: Sequence[str], *, answered: bool, without_zookeeper: bool) -> None:
        super().__init__("; ".join(reasons))
        self.answered = answered
        self.without_zookeeper = without_zookeeper


class LeaderSearch(Generic[_C]):
    """One search. `ask(address)` opens a connection and gives it with the address of the leader as
    the other end knows it; it raises UnreachableError, and has a deadline of its own."""

    def __init__(
        self,
        seeds: Sequence[Address],
        ask: Callable[[Address], Awaitable[tuple[_C, Address]]],
        *,
        next_secs: float = _NEXT_SECS,
    ) -> None:
        self._seeds = tuple(dict.fromkeys(seeds))
        self._ask = ask
        self._next_secs = next_secs
        self._asked: dict[asyncio.Task[tuple[_C, Address]], Address] = {}
        self._named_by: dict[Address, Address] = {}  # a leader, and a Nimbus that says so
        self._errors: dict[Address, UnreachableError] = {}
        self._answers: Counter[Address] = Counter()  # that somebody else leads

    async def run(self) -> tuple[_C, Address]:
        """A connection to the leader, and its address. Raises NoLeaderError when none of those that
        were asked may still answer."""
        try:
            return await self._search()
        finally:
            await self._drop_others()

    async def _search(self) -> tuple[_C, Address]:
        waiting = deque(self._seeds)
        ask_next = True
        while waiting or self._asked:
            if waiting and (ask_next or not self._asked):
                self._start(waiting.popleft())
            done, _ = await asyncio.wait(
                self._asked, timeout=self._next_secs, return_when=asyncio.FIRST_COMPLETED
            )
            ask_next = not done
            for task in done:
                address = self._asked.pop(task)
                try:
                    connection, leader = task.result()
                except UnreachableError as error:
                    self._errors[address] = error
                    ask_next = True
                    continue
                self._errors.pop(address, None)
                if leader == address:
                    return connection, address
                await connection.close()
                self._named_by[leader] = address
                self._answers[address] += 1
                if self._answers[leader] >= _ANSWERS_MAX:
                    self._errors[leader] = UnreachableError(
                        f"Nimbus at {leader[0]}:{leader[1]} says that another one leads",
                        answered=True,
                    )
                if leader not in self._errors:
                    self._start(leader)
            if not done and not waiting:
                # Who is waited for may be a leader that has just died, and is named until its
                # session ends: who named it will know of the next.
                waiting.extend(seed for seed in self._seeds if seed in self._named_by.values())
        answers = [str(error) for error in self._errors.values() if error.answered]
        raise NoLeaderError(
            [self._reason(address, error) for address, error in self._errors.items()],
            answered=bool(answers),
            without_zookeeper=bool(answers) and all(WITHOUT_ZOOKEEPER in one for one in answers),
        )

    def _start(self, address: Address) -> None:
        if address not in self._asked.values():
            self._asked[asyncio.ensure_future(self._ask(address))] = address

    def _reason(self, address: Address, error: UnreachableError) -> str:
        named_by = self._named_by.get(address)
        if named_by is None:
            return str(error)
        return f"{error} (the leader, as {named_by[0]}:{named_by[1]} says)"

    async def _drop_others(self) -> None:
        for task in self._asked:
            task.cancel()
        for result in await asyncio.gather(*self._asked, return_exceptions=True):
            if isinstance(result, tuple):  # it answered in the same moment
                await result[0].close()
        self._asked.clear()
