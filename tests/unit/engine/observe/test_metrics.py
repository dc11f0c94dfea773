"""Metrics consumers: what they get, what they are spared, and that nothing waits for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest

from squall import Bolt, Spout, TopologyBuilder
from squall.local import LocalCluster
from squall_common.component.metrics.consumers import (
    ConsumerContext,
    DataPoint,
    LoggingMetricsConsumer,
    MetricsConsumer,
    TaskInfo,
)
from squall_common.component.metrics.registered import (
    AssignableMetric,
    CountMetric,
    MeanMetric,
    MultiCountMetric,
)
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError
from squall_common.topology.system import metrics_consumers
from squall_engine.core.codec import CodecError
from squall_engine.observe.metrics import Registration, parse_points, serialize_points

SEEN: list[tuple[str, str, Any]] = []
HERE = __name__


@pytest.fixture(autouse=True)
def _fresh() -> None:
    SEEN.clear()
    Hanging.released.clear()


class Keeping(MetricsConsumer):
    def prepare(self, conf: Any, argument: Any, context: ConsumerContext) -> None:
        SEEN.append(("prepared", conf["topology.name"], argument))

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        SEEN.extend((task_info.src_component_id, p.name, p.value) for p in data_points)

    def cleanup(self) -> None:
        SEEN.append(("cleaned", "up", None))


class Raising(MetricsConsumer):
    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        raise RuntimeError("no graphite today")


class Hanging(MetricsConsumer):
    released: ClassVar[threading.Event] = threading.Event()

    def handle_data_points(self, task_info: TaskInfo, data_points: Sequence[DataPoint]) -> None:
        Hanging.released.wait(60)


class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf: Any, context: Any) -> None:
        self.left = 50

    def next_tuple(self) -> None:
        if self.left:
            self.left -= 1
            self.emit([self.left], message_id=self.left)


class Odd(Bolt):
    outputs: ClassVar[list[str]] = []

    def prepare(self, conf: Any, context: Any) -> None:
        self.odd = context.register_metric("odd", CountMetric(), 0.1)
        with pytest.raises(ValueError, match="already"):
            context.register_metric("odd", CountMetric())
        with pytest.raises(TypeError, match="get_value_and_reset"):
            context.register_metric("other", object())

        self.seen = context.counter("seen")
        self.values = context.histogram("values")
        context.gauge("answer", lambda: 42)
        context.gauge("broken", lambda: 1 / 0)

    def execute(self, tup: Any) -> None:
        self.seen.inc()
        self.values.update(tup["n"])
        if tup["n"] % 2:
            self.odd.incr()


def run(*registrations: dict[str, Any], wait: Any) -> list[str]:
    """A topology with these consumers until `wait()`; the errors that it reported."""
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("odd", Odd()).shuffle("numbers")
    conf = {
        "topology.metrics.consumer.register": list(registrations),
        "topology.builtin.metrics.bucket.size.secs": 0.2,
    }
    with LocalCluster() as local:
        local.submit_topology("metered", conf, builder.build())
        deadline = time.monotonic() + 30
        while not wait() and time.monotonic() < deadline:
            time.sleep(0.01)
        local.kill_topology("metered", 0)
    return [name for name, _, _ in SEEN]


def total(component: str, name: str) -> int:
    """Sum of a metric's values, maps and all."""
    values = [v for c, n, v in list(SEEN) if (c, n) == (component, name)]
    return sum(sum(v.values()) if isinstance(v, dict) else v for v in values)


def test_consumers_get_user_and_built_in_metrics_and_each_count_once() -> None:
    run(
        {"class": f"{HERE}.Keeping", "argument": {"a": 1}, "parallelism.hint": 2},
        wait=lambda: total("odd", "odd") == 25 and total("numbers", "__ack-count") == 50,
    )
    assert SEEN[0] == ("prepared", "metered", {"a": 1})
    assert total("odd", "odd") == 25
    assert total("numbers", "__emit-count") == 50
    assert total("numbers", "__ack-count") == 50
    assert total("odd", "__execute-count") == 50
    assert total("odd", "seen") == total("odd", "values.count") == 50
    assert ("odd", "answer", 42) in SEEN
    assert not [name for _, name, _ in SEEN if name == "broken"]
    assert ("cleaned", "up", None) in SEEN
    latencies = [v for _, name, v in SEEN if name == "__complete-latency" and v]
    assert latencies
    assert set(latencies[0]) == {"default"}
    inputs = [v for c, name, v in SEEN if (c, name) == ("odd", "__execute-latency") and v]
    assert set(inputs[0]) == {"numbers:default"}


def test_a_consumer_that_raises_or_cannot_be_created_does_not_affect_the_others() -> None:
    run(
        {"class": f"{HERE}.Raising"},
        {"class": "nowhere.AtAll"},
        {"class": f"{HERE}.Numbers"},
        {"class": f"{HERE}.Keeping"},
        wait=lambda: total("odd", "__execute-count") == 50,
    )
    assert total("odd", "__execute-count") == 50


def test_a_consumer_that_hangs_delays_nothing() -> None:
    try:
        run(
            {"class": f"{HERE}.Hanging"},
            {"class": f"{HERE}.Keeping"},
            wait=lambda: total("numbers", "__ack-count") == 50,
        )
        assert total("numbers", "__ack-count") == 50
    finally:
        Hanging.released.set()


