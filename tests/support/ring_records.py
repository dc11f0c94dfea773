"""What a ring holds, as its tests compare it: whole records."""

from __future__ import annotations

import struct
from typing import Any


def record_of(parts: tuple[bytes, tuple[bytes, ...], int]) -> bytes:
    """The record that a reader has taken apart."""
    head, sections, size = parts
    record = head + b"".join(struct.pack("<I", len(part)) + part for part in sections)
    assert len(record) == size
    return record


def read(reader: Any) -> bytes | None:
    """The next record; None if there is none."""
    parts = reader.read()
    return None if parts is None else record_of(parts)
