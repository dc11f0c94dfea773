"""What a notebook and a prompt show: drawings, and reprs that help."""

from __future__ import annotations

import sys

import pytest

from squall import Bolt, LocalCluster, Spout, SquallError, TopologyBuilder


class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf: object, context: object) -> None:
        self.left = [1, 2, 3]

    def next_tuple(self) -> None:
        if self.left:
            self.emit([self.left.pop()], message_id=len(self.left))


class Add(Bolt):
    def execute(self, tup: object) -> None:
        pass


@pytest.fixture
def builder() -> TopologyBuilder:
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("add", Add(), parallelism=2).shuffle("numbers")
    return builder


def test_a_topology_is_drawn(builder: TopologyBuilder) -> None:
    assert builder.build()._repr_html_().startswith("<svg")
    assert builder._repr_html_() == builder.build()._repr_html_()


def test_a_builder_that_cannot_build_says_why() -> None:
    builder = TopologyBuilder()
    builder.bolt("add", Add()).shuffle("<numbers>")
    shown = builder._repr_html_()
    assert "&lt;numbers&gt;" in shown
    assert "<numbers>" not in shown


def test_a_running_topology_is_drawn_with_its_counts(builder: TopologyBuilder) -> None:
    with LocalCluster() as cluster:
        assert "No topologies" in cluster._repr_html_()
        cluster.submit_topology("sums", {}, builder.build())
        cluster.wait_drained("sums")
        shown = cluster._repr_html_()
    assert "3 emitted, 3 acked" in shown


def test_reprs_say_what_it_is(builder: TopologyBuilder) -> None:
    assert repr(builder) == "TopologyBuilder(numbers, add)"
    assert repr(builder.build()) == "Topology(numbers; add <- numbers (shuffle))"
    assert repr(builder.spout("more", Numbers(), 3)) == "<spout 'more': Numbers ×3>"
    error = SquallError("it broke", hint="mend it")
    assert repr(error) == "SquallError('it broke', hint='mend it')"


def test_without_ipython_a_live_drawing_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "IPython.display", None)
    with LocalCluster() as cluster, pytest.raises(SquallError, match="notebook") as raised:
        cluster.show(secs=0.1)
    assert "to_svg" in str(raised.value.hint)
