"""The code in the pages of docs/: finds it, and runs sessions as a reader types them.

A page says in comments what a test cannot see:

    <!-- not run: WHY -->     before a block that is not run
    <!-- run by: FILE -->     before a block of commands that a test elsewhere gives
    <!-- cluster -->          once in a page whose sessions need a cluster

A *session* is all blocks of a page in the language `console`, in order, in one folder. Files that
the page shows with a caption are saved there under that name when the session reaches them. Under a
command (`$ ...`) stands its output. Numbers and spacing may differ from what a command prints now,
`...` stands for anything, and so does a line of `...` for any lines. A command that waits first
(`sleep 6; storm list`) is typed again, for a minute, until it prints what the page shows: a reader
with a slow machine does so, too.
"""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
# Made by the build; the Markdown in them is not written by hand.
GENERATED = {
    DOCS / "reference" / f"{name}.md"
    for name in ("commands", "errors", "flux-keys", "metrics", "rest")
}

_FENCE = re.compile(r"^(?P<indent> {0,3})(?P<fence>`{3,}|~{3,})(?P<info>[^`]*)$")
_NOT_RUN = re.compile(r"<!-- not run: (?P<why>[^\n]+?) -->\s*$")
_RUN_BY = re.compile(r"<!-- run by: (?P<file>\S+) -->\s*$")
_VARY = re.compile(r"<!-- numbers vary: (?P<why>[^\n]+?) -->\s*$")
# Numbers that differ from run to run on every page: in this order an address with its port, the id
# of a topology, a time, and a size.
_DIFFERENT = re.compile(
    r"\d+(?:\.\d+){3}(?:[:-]\d+)?|(?<=-)\d+-\d{10}\b"
    r"|\b\d+(?:\.\d+)?(?= ?(?:s|ms|m|h)\b)|\b\d+(?:\.\d+)?(?= [kM]?B\b)"
)
_NUMBER = re.compile(r"\d+(?:\.\d+)*")
_COMMAND_SECS_MAX = 120.0
_WAITS = re.compile(r"sleep \d+; ")
_WAIT_SECS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int  # of the first line inside, from 1
    language: str  # "" if it has none; "{literalinclude}" for an included file
    argument: str  # what follows a directive's name
    text: str
    not_run: str | None  # the reason
    run_by: str | None = None  # the test
    numbers_vary: str | None = None  # the reason

    @property
    def where(self) -> str:
        """For messages: page and line."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def option(self, name: str) -> str | None:
        """An option of a directive: `:caption: words.py`."""
        found = re.search(rf"^:{name}:[ \t]*(.*)$", self.text, re.M)
        return None if found is None else found[1].strip()

    @property
    def included(self) -> Path:
        """The file that a `{literalinclude}` shows."""
        return (self.page.parent / self.argument).resolve()


def pages() -> list[Path]:
    """All pages that people write."""
    beside = [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
    examples = sorted((ROOT / "examples").rglob("*.md"))
    inside = sorted(page for page in DOCS.rglob("*.md") if page not in GENERATED)
    return [*beside, *examples, *inside]


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, those in lists too."""
    lines = page.read_text(encoding="utf-8").splitlines()
    number = 0
    before = ""
    while number < len(lines):
        start = _FENCE.match(lines[number])
        if start is None:
            before = lines[number] if lines[number].strip() else before
            number += 1
            continue
        inside: list[str] = []
        first = number + 2
        number += 1
        while number < len(lines) and lines[number].strip() != start["fence"]:
            inside.append(lines[number].removeprefix(start["indent"]))
            number += 1
        number += 1
        info, _, argument = start["info"].strip().partition(" ")
        skip, vary, run_by = (one.search(before) for one in (_NOT_RUN, _VARY, _RUN_BY))
        yield Block(
            page,
            first,
            info,
            argument.strip(),
            "\n".join(inside),
            None if skip is None else skip["why"],
            None if run_by is None else run_by["file"],
            None if vary is None else vary["why"],
        )
        before = ""


