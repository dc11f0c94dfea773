"""The list of weakened builds, `weakened.toml`, and what can be wrong with it before one is tried.

    [[weakened]]
    covers = ["S09", "2026-82431"]   groups of checks, decisions, vulnerabilities of Storm
    why = "groups count alone"       what the line is for
    file = "common/..."              a source of the product
    line = "..."                     a line of it, without its indentation
    becomes = "..."                  what stands there instead; "" takes the line away
    test = "tests/...::test_..."     the test that must fail

A line that occurs several times in its file has `below`, a part of a line above it: the first
`line` after that is meant.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("weakened.toml")

# What the list must cover: the groups of checks that the vulnerabilities of Storm call for (S01 to
# S15) and their figures (S-A to S-F), and the decisions on trust.
GROUPS = (*(f"S{number:02}" for number in range(1, 16)), *(f"S-{letter}" for letter in "ABCDEF"))
DECISIONS = (
    "0092", "0093", "0094", "0104", "0105", "0106", "0109", "0111", "0112", "0113", "0114",
    "0115", "0116", "0130", "0133", "0135", "0140", "0146", "0147", "0169",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Weakened:
    """One entry of the list."""

    covers: tuple[str, ...]
    why: str
    file: str
    line: str
    becomes: str
    test: str
    below: str = ""

    @property
    def name(self) -> str:
        """For messages: where it is, and what it is about."""
        return f"{self.file}: {self.why}"

    def place(self, text: str) -> int:
        """Which line of the file's text it is, counted from 0. Raises ValueError, which says what
        is wrong: the line is gone, or there are several."""
        lines = text.splitlines()
        start = 0
        if self.below:
            above = [i for i, line in enumerate(lines) if self.below in line]
            if len(above) != 1:
                raise ValueError(f"{self.below!r} is in {len(above)} lines, not in one")
            start = above[0] + 1
        found = [i for i in range(start, len(lines)) if lines[i].strip() == self.line]
        if not found:
            raise ValueError(f"its line is gone: {self.line}")
        if len(found) > 1 and not self.below:
            raise ValueError(f"its line is there {len(found)} times: {self.line}")
        return found[0]

    def applied(self, text: str) -> str:
        """The text of the weakened file. Raises ValueError as `place` does."""
        lines = text.splitlines(keepends=True)
        at = self.place(text)
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        lines[at] = "".join(f"{indent}{line}\n" for line in self.becomes.splitlines())
        return "".join(lines)


def read(path: Path = FILE) -> list[Weakened]:
    """The entries of a list. Raises OSError, and TypeError for one with a wrong key."""
    entries = tomllib.loads(path.read_text("utf-8"))["weakened"]
    return [Weakened(**{**entry, "covers": tuple(entry["covers"])}) for entry in entries]


def problems(entries: Iterable[Weakened], root: Path = ROOT) -> list[str]:
    """What is wrong with entries that can be seen without running them."""
    found = []
    for one in entries:
        try:
            text = (root / one.file).read_text("utf-8")
            if one.applied(text) == text:
                raise ValueError("it changes nothing")
            compile(one.applied(text), one.file, "exec")
            _check_test(one.test, root)
        except (OSError, SyntaxError, ValueError) as error:
            found.append(f"{one.name}: {error}")
    return found


def _check_test(test: str, root: Path) -> None:
    path, _, name = test.partition("::")
    name = name.partition("[")[0]
    if not re.search(rf"^(async )?def {name}\(", (root / path).read_text("utf-8"), re.M):
        raise ValueError(f"its test does not exist: {test}")


def uncovered(entries: Iterable[Weakened], wanted: Iterable[str]) -> list[str]:
    """The groups and decisions that no entry covers."""
    covered = {name for one in entries for name in one.covers}
    return [name for name in wanted if name not in covered]


def sample(entries: Sequence[Weakened], count: int, seed: str) -> list[Weakened]:
    """Some of the entries: others for each seed (a commit's hash), in the list's order."""

    def drawn(one: Weakened) -> str:
        return hashlib.sha256(f"{seed} {one.name}".encode()).hexdigest()

    chosen = set(sorted(map(drawn, entries))[:count])
    return [one for one in entries if drawn(one) in chosen]
