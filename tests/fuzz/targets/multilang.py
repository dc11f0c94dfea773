"""What a shell component's child writes: lines of JSON, or MessagePack.

A reader finds messages and faults, raises nothing, keeps no more than its limit, and finds the same
however the bytes arrive.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from squall_engine.multilang.jsonline import JsonReader, JsonSerializer
from squall_engine.multilang.messagepack import MessagePackReader, MessagePackSerializer
from squall_engine.multilang.messages import Command, Fault, Message, Reader

GROWTH_BYTES_MAX = 16 * 1024 * 1024
_BYTES_MAX = 2_048


def check(data: bytes) -> str:
    outcomes = []
    for make in (JsonReader, MessagePackReader):
        whole = _read(make(_BYTES_MAX), [data])
        middle = len(data) // 2
        halves = _read(make(_BYTES_MAX), [data[:middle], data[middle:]])
        if not any(isinstance(found, Fault) for found in whole + halves):
            # (What a fault shows, and when a message is too long, depends on what has arrived.)
            assert list(map(_plain, halves)) == list(map(_plain, whole)), (
                f"{make.__name__}: {whole} in pieces: {halves}"
            )
        outcomes.append(" ".join(sorted({_word(found) for found in whole})))
    return " / ".join(outcomes)


def _read(reader: Reader, pieces: list[bytes]) -> list[Message]:
    return [message for piece in pieces for message in reader.feed(piece)]


def _plain(message: Message) -> str:
    return re.sub(r"0x[0-9a-f]+", "", repr(message))


def _word(message: Message) -> str:
    if isinstance(message, Fault):
        return message.wrong.name
    return f"{type(message.command).__name__} {type(message.tuple).__name__}"


def seeds() -> Iterator[tuple[str, bytes]]:
    """What children send, well and badly."""
    commands = [
        {"pid": 1234},
        {"command": "emit", "tuple": ["a", 1, None, 0.5], "anchors": ["7"], "stream": "s"},
        {"command": "emit", "tuple": ["ä"], "task": 9, "need_task_ids": False, "id": 3},
        {"command": "ack", "id": "7"},
        {"command": "log", "msg": "hello\nend\n", "level": 2},
        {"command": "metrics", "name": "m", "params": {"n": 1}},
        {"command": "sync"},
    ]
    for serializer in (JsonSerializer(), MessagePackSerializer()):
        name = serializer.name
        for i, command in enumerate(commands):
            yield f"{name}-{i}", serializer.message(command)
        yield f"{name}-all", b"".join(map(serializer.message, commands))
    yield "stray", b'printed\n{"command": "sync"}\nend\n'
    yield "windows", b'{"command": "sync"}\r\nend\r\n'
    yield "two-before-end", b'{"command": "sync"}\n{"command": "sync"}\nend\n'
    yield "in-lines", b'{"command":\n"emit",\n"tuple": []}\nend\n'
    yield "deep", b'{"command": ' + b"[" * 900
    yield "large-number", b'{"command": 1e999, "id": ' + b"9" * 400 + b"}\nend\n"
    yield "msgpack-size", b"\xdd\xff\xff\xff\xff" + msgspec.msgpack.encode(Command())
