from __future__ import annotations

import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pytest

from squall_common.state.disk.keys import KEY_BYTES_MAX, key_bytes

DIFFERENT: list[Any] = [
    *("", "a", b"", b"a", None, 0, 1, -1, 1.5, 2**63, 2**64, -(2**64), "s", ("a",), ("a", "b")),
    *((b"a",), (("a",),), ("t", "a"), (), "x" * 600, "x" * 601, b"x" * 600, "\ud800"),
    *(dt.date(2026, 1, 1), uuid.UUID(int=1), ("s", b"a"), ("d", 739617)),
]


def test_different_keys_have_different_bytes() -> None:
    found = [key_bytes(key) for key in DIFFERENT]
    assert len(set(found)) == len(DIFFERENT)
    assert max(map(len, found)) <= KEY_BYTES_MAX


@pytest.mark.parametrize("equal", [(1, 1.0, True), ((0, 1), (0.0, True)), (2**70, float(2**70))])
def test_equal_keys_have_the_same(equal: tuple[Any, ...]) -> None:
    assert len({key_bytes(key) for key in equal}) == 1


@pytest.mark.parametrize("key", [Decimal(1), dt.datetime(2026, 1, 1), frozenset(), (Decimal(1),)])
def test_others_are_refused_by_their_type(key: Any) -> None:
    with pytest.raises(ValueError, match=r"a key of type \w+ cannot be on disk"):
        key_bytes(key)
