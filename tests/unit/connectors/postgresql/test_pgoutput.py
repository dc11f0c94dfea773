"""Messages of pgoutput, byte by byte as PostgreSQL's documentation gives them."""

from __future__ import annotations

import struct

import pytest

from squall_connectors.postgresql.pgoutput import Change, Decoder

# Table 7, public.t, its columns id (integer, the key) and name (text).
RELATION = (
    b"R\x00\x00\x00\x07public\x00t\x00d\x00\x02"
    b"\x01id\x00\x00\x00\x00\x17\xff\xff\xff\xff"
    b"\x00name\x00\x00\x00\x00\x19\xff\xff\xff\xff"
)
ROW = b"\x00\x02t\x00\x00\x00\x0242t\x00\x00\x00\x03abc"


@pytest.fixture
def decoder() -> Decoder:
    decoder = Decoder()
    assert decoder.changes(RELATION) == []
    return decoder


def test_an_insert_has_the_new_row(decoder: Decoder) -> None:
    row = {"id": 42, "name": "abc"}
    assert decoder.changes(b"I\x00\x00\x00\x07N" + ROW) == [Change("insert", "public.t", row, None)]


def test_an_update_has_the_old_key_if_that_changed(decoder: Decoder) -> None:
    message = b"U\x00\x00\x00\x07K\x00\x02t\x00\x00\x00\x017nN" + ROW
    [change] = decoder.changes(message)
    assert change.old == {"id": 7, "name": None}
    assert change.row == {"id": 42, "name": "abc"}


def test_a_large_value_that_has_not_changed_is_left_out(decoder: Decoder) -> None:
    [change] = decoder.changes(b"U\x00\x00\x00\x07N\x00\x02t\x00\x00\x00\x0242u")
    assert change == Change("update", "public.t", {"id": 42}, None)


def test_a_delete_has_the_old_key(decoder: Decoder) -> None:
    [change] = decoder.changes(b"D\x00\x00\x00\x07K\x00\x02t\x00\x00\x00\x017n")
    assert change == Change("delete", "public.t", None, {"id": 7, "name": None})


@pytest.mark.parametrize("text", ['"\\ud800"', "[" * 2000 + "]" * 2000])
def test_json_that_python_cannot_read_stays_text(text: str) -> None:
    decoder = Decoder()
    decoder.changes(
        b"R\x00\x00\x00\x08public\x00j\x00d\x00\x01\x00j\x00\x00\x00\x00\x72" + b"\xff" * 4
    )
    data = text.encode()
    row = b"\x00\x01t" + len(data).to_bytes(4, "big") + data
    [change] = decoder.changes(b"I\x00\x00\x00\x08N" + row)
    assert change.row == {"j": text}


def test_a_truncate_names_its_tables(decoder: Decoder) -> None:
    message = b"T" + struct.pack("!ibI", 1, 0, 7)
    assert decoder.changes(message) == [Change("truncate", "public.t", None, None)]


@pytest.mark.parametrize("kind", [b"B", b"C", b"O", b"Y", b"M"])
def test_others_are_no_changes(decoder: Decoder, kind: bytes) -> None:
    assert decoder.changes(kind + bytes(20)) == []


@pytest.mark.parametrize(
    "message", [b"", b"I", b"I\x00\x00\x00\x08N" + ROW, b"I\x00\x00\x00\x07N" + ROW[:-1]]
)
def test_what_is_cut_off_or_unknown_is_an_error(decoder: Decoder, message: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends too early|has not described the table 8|buffer"):
        decoder.changes(message)
