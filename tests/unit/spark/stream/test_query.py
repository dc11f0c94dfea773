"""The line of a micro-batch, and what a stream refuses."""

from __future__ import annotations

import pytest
from tests.support import spark_topologies as st
from tests.support.spark_plans import plan_for

from squall import SquallError, TopologyBuilder
from squall_spark.stream.inputs import BatchInput, Limits
from squall_spark.stream.query import BatchDone, check_stream, describe_batch


def test_the_line_of_a_batch_has_rows_rate_lag_and_state() -> None:
    done = BatchDone(7, BatchInput(1000, 2, 0.0), {"count": 30}, 4.0, 12.34, 437_000, 13_000_000)
    assert describe_batch(done) == (
        "batch 7: 1000 rows in 4.0 s (250 rows/s), lag 12.3 s, 2 bad records left out, "
        "wrote count 30, state 437000 keys, 12.4 MiB"
    )
    done = BatchDone(0, BatchInput(0, 0, None), {}, 0.5, None, None)
    assert describe_batch(done) == "batch 0: 0 rows in 0.5 s (0 rows/s)"


@pytest.mark.parametrize(
    ("where", "limits", "message"),
    [
        ("json:/in", Limits(max_rows=5), "--max-rows limits Kafka records"),
        ("kafka:h:1/t", Limits(max_files=5), "--max-files limits files"),
        ("kafka:h:1/t", Limits(max_bytes=5), "--max-bytes limits files"),
        ("json:/in", Limits(max_files=1, max_bytes=5), "exclude each other"),
    ],
)
def test_a_limit_that_no_input_has_is_refused(where: str, limits: Limits, message: str) -> None:
    builder = TopologyBuilder()
    builder.spout("sentences", st.Endless())
    builder.bolt("split", st.Split()).shuffle("sentences")
    plan = plan_for(builder, [f"sentences={where}"], ["/out"], streaming=True)
    with pytest.raises(SquallError, match=message):
        check_stream(plan, limits)
    check_stream(plan, Limits())
