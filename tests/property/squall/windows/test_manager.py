"""Random windows against Apache Storm's own WindowManager, command for command: what fires, what is
new and expired in it, what leaves, and when.

Storm's answers are recorded as digests; `make soak` asks its published jars again.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.support import maven
from tests.support.effort import SOAK
from tests.support.thirdparty import unavailable

from squall.windows.evictors import (
    CountEvictor,
    Evictor,
    TimeEvictor,
    WatermarkCountEvictor,
    WatermarkTimeEvictor,
)
from squall.windows.manager import Command, Fire, WindowManager
from squall.windows.triggers import (
    CountTrigger,
    WatermarkCountTrigger,
    WatermarkTimeTrigger,
    WatermarkTrigger,
)

_VERSION = "2.8.3"
_CASES = 2_000
_BLOCK = 20  # cases with one digest
_DIGESTS = Path(__file__).parent / "fixtures" / f"storm_{_VERSION}.txt"


class Case(NamedTuple):
    """Windows, and what comes: "a5" is a tuple of that time, "w5" a watermark, "k5" the clock."""

    by_watermark: bool
    length: tuple[str, int]  # "count" or "time"
    slide: tuple[str, int]
    lag: int
    steps: list[str]

    def line(self) -> str:
        kind = "watermark" if self.by_watermark else "arrival"
        return " ".join(map(str, (kind, *self.length, *self.slide, self.lag, *self.steps)))


# By arrival, a length in time with an interval in tuples is left out: Storm's takes the machine's
# clock. (test_manager of the unit tests has its edges.)
_KINDS = [
    (True, "count", "count"),
    (True, "count", "time"),
    (True, "time", "count"),
    (True, "time", "time"),
    (False, "count", "count"),
    (False, "count", "time"),
    (False, "time", "time"),
]


def case_of(seed: int) -> Case:
    chance = random.Random(seed)
    by_watermark, length, slide = chance.choice(_KINDS)
    longest, widest = chance.choice([4, 30]), chance.choice([4, 12])
    lag = chance.choice([0, 0, 3, 10, 1000])
    count = chance.choice([15, 15, 60, 250])
    if by_watermark:
        steps = _by_watermark(chance, count, lag)
    else:
        steps = _by_arrival(chance, count, clock=slide == "time")
    sizes = chance.randrange(1, longest), chance.randrange(1, widest)
    return Case(by_watermark, (length, sizes[0]), (slide, sizes[1]), lag, steps)


def _by_watermark(chance: random.Random, count: int, lag: int) -> list[str]:
    """Tuples out of order, with equal times and gaps, none of them late."""
    steps, latest, watermark = [], chance.randrange(30), 0
    for _ in range(count):
        if chance.random() < 0.75:
            at = latest - chance.choice([0, 0, 1, 5, 20]) + chance.choice([0, 0, 3])
            steps.append(f"a{max(watermark, at)}")
            latest += chance.choice([0, 0, 1, 2, chance.choice([1, 40, 200])])
        elif (following := latest - chance.choice([0, 1, lag, 5])) > watermark:
            watermark = following
            steps.append(f"w{watermark}")
    return steps


def _by_arrival(chance: random.Random, count: int, *, clock: bool) -> list[str]:
    steps, now = [], 1
    for _ in range(count):
        now += chance.choice([0, 0, 1, 2, chance.choice([1, 30])])
        steps.append(f"{'k' if clock and chance.random() < 0.2 else 'a'}{now}")
    return steps


def manager_of(case: Case) -> WindowManager:
    (length_in, length), (slide_in, slide) = case.length, case.slide
    evictor: Evictor
    trigger: CountTrigger | WatermarkTrigger | None = None
    if case.by_watermark:
        if length_in == "count":
            evictor = WatermarkCountEvictor(length)
        else:
            evictor = WatermarkTimeEvictor(length, case.lag)
        by_count = slide_in == "count"
        trigger = WatermarkCountTrigger(slide) if by_count else WatermarkTimeTrigger(slide)
    else:
        evictor = CountEvictor(length) if length_in == "count" else TimeEvictor(length)
        if slide_in == "count":
            trigger = CountTrigger(slide)
    return WindowManager(evictor, trigger, slide_ms=slide)


def played(case: Case) -> list[Any]:
    """The commands of each step, as Storm's listener gets them."""
    manager = manager_of(case)
    found, number = [], 0
    for step in case.steps:
        at = int(step[1:])
        commands: Iterable[Command]
        if step[0] == "a":
            commands = manager.add([(at, number)], at)
            number += 1
        elif step[0] == "w":
            commands = manager.watermark(at, 0)
        else:
            commands = manager.clock(at)
        found.append([_shown(case, command) for command in commands])
    return found


def _shown(case: Case, command: Command) -> list[Any]:
    everything = [number for _, number in command.events]
    if not isinstance(command, Fire):
        return ["gone", everything]
    before = set(map(id, command.before))
    new = [event[1] for event in command.events if id(event) not in before]
    end_ms = command.reference_ms if case.by_watermark else None
    return ["window", everything, new, list(command.expired), end_ms]


def digests(answers: list[list[Any]]) -> list[str]:
    """Of the commands of each case, block by block."""
    blocks = [answers[first : first + _BLOCK] for first in range(0, len(answers), _BLOCK)]
    return [hashlib.sha256(json.dumps(block).encode()).hexdigest()[:16] for block in blocks]


def test_random_windows_are_what_apache_storm_answered() -> None:
    """Its WindowManager answered once, and `make soak` asks it again."""
    recorded = _DIGESTS.read_text().split()
    assert len(recorded) == _CASES // _BLOCK
    found = digests([played(case_of(seed)) for seed in range(_CASES)])
    differ = [
        f"{block * _BLOCK} to {(block + 1) * _BLOCK - 1}"
        for block, (mine, theirs) in enumerate(zip(found, recorded, strict=True))
        if mine != theirs
    ]
    assert not differ, f"others than Storm's for a seed of {differ}"


@pytest.mark.skipif(not SOAK, reason="make soak: mvn resolves Storm's jars")
def test_random_windows_are_those_of_storms_own_window_manager(tmp_path: Path) -> None:
    if shutil.which("javac") is None:
        unavailable("there is no Java compiler on this machine")
    jars = maven.jars("storm", _VERSION, [f"org.apache.storm:storm-server:{_VERSION}"])
    source = Path(__file__).parent / "StormWindows.java"
    subprocess.run(["javac", "-d", tmp_path, "-cp", f"{jars}/*", source], check=True, timeout=100)
    cases = [case_of(seed) for seed in range(_CASES)]
    done = subprocess.run(
        ["java", "-Dlog4j2.level=OFF", "-cp", f"{tmp_path}:{jars}/*", "StormWindows"],
        input="".join(f"{case.line()}\n" for case in cases),
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if line.startswith("answer ")]
    answers = [json.loads(line.removeprefix("answer ")) for line in lines]
    windows = sum(
        shown[0] == "window" for answer in answers for commands in answer for shown in commands
    )
    assert windows > 100_000
    for seed, (case, theirs) in enumerate(zip(cases, answers, strict=True)):
        assert played(case) == theirs, (seed, case)
    assert digests(answers) == _DIGESTS.read_text().split()
