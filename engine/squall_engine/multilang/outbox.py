"""The queue of messages to a child: task ids, commands and heartbeats go before tuples."""

from __future__ import annotations

from collections import deque

# A pipe takes 64 KiB at once by default.
CHUNK_BYTES = 65_536


class Outbox:
    """The queue of messages to a child. Pure: `chunk()` returns what to write next, and the caller
    reports with `wrote(n)` how much of it was written."""

    def __init__(self) -> None:
        self.holds_tuples = True  # none is written yet: the child has not said that it is there
        self._head = b""  # is being written; tuples in it cannot be taken back
        self._head_at = 0
        self._urgent: list[bytes] = []
        self._urgent_bytes = 0
        self._tuples: deque[tuple[str, bytes]] = deque()
        self._tuple_bytes = 0

    def __bool__(self) -> bool:
        return bool(self._head or self._urgent or (self._tuples and not self.holds_tuples))

    @property
    def is_clear(self) -> bool:
        """Whether what is urgent may be written at once."""
        return not self._head and not self._urgent

    @property
    def tuples(self) -> int:
        """Tuples of which no byte was written."""
        return len(self._tuples)

    @property
    def tuple_bytes(self) -> int:
        return self._tuple_bytes

    @property
    def urgent_bytes(self) -> int:
        return self._urgent_bytes

    def add_urgent(self, data: bytes) -> None:
        """After everything urgent, ahead of all tuples."""
        self._urgent.append(data)
        self._urgent_bytes += len(data)

    def add_tuple(self, tuple_id: str, data: bytes) -> None:
        self._tuples.append((tuple_id, data))
        self._tuple_bytes += len(data)

    def chunk(self) -> bytes | memoryview:
        """The bytes to write next; empty when there are none."""
        if not self._head:
            parts = self._urgent
            size = self._urgent_bytes
            tuples = self._tuples
            if not parts and (not tuples or self.holds_tuples):
                return b""
            self._urgent, self._urgent_bytes = [], 0
            while tuples and size < CHUNK_BYTES and not self.holds_tuples:
                data = tuples.popleft()[1]
                parts.append(data)
                size += len(data)
                self._tuple_bytes -= len(data)
            self._head = parts[0] if len(parts) == 1 else b"".join(parts)
            self._head_at = 0
        return memoryview(self._head)[self._head_at :] if self._head_at else self._head

    def add_rest(self, data: bytes, n: int) -> None:
        """Of something urgent that was written at once, while `is_clear`, `n` bytes were taken."""
        self._head, self._head_at = data, n

    def wrote(self, n: int) -> None:
        """`n` bytes of the last chunk were taken."""
        self._head_at += n
        if self._head_at >= len(self._head):
            self._head = b""
            self._head_at = 0

    def unwritten(self) -> list[str]:
        """The ids of the tuples of which no byte was written."""
        return [tuple_id for tuple_id, _ in self._tuples]

    def drop_written(self) -> None:
        """The child is gone: forget all but the tuples that the next one may have."""
        self.holds_tuples = True
        self._head = b""
        self._head_at = 0
        self._urgent.clear()
        self._urgent_bytes = 0
