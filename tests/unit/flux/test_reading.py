from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from squall_common.errors import InvalidTopologyError, SquallError
from squall_flux.reading import VALUES_MAX, read_document, read_text
from squall_flux.substitution import Filter


def read(text: str, values: Filter | None = None) -> Any:
    return read_document("t.yaml", text, values or Filter())


def test_values_know_their_places() -> None:
    found = read("name: x\nbolts:\n  - id: a\n    parallelism: ${n}\n", Filter({"n": "12"}))
    assert found.data == {"name": "x", "bolts": [{"id": "a", "parallelism": 12}]}
    assert found.where(("bolts", 0, "parallelism")) == "t.yaml:4:18"
    assert found.where(("bolts", 0, "missing")) == "t.yaml:3:5"
    assert found.where_key(("bolts", 0, "parallelism")) == "t.yaml:4:5"


def test_places_after_a_value_that_was_replaced_are_those_of_the_file() -> None:
    found = read("a: [${x}, two]\n", Filter({"x": "a long value"}))
    assert found.where(("a", 1)) == "t.yaml:1:11"


def test_merge_keys_and_aliases_work() -> None:
    found = read("base: &b {x: 1, y: 2}\na: {<<: *b, y: 3}\nc: {<<: *b}\nd: *b\n")
    assert found.data["a"] == {"x": 1, "y": 3}
    assert found.data["c"] == found.data["d"] == {"x": 1, "y": 2}


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 10)
)
MERGES = "m0: &m0 {a: 1}\n" + "".join(
    f"m{i}: &m{i} {{<<: [{', '.join([f'*m{i - 1}'] * 10)}]}}\n" for i in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: [1\nb: 2", "t.yaml:2:2: "),
        ("a: 1\na: 2\n", "t.yaml:2:1: 'a' is given twice"),
        ("a: !!python/object:os.system x\n", "t.yaml:1:4: could not determine a constructor"),
        ("a: !!set {x}\n", "t.yaml:1:4: unexpected tag"),
        ("a: !mine [x]\n", "t.yaml:1:4: unexpected tag"),
        ("1: x\n", "t.yaml:1:1: expected text as the key"),
        ("? [a]\n: x\n", "t.yaml:1:3: expected text as the key"),
        ("a: 2026-99-99\n", "t.yaml:1:4: '2026-99-99'"),
        ("a: 1\n---\nb: 2\n", "t.yaml:2:1: expected one YAML document"),
        ("a: *b\n", "t.yaml:1:4: found undefined alias"),
        ("a: &a [*a]\n", "t.yaml:1:4: this value contains itself"),
        ("", "t.yaml:1:1: the file is empty"),
        ("a: \x00\n", "t.yaml:1:1: "),
        ("a: " + "9" * 5_000, "t.yaml:1:4: "),
        ("a: " + "[" * 60, "t.yaml:1:53: values nest more than 50 deep"),
        ("[" * 100_000, "t.yaml:1:51: values nest more than 50 deep"),
        ("- x\n" * (VALUES_MAX + 1), f"t.yaml:{VALUES_MAX}:3: more than 50,000 values"),
        (BOMB, "aliases make this more than 50,000 values"),
        (MERGES, "aliases make this more than 50,000 values"),
    ],
    ids=lambda text: text[:20],
)
def test_bad_files_are_refused_quickly_with_their_place(text: str, expected: str) -> None:
    begin = time.process_time()
    with pytest.raises(InvalidTopologyError) as raised:
        read(text)
    assert expected in raised.value.message
    assert time.process_time() - begin < 10


def test_aliases_cannot_nest_deeper_than_brackets_may() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 60))
    with pytest.raises(InvalidTopologyError, match="nest more than 50 deep"):
        read(text)


def test_only_regular_files_of_text_are_read(tmp_path: Path) -> None:
    fifo, binary, large = tmp_path / "fifo", tmp_path / "binary", tmp_path / "large"
    os.mkfifo(fifo)
    binary.write_bytes(b"\xff\xfe")
    large.write_bytes(b"#" * (1 << 20) + b"#")
    for path, expected in (
        (fifo, "is not a regular file"),
        (Path("/dev/zero"), "is not a regular file"),
        (binary, "is not UTF-8"),
        (large, "is larger than 1 MiB"),
        (tmp_path / "none", "No such file"),
        (Path("a\0b"), "cannot be read"),
    ):
        with pytest.raises(SquallError, match=expected):
            read_text(path, "the file")