POINTS = [DataPoint("__emit-count", {"default": 2, "errors": 1}), DataPoint("odd", 3)]


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({}, ["__emit-count", "odd"]),
        ({"whitelist": ["__.*"]}, ["__emit-count"]),
        ({"blacklist": ["__.*"]}, ["odd"]),
        ({"expandMapType": True}, ["__emit-count.default", "__emit-count.errors", "odd"]),
        (
            {"expandMapType": True, "metricNameSeparator": "/", "whitelist": [".*/errors"]},
            ["__emit-count/errors"],
        ),
    ],
)
def test_a_registration_selects_and_expands(options: dict[str, Any], names: list[str]) -> None:
    found = Registration.parse({"class": "a.B", **options}).select(POINTS)
    assert [point.name for point in found] == names


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ({}, "must be MODULE.CLASS"),
        ({"class": "B"}, "must be MODULE.CLASS"),
        ({"class": "a.B", "whitelist": ["("]}, "not a regular expression"),
        ({"class": "a.B", "whitelist": ["a"], "blacklist": ["b"]}, "use only one"),
    ],
)
def test_an_invalid_registration_is_refused(entry: Any, problem: str) -> None:
    with pytest.raises(SquallError, match=problem):
        Registration.parse(entry)


def test_the_name_of_storms_logging_consumer_loads_ours() -> None:
    entry = {"class": "org.apache.storm.metric.LoggingMetricsConsumer"}
    assert isinstance(Registration.parse(entry).make(), LoggingMetricsConsumer)


def test_metrics_start_from_zero_each_interval() -> None:
    count, many, mean, value = CountMetric(), MultiCountMetric(), MeanMetric(), AssignableMetric()
    count.incr()
    count.incr(2)
    many.scope("a").incr()
    mean.update(1)
    mean.update(2)
    value.set("x")
    first = [m.get_value_and_reset() for m in (count, many, mean, value)]
    assert first == [3, {"a": 1}, 1.5, "x"]
    second = [m.get_value_and_reset() for m in (count, many, mean, value)]
    assert second == [0, {"a": 0}, None, "x"]


def test_the_logging_consumer_writes_one_unforgeable_line_for_each_point(tmp_path: Path) -> None:
    consumer = LoggingMetricsConsumer()
    consumer.prepare({}, None, ConsumerContext("t-1-1", "host", 6700, tmp_path))
    info = TaskInfo("host", 6700, "split", 12, 1_700_000_000, 60)
    consumer.handle_data_points(info, [DataPoint("a", {"default": 2}), DataPoint("b", "x\ny")])
    consumer.cleanup()
    lines = (tmp_path / "worker.log.metrics").read_text().splitlines()
    assert [line.split(" ", 1)[1] for line in lines] == [
        "host:6700 12:split a {'default': 2}",
        "host:6700 12:split b x\\ny",
    ]


def test_a_consumer_with_a_hint_is_a_component_whose_tasks_share_the_data_points() -> None:
    entry = {"class": f"{HERE}.Keeping", "parallelism.hint": 2, "argument": "all"}
    run(entry, {"class": f"{HERE}.Keeping", "argument": "each"}, wait=lambda: len(SEEN) > 40)
    prepared = [argument for what, _, argument in SEEN if what == "prepared"]
    assert sorted(prepared) == ["all", "all", "each"]
    # Each of the two entries gets every point once.
    assert total("odd", "odd") == 2 * 25


def test_consumers_components_are_named_after_their_class_and_have_as_many_tasks_as_hinted() -> (
    None
):
    register = [
        {"class": "a.B", "parallelism.hint": 3},
        {"class": "a.B"},
        {"class": "a.B", "parallelism.hint": 1},
        {"class": "a.C", "parallelism.hint": "two"},
    ]
    conf = {"topology.metrics.consumer.register": register}
    options = TopologyOptions.read(normalize_topology_conf(conf, default_conf()))
    assert metrics_consumers(options) == {"__metrics_a.B": 3, "__metrics_a.B#2": 1}
    with pytest.raises(SquallError, match=r"parallelism.hint: expected a whole number"):
        Registration.parse(register[3])


def test_data_points_cross_unchanged_and_what_cannot_travel_is_text() -> None:
    info = TaskInfo("host", 6700, "split", 4, 1_795_000_000, 60.0)
    points = [DataPoint("n", {"default": 3}), DataPoint("odd", Odd)]
    target, found, crossed = parse_points(serialize_points(9, info, points))
    assert (target, found) == (9, info)
    assert crossed == [DataPoint("n", {"default": 3}), DataPoint("odd", repr(Odd))]
    with pytest.raises(CodecError):
        parse_points(b"\x13\xff")


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (2**70, str(2**70)),
        ({"a": [2**70]}, str({"a": [2**70]})),
        ("half \ud800", r"'half \ud800'"),
        (Unprintable(), "<Unprintable: ValueError in its repr>"),
    ],
    ids=["number", "nested", "surrogate", "repr"],
)
def test_a_value_that_cannot_be_packed_takes_no_other_data_point_with_it(
    value: Any, text: str
) -> None:
    info = TaskInfo("host", 6700, "split", 4, 1_795_000_000, 60.0)
    points = [DataPoint("before", 1), DataPoint("odd", value), DataPoint("after", [2.5])]
    crossed = parse_points(serialize_points(9, info, points))[2]
    assert crossed == [DataPoint("before", 1), DataPoint("odd", text), DataPoint("after", [2.5])]
