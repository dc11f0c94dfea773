"""What orjson reads and writes for us is what the standard library would."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from squall_common.daemon import fast_json

KEYS = st.text() | st.integers() | st.floats() | st.booleans() | st.none()
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters())
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(KEYS, inner), max_leaves=20
)
BIG = 2**64


def shown(value: Any) -> str:
    """With NaN equal to itself, 1 unlike 1.0 and True, and the order of keys."""
    return repr(value)


def without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: without_nan(one) for key, one in value.items()}
    return [without_nan(one) for one in value] if isinstance(value, list) else value


@given(VALUES)
def test_what_is_written_reads_as_what_json_writes(value: Any) -> None:
    expected = json.loads(json.dumps(value))
    found = json.loads(fast_json.dumps(value))
    assert shown(found) in (shown(expected), shown(without_nan(expected)))
    assert shown(fast_json.loads(json.dumps(value))) == shown(expected)
    assert shown(fast_json.loads(json.dumps(value, ensure_ascii=True).encode())) == shown(expected)


@pytest.mark.parametrize(
    "text",
    [
        "18446744073709551616", "-9223372036854775809", "9" * 400, "1e400", "-0.0", "0.1e-400",
        "[NaN, Infinity, -Infinity]", '"\\ud800"', '{"a": 1, "b": 2, "a": 3}', "\ufeff1",
    ],
)  # fmt: skip
def test_a_text_is_read_as_json_reads_it(text: str) -> None:
    data = text.encode()
    try:
        expected = json.loads(data)
    except ValueError as error:
        with pytest.raises(type(error)):
            fast_json.loads(data)
    else:
        assert shown(fast_json.loads(data)) == shown(expected)


@pytest.mark.parametrize("text", [b"", b"{", b"[1,]", b"nul", b"\xff", b'{"a" 1}'])
def test_what_is_not_json_is_refused_in_the_words_of_json(text: bytes) -> None:
    with pytest.raises(ValueError) as expected:
        json.loads(text)
    with pytest.raises(ValueError) as caught:
        fast_json.loads(text)
    assert str(caught.value) == str(expected.value)


def test_the_order_of_keys_is_kept_or_sorted_as_json_sorts() -> None:
    value = {"b": 1, "a": {"d": None, "c": 2}}
    assert fast_json.dumps(value) == b'{"b":1,"a":{"d":null,"c":2}}'
    assert fast_json.dumps(value, sort_keys=True) == b'{"a":{"c":2,"d":null},"b":1}'
    numbers = {10: "ten", 9: "nine"}
    assert list(json.loads(fast_json.dumps(numbers, sort_keys=True))) == ["9", "10"]
    with pytest.raises(TypeError):
        fast_json.dumps({1: 1, "a": 1}, sort_keys=True)  # as json: they cannot be compared


def test_values_that_orjson_would_change_are_kept() -> None:
    value = OrderedDict(big=BIG, pair=(1, None), surrogate="\ud800")
    found = json.loads(fast_json.dumps(value))
    assert found["big"] == BIG
    assert found["pair"] == [1, None]
    assert found["surrogate"] == "\ud800"
    assert fast_json.dumps([math.nan, math.inf]) == b"[null,null]"
    with pytest.raises(TypeError):
        fast_json.dumps({"set": {1}})
