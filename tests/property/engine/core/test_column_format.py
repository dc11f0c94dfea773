"""Columns cross workers as columns: both cores write the same bytes, read back equal values of the
same types whichever wrote them, and refuse the same damaged sections."""

from __future__ import annotations

import importlib
import random
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from squall_engine.core import pure
from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.sections import parse_heads
from squall_engine.core.values import ChangedRowError
from squall_engine.core.wire_format import COLUMN_HEAD, COLUMN_ROWS_MIN, ColumnKind, Flag

try:
    CORES = [pure, importlib.import_module("squall_engine.core.compiled")]
except ImportError:
    CORES = [pure]

TASK, RECEIVER = 4, 7
FIELDS = ["a", "b"]
CODEC = ValueCodec()

kinds: list[st.SearchStrategy[Any]] = [
    st.integers(-(2**7), 2**7 - 1),
    st.integers(-(2**15), 2**15 - 1),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.booleans(),
    st.text(max_size=4),
    st.text("ab", max_size=2),
    st.text(st.characters(), max_size=2),  # lone surrogates too
    st.text("xy", min_size=250, max_size=260),
    st.binary(max_size=4),
    st.binary(min_size=253, max_size=256),
    st.sampled_from([b"x" * 70_000, b"", b"y" * 65_535, b"z" * 65_534]),
    # They differ at their beginning, in the middle or at the end alone, or not at all.
    st.tuples(*3 * [st.text("ab", min_size=1, max_size=1)]).map(("-" * 20).join),
    st.none(),
    st.one_of(st.integers(), st.text(max_size=2), st.booleans(), st.none()),
    st.tuples(st.integers(), st.text(max_size=2)),
]


@st.composite
def tables(draw: Callable[..., Any]) -> list[list[Any]]:
    rows = draw(st.integers(1, 3 * COLUMN_ROWS_MIN))
    return [
        draw(st.lists(draw(st.sampled_from(kinds)), min_size=rows, max_size=rows)) for _ in FIELDS
    ]


def emitted(core: Any, columns: Sequence[Sequence[Any]], how: str, *, anchored: bool) -> Any:
    """A batch that some tasks have emitted as columns or as rows."""
    source = core.Source("spout", TASK, "default", FIELDS)
    edge = core.Edge(RECEIVER, source, local=False)
    bits = random.Random(1).getrandbits
    trees = core.Trees(1, [0], bits)
    pending, turn = core.PendingRoots(), core.TurnState(1.0)
    ids = [1] * len(columns[0]) if anchored else None
    for task in (TASK, TASK + 1) if how == "two sources" else (TASK,):
        output = core.Output(core.Source("spout", task, "default", FIELDS), direct=False)
        output.add_consumer(core.RoundRobin([edge], random.Random(1)), [edge])
        emitter = core.Emitter("spout", task, {"default": output}, bits, on_rejected=print)
        calls = core.SpoutCalls(emitter, trees.ledger, pending, turn, acker=0, on_error=print)
        if how == "rows":
            for row in zip(*columns, strict=True):
                calls.emit(row, message_id=1 if anchored else None)
        else:
            calls.emit_columns(columns, message_ids=ids)
    return edge.take()


def read(core: Any, data: bytes) -> list[Any]:
    def source_of(task: int, stream: str) -> Any:
        return core.Source("spout", task, stream, FIELDS, local=False)

    batches = core.decode_batches(data, CODEC, source_of)
    return [
        (task, tup.source_task, tup.id, tup.root, list(tup.values))
        for task, batch in batches.items()
        for tup in batch.as_tuples()
    ]


def is_columnar(data: bytes) -> bool:
    return bool(data[1] & Flag.COLUMNS)


