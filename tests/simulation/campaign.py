"""Many seeds, in several processes, and what all of them together must have reached."""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import subprocess
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import TYPE_CHECKING

# The product is imported later, because each process chooses its core before.
if TYPE_CHECKING:
    from tests.simulation.run import Outcome

ROOT = Path(__file__).resolve().parents[2]
REGRESSIONS = Path(__file__).with_name("regressions.txt")


# What some seed must have reached, else the simulation has gone blind there. One seed in seven
# reaches each of these, so that 60 practically always do.
REQUIRED = (
    "a file was torn",
    "a process died while it wrote",
    "frame dropped",
    "frame late",
    "frame repeated",
    "isolated node",
    "leader killed",
    "leader stopped",
    "leadership passed while the old leader lives",
    "two owners for a while",
    "worker adopted",
)
_SEEDS_FOR_REQUIRED = 60
# And one in twenty.
REQUIRED_RARE = ("a worker stopped itself", "submit with an unknown end")
_SEEDS_FOR_RARE = 200


def replay(seed: int) -> str:
    """The command that shows a seed again."""
    return f"python -m tests.simulation --seed {seed} --trace"


def cores() -> tuple[str, ...]:
    """The cores that seeds run on, by turns: SQUALL_CORE, else those that exist here."""
    from squall_engine import core

    if core.CHOICE:
        return (core.CHOICE,)
    return ("compiled", "pure") if core.COMPILED else ("pure",)


def run_seeds(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    """Outcomes, as they come. Every other seed runs on the other core."""
    context = multiprocessing.get_context("spawn")
    names = cores()
    with contextlib.ExitStack() as stack:
        pools = [
            stack.enter_context(
                ProcessPoolExecutor(
                    max(1, processes // len(names)),
                    mp_context=context,
                    initializer=_choose_core,
                    initargs=(name,),
                )
            )
            for name in names
        ]
        runs = [pools[i % len(pools)].submit(_simulate, seed) for i, seed in enumerate(seeds)]
        for done in as_completed(runs):
            yield done.result()


def _choose_core(name: str) -> None:
    os.environ["SQUALL_CORE"] = name


def _simulate(seed: int) -> Outcome:
    from tests.simulation.run import simulate

    return simulate(seed)


def regressions() -> list[int]:
    """Seeds that once failed."""
    lines = REGRESSIONS.read_text().splitlines() if REGRESSIONS.exists() else []
    return [int(line.split()[0]) for line in lines if line and not line.startswith("#")]


def seeds_of(first: int, count: int, *, commit: bool) -> list[int]:
    """`count` seeds from `first` on. With `commit` those that once failed are among them, and half
    are others in every commit."""
    if not commit:
        return list(range(first, first + count))
    fixed = list(dict.fromkeys([*regressions(), *range(first, first + count)]))[: count // 2]
    asked = subprocess.run(
        ("git", "rev-parse", "HEAD"), capture_output=True, text=True, check=False, cwd=ROOT
    )
    drawn = int(asked.stdout[:8], 16) * 1000 if asked.returncode == 0 else first + count
    return [*fixed, *range(drawn, drawn + count - len(fixed))]


def main(arguments: argparse.Namespace) -> int:
    """Run what was asked for, and tell; the exit status."""
    if arguments.seed is not None:
        from tests.simulation.run import simulate

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
    cpu_secs = 0.0
    sometimes: dict[str, int] = {}
    seeds = seeds_of(arguments.first, arguments.seeds, commit=arguments.commit)
    for outcome in run_seeds(seeds, arguments.processes):
        cpu_secs += outcome.secs
        for what in outcome.sometimes:
            sometimes[what] = sometimes.get(what, 0) + 1
        if outcome.violations:
            failed += 1
            print(f"seed {outcome.seed} FAILED ({replay(outcome.seed)})")
            for violation in outcome.violations[:5]:
                print(f"  {violation}", flush=True)
    for what, count in sorted(sometimes.items()):
        print(f"{count:5} seeds reached: {what}")
    required = (
        *(REQUIRED if len(seeds) >= _SEEDS_FOR_REQUIRED else ()),
        *(REQUIRED_RARE if len(seeds) >= _SEEDS_FOR_RARE else ()),
    )
    unreached = [what for what in required if what not in sometimes]
    for what in unreached:
        print(f"no seed reached: {what}")
    secs = time.monotonic() - began
    print(
        f"{len(seeds)} seeds of ten minutes, {failed} failed, {secs:.0f} s; "
        f"{cpu_secs / len(seeds):.2f} s of CPU a seed"
    )
    return 1 if failed or unreached else 0
