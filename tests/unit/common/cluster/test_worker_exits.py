"""What supervisors publish of unexpected exits, and what Nimbus makes of it."""

from __future__ import annotations

import json

import pytest

from squall_common.cluster.values import SupervisorInfo
from squall_common.cluster.worker_exits import (
    COUNTS_KEY,
    META_KEY,
    TEXT_CHARS_MAX,
    WorkerExit,
    latest,
    parse,
    serialize,
    serialize_counts,
    total_counts,
)

EXIT = WorkerExit(1_700_000_100, "node-1", 6700, "killed by SIGSEGV", "about to die of 7")


def supervisor(text: str | None) -> SupervisorInfo:
    meta = {} if text is None else {META_KEY: text}
    return SupervisorInfo(0, "node-1", "sup-1", scheduler_meta=meta)


def test_exits_read_as_they_were_written() -> None:
    text = '{"words-1-17":[1700000100,"node-1",6700,"killed by SIGSEGV","about to die of 7"]}'
    assert serialize({"words-1-17": EXIT}) == text
    assert parse(text) == {"words-1-17": EXIT}


def test_long_lines_are_cut() -> None:
    long = WorkerExit(1, "h", 1, "r" * 1000, "l" * 1000)
    (found,) = parse(serialize({"t": long})).values()
    assert (len(found.reason), len(found.last_line)) == (TEXT_CHARS_MAX, TEXT_CHARS_MAX)
    (found,) = parse(json.dumps({"t": [1, "h", 1, "r" * 1000, "l" * 1000]})).values()
    assert (len(found.reason), len(found.last_line)) == (TEXT_CHARS_MAX, TEXT_CHARS_MAX)


@pytest.mark.parametrize("text", ["", "[]", "7", '{"t":[1]}', '{"t":[1e999,"h",1,"r","l"]}'])
def test_what_cannot_be_read_is_nothing(text: str) -> None:
    assert parse(text) == {}


def test_of_several_nodes_the_last_exit_counts() -> None:
    later = WorkerExit(1_700_000_200, "node-2", 6701, "exited with status 1", "")
    listed = [supervisor(serialize({"words-1-17": one})) for one in (EXIT, later, EXIT)]
    assert latest([*listed, supervisor(None)]) == {"words-1-17": later}


def test_the_numbers_of_all_nodes_are_added_and_nonsense_counts_as_none() -> None:
    texts = [serialize_counts({"t": 2, "u": 1}), serialize_counts({"t": 3}), "[1]", '{"t": "x"}']
    supervisors = [
        SupervisorInfo(0, "node", f"sup-{i}", scheduler_meta={COUNTS_KEY: text})
        for i, text in enumerate(texts)
    ]
    assert total_counts([*supervisors, supervisor(None)]) == {"t": 5, "u": 1}
