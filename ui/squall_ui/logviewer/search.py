"""Search for a text in logs, with what is around each match.

In one file, from an offset on, and in all files of a topology. A search stops at a number of
matches and says where to go on; it also stops after `_SECS_MAX`, so that no reader keeps a core
busy for long. Offsets are in bytes, as in Storm; matches may overlap chunks, never each other.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from squall_ui.logviewer.places import LogFile, NotServedError, Places
from squall_ui.logviewer.reading import TooLargeError, chunks, is_compressed

NUM_MATCHES = 10
NUM_MATCHES_MAX = 1_000
SEARCH_BYTES_MAX = 1_024  # Storm's limit
CONTEXT_BYTES = 128
_SECS_MAX = 20.0
# Files of a topology that are looked into for one request.
_FILES_MAX = 2_000


@dataclass(frozen=True, slots=True)
class Match:
    """Where the text was found, and the bytes around it."""

    offset: int
    before: bytes
    match: bytes
    after: bytes


@dataclass(slots=True)
class Found:
    """The matches in one file. `next_offset`: where to go on; None at the end of the file."""

    matches: list[Match] = field(default_factory=list)
    next_offset: int | None = None


@dataclass(slots=True)
class FileMatches:
    """The matches in one of several files."""

    file: LogFile
    found: Found


class Deadline:
    """When to stop."""

    def __init__(
        self, secs: float = _SECS_MAX, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._clock = clock
        self._end = clock() + secs

    @property
    def passed(self) -> bool:
        return self._clock() >= self._end


def find(
    pieces: Iterable[bytes],
    wanted: bytes,
    start: int,
    matches_max: int,
    deadline: Deadline,
    *,
    begin: int | None = None,
) -> Found:
    """Search a file from `start` on. Its pieces begin there, or earlier at `begin`, so that the
    first match has something before it."""
    found = Found()
    kept = b""  # the end of what was searched: context, and the beginning of a match
    base = start if begin is None else begin  # the offset of `kept`
    searched = start  # everything before this offset has been searched
    waiting: list[Match] = []  # whose bytes after them are not complete
    for piece in pieces:
        window = kept + piece
        waiting = [_more(one, window, base) for one in waiting]
        at = max(0, searched - base)
        while (hit := window.find(wanted, at)) >= 0:
            if len(found.matches) + len(waiting) >= matches_max:
                found.next_offset = base + hit
                found.matches += waiting
                return found
            end = hit + len(wanted)
            waiting.append(
                Match(
                    base + hit,
                    window[max(0, hit - CONTEXT_BYTES) : hit],
                    wanted,
                    window[end : end + CONTEXT_BYTES],
                )
            )
            at = end
        searched = max(base + at, base + len(window) - len(wanted) + 1)
        complete = [one for one in waiting if len(one.after) == CONTEXT_BYTES]
        found.matches += complete
        waiting = [one for one in waiting if len(one.after) < CONTEXT_BYTES]
        keep = min(len(window), 2 * CONTEXT_BYTES + 2 * len(wanted))
        base += len(window) - keep
        kept = window[len(window) - keep :]
        if deadline.passed:
            found.next_offset = searched
            break
    found.matches += waiting
    found.matches.sort(key=lambda one: one.offset)
    return found


def _more(one: Match, window: bytes, base: int) -> Match:
    begin = one.offset + len(one.match) - base
    return Match(one.offset, one.before, one.match, window[begin : begin + CONTEXT_BYTES])


def search_file(
    fd: int, name: str, wanted: bytes, start: int, matches_max: int, deadline: Deadline
) -> Found:
    """Raises TooLargeError, OSError."""
    begin = max(0, start - CONTEXT_BYTES)
    pieces = chunks(fd, compressed=is_compressed(name), start=begin)
    return find(pieces, wanted, start, matches_max, deadline, begin=begin)


def deep_search(
    places: Places,
    topology_id: str,
    wanted: bytes,
    *,
    port: int | None,
    archived: bool,
    matches_max: int,
    deadline: Deadline,
) -> list[FileMatches]:
    """All logs of a topology's workers here; without `archived` only those being written to."""
    result = []
    left = matches_max
    for file in places.files(topology_id, port)[:_FILES_MAX]:
        if not is_log(file.name, archived=archived):
            continue
        try:
            with places.opened(file.path) as fd:
                found = search_file(fd, file.name, wanted, 0, left, deadline)
        except (NotServedError, TooLargeError, OSError):
            continue  # gone, or damaged
        if found.matches:
            result.append(FileMatches(file, found))
            left -= len(found.matches)
        if left <= 0 or deadline.passed:
            break
    return result


def is_log(name: str, *, archived: bool) -> bool:
    """worker.log, worker.log.out, events.log; with `archived` also worker.log.3 and
    worker.log.4.gz."""
    stem = name.removesuffix(".gz")
    head, _, number = stem.rpartition(".")
    rotated = number.isdigit() and bool(head)
    plain = head if rotated else stem
    if not plain.endswith((".log", ".log.out", ".log.err", ".jsonl")):
        return False
    return archived or not (rotated or stem != name)
