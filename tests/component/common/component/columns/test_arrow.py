"""Bolts on Arrow arrays, on a cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
pc = pytest.importorskip("pyarrow.compute")

from tests.support import spark_topologies as st  # noqa: E402

from squall import ArrowBolt, Bolt, LocalCluster, Stream, TopologyBuilder  # noqa: E402


class Doubles(ArrowBolt):
    outputs = Stream({"value": int})

    def execute_arrow(self, batch: Any) -> None:
        even = pc.equal(pc.bit_wise_and(batch["number"], 1), 0)
        rows = pa.array(range(batch.num_rows)).filter(even)
        self.emit_arrow([pc.multiply(batch["number"].filter(even), 2)], origins=rows)


class Mixed(Bolt):
    outputs = ["number"]

    def execute(self, tup: Any) -> None:
        self.emit([tup[0] if tup[0] % 2 else str(tup[0])])


def test_an_arrow_bolt_gets_arrays_and_emits_tuples() -> None:
    st.RECORDED.clear()
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(20))
    builder.bolt("double", Doubles()).shuffle("numbers")
    builder.bolt("records", st.Records()).shuffle("double")
    with LocalCluster() as cluster:
        cluster.submit_topology("doubles", {}, builder.build())
        cluster.wait_until(lambda: len(st.RECORDED) == 10, 30)
    expected = Counter((2 * n,) for n in range(0, 20, 2))
    assert Counter(values for _, values in st.RECORDED) == expected


def test_values_of_mixed_types_are_an_error_that_names_the_field() -> None:
    builder = TopologyBuilder()
    builder.spout("numbers", st.Numbers(20))
    builder.bolt("mixed", Mixed()).shuffle("numbers")
    builder.bolt("double", Doubles()).shuffle("mixed")
    with LocalCluster() as cluster:
        cluster.submit_topology("mixed", {}, builder.build())
        cluster.wait_until(lambda: bool(cluster.errors("mixed")), 30)
        error = cluster.errors("mixed")[0].error
    assert "field 'number' of 'mixed' does not become an Arrow array" in str(error)
