"""The format of server-sent events (text/event-stream), as the HTML standard defines it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """One event. `last_id` is the last id that the stream gave, at this event or before."""

    type: str
    data: str
    last_id: str


class EventTooLargeError(Exception):
    """An event had more bytes than allowed; what follows it can be read."""


class EventParser:
    """Makes events of the bytes of a stream."""

    def __init__(self, event_bytes_max: int, last_id: str = "") -> None:
        self.retry_secs: float | None = None  # how long the server asks clients to wait
        self.last_id = last_id
        self._bytes_max = event_bytes_max
        self._rest = b""
        self._is_first = True
        self._after_cr = False
        self._type, self._data, self._size = "", list[str](), 0
        self._id = last_id
        self._is_dropped = False

    def feed(self, data: bytes) -> list[Event | EventTooLargeError]:
        """The events that end with these bytes; an error in place of each that is too large."""
        found: list[Event | EventTooLargeError] = []
        if self._after_cr and data[:1] == b"\n":
            data = data[1:]
        self._after_cr = False
        if not data:
            return found
        # A line ends with LF, CR LF or CR; a CR at the end may have its LF in the next bytes.
        self._after_cr = data.endswith(b"\r")
        text = (self._rest + data).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self._rest = text.split(b"\n")
        for line in lines:
            if (event := self._line(line)) is not None:
                found.append(event)
        if self._size + len(self._rest) > self._bytes_max:
            self._drop()
            # The rest of this line must not be taken for the beginning of one.
            self._rest = b":"
        return found

    def _drop(self) -> None:
        self._is_dropped = True
        self._data, self._size = [], 0

    def _line(self, line: bytes) -> Event | EventTooLargeError | None:
        if self._is_first:
            self._is_first = False
            line = line.removeprefix(b"\xef\xbb\xbf")
        if not line:
            return self._end()
        name, _, value = line.decode("utf-8", "replace").partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._size += len(line)
            if self._size > self._bytes_max:
                self._drop()
            elif not self._is_dropped:
                self._data.append(value)
        elif name == "event":
            self._type = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_secs = int(value[:9]) / 1000
        return None

    def _end(self) -> Event | EventTooLargeError | None:
        self.last_id = self._id
        kind, data = self._type or "message", self._data
        is_dropped, self._is_dropped = self._is_dropped, False
        self._type, self._data, self._size = "", [], 0
        if is_dropped:
            return EventTooLargeError(
                f"an event after id {self.last_id!r} has more than {self._bytes_max} bytes"
            )
        return Event(kind, "\n".join(data), self.last_id) if data else None
