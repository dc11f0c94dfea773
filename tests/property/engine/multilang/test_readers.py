"""Whatever a child writes, and in whatever pieces it arrives, the readers never fail."""

from __future__ import annotations

import json
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_engine.multilang.jsonline import JsonReader
from squall_engine.multilang.messagepack import MessagePackReader
from squall_engine.multilang.messages import Command, Fault, Message, Reader

BYTES_MAX = 2_000
READERS = [JsonReader, MessagePackReader]

texts = st.text(st.characters(codec="utf-8"), max_size=20)
values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats(allow_nan=False) | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
commands = st.fixed_dictionaries(
    {"command": st.sampled_from(["emit", "ack", "fail", "log", "sync", "dance"])},
    optional={"id": values, "tuple": st.lists(values, max_size=4), "anchors": values, "x": values},
)
# What a child may write: messages, prints, halves, keys of the protocol, anything.
pieces = st.one_of(
    commands.map(lambda c: json.dumps(c).encode() + b"\nend\n"),
    commands.map(lambda c: json.dumps(c, indent=1).encode() + b"\r\nend\r\n"),
    commands.map(msgspec.msgpack.encode),
    st.sampled_from(
        [b"end\n", b"\nend\n", b"\n", b"\r", b'{"command"', b"}\n", b"NaN\n", b"[1]\n"]
    ),
    texts.map(str.encode),
    st.binary(max_size=40),
    st.just(b"z" * BYTES_MAX),
)


def cut_at(data: bytes, places: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(place % (len(data) + 1) for place in places)})
    return [data[a:b] for a, b in pairwise(places)]


def feed(reader: Reader, chunks: list[bytes]) -> list[Message]:
    return [message for chunk in chunks for message in reader.feed(chunk)]


@pytest.mark.parametrize("reader", READERS)
@given(st.lists(pieces, max_size=12), st.lists(st.integers(0, 10_000), max_size=8))
def test_no_bytes_make_a_reader_fail_or_grow(
    reader: type[JsonReader] | type[MessagePackReader], parts: list[bytes], places: list[int]
) -> None:
    one = reader(BYTES_MAX)
    fatal = False
    for chunk in cut_at(b"".join(parts), places):
        for message in one.feed(chunk):
            assert not fatal, "nothing is found after a fatal fault"
            assert isinstance(message, Command | Fault)
            if isinstance(message, Fault):
                assert len(str(message)) < 2_000
                fatal = message.fatal
        assert len(one._rest) <= BYTES_MAX + 1


@given(st.lists(commands, max_size=8), st.lists(st.integers(0, 10_000), max_size=8))
def test_json_messages_arrive_whole_and_in_order(
    sent: list[dict[str, object]], places: list[int]
) -> None:
    data = b"".join(json.dumps(c).encode() + b"\nend\n" for c in sent)
    found = feed(JsonReader(1_000_000), cut_at(data, places))
    assert [_fields(m) for m in found] == [_only_known(c) for c in sent]


@given(st.lists(commands, max_size=8), st.lists(st.integers(0, 10_000), max_size=8))
def test_messagepack_messages_arrive_whole_and_in_order(
    sent: list[dict[str, object]], places: list[int]
) -> None:
    data = b"".join(map(msgspec.msgpack.encode, sent))
    found = feed(MessagePackReader(1_000_000), cut_at(data, places))
    assert [_fields(m) for m in found] == [_only_known(c) for c in sent]


prints = st.text(st.characters(codec="ascii", exclude_characters="{}\n\r"), max_size=20).filter(
    lambda text: text.strip() != "end"
)


@given(st.lists(st.tuples(prints, commands), max_size=6))
def test_prints_on_lines_of_their_own_lose_no_message(
    sent: list[tuple[str, dict[str, object]]],
) -> None:
    data = b"".join(
        printed.encode() + b"\n" + json.dumps(command).encode() + b"\nend\n"
        for printed, command in sent
    )
    found = JsonReader(1_000_000).feed(data)
    messages = [m for m in found if isinstance(m, Command)]
    assert [_fields(m) for m in messages] == [_only_known(c) for _, c in sent]
    assert all(not m.fatal for m in found if isinstance(m, Fault))


def _only_known(command: dict[str, object]) -> dict[str, object]:
    return {k: v for k, v in command.items() if k != "x" and v is not None}


def _fields(message: Message) -> dict[str, object]:
    assert isinstance(message, Command), message
    return {k: v for k, v in msgspec.structs.asdict(message).items() if v is not None}
