"""A copy of the sources in which weakened builds are tried, one after the other."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.mutations.listed import ROOT, Weakened
from tests.run_all import Journal

_TEST_SECS_MAX = 120.0
# Not copied: what no test of the list reads.
_LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "node_modules", "images", "peers")
SKIPPED = "its test was skipped"
# A build that is broken and not weakened: the entry is wrong.
_BROKEN = re.compile(r"(NameError|SyntaxError|ImportError|IndentationError|UnboundLocalError)\b")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of the test of an entry: "red", as it must be, or what is wrong."""

    entry: Weakened
    verdict: str
    secs: float

    @property
    def is_red(self) -> bool:
        return self.verdict == "red"

    @property
    def is_skipped(self) -> bool:
        """Its test needs what this machine does not have, such as root; CI has to have it."""
        return self.verdict.startswith(SKIPPED) and not os.environ.get("CI")


class Copy:
    """A copy of the checkout in a folder. `folders` are those of the packages in it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp = 1_000_000_000  # of a changed file: so that its bytecode is never stale

    def make(self) -> None:
        """Copy. Raises OSError."""
        shutil.copytree(ROOT, self._folder, ignore=_LEFT_OUT, symlinks=True)

    def run(self, tests: Sequence[str]) -> Journal:
        """Run tests in the copy; a test that hangs has failed."""
        journal = self._folder / "journal"
        journal.unlink(missing_ok=True)
        packages = [str(path.parent.parent) for path in self._folder.glob("*/squall*/__init__.py")]
        env = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(packages),
            "SQUALL_TEST_JOURNAL": str(journal),
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self._folder / "hypothesis"),
        }
        command = [
            *(sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"),
            *("-p", "tests.support.journal", "--timeout", f"{_TEST_SECS_MAX:.0f}", *tests),
        ]
        if len(tests) > 1:
            command.remove("-x")
        subprocess.run(command, cwd=self._folder, env=env, capture_output=True, check=False)
        return Journal.read(journal)

    def red(self, tests: Sequence[str]) -> list[str]:
        """Those of these tests that do not pass in the copy as it is, nor when they run once more,
        alone. What may not be run again (`tests/support/journal.py`) is not."""
        if not tests:
            return []
        first = self.run(tests)
        failed = first.with_outcome("failed") + first.unfinished()
        if first.finished not in (None, 1):  # it was broken off
            return first.broken + failed
        return first.broken + [
            test
            for test in failed
            if test in first.final or self.run([test]).outcomes.get(test) != "passed"
        ]

    @contextmanager
    def weakened(self, entry: Weakened) -> Iterator[None]:
        """The copy with an entry applied, for a while. Raises ValueError as `Weakened.place`."""
        path = self._folder / entry.file
        before = path.read_text("utf-8")
        after = entry.applied(before)
        try:
            self._write(path, after)
            yield
        finally:
            self._write(path, before)

    def _write(self, path: Path, text: str) -> None:
        path.write_text(text, "utf-8")
        self._stamp += 10
        os.utime(path, (self._stamp, self._stamp))

    def outcome(self, entry: Weakened) -> Outcome:
        """Try one entry."""
        began = time.monotonic()
        try:
            with self.weakened(entry):
                verdict = verdict_of(self.run([entry.test]))
        except (OSError, ValueError) as error:
            verdict = str(error)
        return Outcome(entry, verdict, time.monotonic() - began)


def verdict_of(journal: Journal) -> str:
    """Whether the test of a weakened build has failed as it must."""
    failed = [test for test, outcome in journal.outcomes.items() if outcome == "failed"]
    if failed:
        why = journal.causes.get(failed[0], "")
        return f"its build is broken: {why}" if _BROKEN.match(why) else "red"
    if journal.broken:
        return f"its build is broken: {journal.broken[0]} cannot be collected"
    if journal.with_outcome("skipped"):
        return f"{SKIPPED}: {next(iter(journal.causes.values()), 'no reason given')}"
    if journal.with_outcome("passed"):
        return "its test is green, although the check is gone"
    return "its test did not run"
