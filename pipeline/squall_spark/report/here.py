"""The sums of a history that fits this machine: by pyarrow in this process, without Spark. The
queries are those of `gather`, which Spark runs for larger histories."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError
from squall_spark.report.choose import Chosen
from squall_spark.report.files import rows_of, table_of
from squall_spark.report.fold import (
    AHEAD_SECS,
    EVENTS_MAX,
    OF_A_KIND_MAX,
    OTHER_VERSION,
    TROUBLES_MAX,
    UNREADABLE,
    check_span,
    fold_counted,
    fold_events,
    fold_keys,
    fold_latencies,
    fold_spans,
    fold_tasks,
    fold_workers,
)
from squall_spark.report.sums import Sums, step_ms
from squall_spark.view.progress import Step, silent

if TYPE_CHECKING:
    pass

BYTES_MAX = 256 * 1024 * 1024  # of files; about ten times that in memory
_TICKS = "__system:"
_COUNTS = ("emitted", "executed", "acked", "failed")
Table = Any  # pyarrow.Table


def gather_here(
    chosen: Chosen,
    since: float | None,
    *,
    now: float | None = None,
    step: Step = silent,
    bytes_max: int = BYTES_MAX,
) -> Sums:
    """Everything that the report needs. Raises HistoryNotFoundError when no rows are left, and
    SquallError for a history that is too large, and when all files were written by another
    version."""
    import pyarrow.compute as pc

    now_ms = int((time.time() if now is None else now) * 1000)
    with step("reading the history"):
        everything = _read(chosen, bytes_max)
        span = _span(everything, since, now_ms)
    check_span(span, chosen, since)
    interval_ms = int(1000 * (span["interval"] or 0))
    sums = Sums(
        span["from_ms"],
        span["to_ms"],
        step_ms(span["to_ms"] - span["from_ms"], interval_ms),
        interval_ms=interval_ms,
        ahead=span["ahead"],
        unreadable=[row["text"] for row in span["trouble"]],
    )
    with step("summing up"):
        rows = everything.filter(_wanted(everything, since, now_ms))
        at = rows["at_ms"]
        whole = pc.multiply(pc.divide(at, sums.step_ms), sums.step_ms)
        rows = rows.append_column("t", whole)
        _tasks(rows, sums)
        _latencies(rows, sums)
        _workers(rows, sums)
        _keys(rows, sums)
        _events_and_counted(rows, sums)
    return sums


def _read(chosen: Chosen, bytes_max: int) -> Table:
    import pyarrow as pa

    tables, size = [], 0
    for name in chosen.names:
        try:
            data = chosen.folder.read(name)
        except Exception:
            tables.append(rows_of(chosen.folder, name))  # it says why
            continue
        size += len(data)
        if size > bytes_max:
            raise SquallError(
                f"the history of {chosen.topology_id} is larger than {bytes_max >> 20} MiB",
                hint="use Spark for it: storm spark report; or shorten it: --since 1d",
            )
        tables.append(table_of(data, name))
    return pa.concat_tables(tables).combine_chunks()


def _wanted(table: Table, since: float | None, now_ms: int) -> Any:
    import pyarrow.compute as pc

    at = table["at_ms"]
    wanted = pc.and_(pc.greater(at, 0), pc.less_equal(at, now_ms + int(AHEAD_SECS * 1000)))
    return wanted if since is None else pc.and_(wanted, pc.greater_equal(at, int(since * 1000)))


def _span(everything: Table, since: float | None, now_ms: int) -> dict[str, Any]:
    import pyarrow.compute as pc

    rows = everything.filter(_wanted(everything, since, now_ms))
    gauges = _of_kind(rows, "gauge")
    interval = pc.quantile(gauges["secs"], 0.5, interpolation="lower")[0].as_py()
    from_ms = pc.min(_began(rows)).as_py()
    if since is not None and from_ms is not None:
        from_ms = max(from_ms, int(since * 1000))
    trouble = _of_kind(everything, UNREADABLE, OTHER_VERSION).select(["kind", "text"])
    return {
        "from_ms": from_ms,
        "to_ms": pc.max(rows["at_ms"]).as_py(),
        "interval": interval,
        "ahead": pc.sum(pc.greater(everything["at_ms"], now_ms + int(AHEAD_SECS * 1000))).as_py()
        or 0,
        "trouble": trouble.sort_by("text").slice(0, TROUBLES_MAX).to_pylist(),
    }


def _began(rows: Table) -> Any:
    import pyarrow as pa
    import pyarrow.compute as pc

    secs = pc.cast(pc.multiply(rows["secs"], 1000), pa.int64(), safe=False)
    return pc.subtract(rows["at_ms"], secs)


def _of_kind(rows: Table, *kinds: str) -> Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    return rows.filter(pc.is_in(rows["kind"], pa.array(kinds)))


def _is(rows: Table, column: str, value: str) -> Any:
    import pyarrow.compute as pc

    return pc.equal(rows[column], value)


def _not_ticks(rows: Table) -> Any:
    import pyarrow.compute as pc

    return pc.invert(pc.starts_with(rows["stream"], _TICKS))


def _if(mask: Any, values: Any, otherwise: Any = 0) -> Any:
    import pyarrow.compute as pc

    return pc.if_else(mask, values, otherwise)


def _grouped(
    table: Table, keys: Sequence[str], /, **aggregates: tuple[str, str]
) -> Iterator[dict[str, Any]]:
    """Groups as mappings; `aggregates` are new name -> (column, function)."""
    if not table.num_rows:
        return iter(())
    made = table.group_by(list(keys), use_threads=False).aggregate(list(aggregates.values()))
    named = {f"{column}_{function}": name for name, (column, function) in aggregates.items()}
    made = made.rename_columns([named.get(name, name) for name in made.column_names])
    return iter(made.to_pylist())


def _tasks(rows: Table, sums: Sums) -> None:
    import pyarrow.compute as pc

    of_tasks = _of_kind(rows, "count", "latency", "gauge").sort_by("at_ms")
    count, gauge = _is(of_tasks, "kind", "count"), _is(of_tasks, "kind", "gauge")
    busy = pc.and_(_is(of_tasks, "kind", "latency"), _is(of_tasks, "name", "execute"))
    spout = pc.or_(_is(of_tasks, "name", "pending"), _is(of_tasks, "name", "complete"))
    nothing = _null_int()
    table = of_tasks.select(["component", "task", "t"])
    for name in _COUNTS:
        counted = pc.and_(count, _is(of_tasks, "name", name))
        if name != "emitted":  # ticks of a bolt do not come from its sources
            counted = pc.and_(counted, _not_ticks(of_tasks))
        table = table.append_column(name, _if(counted, of_tasks["n"]))
    table = table.append_column("busy_secs", _if(busy, of_tasks["value"], 0.0))
    table = table.append_column("secs", _if(gauge, of_tasks["secs"], 0.0))
    table = table.append_column("waiting", _if(gauge, of_tasks["value"], 0.0))
    table = table.append_column("calls_max", _if(gauge, of_tasks["n"], 0))
    table = table.append_column("spout", _if(spout, 1, 0))
    table = table.append_column("last_ms", _if(gauge, of_tasks["at_ms"], nothing))
    executor = pc.cast(of_tasks["executor"], "int64")
    table = table.append_column("executor", _if(gauge, executor, nothing))
    found = _grouped(
        table,
        ("component", "task", "t"),
        **{name: (name, "sum") for name in (*_COUNTS, "busy_secs", "secs")},
        waiting=("waiting", "max"),
        calls_max=("calls_max", "max"),
        spout=("spout", "max"),
        last_ms=("last_ms", "max"),
        executor=("executor", "last"),
    )
    fold_tasks(found, sums)


def _null_int() -> Any:
    import pyarrow as pa

    return pa.scalar(None, pa.int64())


def _latencies(rows: Table, sums: Sums) -> None:
    import pyarrow as pa

    timed = _of_kind(rows, "latency")
    timed = timed.filter(_not_ticks(timed)).combine_chunks()
    for batch in timed.to_batches():
        buckets = batch.column("buckets")
        counts = [end - start for start, end in pairwise(buckets.offsets.to_pylist())]
        parents = pa.array([row for row, n in enumerate(counts) for _ in range(n)], pa.int64())
        first = buckets.offsets[0].as_py()
        exploded = batch.select(["component", "name", "t"]).take(parents)
        table = pa.Table.from_batches([exploded])
        table = table.append_column("bucket", buckets.keys.slice(first, len(parents)))
        table = table.append_column("events", buckets.items.slice(first, len(parents)))
        keys = ("component", "name", "t", "bucket")
        for row in _grouped(table, keys, events=("events", "sum")):
            fold_latencies([row], sums)


def _workers(rows: Table, sums: Sums) -> None:
    of = _of_kind(rows, "worker")
    cpu = _is(of, "name", "cpu_secs")
    table = of.select(["worker", "t"])
    table = table.append_column("cpu_secs", _if(cpu, of["value"], 0.0))
    table = table.append_column("secs", _if(cpu, of["secs"], 0.0))
    table = table.append_column("rss_bytes", _if(cpu, 0.0, of["value"]))
    table = table.append_column("poll_ms", of["n"])
    found = _grouped(
        table,
        ("worker", "t"),
        cpu_secs=("cpu_secs", "sum"),
        secs=("secs", "sum"),
        rss_bytes=("rss_bytes", "max"),
        poll_ms=("poll_ms", "max"),
    )
    fold_workers(found, sums)
    gauges = _of_kind(rows, "gauge")
    gauges = gauges.append_column("began", _began(gauges))
    spans = _grouped(
        gauges,
        ("worker", "incarnation"),
        from_ms=("began", "min"),
        to_ms=("at_ms", "max"),
        components=("component", "distinct"),
    )
    fold_spans(spans, sums)


def _keys(rows: Table, sums: Sums) -> None:
    keys = _of_kind(rows, "key", "keys").sort_by("at_ms")
    place = ("kind", "component", "stream", "name")
    found = _grouped(
        keys,
        (*place, "text"),
        samples=("n", "sum"),
        error=("error", "sum"),
        rate=("value", "last"),
        task=("task", "last"),
    )
    ranked = sorted(found, key=lambda row: (-row["samples"], row["text"]))
    fold_keys(ranked, _unreported(keys), sums)


def _unreported(keys: Table) -> dict[tuple[str, str, str], int]:
    """How many samples of one key the workers of each grouping may have left out: they report only
    the heaviest keys of an interval, so any other key has at most as many as the lightest."""
    one = _is(keys, "kind", "key")
    table = keys.select(["component", "stream", "name", "worker", "incarnation", "at_ms"])
    table = table.append_column("reported", _if(one, keys["n"]))
    table = table.append_column("samples", _if(one, 0, keys["n"]))
    table = table.append_column("lightest", _if(one, keys["n"], _null_int()))
    found: dict[tuple[str, str, str], int] = {}
    for row in _grouped(
        table,
        ("component", "stream", "name", "worker", "incarnation", "at_ms"),
        reported=("reported", "sum"),
        samples=("samples", "sum"),
        lightest=("lightest", "min"),
    ):
        if row["reported"] < row["samples"] and row["lightest"] is not None:
            at = (row["component"], row["stream"], row["name"])
            found[at] = found.get(at, 0) + row["lightest"]
    return found


def _events_and_counted(rows: Table, sums: Sums) -> None:
    import pyarrow as pa

    events = _of_kind(rows, "event").sort_by([("at_ms", "descending")]).slice(0, EVENTS_MAX)
    fold_events(events.select(["at_ms", "name", "text", "stream", "worker"]).to_pylist(), sums)
    of = _of_kind(rows, "error", "metric", "lost")
    # The last line of an error's traceback says what happened.
    messages = [
        text.rstrip(" ").rsplit("\n", 1)[-1] if kind == "error" else ""
        for kind, text in zip(of["kind"].to_pylist(), of["text"].to_pylist(), strict=True)
    ]
    table = of.append_column("message", pa.array(messages, pa.string()))
    found = _grouped(
        table,
        ("kind", "component", "name", "message"),
        n=("n", "sum"),
        rows=("task", "count"),
        total=("value", "sum"),
        first=("at_ms", "min"),
        last=("at_ms", "max"),
    )
    ranked = sorted(
        found, key=lambda row: (-row["n"], row["component"], row["name"], row["message"])
    )
    left = dict.fromkeys(("error", "metric", "lost"), OF_A_KIND_MAX)
    kept = []
    for row in ranked:
        left[row["kind"]] -= 1
        if left[row["kind"]] >= 0:
            kept.append(row)
    fold_counted(kept, sums)
