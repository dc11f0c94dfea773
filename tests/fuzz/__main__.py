"""`python -m tests.fuzz [TARGET ...] [--secs N] [--seed N]`: replay the corpus of each target, then
fuzz it for that long.

An input is kept, and mutated further, when it reaches a new place in the compiled core (where it is
built with coverage, see `tests.native`) or has a new kind of outcome. An input may take a second of
CPU, and make the process grow by what its target allows. The one that is being read is in
build/fuzz/TARGET-current, also after a crash or a hang; one that fails is named with its file. Give
it a name and put it into tests/fuzz/corpus/TARGET with the mending.
"""

from __future__ import annotations

import argparse
import ctypes
import faulthandler
import importlib
import logging
import os
import random
import resource
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from tests.fuzz.mutation import mutate
from tests.fuzz.seeds import CORPUS
from tests.fuzz.targets import NAMES, Target, target

FOLDER = Path(__file__).resolve().parents[2] / "build" / "fuzz"
_CPU_SECS_MAX = 1.0
_HANG_SECS = 120.0  # until the process is ended, with the stack of where it hangs


class _Input:
    """Gives inputs to a target, and holds it to its limits."""

    def __init__(self, name: str, found: Target, reached: Callable[[], int]) -> None:
        self._target = found
        self._reached = reached
        self._places = 0
        self._outcomes: set[str] = set()
        self._file = os.open(FOLDER / f"{name}-current", os.O_RDWR | os.O_CREAT, 0o644)
        self._largest = 0

    @property
    def places(self) -> int:
        """Places of the compiled core that were reached."""
        return self._places

    @property
    def outcomes(self) -> int:
        """Kinds of outcomes so far."""
        return len(self._outcomes)

    def run(self, data: bytes, *, warm: bool = True) -> bool:
        """Check an input; returns whether it is worth keeping. The first ones, before the process
        is `warm`, may make it grow."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)
        before = time.process_time()
        faulthandler.dump_traceback_later(_HANG_SECS, exit=True)
        outcome = self._target.check(data)
        faulthandler.cancel_dump_traceback_later()
        took = time.process_time() - before
        assert took <= _CPU_SECS_MAX or not warm, f"{took:.1f} s of CPU for one input"
        largest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        grown, self._largest = largest - (self._largest or largest), largest
        assert grown <= self._target.GROWTH_BYTES_MAX or not warm, f"one input took {grown} bytes"
        worth = self._reached() > self._places or outcome not in self._outcomes
        self._places = max(self._places, self._reached())
        self._outcomes.add(outcome)
        return worth


def _reached() -> Callable[[], int]:
    """The number of places of the compiled core that were reached; always 0 without coverage."""
    try:
        path = importlib.import_module("squall_engine.core.compiled").__file__
        counter = ctypes.CDLL(path).squall_places_reached
    except (AttributeError, ImportError, OSError, TypeError):
        return lambda: 0
    counter.restype = ctypes.c_uint32
    return lambda: int(counter())


def fuzz(name: str, secs: float, seed: int) -> bool:
    """Fuzz one target; returns whether it holds."""
    corpus = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    found = _Input(name, target(name), _reached())
    rng = random.Random(seed)
    tries = 0
    data = b""
    try:
        for warm in (False, True):
            for data in corpus:
                found.run(data, warm=warm)
        before = found.places
        end = time.monotonic() + secs
        while time.monotonic() < end:
            for _ in range(100):
                data = mutate(rng.choice(corpus), corpus, rng)
                tries += 1
                if found.run(data):
                    corpus.append(data)
                if time.monotonic() >= end:
                    break
    except Exception:
        traceback.print_exc()
        failed = FOLDER / f"{name}-failed-{seed}-{tries}"
        failed.write_bytes(data)
        print(f"{name}: FAILED at input {tries} of seed {seed}: {failed}", file=sys.stderr)
        return False
    places = f", {found.places} places reached ({before} by the corpus)" if found.places else ""
    print(
        f"{name}: {tries} inputs of seed {seed}, {len(corpus)} worth keeping, {found.outcomes} "
        f"kinds of outcomes{places}",
        flush=True,
    )
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--secs", type=float, default=10.0, help="how long to fuzz each target")
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    arguments = parser.parse_args()
    unknown = [name for name in arguments.targets if name not in NAMES]
    if unknown:
        parser.error(f"no target {', '.join(unknown)}; there are {', '.join(NAMES)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    # What is refused is logged thousands of times.
    logging.disable(logging.CRITICAL)
    held = [fuzz(name, arguments.secs, arguments.seed) for name in arguments.targets or NAMES]
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
