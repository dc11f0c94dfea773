"""How large a tuple is at least, without encoding it.

To encode 200 MB takes half a second, in which the loop does nothing else, only to find that they
are too many. A stream that had such a tuple has it again with each replay, and for each task that
gets it, so its tuples are looked at first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

_LOOKED_AT_MAX = 10_000


def bytes_at_least(values: Sequence[Any]) -> int:
    """What these values have at least when they are encoded. Looks at a bounded number of them."""
    size, left = 0, _LOOKED_AT_MAX
    waiting: list[Any] = [values]
    while waiting and left > 0:
        value = waiting.pop()
        left -= 1
        kind = type(value)
        if kind is bytes or kind is str:
            size += len(value)
        elif kind is list or kind is tuple or kind is dict:
            size += len(value)  # a byte each
            inner: Iterable[Any] = value.values() if kind is dict else value
            waiting.extend(islice(inner, left))
    return size
