"""Sinks check the fields and columns that they are given in their constructors."""

from __future__ import annotations

from typing import Any

import pytest

from squall import InvalidTopologyError
from squall_connectors.files import FileSink, TransactionalFileSink
from squall_connectors.postgresql import PostgresqlSink, TransactionalPostgresqlSink
from squall_connectors.sqlite import SqliteSink, TransactionalSqliteSink

TABLE_SINKS = [PostgresqlSink, SqliteSink, TransactionalPostgresqlSink, TransactionalSqliteSink]


@pytest.mark.parametrize("sink", TABLE_SINKS)
@pytest.mark.parametrize(
    ("argument", "given", "message", "hint"),
    [
        ("key", None, "key is None", "write key=['name', ...], or leave it out for none"),
        ("key", "word", "key is the text 'word'", "write key=['word']"),
        ("fields", None, "fields is None", "write fields=['name', ...]"),
        ("fields", "word", "fields is the text 'word'", "write fields=['word']"),
        ("columns", "word", "columns is the text 'word'", "write columns=['word']"),
        ("key", [1], "key is [1]", "write key=['name', ...], or leave it out for none"),
    ],
)
def test_what_is_not_a_list_of_names_is_refused_with_what_to_write(
    sink: Any, argument: str, given: Any, message: str, hint: str
) -> None:
    arguments = {"fields": ["word", "count"], argument: given}
    with pytest.raises(InvalidTopologyError) as raised:
        sink("place", "counts", **arguments)
    assert raised.value.message == f"{sink.__name__}: {message}; expected a list of names"
    assert raised.value.hint == hint


@pytest.mark.parametrize("sink", TABLE_SINKS)
def test_fields_columns_and_keys_have_to_fit(sink: Any) -> None:
    with pytest.raises(InvalidTopologyError, match=r"Sink: 2 fields for 1 columns"):
        sink("place", "counts", ["word", "count"], columns=["w"])
    with pytest.raises(InvalidTopologyError, match=r"Sink: 0 fields for 0 columns"):
        sink("place", "counts", [])
    with pytest.raises(InvalidTopologyError, match=r"Sink: key columns word are not written"):
        sink("place", "counts", ["word", "count"], columns=["w", "n"], key=["w", "word"])
    sink("place", "counts", ["word", "count"], columns=["w", "n"], key=["w"])


def test_files_have_a_list_of_fields_too() -> None:
    nothing: Any = None
    with pytest.raises(InvalidTopologyError, match=r"TransactionalFileSink: fields is None"):
        TransactionalFileSink("/data", nothing)
    with pytest.raises(InvalidTopologyError, match=r"FileSink: fields is the text 'line'"):
        FileSink("/data", "line", format="text")
    with pytest.raises(InvalidTopologyError, match=r"FileSink: partition_by is None"):
        FileSink("/data", ["day", "sku"], partition_by=nothing)
