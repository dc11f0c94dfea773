"""Many seeds, in several processes, and what all of them together must have reached."""

from __future__ import annotations

import argparse
import multiprocessing
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from tests.simulation.run import Outcome, simulate

REGRESSIONS = Path(__file__).with_name("regressions.txt")


def replay(seed: int) -> str:
    """The command that shows a seed again."""
    return f"python -m tests.simulation --seed {seed} --trace"


def run_seeds(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Outcomes, as they come."""
    if processes == 1:
        yield from map(simulate, seeds)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for done in as_completed([pool.submit(simulate, seed) for seed in seeds]):
            yield done.result()


def regressions() -> list[int]:
    """Seeds that once failed."""
    lines = REGRESSIONS.read_text().splitlines() if REGRESSIONS.exists() else []
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def main(arguments: argparse.Namespace) -> int:
    """Run what was asked for, and tell; the exit status."""
    if arguments.seed is not None:
        outcome = simulate(arguments.seed, trace=print if arguments.trace else None)
        print(
            f"seed {outcome.seed}: trace {outcome.trace}, {outcome.steps} steps, "
            f"{outcome.secs:.1f} s"
        )
        for violation in outcome.violations:
            print(f"  VIOLATED {violation}")
        return 1 if outcome.violations else 0
    began = time.monotonic()
    failed = 0
    sometimes: dict[str, int] = {}
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    for outcome in run_seeds(seeds, arguments.processes):
        for what in outcome.sometimes:
            sometimes[what] = sometimes.get(what, 0) + 1
        if outcome.violations:
            failed += 1
            print(f"seed {outcome.seed} FAILED ({replay(outcome.seed)})")
            for violation in outcome.violations[:5]:
                print(f"  {violation}", flush=True)
    for what, count in sorted(sometimes.items()):
        print(f"{count:5} seeds reached: {what}")
    secs = time.monotonic() - began
    print(f"{len(seeds)} seeds, {failed} failed, {secs:.0f} s, {secs / len(seeds):.2f} s a seed")
    return 1 if failed else 0