def commands(text: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block, each with the output that stands under it."""
    command: list[str] = []
    output: list[str] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            if command:
                yield "\n".join(command), "\n".join(output)
            command, output = [line[2:]], []
        elif line.startswith("> ") and command and not output:
            command.append(line[2:])
        else:
            output.append(line)
    if command:
        yield "\n".join(command), "\n".join(output)


def matches(expected: str, actual: str, *, numbers_vary: bool = False) -> bool:
    """Whether a command printed what the page shows, but for spacing and for times, sizes,
    addresses and ids; if numbers vary, but for all numbers."""
    different = _NUMBER if numbers_vary else _DIFFERENT
    pattern = []
    for line in _plain(expected, different):
        if line == "...":
            pattern.append(r"(?:[^\n]*\n)*?")
        else:
            pattern.append(re.escape(line).replace(r"\.\.\.", "[^\n]*") + r"\n")
    return (
        re.fullmatch("".join(pattern), "".join(f"{line}\n" for line in _plain(actual, different)))
        is not None
    )


def _plain(text: str, different: re.Pattern[str]) -> list[str]:
    lines = [re.sub(r"\s+", " ", different.sub("0", line)).strip() for line in text.splitlines()]
    return [line for line in lines if line]


class SessionError(AssertionError):
    """A command of a page did not do what the page says."""


class Session:
    """A reader's terminal."""

    def __init__(self, folder: Path, env: Mapping[str, str]) -> None:
        self._folder = folder
        self._env = dict(env)
        self._cwd = folder

    def follow(self, page: Path, commands_max: int | None = None) -> int:
        """Do what a page says (all of it, or up to so many commands), and return the number of
        commands. Raises SessionError."""
        count = 0
        for block in blocks(page):
            if block.not_run is not None:
                continue
            if commands_max is not None and count >= commands_max:
                break
            if block.language == "{literalinclude}" and (name := block.option("caption")):
                (self._cwd / name).parent.mkdir(parents=True, exist_ok=True)
                (self._cwd / name).write_bytes(block.included.read_bytes())
            elif block.language == "console":
                for command, expected in commands(block.text):
                    deadline = time.monotonic() + (_WAIT_SECS_MAX if _WAITS.match(command) else 0)
                    while True:
                        status, actual = self.run(command)
                        # A page that shows a failure shows its message.
                        succeeded = status == 0 or "error:" in expected.lower()
                        as_shown = succeeded and matches(
                            expected, actual, numbers_vary=block.numbers_vary is not None
                        )
                        if as_shown or time.monotonic() >= deadline:
                            break
                    count += 1
                    if not as_shown:
                        raise SessionError(
                            f"{block.where}: $ {command}\n--- the page shows:\n{expected}\n"
                            f"--- it printed (exit status {status}):\n{actual}"
                        )
        return count

    def run(self, command: str, timeout_secs: float = _COMMAND_SECS_MAX) -> tuple[int, str]:
        """Run one command; returns its exit status, and what it printed. The folder that it changes
        to is kept."""
        kept = self._folder / ".cwd"
        done = subprocess.run(
            ["bash", "-c", f"{command}\nstatus=$?\npwd > '{kept}'\nexit $status"],
            cwd=self._cwd,
            env=self._env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_secs,
            check=False,
        )
        if kept.exists():
            self._cwd = Path(kept.read_text().strip())
            kept.unlink()
        return done.returncode, done.stdout


def reader_environment(programs: Path, home: Path) -> dict[str, str]:
    """The environment of a reader whose programs (`storm`, `python`) are in one folder."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("STORM_", "SQUALL_", "PYTHON"))
    }
    return {
        **kept,
        "PATH": f"{programs}{os.pathsep}{kept.get('PATH', '')}",
        "HOME": str(home),
        "COLUMNS": "100",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        # The reader's environment has none of this project's plugins.
        "PYTEST_ADDOPTS": "-p no:asyncio",
        "PIP_ROOT_USER_ACTION": "ignore",
    }
