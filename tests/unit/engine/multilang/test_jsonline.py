"""Messages out of what a child writes, whatever else it writes."""

from __future__ import annotations

import pytest

from squall_engine.multilang.jsonline import JsonReader
from squall_engine.multilang.messages import Command, Fault, Message, Wrong

ACK = b'{"command": "ack", "id": "1"}\nend\n'
EMIT = b'{"command": "emit", "anchors": ["1"], "tuple": ["a b"]}\nend\n'


def read(*chunks: bytes, bytes_max: int = 10_000) -> list[Message]:
    reader = JsonReader(bytes_max)
    return [message for chunk in chunks for message in reader.feed(chunk)]


def shown(messages: list[Message]) -> list[object]:
    """Commands by name, faults by kind."""
    return [m.command if isinstance(m, Command) else m.wrong for m in messages]


def test_one_message() -> None:
    assert read(ACK) == [Command(command="ack", id="1")]


def test_several_in_one_piece() -> None:
    assert shown(read(ACK + EMIT + ACK)) == ["ack", "emit", "ack"]


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_pieces_may_be_of_any_size(size: int) -> None:
    data = ACK + EMIT + ACK
    chunks = [data[i : i + size] for i in range(0, len(data), size)]
    assert shown(read(*chunks)) == ["ack", "emit", "ack"]


def test_a_message_may_take_several_lines() -> None:
    assert shown(read(b'{\n  "command":\n   "ack",\n "id": "1"\n}\nend\n')) == ["ack"]


def test_empty_lines_are_ignored() -> None:
    assert shown(read(b"\n\n" + ACK + b"\n\n" + ACK)) == ["ack", "ack"]


def test_lines_of_another_system() -> None:
    data = (ACK + EMIT).replace(b"\n", b"\r\n")
    assert shown(read(data)) == ["ack", "emit"]
    assert shown(read(*(data[i : i + 1] for i in range(len(data))))) == ["ack", "emit"]


def test_ids_keep_their_type() -> None:
    ids = [read(b'{"command":"emit","id":%b}\nend\n' % i)[0].id for i in (b"0", b'"0"', b"7.5")]  # type: ignore[union-attr]
    assert ids == [0, "0", 7.5]
    assert [type(i) for i in ids] == [int, str, float]


def test_large_integers_stay_integers() -> None:
    (message,) = read(b'{"command":"emit","tuple":[123456789012345678901234567890]}\nend\n')
    assert isinstance(message, Command)
    assert message.tuple == [123456789012345678901234567890]


def test_non_standard_numbers_of_pythons_json_are_read() -> None:
    (message,) = read(b'{"command":"emit","tuple":[Infinity,"\\ud800"]}\nend\n')
    assert isinstance(message, Command)
    assert message.tuple == [float("inf"), "\ud800"]


def test_unknown_keys_are_ignored() -> None:
    assert shown(read(b'{"command":"ack","id":"1","more":{"a":[1]}}\nend\n')) == ["ack"]
    assert shown(read(b'{"command":"ack","id":"1","more":NaN}\nend\n')) == ["ack"]


def test_a_print_before_a_message_costs_nothing_but_an_error() -> None:
    messages = read(b"debugging\nmore\n" + ACK + EMIT)
    assert shown(messages) == [Wrong.STRAY, Wrong.STRAY, "ack", "emit"]
    assert isinstance(messages[0], Fault)
    assert "debugging" in str(messages[0])
    assert "stderr" in str(messages[0])
    assert not messages[0].fatal


def test_a_print_without_a_newline() -> None:
    messages = read(b"progress: 5%" + ACK)
    assert shown(messages) == [Wrong.STRAY, "ack"]
    assert "progress: 5%" in str(messages[0])


def test_a_print_that_looks_like_the_end() -> None:
    assert shown(read(b"the\nend\n", ACK))[-1:] != ["ack"]  # it ended something that is no message
    assert shown(read(b"end\n" + ACK)) == ["ack"]


@pytest.mark.parametrize("printed", [b"42", b"null", b'"text"', b"[1, 2]", b'{"a": 1}'])
def test_a_print_that_is_json(printed: bytes) -> None:
    assert shown(read(printed + b"\n" + ACK)) == [Wrong.STRAY, "ack"]


def test_a_missing_end_is_found_when_the_next_one_comes() -> None:
    messages = read(ACK.removesuffix(b"end\n") + EMIT)
    assert shown(messages) == ["ack", Wrong.MISSING_END, "emit"]
    assert not messages[1].fatal  # type: ignore[union-attr]


def test_garbage_up_to_an_end_is_fatal_and_ends_the_reading() -> None:
    messages = read(b"E_BOLTFAILED__no_json\nend\n" + ACK, ACK)
    assert shown(messages) == [Wrong.GARBLED]
    assert messages[0].fatal  # type: ignore[union-attr]
    assert "E_BOLTFAILED__no_json" in str(messages[0])


def test_half_a_message_is_fatal() -> None:
    assert shown(read(b'{"command": "emit", "tuple": ["a\n' + ACK)) == [Wrong.GARBLED]


def test_an_object_without_a_command() -> None:
    assert shown(read(b'{"id": 1}\nend\n' + ACK)) == [Wrong.NO_COMMAND, "ack"]


def test_a_message_too_long_is_fatal_before_it_is_complete() -> None:
    messages = read(b'{"command": "emit', b"x" * 100, b"x" * 2_000, ACK, bytes_max=1_000)
    assert shown(messages) == [Wrong.TOO_LONG]
    assert len(str(messages[0])) < 500


def test_a_hundred_megabytes_need_no_such_memory() -> None:
    reader = JsonReader(1_000_000)
    chunk = b"x" * 65_536
    found = [m for _ in range(1_600) for m in reader.feed(chunk)]
    assert shown(found) == [Wrong.TOO_LONG]
    assert not reader._rest


def test_deep_nesting_is_refused_without_harm_to_the_worker() -> None:
    # Since Python 3.14 the C stack is the limit, which takes tens of thousands of levels.
    levels = 500_000
    data = b'{"command":"emit","tuple":' + b"[" * levels + b"]" * levels + b"}\nend\n"
    assert shown(read(data, bytes_max=2 * len(data))) == [Wrong.GARBLED]
