"""Messages as JSON followed by a line `end`: Storm's default serializer.

A message may take several lines. What is between two lines `end` and no JSON is looked at line by
line, so that a stray `print` costs an error message and not the child: the message behind it is
found. Decoded with msgspec (as fast as orjson, and integers of more than 64 bits stay integers),
encoded with orjson; what these refuse and Python's json takes (NaN, lone surrogates) goes through
that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import msgspec
import orjson

from squall_engine.core import Source, Tuple
from squall_engine.multilang.messages import (
    COMMAND_FIELDS,
    Command,
    Fault,
    Message,
    UnserializableError,
    Wrong,
    cut,
    plain,
    unserializable,
)

_END = b"\nend\n"
_REMEMBERED_MAX = 10_000
_JSON_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
_decode = msgspec.json.Decoder(Command).decode


def parse(text: bytes) -> Command | None:
    """Parse one message; None when `text` is not a JSON object."""
    try:
        return _decode(text)
    except _JSON_ERRORS:
        pass
    try:
        value = json.loads(text)
    except _JSON_ERRORS:
        return None
    if not isinstance(value, dict):
        return None
    return Command(**{key: value[key] for key in COMMAND_FIELDS & value.keys()})


class JsonReader:
    """Reads messages from the bytes of one child."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = bytearray()
        self._carriage_return = False  # the last byte was one, and is not in `_rest` yet
        self._lost = False

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now."""
        if self._lost:
            return []
        if self._carriage_return or b"\r" in data:
            data = self._unix_lines(data)
        rest = self._rest
        if not rest and data.find(_END) == len(data) - len(_END):
            # By far the most frequent: a child that waits for the answer.
            try:
                command = _decode(data[: -len(_END)])
                if command.command is not None:
                    return [command]
            except _JSON_ERRORS:
                pass
        searched = max(0, len(rest) - len(_END) + 1)
        rest += data
        end = rest.rfind(_END, searched)
        found: list[Message] = []
        if end >= 0:
            whole = bytes(rest[:end])
            del rest[: end + len(_END)]
            for text in whole.split(_END):
                try:
                    command = _decode(text)
                    if command.command is None and command.pid is None:
                        found.append(Fault(Wrong.NO_COMMAND, cut(text), fatal=False))
                    else:
                        found.append(command)
                except _JSON_ERRORS:
                    self._look_closely(text, found)
                    if self._lost:
                        return found
        if len(rest) > self._bytes_max:
            found.append(Fault(Wrong.TOO_LONG, cut(bytes(rest[:4096])), fatal=True))
            self._lose()
        return found

    def _unix_lines(self, data: bytes) -> bytes:
        """A child on its way from another system: `\\r\\n` ends a line, too."""
        if self._carriage_return:
            data = b"\r" + data
        self._carriage_return = data.endswith(b"\r")
        if self._carriage_return:
            data = data[:-1]
        return data.replace(b"\r\n", b"\n")

    def _look_closely(self, text: bytes, found: list[Message]) -> None:
        """Find the messages between two lines `end`, when it is not one message."""
        lines = [line for line in text.split(b"\n") if line.strip() not in (b"", b"end")]
        if not lines:
            return
        unended: bytes | None = None
        several = False
        while lines:
            command, used = self._next_in(lines)
            if command is not None:
                if unended is not None:
                    found.append(Fault(Wrong.MISSING_END, cut(unended), fatal=False))
                unended, several = lines[0], True
                stray = lines[0][: -len(used[0])] if len(used[0]) < len(lines[0]) else b""
                if stray.strip():
                    found.append(Fault(Wrong.STRAY, cut(stray), fatal=False))
                del lines[: len(used)]
                found.append(command)
                continue
            # The last thing before `end` should have been a message; so should what looks like one.
            if (len(lines) == 1 and not several) or b'"command"' in lines[0]:
                found.append(Fault(Wrong.GARBLED, cut(lines[0]), fatal=True))
                self._lose()
                return
            found.append(Fault(Wrong.STRAY, cut(lines[0]), fatal=False))
            del lines[0]

    def _next_in(self, lines: Sequence[bytes]) -> tuple[Command | None, Sequence[bytes]]:
        """The message that the first line is, ends with, or begins; and its lines."""
        first = lines[0]
        start = first.find(b"{")
        if start < 0:
            return None, ()
        for text in (first, first[start:]):
            command = parse(text)
            if command is not None and (command.command is not None or command.pid is not None):
                return command, (text,)
        if len(lines) > 1:
            command = parse(b"\n".join(lines))
            if command is not None and (command.command is not None or command.pid is not None):
                return command, lines
        return None, ()

    def _lose(self) -> None:
        self._lost = True
        self._rest.clear()


class JsonSerializer:
    """Storm's JsonSerializer."""

    name = "json"

    def __init__(self) -> None:
        self._middles: dict[Source, bytes] = {}
        self._ids: dict[Sequence[int], bytes] = {}

    def reader(self, bytes_max: int) -> JsonReader:
        return JsonReader(bytes_max)

    def tuple_message(self, tuple_id: str, tup: Tuple) -> bytes:
        source = tup.source
        middle = self._middles.get(source)
        if middle is None:
            if len(self._middles) >= _REMEMBERED_MAX:
                self._middles.clear()
            known = {"comp": source.component, "stream": source.stream, "task": source.task}
            middle = self._middles[source] = b'",' + orjson.dumps(known)[1:-1] + b',"tuple":'
        try:
            values = orjson.dumps(tup.values, plain, orjson.OPT_NON_STR_KEYS)
        except TypeError:
            values = _slowly(tup)
        return b'{"id":"%b%b%b}\nend\n' % (tuple_id.encode(), middle, values)

    def message(self, value: dict[str, Any]) -> bytes:
        try:
            text = orjson.dumps(value, plain, orjson.OPT_NON_STR_KEYS)
        except TypeError:
            try:
                text = json.dumps(value, default=plain).encode()
            except (*_JSON_ERRORS, TypeError) as error:
                raise UnserializableError(f"JSON cannot carry it: {error}") from error
        return text + _END

    def task_ids(self, ids: Sequence[int]) -> bytes:
        known = self._ids.get(ids)
        if known is None:
            if len(self._ids) >= _REMEMBERED_MAX:
                self._ids.clear()
            known = self._ids[ids] = orjson.dumps(list(ids)) + _END
        return known


def _slowly(tup: Tuple) -> bytes:
    """Values that orjson refuses: integers of more than 64 bits, lone surrogates."""
    try:
        return json.dumps(tup.values, default=plain).encode()
    except (TypeError, ValueError, RecursionError):
        raise unserializable(tup, "JSON", lambda value: json.dumps(value, default=plain)) from None
