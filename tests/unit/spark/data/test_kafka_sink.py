"""Records of a stream that is written to Kafka."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

import pytest
from pyspark.sql import Row

from squall import SquallError
from squall_spark.data.kafka_sink import KafkaPlace, encoded


def test_keys_and_values() -> None:
    assert encoded(["key", "value"], ["k", b"v"]) == (b"k", b"v")
    assert encoded(["value", "at"], ["é", 1]) == (None, "é".encode())
    assert encoded(["key", "value"], [None, None]) == (None, None)
    key, value = encoded(["word", "count"], ["é", 2])
    assert (key, json.loads(value or b"")) == (None, {"word": "é", "count": 2})


def test_structs_have_names_and_bytes_are_base64() -> None:
    place = Row(city="Ulm", at=[Row(lat=48)])
    _, value = encoded(["word", "place", "places", "raw"], ["a", place, [place], b"\xff"])
    named = {"city": "Ulm", "at": [{"lat": 48}]}
    assert json.loads(value or b"") == {
        "word": "a",
        "place": named,
        "places": [named],
        "raw": "/w==",
    }
    assert encoded(["value"], [Row(city="Ulm")]) == (None, b'{"city": "Ulm"}')


def test_a_value_is_json_whatever_its_keys_and_numbers_are() -> None:
    day = dt.date(2026, 1, 2)
    _, value = encoded(
        ["f", "m"], [[math.nan, math.inf, -math.inf, 1.5], {day: 1, b"x": 2, True: 3}]
    )

    def strict(text: str) -> Any:
        raise AssertionError(f"{text} is not JSON")

    assert json.loads(value or b"", parse_constant=strict) == {
        "f": ["NaN", "Infinity", "-Infinity", 1.5],
        "m": {"2026-01-02": 1, "eA==": 2, "true": 3},
    }


def test_a_place() -> None:
    assert KafkaPlace.parse("a:1,b:2/t", "--output x") == KafkaPlace("a:1,b:2", "t")
    for text in ("a:1", "a:1/", "/t"):
        with pytest.raises(SquallError, match=r"--output x=kafka:.* has no topic"):
            KafkaPlace.parse(text, "--output x")
