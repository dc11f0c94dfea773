"""Failed records that wait for their next attempt."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable
from itertools import count

from squall_connectors.base.backoff import Backoff


class Retries:
    """When each failed record is due. A record fails until it is acked or given up; `forget` ends
    its count."""

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._attempts: dict[Hashable, int] = {}
        self._heap: list[tuple[float, int, Hashable]] = []
        self._order = count()  # ids need not have an order

    def __len__(self) -> int:
        return len(self._heap)

    def failed(self, message_id: Hashable, now: float) -> float:
        """A record failed. Returns the time at which it is due."""
        attempt = self._attempts[message_id] = self._attempts.get(message_id, 0) + 1
        due = now + self._backoff.secs(attempt)
        heapq.heappush(self._heap, (due, next(self._order), message_id))
        return due

    def due(self, now: float) -> list[Hashable]:
        """Take the records that are due, the longest overdue first."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            found.append(heapq.heappop(self._heap)[2])
        return found

    def forget(self, message_id: Hashable) -> None:
        """The record is done: it starts from the first wait if it ever fails again."""
        if self._attempts:
            self._attempts.pop(message_id, None)

    def forget_all(self, message_ids: Iterable[Hashable]) -> None:
        """The same for several."""
        if self._attempts:
            for message_id in message_ids:
                self._attempts.pop(message_id, None)

    def clear(self) -> None:
        self._attempts.clear()
        self._heap.clear()
