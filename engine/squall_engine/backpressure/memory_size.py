"""Estimates how much memory the values of a tuple take, for the bounds of inboxes."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

# A tuple in an inbox without its values: its row, its ids, its place in the lists.
TUPLE_BYTES = 128
_ITEMS_MAX = 64  # looked at in one container; the others are taken for alike
_DEPTH_MAX = 4


def tuple_bytes(values: Sequence[Any]) -> int:
    """The bytes of a tuple. Objects that several tuples share count for each of them."""
    return TUPLE_BYTES + _size(values, 0)


def _size(value: Any, depth: int) -> int:
    size = sys.getsizeof(value, 64)
    if depth >= _DEPTH_MAX or isinstance(value, str | bytes | bytearray | int | float):
        return size
    items: list[Any]
    if isinstance(value, dict):
        items = [part for pair in list(value.items())[:_ITEMS_MAX] for part in pair]
        count = 2 * len(value)
    elif isinstance(value, list | tuple):
        items, count = list(value[:_ITEMS_MAX]), len(value)
    elif isinstance(value, set | frozenset):
        items, count = list(value)[:_ITEMS_MAX], len(value)
    else:
        return size
    if not items:
        return size
    return size + sum(_size(item, depth + 1) for item in items) * count // len(items)
