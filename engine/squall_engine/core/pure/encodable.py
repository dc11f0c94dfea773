"""Which values surely have an encoding, without encoding them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

_DEPTH_MAX = 64
_SEQUENCES = frozenset({list, tuple, set, frozenset})


def surely_encodes(value: Any, types: frozenset[type]) -> bool:
    """Whether a value is of one of these types, a naive time or one in UTC, or a list, tuple, set
    or dict of such values. It looks at all that is in it."""
    return _surely_encodes(value, types, _DEPTH_MAX)


def _surely_encodes(value: Any, types: frozenset[type], depth: int) -> bool:
    kind = type(value)
    if kind in types:
        return True
    if kind is datetime:
        return value.tzinfo is None or value.tzinfo is UTC
    if depth == 0:
        return False
    if kind in _SEQUENCES:
        return all(_surely_encodes(one, types, depth - 1) for one in value)
    if kind is dict:
        return all(
            _surely_encodes(key, types, depth - 1) and _surely_encodes(one, types, depth - 1)
            for key, one in value.items()
        )
    return False
