"""What surely has an encoding, without encoding it: both cores."""

from __future__ import annotations

import dataclasses
import datetime as dt
import uuid
from decimal import Decimal
from types import ModuleType
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.support.cores import both

from squall_common.state.keyed import ALWAYS_STORED
from squall_engine.core.codec import CodecError, ValueCodec


@dataclasses.dataclass
class Point:
    x: int


class Text(str):
    pass


class OwnList(list[Any]):
    pass


def nested(depth: int, inside: Any = 1) -> Any:
    for _ in range(depth):
        inside = [inside]
    return inside


SURE = (
    *(None, True, 1, 2**80, -1.5, 1j, "a", "\ud800", b"a", Decimal(1), uuid.UUID(int=1)),
    *(dt.date(2026, 1, 1), dt.timedelta(1), dt.datetime(2026, 1, 1)),
    *(dt.datetime(2026, 1, 1, tzinfo=dt.UTC), [], {}, (), set(), frozenset({1})),
    *([1, {"a": (2, {3}), 4: [None]}], {(1, 2): [dt.date(2026, 1, 1)]}, nested(60)),
)


@both
@pytest.mark.parametrize("value", SURE, ids=lambda value: f"{value!r:.30}")
def test_a_value_of_common_types_surely_has_an_encoding(core: ModuleType, value: Any) -> None:
    assert core.surely_encodes(value, ALWAYS_STORED)
    codec = ValueCodec()
    assert codec.decode_rows(codec.encode_rows([[value]])) == [[value]]


circle: list[Any] = []
circle.append(circle)
OPEN = (
    *(object(), Point(1), Text("a"), OwnList(), ZoneInfo("UTC"), bytearray(b"a")),
    *(dt.datetime(2026, 1, 1, tzinfo=ZoneInfo("Europe/Oslo")), circle, nested(70)),
)


@both
@pytest.mark.parametrize("value", OPEN, ids=lambda value: type(value).__name__)
def test_of_others_the_codec_has_to_say(core: ModuleType, value: Any) -> None:
    """Also wherever they are in a list, a tuple or a dict."""
    inside = [value, [1, value], (value, 2), {"a": [value]}]
    if type(value).__hash__ is not None and value is not circle:
        inside += [{value: 1}] if not isinstance(value, Point | bytearray) else []
    for one in inside:
        assert not core.surely_encodes(one, ALWAYS_STORED)


def test_a_circle_has_no_encoding() -> None:
    with pytest.raises(CodecError):
        ValueCodec().encode_rows([[circle]])
