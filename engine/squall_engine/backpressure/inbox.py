"""Encoded tuples in the inbox of a task. Decoded tuples take several times the memory of their
bytes, so they are decoded when the task runs."""

from __future__ import annotations

from squall_engine.backpressure.credit import Account


class EncodedTuples:
    """Tuples of one source for one task, encoded."""

    __slots__ = ("_account", "count", "section", "size")

    def __init__(self, section: bytes, count: int, size: int, account: Account) -> None:
        self.section = section
        self.count = count  # tuples
        self.size = size  # of the credit
        self._account = account

    def take(self) -> bytes:
        """Take the section out of the inbox."""
        self._account.take(self.size)
        return self.section
