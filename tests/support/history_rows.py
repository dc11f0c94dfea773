"""A history whose rows are known."""

from __future__ import annotations

from collections.abc import Sequence

from squall_common.daemon.folders import Folder
from squall_common.history.histogram import bucket_of
from squall_common.history.schema import Row, to_parquet
from squall_common.history.writer import file_name
from squall_common.names import encode_znode

NOW = 1_800_000_000.0
BEGIN_MS = int(NOW * 1000) - 600_000
ID = "we{ird}*name-3-1700000000"


def rows() -> list[Row]:
    """Sixty intervals of ten seconds: a spout, and a bolt of two tasks on one executor, which moves
    to an executor each half way; one task has nine tenths of the work."""
    found: list[Row] = []
    for i in range(1, 61):
        at = BEGIN_MS + 10_000 * i
        found += [
            Row(at, "gauge", "pending", "src", 1, 1, secs=10, value=i),
            Row(at, "count", "emitted", "src", 1, 1, "default", 10, 1000),
            Row(at, "count", "failed", "src", 1, 1, "default", 10, 10),
            Row(at, "latency", "complete", "src", 1, 1, "default", 10, 990, 99.0,
                buckets={bucket_of(0.1): 980, bucket_of(5.0): 10}),
            Row(at, "worker", "cpu_secs", secs=10, n=10 if i > 30 else 0, value=5.0),
            Row(at, "worker", "rss_bytes", secs=10, value=float(i)),
            Row(at, "keys", "work by k", "src", stream="default", secs=10, n=100, value=0.1),
            Row(at, "key", "work by k", "src", 2, stream="default", secs=10, n=90, text="hot"),
            Row(at, "key", "work by k", "src", 3, stream="default", secs=10, n=10, text="cold"),
            Row(at, "metric", "odd", "work", 2, secs=10, value=2.0),
        ]  # fmt: skip
        for task, n in ((2, 900), (3, 100)):
            executor = 2 if i <= 30 else task
            found += [
                Row(at, "gauge", "receive", "work", task, executor, secs=10, value=3),
                Row(at, "count", "executed", "work", task, executor, "src:default", 10, n),
                Row(at, "count", "executed", "work", task, executor, "__system:__tick", 10, 1),
                Row(at, "count", "acked", "work", task, executor, "src:default", 10, n - 1),
                Row(at, "count", "acked", "work", task, executor, "__system:__tick", 10, 1),
                Row(at, "count", "failed", "work", task, executor, "src:default", 10, 1),
                Row(at, "latency", "execute", "work", task, executor, "src:default", 10, n,
                    n * 0.004, buckets={bucket_of(0.004): n}),
            ]  # fmt: skip
    at = BEGIN_MS + 300_000
    found += [
        Row(at, "event", "worker exited", stream="h:1", text="killed by SIGKILL"),
        Row(at + 4_000, "event", "worker running", stream="h:1"),
        Row(at, "error", component="work", task=2, n=5, text="Traceback\n  x\nValueError: a"),
        Row(at + 1, "error", component="work", task=2, n=2, text="Traceback\n  y\nValueError: a"),
        Row(at, "lost", "queue full", n=4),
    ]
    return found


def put(folder: str, written: Sequence[Row], *, name: str = ID, at: float = NOW) -> None:
    """Several files, as several writers make them."""
    place = Folder(folder) / encode_znode(name)
    for number in range(3):
        data = to_parquet(written[number::3], worker="h:1", incarnation="1.1")
        place.write(file_name(int(at * 1000) + number, "h:1-1.1", number), data)


def rows_with_keys_left_out() -> list[Row]:
    """Two workers report two keys of three: "c" has 29 samples, of which 10 are reported."""
    written: list[Row] = []
    for at, keys in ((1_000, {"a": 20, "b": 19, "c": 19}), (11_000, {"a": 9, "b": 8, "c": 10})):
        top = sorted(keys.items(), key=lambda item: -item[1])[:2]
        where = {"component": "src", "stream": "default", "secs": 10.0}
        written += [
            Row(BEGIN_MS + at, "gauge", "pending", "src", 1, 1, secs=10),
            Row(BEGIN_MS + at, "keys", "work by k", n=sum(keys.values()), value=0.1, **where),
            *(Row(BEGIN_MS + at, "key", "work by k", n=n, text=key, **where) for key, n in top),
        ]
    return written


def rows_with_a_task_away() -> list[Row]:
    """Two tasks do 100 tuples a second each; from half time on one is away."""
    return [
        row
        for i in range(1, 61)
        for task in ((2, 3) if i <= 30 else (2,))
        for row in (
            Row(BEGIN_MS + 10_000 * i, "gauge", "receive", "work", task, task, secs=10),
            Row(BEGIN_MS + 10_000 * i, "count", "executed", "work", task, task, "s", 10, 1000),
        )
    ]
