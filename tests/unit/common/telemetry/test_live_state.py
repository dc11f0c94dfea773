"""Questions about state, and answers: what a key may be, what is shown of a value, and pages."""

from __future__ import annotations

import math
import uuid
from typing import Any

import pytest

from squall_common.telemetry.live_state import (
    ANSWER_BYTES_MAX,
    Answer,
    Entry,
    Question,
    TaskAnswer,
    decode_answer,
    decode_question,
    encode_answer,
    forms_of,
    merged,
    order_of,
    prefix_of,
    shown,
)


def test_an_answer_travels_whole() -> None:
    entry = Entry(["a", 2**70], {"text": "\ud800"}, "tuple:('a', 1)", True, False)
    task = TaskAnswer("count", 2, 7, 100, 0, 1, 17, {"tuples": 5}, (entry,), True)
    answer = Answer((task, TaskAnswer("sum", 0, trouble="it is stuck")), None)
    assert decode_answer(encode_answer(answer)) == answer


@pytest.mark.parametrize("data", [b"", b"[]", b'{"tasks":[{"component":1}]}', b"[" * 100_000])
def test_what_no_worker_answers_is_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="damaged"):
        decode_answer(data)


def test_sizes_are_limited() -> None:
    with pytest.raises(ValueError, match="more than"):
        decode_answer(b" " * (ANSWER_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="more than"):
        decode_question('{"key":"' + "x" * 9_000 + '"}')
    with pytest.raises(ValueError, match="a page has"):
        decode_question('{"limit":100000}')
    assert decode_question('{"component":"count"}') == Question("count")


def test_a_key_on_the_command_line_may_mean_several() -> None:
    assert forms_of("ann") == ["ann"]
    assert forms_of("7") == ["7", 7]
    assert forms_of('["seen", ["a", 1]]') == ['["seen", ["a", 1]]', ("seen", ("a", 1))]
    assert forms_of('{"no": "key"}') == ['{"no": "key"}']
    assert forms_of("[" * 100_000) == ["[" * 100_000]
    assert (prefix_of("an"), prefix_of('["seen"]'), prefix_of("7")) == ("an", ("seen",), "7")


class Broken:
    def __repr__(self) -> str:
        raise RuntimeError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ((1, [2.5, None], True), [1, [2.5, None], True]),
        ({("a", 1): b"x"}, {"('a', 1)": "b'x'"}),
        (math.inf, "inf"),
        (uuid.UUID(int=7), "UUID('00000000-0000-0000-0000-000000000007')"),
        pytest.param(1 << 100_000, "an int of 100001 bits", id="a large int"),
    ],
)
def test_a_value_is_shown_as_json(value: Any, text: Any) -> None:
    assert shown(value) == (text, False)


def test_a_value_that_fails_to_describe_itself_has_its_type() -> None:
    assert shown([Broken()])[0][0].startswith("<Broken")


def test_large_values_are_cut() -> None:
    text, cut = shown("x" * 100_000)
    assert cut
    assert len(text) < 20_000
    items, cut = shown(list(range(1_000_000)))
    assert cut
    assert len(items) < 10_000
    loop: list[Any] = []
    loop.append(loop)
    assert shown(loop)[1]


def page(task: int, keys: list[str], *, more: bool) -> TaskAnswer:
    entries = tuple(Entry(key, 1, order_of(key)) for key in keys)
    return TaskAnswer("count", task, len(keys), entries=entries, more=more)


def test_pages_of_tasks_become_one_that_leaves_out_nothing() -> None:
    first, second = page(0, ["a", "d", "f"], more=True), page(1, ["b", "c", "e", "g"], more=False)
    found, more = merged([first, second], 10)
    # Behind "f" the first may have more.
    assert [entry.key for _, entry in found] == ["a", "b", "c", "d", "e", "f"]
    assert more
    found, more = merged([first, second], 2)
    assert ([entry.key for _, entry in found], more) == (["a", "b"], True)
    assert merged([page(0, ["a"], more=False)], 1)[1] is False
