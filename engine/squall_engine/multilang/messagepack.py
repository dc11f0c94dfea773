"""Messages as MessagePack, one after the other with nothing between them: what pystorm's
MsgpackSerializer reads and writes (and streamparse's Java counterpart of it).

msgspec decodes whole messages only, so where a message ends is found here, by the type byte of each
object in it (https://github.com/msgpack/msgpack/blob/master/spec.md, "Formats").
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from squall_engine.core import Tuple
from squall_engine.multilang.messages import (
    Command,
    Fault,
    Message,
    UnserializableError,
    Wrong,
    cut,
    plain,
    unserializable,
)

_ERRORS = (msgspec.MsgspecError, ValueError, RecursionError)
_decode = msgspec.msgpack.Decoder(Command).decode
_encode = msgspec.msgpack.Encoder(enc_hook=plain).encode

# 0xc0 ... 0xdf: (bytes of fixed size after the type, bytes of a length that follows the type and
# counts bytes, bytes of a length that counts objects, objects a count). None: no such type.
_FORMATS: tuple[tuple[int, int, int, int] | None, ...] = (
    (0, 0, 0, 0),  # c0 nil
    None,  # c1 never used
    (0, 0, 0, 0),  # c2 false
    (0, 0, 0, 0),  # c3 true
    (0, 1, 0, 0),  # c4 bin 8
    (0, 2, 0, 0),  # c5 bin 16
    (0, 4, 0, 0),  # c6 bin 32
    (1, 1, 0, 0),  # c7 ext 8: its type is a byte of its own
    (1, 2, 0, 0),  # c8 ext 16
    (1, 4, 0, 0),  # c9 ext 32
    (4, 0, 0, 0),  # ca float 32
    (8, 0, 0, 0),  # cb float 64
    (1, 0, 0, 0),  # cc uint 8
    (2, 0, 0, 0),  # cd uint 16
    (4, 0, 0, 0),  # ce uint 32
    (8, 0, 0, 0),  # cf uint 64
    (1, 0, 0, 0),  # d0 int 8
    (2, 0, 0, 0),  # d1 int 16
    (4, 0, 0, 0),  # d2 int 32
    (8, 0, 0, 0),  # d3 int 64
    (2, 0, 0, 0),  # d4 fixext 1
    (3, 0, 0, 0),  # d5 fixext 2
    (5, 0, 0, 0),  # d6 fixext 4
    (9, 0, 0, 0),  # d7 fixext 8
    (17, 0, 0, 0),  # d8 fixext 16
    (0, 1, 0, 0),  # d9 str 8
    (0, 2, 0, 0),  # da str 16
    (0, 4, 0, 0),  # db str 32
    (0, 0, 2, 1),  # dc array 16
    (0, 0, 4, 1),  # dd array 32
    (0, 0, 2, 2),  # de map 16
    (0, 0, 4, 2),  # df map 32
)


class _NoMessagePackError(ValueError):
    """A byte with which no object can begin."""


class MessagePackReader:
    """Reads messages from the bytes of one child."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest = bytearray()
        self._at = 0  # how far the first message in `_rest` was looked through
        self._objects = 1  # that are still to come in it
        self._lost = False

    def feed(self, data: bytes) -> list[Message]:
        """The messages that are complete now."""
        if self._lost:
            return []
        rest = self._rest
        rest += data
        found: list[Message] = []
        stray = bytearray()
        start = 0
        try:
            while self._find_end():
                text = bytes(rest[start : self._at])
                start = self._at
                self._objects = 1
                if len(text) == 1 and text[0] < 0x80:
                    stray += text  # ASCII: each character is a small integer
                    continue
                _flush(stray, found)
                found.append(self._message(text))
                if self._lost:
                    break
        except _NoMessagePackError:
            _flush(stray, found)
            found.append(Fault(Wrong.GARBLED, cut(bytes(rest[start : start + 4096])), fatal=True))
            self._lost = True
        _flush(stray, found)
        del rest[:start]
        self._at -= start
        if not self._lost and max(len(rest), self._at) > self._bytes_max:
            found.append(Fault(Wrong.TOO_LONG, cut(bytes(rest[:4096])), fatal=True))
            self._lost = True
        if self._lost:
            rest.clear()
        return found

    def _message(self, text: bytes) -> Message:
        try:
            command = _decode(text)
        except _ERRORS:
            self._lost = True
            return Fault(Wrong.GARBLED, cut(text), fatal=True)
        if command.command is None and command.pid is None:
            return Fault(Wrong.NO_COMMAND, cut(text), fatal=False)
        return command

    def _find_end(self) -> bool:
        """Move `_at` behind the message, as far as its bytes are there. True when all are. Goes on
        where it stopped. `_at` may lie beyond the bytes that are there: in a text that has yet to
        come. Raises _NoMessagePackError."""
        rest, size = self._rest, len(self._rest)
        at, objects = self._at, self._objects
        while objects and at < size:
            kind = rest[at]
            if kind <= 0x7F or kind >= 0xE0:  # small integers
                at += 1
            elif kind <= 0x8F:  # fixmap
                objects += 2 * (kind & 0x0F)
                at += 1
            elif kind <= 0x9F:  # fixarray
                objects += kind & 0x0F
                at += 1
            elif kind <= 0xBF:  # fixstr
                at += 1 + (kind & 0x1F)
            else:
                form = _FORMATS[kind - 0xC0]
                if form is None:
                    raise _NoMessagePackError
                fixed, bytes_length, count_length, each = form
                length = bytes_length or count_length
                if at + 1 + length > size:
                    break  # the length itself has yet to come
                n = int.from_bytes(rest[at + 1 : at + 1 + length], "big")
                at += 1 + length + fixed
                if bytes_length:
                    at += n
                objects += n * each
            objects -= 1
        self._at, self._objects = at, objects
        return not objects and at <= size


def _flush(stray: bytearray, found: list[Message]) -> None:
    if stray.strip():
        found.append(Fault(Wrong.STRAY, cut(bytes(stray)), fatal=False))
    stray.clear()


class MessagePackSerializer:
    """pystorm's MsgpackSerializer, the worker's side."""

    name = "msgpack"

    def reader(self, bytes_max: int) -> MessagePackReader:
        return MessagePackReader(bytes_max)

    def tuple_message(self, tuple_id: str, tup: Tuple) -> bytes:
        source = tup.source
        try:
            return _encode(
                {
                    "id": tuple_id,
                    "comp": source.component,
                    "stream": source.stream,
                    "task": source.task,
                    "tuple": tup.values,
                }
            )
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise unserializable(tup, "MessagePack", _encode) from None

    def message(self, value: dict[str, Any]) -> bytes:
        try:
            return _encode(value)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise UnserializableError(f"MessagePack cannot carry it: {error}") from error

    def task_ids(self, ids: Sequence[int]) -> bytes:
        return _encode(ids)
