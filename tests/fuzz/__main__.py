"""`python -m tests.fuzz [--secs N] [--seed N]`: replay the corpus, then fuzz for that long.

An input is kept, and mutated further, when it reaches a new place in the compiled core (where it is
built with coverage, see `tests.native`) or has a new kind of outcome. The input that is being read
is in build/fuzz/current, also after a crash; one that fails is named with its file. Give it a name
and put it into tests/fuzz/corpus with the mending.
"""

from __future__ import annotations

import argparse
import ctypes
import importlib
import os
import random
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.mutation import mutate
from tests.fuzz.seeds import CORPUS
from tests.fuzz.target import check

from squall_engine.core import pure

FOLDER = Path(__file__).resolve().parents[2] / "build" / "fuzz"


def _reached(path: str | None) -> Callable[[], int]:
    """The number of places of the core that were reached; always 0 without coverage."""
    try:
        counter = ctypes.CDLL(path).squall_places_reached
    except (AttributeError, OSError, TypeError):
        return lambda: 0
    counter.restype = ctypes.c_uint32
    return lambda: int(counter())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--secs", type=float, default=10.0, help="how long to fuzz")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    compiled = importlib.import_module("squall_engine.core.compiled")
    reached = _reached(compiled.__file__)
    corpus = [path.read_bytes() for path in sorted(CORPUS.iterdir())]
    FOLDER.mkdir(parents=True, exist_ok=True)
    current = os.open(FOLDER / "current", os.O_RDWR | os.O_CREAT, 0o644)
    outcomes: set[str] = set()
    places = 0

    def run(data: bytes) -> bool:
        """Check an input; whether it is worth keeping."""
        nonlocal places
        os.ftruncate(current, 0)
        os.pwrite(current, data, 0)
        outcome = check(data, (pure, compiled))
        worth = reached() > places or outcome not in outcomes
        places = max(places, reached())
        outcomes.add(outcome)
        return worth

    rng = random.Random(arguments.seed)
    tries = 0
    data = b""
    try:
        for data in corpus:
            run(data)
        before = places
        end = time.monotonic() + arguments.secs
        while time.monotonic() < end:
            for _ in range(100):
                data = mutate(rng.choice(corpus), corpus, rng)
                tries += 1
                if run(data):
                    corpus.append(data)
    except Exception:
        traceback.print_exc()
        failed = FOLDER / f"failed-{arguments.seed}-{tries}"
        failed.write_bytes(data)
        print(f"FAILED after {tries} inputs of seed {arguments.seed}: {failed}", file=sys.stderr)
        return 1
    print(
        f"{tries} inputs of seed {arguments.seed}, {len(corpus)} worth keeping, "
        f"{places} places reached ({before} by the corpus)"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
