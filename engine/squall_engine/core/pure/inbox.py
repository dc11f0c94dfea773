"""What waits for a bolt's task."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from squall_engine.core.pure.tuples import Batch
from squall_engine.core.values import SAMPLE_EVERY


class Inbox:
    """Batches that wait for one task, in the order of arrival, and tuples of other workers that are
    still encoded: of any class, with their number as `count`."""

    __slots__ = (
        "_decode", "_on_full", "_on_sample", "_until_sample", "_waiting", "local", "queued", "soft",
    )  # fmt: skip

    def __init__(
        self,
        decode: Callable[[Any], Batch | None],
        *,
        on_sample: Callable[[Sequence[Any]], None],
        on_full: Callable[[], None],
    ) -> None:
        """`decode(encoded)` makes a batch of encoded tuples; None: nothing could be read.
        `on_sample(values)` is called with the last row of every 16th batch that an outbox puts
        here, and `on_full()` after each such batch while there are more than `soft` local
        tuples."""
        self._decode = decode
        self._on_sample = on_sample
        self._on_full = on_full
        self._waiting: deque[Any] = deque()
        self._until_sample = 0
        self.queued = 0  # tuples
        self.local = 0  # of them, from tasks of this worker
        self.soft = 1

    def __len__(self) -> int:
        """How many batches there are, decoded or not."""
        return len(self._waiting)

    def put(self, batch: Batch) -> None:
        self._waiting.append(batch)
        self.queued += len(batch)
        if batch.source.local:
            self.local += len(batch)

    def put_encoded(self, encoded: Any) -> None:
        self._waiting.append(encoded)
        self.queued += encoded.count

    def put_from_here(self, batch: Batch) -> None:
        """Add a batch of this worker, and see to the marks."""
        self._until_sample -= 1
        if self._until_sample <= 0:
            self._until_sample = SAMPLE_EVERY
            self._on_sample(batch.last_row())
        self._waiting.append(batch)
        self.queued += len(batch)
        self.local += len(batch)
        if self.local > self.soft:
            self._on_full()

    def encoded(self) -> list[Any]:
        """What waits encoded. From any thread."""
        return [one for one in list(self._waiting) if not isinstance(one, Batch)]

    def _head(self) -> Batch | None:
        """The batch at the head, without removing it; None when nothing waits."""
        while self._waiting:
            first = self._waiting[0]
            if isinstance(first, Batch):
                return first
            batch = self._decode(first)
            if batch is not None:
                self._waiting[0] = batch
                return batch
            self._waiting.popleft()
            self.queued -= first.count
        return None

    def _count_out(self, batch: Batch, n: int) -> None:
        self.queued -= n
        if batch.source.local:
            self.local -= n

    def take(self, limit: int) -> Batch | None:
        """Remove and return at most `limit` tuples of the first batch; None when nothing waits."""
        batch = self._head()
        if batch is None:
            return None
        if len(batch) > limit:
            batch = batch.take(limit)
        else:
            self._waiting.popleft()
        self._count_out(batch, len(batch))
        return batch

    def pull(self, room: int) -> tuple[list[Batch], int]:
        """The batches at the head that are all of one stream, as far as `room` tuples go, and how
        many tuples that is: these count as taken. The last batch may have more; it stays here, and
        the caller removes its first ones."""
        batches: list[Batch] = []
        n = 0
        while n < room:
            batch = self._head()
            if batch is None or (batches and batch.source.key != batches[0].source.key):
                break
            batches.append(batch)
            pulled = min(len(batch), room - n)
            if pulled == len(batch):
                self._waiting.popleft()
            self._count_out(batch, pulled)
            n += pulled
        return batches, n

    def empty(self) -> list[Batch]:
        """Remove and return everything."""
        found = []
        while (batch := self._head()) is not None:
            found.append(batch)
            self._waiting.popleft()
        self.queued = self.local = 0
        return found
