"""What a task has executed, and how long it took."""

from __future__ import annotations

from squall_common.history.histogram import BUCKET_MAX, bucket_of


class TimedRuns:
    """What a task has executed of one input, or what became of the messages of one stream of a
    spout: sums, and how many tuples each bucket of `history.histogram` has."""

    __slots__ = (
        "execute_buckets", "execute_secs", "executed", "process_buckets", "process_events",
        "process_secs",
    )  # fmt: skip

    def __init__(self) -> None:
        self.executed = 0
        self.execute_secs = 0.0
        self.execute_buckets = [0] * (BUCKET_MAX + 1)
        # Process latency of a bolt, complete latency of a spout.
        self.process_events = 0
        self.process_secs = 0.0
        self.process_buckets = [0] * (BUCKET_MAX + 1)

    def add_executed(self, n: int, secs: float, processed: int) -> None:
        """`n` tuples, at least one, were executed in `secs`, and `processed` of them acked by the
        end of it. Each counts with the mean."""
        self.executed += n
        self.execute_secs += secs
        self.execute_buckets[bucket_of(secs / n)] += n
        if processed:
            self.add_processed(processed, secs)

    def add_processed(self, n: int, secs: float) -> None:
        """`n` tuples, at least one, took `secs` altogether from their arrival to their ack."""
        self.process_events += n
        self.process_secs += secs
        self.process_buckets[bucket_of(secs / n)] += n