@given(tables(), st.sampled_from(["columns", "rows", "two sources"]), st.booleans())
@example([[1] * 9, ["x"] * 9], "columns", True)
@example([[0.5] * 9, [b""] * 9], "two sources", False)
def test_both_cores_write_the_same_columns_and_read_what_was_emitted(columns, how, anchored):
    written = {}
    for core in CORES:
        batch = emitted(core, columns, how, anchored=anchored)
        expected = [
            (RECEIVER, tup.source_task, tup.id, tup.root, list(tup.values))
            for tup in emitted(core, columns, how, anchored=anchored).as_tuples()
        ]
        data = core.encode_batches(batch.source, [(RECEIVER, batch)], CODEC, columns=True)
        written[core] = data
        assert is_columnar(data) == (len(expected) >= COLUMN_ROWS_MIN)
        rows = core.encode_batches(batch.source, [(RECEIVER, batch)], CODEC)
        assert not is_columnar(rows)
        for reader in CORES:
            found = read(reader, data)
            # (NaN is not equal to itself; its bits are compared below.)
            assert repr(found) == repr(expected)
            assert repr(read(reader, rows)) == repr(expected)
    assert len(set(written.values())) == 1


@pytest.mark.parametrize("core", CORES)
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("change", [list.pop, list.clear, lambda row: row.append(1)])
def test_a_list_that_was_changed_after_its_emit_is_in_no_section(core, columns, change):
    rows = [[number, number] for number in range(COLUMN_ROWS_MIN)]
    source = core.Source("spout", TASK, "default", FIELDS)
    batch = core.Batch.of(source, [core.Tuple(row, 0, 0, source) for row in rows])
    change(rows[1])
    with pytest.raises(ChangedRowError, match=f"{len(rows[1])} values for the 2 fields"):
        core.encode_batches(source, [(RECEIVER, batch)], CODEC, columns=columns)


@pytest.mark.parametrize("core", CORES)
def test_a_section_with_other_fields_than_the_receiver_knows_is_refused(core):
    source = core.Source("spout", TASK, "default", FIELDS[:1])
    batch = core.Batch.of(source, [core.Tuple([1], 0, 0, source)])
    data = core.encode_batches(source, [(RECEIVER, batch)], CODEC)
    with pytest.raises(CodecError, match="1 values for the 2 fields"):
        read(core, data)


@pytest.mark.parametrize("core", CORES)
def test_a_list_that_a_codec_changes_meanwhile_does_not_change_a_section(core):
    """The code of a user may run while a section is written: that of a value that is encoded."""
    texts = [f"text {number} " * 100 for number in range(4 * COLUMN_ROWS_MIN)]
    columns = [list(texts), [(number,) for number in range(len(texts))]]

    class Changing(ValueCodec):
        def encode_rows(self, rows):
            columns[0].clear()
            texts.clear()
            return super().encode_rows(rows)

    expected = [[text, (number,)] for number, text in enumerate(texts)]
    batch = emitted(core, columns, "columns", anchored=False)
    data = core.encode_batches(batch.source, [(RECEIVER, batch)], Changing(), columns=True)
    assert is_columnar(data)
    assert not columns[0]
    assert [row[4] for row in read(core, data)] == expected


@given(tables(), st.integers(0, 2**16), st.binary(min_size=1, max_size=4), st.booleans())
def test_both_cores_refuse_the_same_damaged_columns(columns, at, damage, cut):
    batch = emitted(pure, columns, "columns", anchored=False)
    whole = pure.encode_batches(batch.source, [(RECEIVER, batch)], CODEC, columns=True)
    at %= len(whole)
    data = whole[:at] if cut else whole[:at] + damage + whole[at + len(damage) :]
    found = []
    for core in CORES:
        try:
            found.append(repr(read(core, data)))
        except CodecError:
            found.append("refused")
    assert len(set(found)) == 1


def section(*columns: tuple[int, int, bytes], rows: int = 9, fields: int | None = None) -> bytes:
    """A section with columns of any kind, width and bytes."""
    source = pure.Source("spout", TASK, "default", FIELDS)
    made = emitted(pure, [[1] * 9, [2] * 9], "columns", anchored=False)
    good = pure.encode_batches(source, [(RECEIVER, made)], CODEC, columns=True)
    head = bytearray(good[: 12 + len("default") + 4])
    struct.pack_into("<I", head, 8, rows)
    body = struct.pack("<H", len(columns) if fields is None else fields)
    for kind, width, payload in columns:
        body += COLUMN_HEAD.struct.pack(kind, width, len(payload)) + payload
    return bytes(head) + body


