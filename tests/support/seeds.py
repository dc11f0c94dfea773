"""Seeds that are drawn for a run. A test that fails with one says which, and is not run again: it
would draw another, or pass where it failed before by the machine's whim, and hide what it found."""

from __future__ import annotations

import functools
import os
import random
from collections.abc import Iterator
from contextlib import contextmanager


@functools.cache
def drawn(variable: str) -> int:
    """The seed that the environment gives, else one that stays the same in this process."""
    return int(os.environ.get(variable) or random.SystemRandom().getrandbits(32))


@contextmanager
def drawn_seed(variable: str) -> Iterator[int]:
    """The seed, named in whatever fails below."""
    seed = drawn(variable)
    try:
        yield seed
    except BaseException as error:
        error.add_note(f"Again with the same seed: {variable}={seed}")
        raise
