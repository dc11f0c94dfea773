"""Server-sent events."""

from __future__ import annotations

import pytest

from squall_connectors.http.event_stream import Event, EventParser, EventTooLargeError


def parse(*chunks: bytes, bytes_max: int = 1000) -> list[Event | EventTooLargeError]:
    parser = EventParser(bytes_max)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def test_fields_make_an_event_at_an_empty_line() -> None:
    text = b": comment\nevent: add\nid: 7\ndata: one\ndata:two\ndata\nother: x\n\ndata: 2\n\n"
    assert parse(text) == [Event("add", "one\ntwo\n", "7"), Event("message", "2", "7")]


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_lines_end_in_each_way_and_anywhere(end: bytes) -> None:
    text = end.join([b"\xef\xbb\xbfid: 1", "data: ä".encode(), b"", b"data: b", b"", b""])
    wanted = [Event("message", "ä", "1"), Event("message", "b", "1")]
    assert parse(text) == wanted
    assert parse(*(text[i : i + 1] for i in range(len(text)))) == wanted


def test_an_event_without_data_changes_the_id_alone() -> None:
    parser = EventParser(1000, "5")
    assert parser.feed(b"data: a\n\nid: 6\nevent: x\n\nid: a\0b\ndata: c\n\nid\ndata: d\n\n") == [
        Event("message", "a", "5"),
        Event("message", "c", "6"),
        Event("message", "d", ""),
    ]


def test_an_event_is_not_given_before_its_end() -> None:
    assert parse(b"data: a\n") == []


def test_the_server_says_how_long_to_wait() -> None:
    parser = EventParser(1000)
    parser.feed(b"retry: 1500\nretry: soon\n\n")
    assert parser.retry_secs == 1.5


@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_an_event_that_is_too_large_is_passed_over(step: int) -> None:
    for large in (b"data: " + b"x" * 200, b"data: " + b"\ndata: ".join([b"y" * 30] * 5)):
        text = b"data: a\n\nid: 3\n" + large + b"\n\ndata: b\n\n"
        chunks = [text[i : i + step] for i in range(0, len(text), step)]
        first, error, last = parse(*chunks, bytes_max=100)
        assert first == Event("message", "a", "")
        assert isinstance(error, EventTooLargeError)
        assert "'3'" in str(error)
        assert last == Event("message", "b", "3")
