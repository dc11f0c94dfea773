"""What children are sent, to the byte."""

from __future__ import annotations

import datetime
import json
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from squall_common.errors import SquallError
from squall_engine.core import Source, Tuple
from squall_engine.multilang.build import make_serializer
from squall_engine.multilang.jsonline import JsonSerializer
from squall_engine.multilang.messagepack import MessagePackReader, MessagePackSerializer
from squall_engine.multilang.messages import (
    HEARTBEAT,
    Command,
    Fault,
    Serializer,
    UnserializableError,
    Wrong,
)

SOURCE = Source("sentences", 4, "default", ["a", "b"])


def tup(*values: Any) -> Tuple:
    return Tuple(list(values), 1, 1, SOURCE)


def test_a_tuple_as_json() -> None:
    assert JsonSerializer().tuple_message("7", tup("snow white", 2)) == (
        b'{"id":"7","comp":"sentences","stream":"default","task":4,"tuple":["snow white",2]}\nend\n'
    )


def test_task_ids_as_json() -> None:
    assert JsonSerializer().task_ids((5, 6)) == b"[5,6]\nend\n"
    assert JsonSerializer().task_ids(()) == b"[]\nend\n"


def test_a_heartbeat_has_every_key_of_a_tuple() -> None:
    sent = json.loads(JsonSerializer().message(HEARTBEAT).removesuffix(b"\nend\n"))
    assert sent == {
        "id": "heartbeat", "comp": None, "stream": "__heartbeat", "task": -1, "tuple": []
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "arrives"),
    [
        (2**70, 2**70),
        ("\ud800", "\ud800"),
        ("é\u2028", "é\u2028"),
        (Decimal("1.50"), "1.50"),
        ((1, 2), [1, 2]),
        (frozenset([1]), [1]),
        ({1: "a"}, {"1": "a"}),
        (float("nan"), None),
        (datetime.date(2026, 1, 2), "2026-01-02"),
    ],
)
def test_python_values_as_json(value: Any, arrives: Any) -> None:
    message = JsonSerializer().tuple_message("1", tup(value, 1))
    assert message.count(b"\n") == 2  # nothing in a value can look like the end of a message
    assert json.loads(message.removesuffix(b"\nend\n"))["tuple"] == [arrives, 1]


def test_a_value_that_json_cannot_carry_is_named() -> None:
    with pytest.raises(UnserializableError, match=r"field 'b' of 'sentences'.*bytes.*JSON"):
        JsonSerializer().tuple_message("1", tup(1, b"\xff"))


def test_messagepack_carries_bytes_and_no_delimiter() -> None:
    message = MessagePackSerializer().tuple_message("7", tup(b"\xff", 2))
    assert msgspec.msgpack.decode(message) == {
        "id": "7", "comp": "sentences", "stream": "default", "task": 4, "tuple": [b"\xff", 2]
    }  # fmt: skip
    assert MessagePackSerializer().task_ids((5, 6)) == b"\x92\x05\x06"


def test_a_value_that_messagepack_cannot_carry_is_named() -> None:
    with pytest.raises(UnserializableError, match=r"field 'a'.*int.*MessagePack"):
        MessagePackSerializer().tuple_message("1", tup(2**70, 1))


def msgpack(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def test_messagepack_messages_in_any_pieces() -> None:
    big = {"command": "emit", "tuple": ["x" * 70_000, b"y" * 300, [1.5, None, -5, 2**40], {"k": 1}]}
    data = msgpack({"pid": 5}) + msgpack(big) + msgpack({"command": "ack", "id": "1"})
    for size in (1, 5, 1_000, len(data)):
        reader = MessagePackReader(1_000_000)
        found = [m for i in range(0, len(data), size) for m in reader.feed(data[i : i + size])]
        assert found == [
            Command(pid=5),
            Command(command="emit", tuple=big["tuple"]),
            Command(command="ack", id="1"),
        ]


def test_a_print_between_messagepack_messages() -> None:
    reader = MessagePackReader(1_000)
    stray, ack = reader.feed(b"hello\n" + msgpack({"command": "ack", "id": "1"}))
    assert isinstance(stray, Fault)
    assert (stray.wrong, stray.fatal) == (Wrong.STRAY, False)
    assert "hello" in str(stray)
    assert ack == Command(command="ack", id="1")


@pytest.mark.parametrize("data", [b"\xc1", msgpack([1, 2]), msgpack("text"), b"\x81\x01\x02"])
def test_a_message_that_is_not_a_map_is_fatal(data: bytes) -> None:
    (fault,) = MessagePackReader(1_000).feed(data + msgpack({"command": "sync"}))
    assert isinstance(fault, Fault)
    assert (fault.wrong, fault.fatal) == (Wrong.GARBLED, True)


def test_a_messagepack_length_is_not_trusted() -> None:
    """A text of 4 GiB is refused when it is announced."""
    (fault,) = MessagePackReader(1_000).feed(b"\x81\xa3msg\xdb\xff\xff\xff\xff")
    assert isinstance(fault, Fault)
    assert fault.wrong is Wrong.TOO_LONG


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("json", JsonSerializer),
        ("org.apache.storm.multilang.JsonSerializer", JsonSerializer),
        ("msgpack", MessagePackSerializer),
        ("com.example.MessagePackSerializer", MessagePackSerializer),
        ("com.example.MsgpackSerializer", MessagePackSerializer),
    ],
)
def test_serializers_by_name(name: str, kind: type[Serializer]) -> None:
    assert type(make_serializer(name)) is kind


def test_an_unknown_serializer_is_refused() -> None:
    with pytest.raises(SquallError, match=r"topology\.multilang\.serializer"):
        make_serializer("com.example.Protobuf")