ONES = (ColumnKind.INT, 1, bytes(9))


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.__name__)
@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (section(ONES), "1 values for the 2 fields"),
        (section(ONES, ONES, ONES), "3 values for the 2 fields"),
        (section(), "columns"),
        (section(ONES, ONES, rows=10), "10 rows has 9 bytes"),
        (section(ONES, ONES, rows=0), "columns without rows"),
        (section(ONES, ONES, rows=2**32 - 1), "bytes"),
        (section(ONES, ONES, fields=0xFFFF), "more were expected|cannot be decoded"),
        (section(ONES, (ColumnKind.INT, 3, bytes(27))), "unknown kind"),
        (section(ONES, (ColumnKind.FLOAT, 4, bytes(36))), "unknown kind"),
        (section(ONES, (77, 1, bytes(9))), "unknown kind"),
        (section(ONES, (ColumnKind.BOOL, 1, bytes(8) + b"\2")), "neither 0 nor 1"),
        (section(ONES, (ColumnKind.STR, 1, b"\1" * 9 + b"x" * 8)), "bytes"),
        (section(ONES, (ColumnKind.STR, 1, b"\1" * 9 + b"x" * 10)), "surplus"),
        (section(ONES, (ColumnKind.STR, 1, b"\1" * 9 + b"\xff" * 9)), "cannot be decoded"),
        (section(ONES, (ColumnKind.STR, 1, b"\xff" * 9)), "bytes"),
        (section(ONES, (ColumnKind.BYTES, 4, b"\xfe" * 36)), "bytes"),
        (section(ONES, (ColumnKind.VALUES, 0, b"\x91\x91\x01")), "other values"),
        (section(ONES, (ColumnKind.VALUES, 0, b"\xc1")), "cannot be decoded"),
        (section(ONES, ONES) + b"x", "surplus"),
    ],
)
def test_columns_that_do_not_fit_together_are_refused(core, data, reason):
    with pytest.raises(CodecError, match=reason):
        read(core, data)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.__name__)
@pytest.mark.parametrize("flag", [Flag.SEVERAL_ROOTS, Flag.SAME_TASK])
def test_flags_that_do_not_go_with_columns_are_refused(core, flag):
    data = bytearray(section(ONES, ONES))
    data[1] ^= flag
    with pytest.raises(CodecError, match="do not go with them"):
        read(core, bytes(data))


def test_the_heads_of_columns_are_read_without_their_values():
    heads = parse_heads(section(ONES, (77, 1, b"?")))
    assert list(heads.tasks) == [RECEIVER] * 9


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.__name__)
def test_floats_keep_their_bits(core):
    numbers = [struct.unpack("<d", random.Random(i).randbytes(8))[0] for i in range(50)]
    numbers += [float("nan"), float("-inf"), -0.0, 5e-324]
    batch = emitted(core, [numbers, numbers], "columns", anchored=False)
    data = core.encode_batches(batch.source, [(RECEIVER, batch)], CODEC, columns=True)
    found = [row[4][0] for row in read(core, data)]
    assert struct.pack(f"<{len(numbers)}d", *found) == struct.pack(f"<{len(numbers)}d", *numbers)


@pytest.mark.parametrize("core", CORES, ids=lambda core: core.__name__)
def test_a_repeated_value_costs_one_byte_and_is_one_object(core):
    texts = [f"{'x' * 200}{i // 100}" for i in range(1000)]
    batch = emitted(core, [texts, [0] * 1000], "columns", anchored=False)
    data = core.encode_batches(batch.source, [(RECEIVER, batch)], CODEC, columns=True)
    assert len(data) < 1000 + 1000 + 10 * 201 + 100
    found = [row[4][0] for row in read(core, data)]
    assert found == texts
    assert len(set(map(id, found))) == 10
