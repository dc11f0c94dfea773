"""The page that lists what Storm's tests and Beam's transcripts say of windows."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "window-cases.md"
STORMS = "Storm's 54 tests"
VERDICTS = ("same", "differently", "no counterpart")

_T = TypeVar("_T")


class Listed(NamedTuple):
    """A case on the page."""

    suite: str  # of Beam's: empty
    name: str
    verdict: str


def listed(heading: str) -> list[Listed]:
    """The cases in the section with this heading."""
    (section,) = re.findall(rf"^## {heading}\n(.*?)(?=^## |\Z)", PAGE.read_text(), re.M | re.S)
    found, suite = [], ""
    for line in section.splitlines():
        if line.startswith("### "):
            suite = line.removeprefix("### ")
        elif line.startswith("| ") and not line.startswith(("| test |", "| transcript |")):
            name, _, squall = (cell.strip() for cell in line.strip("|").split("|"))
            (verdict,) = (one for one in VERDICTS if squall.startswith(one))
            found.append(Listed(suite, name, verdict))
    return found


def summary(label: str) -> list[int]:
    """What the table at the top of the page counts: cases, and those of each verdict."""
    (row,) = re.findall(rf"^\| {label} \|(.*)\|$", PAGE.read_text(), re.M)
    return [int(cell) for cell in row.split("|")]


def counted(cases: list[Listed]) -> list[int]:
    """The same of cases."""
    return [len(cases), *(sum(one.verdict == verdict for one in cases) for verdict in VERDICTS)]


class StormsTests:
    """Which of Storm's tests, of some suites, the tests of a module show the facts of.

    storm = StormsTests("WindowManagerTest")

    @storm("WindowManagerTest.testTumblingWindow")
    def test_...
    """

    def __init__(self, *suites: str) -> None:
        self._suites = suites
        self.tested: set[str] = set()

    def __call__(self, *tests: str) -> Callable[[_T], _T]:
        """A decorator that counts these as tested."""
        self.tested.update(tests)
        return lambda test: test

    def listed(self) -> set[str]:
        """Those that the page lists with a counterpart."""
        return {
            f"{one.suite}.{one.name}"
            for one in listed(STORMS)
            if one.suite in self._suites and one.verdict != "no counterpart"
        }
