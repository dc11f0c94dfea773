"""Makes new inputs out of old ones."""

from __future__ import annotations

import random
from collections.abc import Sequence

_NUMBERS = (0, 1, 2, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
SIZE_MAX = 4096


def mutate(data: bytes, others: Sequence[bytes], rng: random.Random) -> bytes:
    """One to eight random changes."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 8))):
        at = rng.randrange(len(found) + 1)
        size = rng.choice((1, 2, 4, 8, rng.randrange(1, 64)))
        change = rng.randrange(7)
        if change == 0 and found:
            found[at % len(found)] ^= 1 << rng.randrange(8)
        elif change == 1 and found:
            found[at % len(found)] = rng.randrange(256)
        elif change == 2:
            del found[at : at + size]
        elif change == 3:
            found[at:at] = rng.randbytes(size)
        elif change == 4:
            found[at:at] = found[at : at + size]
        elif change == 5:
            width = rng.choice((1, 2, 4, 8))
            number = rng.choice(_NUMBERS) & (1 << 8 * width) - 1
            found[at : at + width] = number.to_bytes(width, "little")
        else:
            other = rng.choice(others)
            start = rng.randrange(len(other) + 1)
            found[at : at + size] = other[start : start + size]
    return bytes(found[:SIZE_MAX])
