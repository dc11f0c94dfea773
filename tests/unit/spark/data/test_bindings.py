"""--input and --output."""

from __future__ import annotations

import pytest

from squall import SquallError
from squall_spark.data.bindings import (
    Foreign,
    Format,
    Source,
    StreamName,
    Target,
    parse_input,
    parse_output,
    shown_place,
)


@pytest.mark.parametrize(
    ("text", "component", "stream", "path", "format_"),
    [
        ("s=/d/x.parquet", "s", "default", "/d/x.parquet", Format.PARQUET),
        ("s=/d/*.json.gz", "s", "default", "/d/*.json.gz", Format.JSON),
        ("s=/d/x.NDJSON", "s", "default", "/d/x.NDJSON", Format.JSON),
        ("s:late=/d/x.csv", "s", "late", "/d/x.csv", Format.CSV),
        ("s=text:/d/x", "s", "default", "/d/x", Format.TEXT),
        ("s=table:db.t", "s", "default", "db.t", Format.TABLE),
        ("s=s3a://bucket/x", "s", "default", "s3a://bucket/x", None),
        ("s=/d", "s", "default", "/d", None),
        ("s=./a:b.csv", "s", "default", "./a:b.csv", Format.CSV),
    ],
)
def test_inputs(text: str, component: str, stream: str, path: str, format_: Format | None) -> None:
    assert parse_input(text) == Source(StreamName(component, stream), path, format_)


def test_outputs() -> None:
    parquet, json = Format.PARQUET, Format.JSON
    assert parse_output("/out") == Target(None, "/out", parquet)
    assert parse_output("/o/a=b") == Target(None, "/o/a=b", parquet)
    assert parse_output("json:/out") == Target(None, "/out", json)
    assert parse_output("c=/out") == Target(StreamName("c"), "/out", parquet)
    assert parse_output("c:late=/out.json") == Target(StreamName("c", "late"), "/out.json", json)
    assert parse_output("c=table:t") == Target(StreamName("c"), "t", Format.TABLE)


@pytest.mark.parametrize("text", ["/d/x.csv", "=x", "s=", "s= ", "s=avro:/x", "s=csv:"])
def test_a_wrong_input_is_one_clear_error(text: str) -> None:
    with pytest.raises(SquallError, match="--input"):
        parse_input(text)


@pytest.mark.parametrize("text", ["", "c=", "=x", "table:t", "c=orc:/x", "kafka:h:1/t"])
def test_a_wrong_output_is_one_clear_error(text: str) -> None:
    with pytest.raises(SquallError, match="--output"):
        parse_output(text)


def test_sources_and_sinks_of_sparks() -> None:
    text = "jdbc?url=jdbc:derby:/db%3Bcreate=true&dbtable=orders&fetchsize="
    assert parse_input(f"s=spark:{text}") == Source(StreamName("s"), text, Format.SPARK)
    assert Foreign.parse(text, "--input s") == Foreign(
        "jdbc", {"url": "jdbc:derby:/db;create=true", "dbtable": "orders", "fetchsize": ""}
    )
    assert Foreign.parse("org.example.Source", "--input s").options == {}
    for wrong in ("", "jdbc?url", "a/b?x=1", "?x=1"):
        with pytest.raises(SquallError, match=r"--input s: .* is not FORMAT\?option=value"):
            Foreign.parse(wrong, "--input s")


def test_a_topic_and_a_table_hold_one_stream() -> None:
    assert parse_output("c=spark:orc?path=/x") == Target(
        StreamName("c"), "orc?path=/x", Format.SPARK
    )
    for text in ("table:t", "kafka:h:1/t", "spark:orc"):
        with pytest.raises(SquallError, match="holds one stream"):
            parse_output(text)


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ("url=jdbc:h2:mem&dbtable=now", "url=jdbc:h2:mem&dbtable=now"),
        (
            "url=jdbc:postgresql://h/d&user=app&password=s3",
            "url=jdbc:postgresql://h/d&user=app&password=***",
        ),
        (
            "url=jdbc:postgresql://h/d?user=app%26password%3Ds3",
            "url=jdbc:postgresql://h/d?user=app&password=***",
        ),
        (
            "url=jdbc:sqlserver://h%3Bpassword%3Ds3%3Bx%3D1",
            "url=jdbc:sqlserver://h;password=***;x=1",
        ),
        ("uri=mongodb://app:s3@h/d", "uri=mongodb://***@h/d"),
        ("url=jdbc:oracle:thin:app/s3@//h/d", "url=jdbc:oracle:thin:***@//h/d"),
        ("awsSecretKey=s3&sslPassword=s3", "awsSecretKey=***&sslPassword=***"),
    ],
)
def test_a_place_is_shown_without_its_passwords(options: str, shown: str) -> None:
    assert shown_place(f"jdbc?{options}", Format.SPARK) == f"jdbc?{shown}"
    assert shown_place("/out?password=1", Format.PARQUET) == "/out?password=1"
    assert shown_place("console", Format.SPARK) == "console"
