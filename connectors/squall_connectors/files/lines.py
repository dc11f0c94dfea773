"""`LinesSpout`: the lines of local files, each exactly once, with checkpoints."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from squall import RewindableSpout, Stream, TopologyContext
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.unreadable import UNREADABLE, UnreadableRecords
from squall_connectors.files.formats import (
    BEGINNING_BYTES,
    UNREADABLE_FIELDS,
    Unreadable,
    checked,
    line_reader,
)

# In one call, which holds the loop:
_PASSED_OVER_MAX = 1_000  # lines
_PASSED_OVER_BYTES_MAX = 16 << 20

FileId = str  # "device:inode": the split


@dataclass(frozen=True, slots=True)
class _LongLine:
    start: int
    beginning: bytes


@dataclass(slots=True)
class _Followed:
    file: BinaryIO
    path: str
    position: int  # of the next line
    long_line: _LongLine | None = None  # whose end is still to be found


class LinesSpout(RewindableSpout):
    """Emits each line of files that grow and rotate:

        LinesSpout("/data/orders/*.jsonl", ["sku", "price"], format="json")

    The position in each file is part of every checkpoint, so the spout keeps no files of its own.
    A file is known by its device and inode: one that is renamed goes on where it was, as long as
    its new name matches the patterns, too. One that becomes shorter than what was read of it starts
    again. Lines of a file come in order, and several tasks share the files. A last line without an
    end is emitted when its end is there.

    A line that cannot be read in the format, or is longer than `line_bytes_max`, goes to the stream
    "unreadable", with the fields `path`, `offset` (of its first byte), `value` (its bytes; the
    first 1,000 of one that is too long) and `reason`, if a bolt consumes it; otherwise it is
    reported as an error, one every ten seconds for all of them, and passed over. The metric
    `unreadable` counts both.

    With `follow=False` it reads the files that are there when it begins, each to its end, and then
    says that its source has ended, so that `storm wait` returns:

        LinesSpout("/data/orders/2026-11-*.jsonl", ["sku"], format="json", follow=False)
    """

    _squall_bounded_by = "line_bytes_max"

    def __init__(
        self,
        paths: str | Sequence[str],
        fields: Sequence[str] = ("line",),
        *,
        format: str = "text",
        poll_secs: float = 0.2,
        line_bytes_max: int = 8 << 20,
        follow: bool = True,
    ) -> None:
        """`paths` are globs. `format` is "text", "json" (an object a line) or "csv" (without a row
        of names). `poll_secs`: how often new files and lines are looked for. `line_bytes_max`: the
        longest line, which is held in memory. With `follow=False` files do not grow: a last line
        without an end is emitted, too, and it is an error, which is reported, if no file matches
        (one that comes later is read). Raises InvalidTopologyError if the format and fields do not
        fit, or a number is not above 0."""
        if not poll_secs > 0:
            raise InvalidTopologyError(f"LinesSpout: poll_secs {poll_secs!r}; expected above 0")
        if not line_bytes_max > 0:
            raise InvalidTopologyError(
                f"LinesSpout: line_bytes_max {line_bytes_max!r}; expected above 0"
            )
        self._line_bytes_max = line_bytes_max
        self._too_long = f"the line is longer than {line_bytes_max:,} bytes (line_bytes_max)"
        self._follows = follow
        self.outputs = {
            "default": Stream(list(fields)),
            UNREADABLE: Stream(list(UNREADABLE_FIELDS)),
        }
        self._patterns = [paths] if isinstance(paths, str) else list(paths)
        self._poll_secs = poll_secs
        self._read_line = line_reader(checked(format, fields, ("text", "json", "csv")), fields)

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._now = context.monotonic
        self._unreadable = UnreadableRecords(context, self.report_error)
        self._look_at = 0.0
        self._known: dict[FileId, int] = {}  # of files that are not followed
        self._followed: dict[FileId, _Followed] = {}
        self._lines: Iterator[None] = iter(())
        self._found: bool | None = None  # whether the last look found files; None: there was none
        self._at_end = False  # and none is looked for any more

    def seek(self, positions: Mapping[Any, Any]) -> None:
        self._known = dict(positions)

    def close(self) -> None:
        for followed in self._followed.values():
            followed.file.close()

    def next_tuple(self) -> None:
        for _ in self._lines:  # one is enough
            return
        if self._found and not self._follows:
            self._at_end = True
            self._unreadable.report()
        elif self._now() >= self._look_at:
            self._look_at = self._now() + self._poll_secs
            self._look()
            self._unreadable.look()
            self._lines = self._emit_lines()

    def exhausted(self) -> bool | None:
        return None if self._follows else self._at_end

    def _look(self) -> None:
        """Find files that are new, gone or truncated."""
        there: dict[FileId, str] = {}
        for pattern in self._patterns:
            for path in sorted(glob.glob(pattern, recursive=True)):
                try:
                    status = os.stat(path)
                except FileNotFoundError:  # renamed just now
                    continue
                there.setdefault(f"{status.st_dev}:{status.st_ino}", path)
        if not there and self._found is None and not self._follows:
            patterns = ", ".join(self._patterns)
            self.report_error(FileNotFoundError(f"no file matches {patterns} on this node"))
        self._found = bool(there)
        for of, path in there.items():
            if of in self._followed:
                self._followed[of].path = path
            elif self.owns(of):
                self._follow(of, path)
        for of, followed in list(self._followed.items()):
            status = os.fstat(followed.file.fileno())
            if status.st_size < followed.position:
                followed.position, followed.long_line = 0, None
            elif of not in there and status.st_size == followed.position:
                followed.file.close()
                del self._followed[of]
                if status.st_nlink:  # renamed, and may come back
                    self._known[of] = followed.position
                else:  # deleted: the next file with this inode is another one
                    self._known.pop(of, None)
                    self._positions.pop(of, None)

    def _follow(self, of: FileId, path: str) -> None:
        try:
            file = open(path, "rb")  # noqa: SIM115  # as long as it is followed
        except FileNotFoundError:
            return
        status = os.fstat(file.fileno())
        if f"{status.st_dev}:{status.st_ino}" != of:  # renamed since it was seen
            file.close()
            return
        self._followed[of] = _Followed(file, path, self._known.get(of, 0))

    def _emit_lines(self) -> Iterator[None]:
        """Emit the lines that are there, and stop after each."""
        passed_over = passed_over_bytes = 0
        for of, followed in list(self._followed.items()):
            followed.file.seek(followed.position)
            while line := followed.file.readline(self._line_bytes_max + 1):
                is_whole = line.endswith(b"\n") or not (
                    self._follows or len(line) > self._line_bytes_max
                )
                if not (is_whole or followed.long_line or len(line) > self._line_bytes_max):
                    break
                start, followed.position = followed.position, followed.position + len(line)
                if self._emit_line(of, followed, line, start, is_whole=is_whole):
                    yield
                    continue
                passed_over += 1
                passed_over_bytes += len(line)
                if passed_over >= _PASSED_OVER_MAX or passed_over_bytes >= _PASSED_OVER_BYTES_MAX:
                    passed_over = passed_over_bytes = 0
                    yield
            if not self._follows and self._end_long_line(of, followed):
                yield

    def _emit_line(
        self, of: FileId, followed: _Followed, line: bytes, start: int, *, is_whole: bool
    ) -> bool:
        """Emit a line, or what says that it cannot be read. Returns whether there was a tuple."""
        if followed.long_line is not None:  # this is more of it
            return is_whole and self._end_long_line(of, followed)
        if not is_whole:
            followed.long_line = _LongLine(start, line[:BEGINNING_BYTES])
            if not self._unreadable.consumed:  # nothing waits for its end
                self._unreadable.found(f"{followed.path}, byte {start}: {self._too_long}")
            return False
        text = line.rstrip(b"\r\n")
        row = self._read_line(text)
        if isinstance(row, Unreadable):
            return self._emit_unreadable(of, followed, start, text, row.reason)
        self.emit(row, position=(of, followed.position))
        return True

    def _end_long_line(self, of: FileId, followed: _Followed) -> bool:
        """Emit what says that a line was too long, now that the next line's position is known."""
        long_line, followed.long_line = followed.long_line, None
        if long_line is None or not self._unreadable.consumed:
            return False
        return self._emit_unreadable(
            of, followed, long_line.start, long_line.beginning, self._too_long
        )

    def _emit_unreadable(
        self, of: FileId, followed: _Followed, start: int, value: bytes, reason: str
    ) -> bool:
        if not self._unreadable.found(f"{followed.path}, byte {start}: {reason}"):
            return False
        self.emit(
            [followed.path, start, value, reason],
            stream=UNREADABLE,
            position=(of, followed.position),
        )
        return True
