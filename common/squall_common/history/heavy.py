"""The heaviest keys of a stream of keys, in bounded memory (Misra and Gries, "Finding repeated
elements", 1982). Pure."""

from __future__ import annotations

KEYS_MAX = 1_000
KEY_CHARS_MAX = 200


def key_text(key: object) -> str:
    """A key as bounded text; a string is itself, anything else its repr."""
    if type(key) is not str:
        try:
            key = repr(key)
        except Exception as error:  # the topology's own __repr__
            key = f"<{type(error).__name__} in repr>"
    assert isinstance(key, str)
    return key if len(key) <= KEY_CHARS_MAX else key[: KEY_CHARS_MAX - 1] + "…"


class HeavyKeys:
    """Counts of keys, at most `keys_max` of them. Each count is too low by at most `error`, which
    is at most `total / (keys_max + 1)`: a key with a larger share is always there."""

    __slots__ = ("counts", "error", "keys_max", "total")

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self.keys_max = keys_max
        self.counts: dict[str, int] = {}
        self.total = 0
        self.error = 0

    def add(self, key: str) -> None:
        self.total += 1
        counts = self.counts
        if key in counts:
            counts[key] += 1
        elif len(counts) < self.keys_max:
            counts[key] = 1
        else:
            self.error += 1
            self.counts = {key: count - 1 for key, count in counts.items() if count > 1}

    def top(self, n: int) -> list[tuple[str, int]]:
        """The `n` keys with the highest counts, highest first."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[:n]
