"""Traces of tuple trees over two workers, with OpenTelemetry's own exporter in memory."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster, Network

import squall.tracing
from squall import Bolt, Spout, TopologyBuilder
from squall_engine.core.codec import CodecError
from squall_engine.tracing import contexts

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
UNSAMPLED = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


class InOrder(Network):
    """Carries sections in the order in which they are sent, as links do."""

    def carry(self, slot, peer, sections):
        for data in sections:
            asyncio.get_running_loop().call_soon(self.ends[peer].arrive, slot, data)


class Started(SpanProcessor):
    """Counts spans, ended or not."""

    count = 0

    def on_start(self, span, parent_context=None):
        self.count += 1


class Traced:
    """A topology that runs until its messages are through, and its spans."""

    def __init__(self, builder, messages, *, rate=1.0, conf=None, fails=0):
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        started = Started()
        provider.add_span_processor(started)
        conf = {
            "topology.acker.executors": 2,
            "topology.tracing.sample.rate": rate,
            **(conf or {}),
        }
        # Every component on another worker than the one before it.
        topology = builder.build()
        order = {id: i for i, id in enumerate(topology.components) if not id.startswith("__")}
        with EngineCluster(
            topology,
            2,
            conf,
            place=lambda executor, component: order.get(component, 0) % 2,
            network=InOrder(),
            settings={"tracer_provider": provider},
        ) as cluster:

            def through():
                counts = [s.counts for e in cluster.engines for s in e._flow.spouts]
                acked = sum(sum(one.acked.values()) for one in counts)
                failed = sum(sum(one.failed.values()) for one in counts)
                return acked + failed >= messages

            cluster.run_until(through, 60)
            self.left = [len(engine.tracing.contexts) for engine in cluster.engines]
            self.failed = len(c.LOG.get("failed", ()))
            self.errors = cluster.errors
        self.spans = self.exporter.get_finished_spans()
        self.started = started.count
        self.by_id = {span.context.span_id: span for span in self.spans}

    def parents(self):
        """How often a span of one component is the parent of a span of another."""
        return Counter((self.parent_name(span), span.name) for span in self.spans)

    def parent_name(self, span):
        if span.parent is None:
            return None
        parent = self.by_id.get(span.parent.span_id)
        return "?" if parent is None else parent.name


def test_a_word_count_over_two_workers_is_one_trace_a_message_with_a_span_an_execution():
    builder = TopologyBuilder()
    builder.spout("lines", c.Lines(["a b c", "d e"]))
    builder.bolt("split", c.Split()).shuffle("lines")
    builder.bolt("count", c.Count(), parallelism=2).fields("split", "word")
    traced = Traced(builder, 2)
    assert traced.parents() == {(None, "lines"): 2, ("lines", "split"): 2, ("split", "count"): 5}
    assert len({span.context.trace_id for span in traced.spans}) == 2
    counted = Counter(span.context.trace_id for span in traced.spans if span.name == "count")
    assert sorted(counted.values()) == [2, 3]
    split = next(span for span in traced.spans if span.name == "split")
    assert split.attributes["squall.source.component"] == "lines"
    assert split.attributes["squall.stream"] == "default"
    assert traced.left == [0, 0]


class Double(Bolt):
    outputs = ("number",)

    async def execute(self, tup):
        await asyncio.sleep(0.001)
        self.emit([tup[0]])


class Columns(Bolt):
    outputs = ("number",)

    def execute_columns(self, columns):
        self.emit_columns([columns[0]])


class AsyncBatches(Bolt):
    outputs = ("number",)

    async def execute_batch(self, tuples):
        await asyncio.sleep(0)
        for tup in tuples:
            self.emit([tup[0]], anchors=tup)


class ByHand(Bolt):
    """Names its anchors, and acks later than it executes."""

    outputs = ("number",)
    auto_ack = False

    def prepare(self, conf, context):
        self.kept = []

    def execute(self, tup):
        self.kept.append(tup)
        if len(self.kept) == 2:
            for one in self.kept:
                self.emit([one[0]], anchors=[one])
                self.ack(one)
            self.kept.clear()


@pytest.mark.parametrize(
    "bolt",
    [Double(), c.Batches(), AsyncBatches(), c.BlockingDouble(), ByHand()],
    ids=lambda bolt: type(bolt).__name__,
)
def test_each_way_to_execute_tuples_keeps_the_parents(bolt):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(6))
    builder.bolt("middle", bolt).shuffle("numbers")
    builder.bolt("end", c.Collect()).shuffle("middle")
    traced = Traced(builder, 6)
    assert traced.errors == []
    parents = traced.parents()
    assert parents[None, "numbers"] == 6
    assert parents["middle", "end"] == 6
    # A batch has one span, with links to the other messages of it.
    middle = [span for span in traced.spans if span.name == "middle"]
    assert sum(1 + len(span.links) for span in middle) == 6
    assert parents["?", "end"] == 0


def test_columns_are_one_span_and_only_rows_of_traced_messages_go_on():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(300))
    builder.bolt("columns", Columns()).shuffle("numbers")
    builder.bolt("end", c.Collect()).shuffle("columns")
    traced = Traced(builder, 300, rate=0.1)
    begun = sum(span.name == "numbers" for span in traced.spans)
    assert 5 < begun < 80
    assert traced.parents()["columns", "end"] == begun


class SomeMessages(Spout):
    outputs = ("number",)

    def open(self, conf, context):
        self.done = False

    def next_tuple(self):
        if not self.done:
            self.done = True
            self.emit_columns([[1, 2, 3]], message_ids=["a", None, "b"])


def test_a_row_without_a_message_id_is_not_traced():
    builder = TopologyBuilder()
    builder.spout("numbers", SomeMessages())
    builder.bolt("end", c.Collect()).shuffle("numbers")
    traced = Traced(builder, 2)
    begun = [span for span in traced.spans if span.name == "numbers"]
    assert sorted(span.attributes["squall.message_id"] for span in begun) == ["a", "b"]
    assert len(traced.spans) == traced.started, "no span waits for an outcome"


def test_only_the_sampled_share_of_messages_is_traced():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(1000))
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    traced = Traced(builder, 1000, rate=0.05)
    begun = sum(span.name == "numbers" for span in traced.spans)
    assert 20 < begun < 100
    assert traced.parents()["numbers", "pass"] == begun
    assert len(traced.spans) == 2 * begun


def test_a_message_that_fails_shows_the_error_in_its_spans():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(3))
    builder.bolt("fail", c.FailOn([1])).shuffle("numbers")
    traced = Traced(builder, 3, conf={"topology.message.timeout.secs": 5})
    spans = {name: [s for s in traced.spans if s.name == name] for name in ("numbers", "fail")}
    assert [s.status.is_ok for s in spans["numbers"]].count(False) == 1
    (failed,) = [s for s in spans["fail"] if not s.status.is_ok]
    assert failed.events[0].name == "exception"


class Inbound(Spout):
    outputs = ("number",)

    def open(self, conf, context):
        self.headers = [{"TraceParent": TRACEPARENT}, {"traceparent": UNSAMPLED.encode()}, {}]
        self.next = 0

    def next_tuple(self):
        if self.next < 3:
            with squall.tracing.incoming(self.headers[self.next]):
                self.emit([self.next], message_id=self.next)
            self.next += 1


class Sink(Bolt):
    def execute(self, tup):
        with trace.get_tracer("test").start_as_current_span("inner"):
            trace.get_current_span().set_attribute("ignored", 1)
        trace.get_current_span().set_attribute("number", tup[0])
        c.log("outgoing", (tup[0], squall.tracing.outgoing()))


def test_a_spout_continues_an_incoming_trace_and_a_sink_hands_it_on():
    builder = TopologyBuilder()
    builder.spout("inbound", Inbound())
    builder.bolt("sink", Sink()).shuffle("inbound")
    traced = Traced(builder, 3, rate=0.0)
    assert {span.name for span in traced.spans} == {"inbound", "sink"}
    sink = next(span for span in traced.spans if span.name == "sink")
    assert sink.attributes["number"] == 0
    assert f"{sink.context.trace_id:032x}" in TRACEPARENT
    outgoing = dict(c.LOG["outgoing"])
    assert outgoing[0] == {
        "traceparent": f"00-{sink.context.trace_id:032x}-{sink.context.span_id:016x}-01"
    }
    assert outgoing[2] == {}


def test_without_a_provider_nothing_of_a_topology_is_wrapped():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(2))
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    with EngineCluster(builder.build(), 2) as cluster:
        for engine in cluster.engines:
            assert engine.tracing is None
            for one in engine.built:
                assert "execute" not in vars(one.task.user)
                assert type(one.task.user.emit.__self__).__module__.startswith("squall_engine.core")


def test_contexts_are_bounded_and_their_section_goes_both_ways():
    context = trace.SpanContext(
        int("0af7651916cd43dd8448eb211c80319c", 16),
        int("b7ad6b7169203331", 16),
        is_remote=False,
        trace_flags=trace.TraceFlags(1),
        trace_state=trace.TraceState([("vendor", "x")]),
    )
    ((edge, found),) = contexts.parse(contexts.serialize([(7, context)]))
    assert edge == 7
    assert (found.trace_id, found.span_id) == (context.trace_id, context.span_id)
    assert found.trace_flags.sampled
    assert found.trace_state.to_header() == "vendor=x"
    with pytest.raises(CodecError):
        contexts.parse(b"\x12\xffnot msgpack")
    kept = contexts.Contexts()
    kept.put(range(contexts.CONTEXTS_MAX + 5), context)
    assert len(kept) == contexts.CONTEXTS_MAX
    assert 4 not in kept
    assert 5 in kept
