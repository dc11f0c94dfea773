"""Holds a test to what one process does by itself: it starts no other, and opens no socket.

Python reports what it is about to do to audit hooks (PEP 578), also when a library does it. This
one refuses while a plain test runs, and remembers what it refused, since what was tried may have
been ready for an error. Looking up a name and a pair of connected sockets, of which every event
loop has one, are allowed.
"""

from __future__ import annotations

from typing import Any

REFUSED = {
    "os.exec": "runs another program",
    "os.fork": "forks",
    "os.forkpty": "forks",
    "os.posix_spawn": "starts a process",
    "os.system": "starts a process",
    "socket.bind": "binds a socket",
    "socket.connect": "connects a socket",
    "subprocess.Popen": "starts a process",
}


class NotPlain(RuntimeError):
    """A plain test tried what only tests of components do."""


class PlainTests:
    """An audit hook. It costs a set look-up an event, and nothing is refused between two tests."""

    def __init__(self) -> None:
        self._test: str | None = None
        self._refused: list[str] = []

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event in REFUSED and self._test is not None:
            # Of a socket the address, of a program its name; a fork has neither.
            detail = args[1] if event.startswith("socket.") else (args or ("itself",))[0]
            message = (
                f"{self._test} {REFUSED[event]} ({detail!r}): tests that start processes or use "
                "sockets go to tests/component"
            )
            self._refused.append(message)
            raise NotPlain(message)

    def begin(self, test: str) -> None:
        """From now on `test` runs."""
        self._test = test

    def end(self) -> list[str]:
        """The test is over: what was refused meanwhile."""
        refused, self._refused, self._test = self._refused, [], None
        return refused
