"""The table of the history. A row is one thing at one time; which columns mean something, and what,
depends on its `kind`:

    kind     name                                 what
    count    emitted transferred acked failed     n: events of a task and stream in the interval
             executed
    latency  complete execute process             n: events; value: their seconds altogether;
                                                  buckets: see `histogram`
    gauge    pending receive                      value: at the end of the interval; n of receive:
                                                  how many calls its task has under way at most, of
                                                  an async bolt and on a thread; 0 of others
    worker   cpu_secs rss_bytes                   value: of the worker process; n of cpu_secs: the
                                                  ms for which it polls busily
                                                  (topology.worker.busy.poll.ms)
    key      CONSUMER by FIELD, FIELD             text: a key; n: samples of it; task: its task
    keys     CONSUMER by FIELD, FIELD             n: all samples; value: the share that is sampled;
                                                  error: see `heavy`
    metric   as registered                        value, or text (JSON) when it is not a number
    error                                         text: traceback; n: errors that it stands for
    event    submitted, worker exited ...         text: more about it; stream: HOST:PORT of a worker
    lost     queue full, not written              n: rows that were dropped

`stream` of a bolt's inputs is COMPONENT:STREAM. Times are of the clock of the machine that wrote.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from squall_common.errors import SquallError

if TYPE_CHECKING:
    import pyarrow

VERSION = "1"
_VERSION_KEY = b"squall.history.version"
SUFFIX = ".parquet"
TEXT_CHARS_MAX = 4_000


class Row(NamedTuple):
    """One row, without what its writer knows (worker and incarnation)."""

    at_ms: int  # since the epoch
    kind: str
    name: str = ""
    component: str = ""
    task: int = 0
    executor: int = 0  # its first task
    stream: str = ""
    secs: float = 0.0  # the length of the interval that ended at `at_ms`
    n: int = 0
    value: float = 0.0
    error: int = 0
    text: str = ""
    buckets: Mapping[int, int] | None = None

    def size(self) -> int:
        """About how many bytes it takes while it waits."""
        return 256 + len(self.text) + 64 * len(self.buckets or ())


class OtherVersionError(SquallError):
    """A history file that another version of Squall wrote, or that Squall did not write."""


def arrow_schema() -> pyarrow.Schema:
    import pyarrow as pa

    text = pa.dictionary(pa.int32(), pa.string())
    return pa.schema(
        [
            ("at_ms", pa.int64()),
            ("kind", text),
            ("name", text),
            ("component", text),
            ("task", pa.int32()),
            ("executor", pa.int32()),
            ("stream", text),
            ("secs", pa.float64()),
            ("n", pa.int64()),
            ("value", pa.float64()),
            ("error", pa.int64()),
            ("text", pa.string()),
            ("buckets", pa.map_(pa.int32(), pa.int64())),
            ("worker", text),
            ("incarnation", text),
        ],
        metadata={_VERSION_KEY: VERSION.encode()},
    )


def to_parquet(rows: Iterable[Row], *, worker: str, incarnation: str) -> bytes:
    """One file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = arrow_schema()
    listed = list(rows)
    columns: list[Any] = list(zip(*listed, strict=True)) if listed else [()] * len(Row._fields)
    at = Row._fields.index("buckets")
    columns[at] = [None if one is None else list(one.items()) for one in columns[at]]
    for name in ("text", "name", "component", "stream"):
        index = Row._fields.index(name)
        columns[index] = [_utf8(text) for text in columns[index]]
    columns += [[worker] * len(listed), [incarnation] * len(listed)]
    arrays = [
        pa.array(list(column), type=field.type)
        for column, field in zip(columns, schema, strict=True)
    ]
    out = io.BytesIO()
    codec = "zstd" if pa.Codec.is_available("zstd") else "none"
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), out, compression=codec)
    return out.getvalue()


def _utf8(text: str) -> str:
    """Keys and messages are a topology's: half a surrogate pair must not cost a whole file."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def from_parquet(data: bytes, where: str) -> pyarrow.Table:
    """The table of a file, its dictionaries as plain text. Raises OtherVersionError, and
    pyarrow.ArrowException for a file that is not a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(io.BytesIO(data))
    version = (file.schema_arrow.metadata or {}).get(_VERSION_KEY)
    if version is None:
        raise OtherVersionError(f"{where} is not a file of a topology's history")
    if version != VERSION.encode():
        raise OtherVersionError(
            f"{where} was written by another version of squall (history format "
            f"{version.decode(errors='replace')}; this one reads {VERSION})"
        )
    table = file.read(use_threads=False)
    plain = [
        pa.field(f.name, pa.string() if pa.types.is_dictionary(f.type) else f.type)
        for f in arrow_schema()
    ]
    return table.cast(pa.schema(plain))
