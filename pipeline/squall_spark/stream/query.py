"""The query of a stream, and one micro-batch of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from squall_common.errors import SquallError
from squall_spark.batch import Frames, compute, write, write_to_kafka
from squall_spark.current import write as current
from squall_spark.data.bad_records import FAIL, OnBadRecord
from squall_spark.data.bindings import Format
from squall_spark.lock import Held
from squall_spark.plan import SparkPlan
from squall_spark.stream.checkpoint import Checkpoint
from squall_spark.stream.inputs import BatchInput, Limits, StreamInput, StreamReader
from squall_spark.tasks.code import Code
from squall_spark.view.progress import Step, silent

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_WAIT_SECS = 1


@dataclass(frozen=True, slots=True)
class BatchDone:
    """A micro-batch that has ended."""

    number: int
    input: BatchInput
    tuples: Mapping[str, int]  # the number written, by stream
    secs: float
    lag_secs: float | None  # the age of its oldest row
    state_keys: int | None  # after it; None without stateful bolts
    state_bytes: int = 0


def check_stream(plan: SparkPlan, limits: Limits) -> None:
    """Raises SquallError for what a stream cannot do. Needs no Spark."""
    for sink in plan.sinks:
        if sink.format in (Format.TABLE, Format.SPARK) and not sink.key:
            raise SquallError(
                f"{sink.where}: with --streaming, use files, kafka: or delta: instead of "
                f"{sink.format.value}:",
                hint="a batch that runs again replaces its own folder, which a table does not "
                "have; a table of a database can be updated by key: --key",
            )
    limits.check(source for stage in plan.stages for source in stage.sources)


def run_stream(
    spark: SparkSession,
    plan: SparkPlan,
    code: Code | None,
    *,
    checkpoint: str,
    trigger_secs: float = 1.0,
    available_now: bool = False,
    limits: Limits | None = None,
    on_bad: OnBadRecord | None = None,
    on_batch_done: Callable[[BatchDone], None] | None = None,
    on_large_file: Callable[[str, int], None] | None = None,
    step: Step = silent,
    held: Held | None = None,
) -> None:
    """Run a plan until it is interrupted, or (with `available_now`) until the data available now is
    processed. The caller holds the checkpoint: `held`. Raises SquallError."""
    limits, on_bad = limits or Limits(), on_bad or FAIL
    check_stream(plan, limits)
    kept = Checkpoint(checkpoint, plan)
    kept.check()
    stream = StreamInput(StreamReader(spark, kept, limits, on_bad, step), plan)

    held = held or Held()

    def one_batch(frame: DataFrame, number: int) -> None:
        held.check()
        for path, size in stream.large_files(number, limits):
            if on_large_file is not None:
                on_large_file(path, size)
        done = _run_batch(plan, code, stream, frame, number, kept, on_bad, held)
        if on_batch_done is not None:
            on_batch_done(done)

    writer = stream.frame.writeStream.foreachBatch(one_batch)
    writer = writer.option("checkpointLocation", f"{checkpoint}/spark").queryName(plan.name)
    if available_now:
        writer = writer.trigger(availableNow=True)
    else:
        writer = writer.trigger(processingTime=f"{round(trigger_secs * 1000)} milliseconds")
    with current.held(plan.sinks):
        query = writer.start()
        try:
            # In short waits, because signals are handled between two of them.
            while not query.awaitTermination(_WAIT_SECS):
                pass
        finally:
            query.stop()


def _run_batch(
    plan: SparkPlan,
    code: Code | None,
    stream: StreamInput,
    frame: DataFrame,
    number: int,
    kept: Checkpoint,
    on_bad: OnBadRecord,
    held: Held,
) -> BatchDone:
    start = time.monotonic()
    now_secs = int(time.time())
    states = kept.begin(number, now_secs)
    frame = frame.persist()  # read once for each spout and pass
    bad = on_bad.in_batch(number)
    frames = Frames(
        frame.sparkSession,
        plan,
        code,
        states,
        now_secs=now_secs,
        data=stream.split(frame),
        on_bad=bad,
    )
    written = {}
    try:
        read = stream.measure(frame)
        broken = stream.keep_broken_files(number, bad)
        if broken:
            read = replace(read, bad=read.bad + broken)
        frames.build()
        for sink in plan.sinks:
            look = frames.look(sink)
            types = current.widen(sink, kept.widen(sink, look.types))
            known = replace(look, types=types)
            held.check()  # what follows replaces what another driver may have written
            if sink.format is Format.KAFKA:
                typed = frames.typed(sink, known)
                if write_to_kafka(typed, sink, kept.identity(), number) is None:
                    compute(typed)  # for the state of this run's tasks
            elif current.merges(sink):
                typed = frames.typed(sink, known)
                writer = f"{kept.identity()}/{sink.stream}"
                if not current.merge(
                    typed, sink, types, writer=writer, batch=number, files=look.files
                ):
                    compute(typed)
            else:
                path = f"{sink.path.rstrip('/')}/batch={number}"
                write(frames.typed(sink, known), sink, mode="overwrite", path=path)
            written[sink.name] = frames.counts.total("written", sink.name)
        for component in frames.unread():
            compute(frames.of[component])
    finally:
        frames.release()
        frame.unpersist()
    held.check()
    keys, size = kept.end(number) if states else (None, 0)
    lag_secs = None if read.oldest_secs is None else max(0.0, time.time() - read.oldest_secs)
    return BatchDone(number, read, written, time.monotonic() - start, lag_secs, keys, size)


def describe_batch(done: BatchDone) -> str:
    """One line for a micro-batch."""
    rows = done.input.rows
    line = f"batch {done.number}: {rows} rows in {done.secs:.1f} s ({rows / done.secs:.0f} rows/s)"
    if done.lag_secs is not None:
        line += f", lag {done.lag_secs:.1f} s"
    if done.input.bad:
        line += f", {done.input.bad} bad records left out"
    if done.tuples:
        line += ", wrote " + ", ".join(f"{stream} {n}" for stream, n in done.tuples.items())
    if done.state_keys is not None:
        line += f", state {done.state_keys} keys, {_size(done.state_bytes)}"
    return line


def _size(count: int) -> str:
    amount, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"


def say_large_file(path: str, size: int) -> None:
    """Print that a batch takes longer than it should, on stderr."""
    print(
        f"note: {path} has {_size(size)}, more than a micro-batch should read: a file is never "
        "divided between two. Write smaller files, or allow it: --max-bytes",
        file=sys.stderr,
        flush=True,
    )


def say_batch(done: BatchDone) -> None:
    """Print one line per micro-batch, on stderr."""
    print(describe_batch(done), file=sys.stderr, flush=True)
