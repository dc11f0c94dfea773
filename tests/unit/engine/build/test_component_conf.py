"""What stands in a component's own configuration has its effect on that component alone; a spout
that raises is treated as a bolt that raises."""

from __future__ import annotations

import time

import pytest
from tests.support import engine_components as c

from squall import Bolt, Spout, TopologyBuilder
from squall.testing import TopologyTest
from squall_common.errors import ConfigError, InvalidTopologyError

DIES = {"topology.bolt.die.on.error": True}


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


class AngryAsync(Spout):
    outputs = ("number",)

    async def next_tuple(self):
        raise ValueError("no source")


class Angry(Spout):
    outputs = ("number",)

    def next_tuple(self):
        raise ValueError("no source")


class AngryThread(Angry):
    blocking = True


class AngryAck(c.Numbers):
    def ack(self, msg_id):
        raise ValueError("no source")


def topology(spout, bolt=None, *, spout_conf=None, bolt_conf=None):
    builder = TopologyBuilder()
    builder.spout("numbers", spout, conf=spout_conf)
    builder.bolt("bolt", bolt or c.Pass(), conf=bolt_conf).shuffle("numbers")
    builder.bolt("other", c.FailOn([2])).shuffle("numbers")
    return builder.build()


@pytest.mark.parametrize("spout", [Angry(), AngryAsync(), AngryThread(), AngryAck(1)])
def test_a_spout_that_raises_ends_its_worker_with_die_on_error(spout):
    with TopologyTest(topology(spout, spout_conf=DIES)) as test:
        deadline = time.monotonic() + 10
        while test.died is None and time.monotonic() < deadline:
            test.run_for(0.1)
            time.sleep(0.001)  # a thread's time is real
        assert str(test.died) == "no source"


def test_a_spout_that_raises_is_asked_again_without_die_on_error():
    with TopologyTest(topology(Angry())) as test:
        test.run_for(5)
        assert test.died is None
        assert len(test.errors) > 2


def test_die_on_error_is_of_one_component():
    with TopologyTest(topology(c.Numbers(5), bolt_conf=DIES)) as test:
        test.run_for(1)
        assert test.died is None  # it was the other bolt that raised
    with TopologyTest(topology(c.Numbers(5), c.FailOn([2]), bolt_conf=DIES)) as test:
        test.run_for(1)
        assert str(test.died) == "no 2"


def test_debug_is_of_one_component(caplog):
    caplog.set_level("INFO", "squall_worker.debug")
    with TopologyTest(topology(c.Numbers(2), spout_conf={"topology.debug": True})) as test:
        test.run_for(1)
    logged = [r.getMessage() for r in caplog.records if "tuple_emitted" in r.getMessage()]
    assert len(logged) == 2
    assert all("component=numbers" in line for line in logged)


@pytest.mark.parametrize(
    "key",
    ["topology.message.timeout.secs", "topology.workers", "nimbus.thrift.port"],
)
def test_an_option_that_only_a_topology_can_have_is_refused(key):
    refused = f"bolt 'bolt': its conf has {key}, which counts for a whole topology only"
    with pytest.raises(InvalidTopologyError, match=refused):
        topology(c.Numbers(1), bolt_conf={key: 7})


class NothingAsync(Spout):
    outputs = ("number",)

    async def next_tuple(self):
        c.log("asked", None)


@pytest.mark.parametrize("spout", [c.NothingToEmit(), NothingAsync()])
def test_the_pause_of_a_spout_without_input_is_at_least_its_own(spout):
    pause = {"topology.sleep.spout.wait.strategy.time.ms": 500}
    with TopologyTest(topology(spout, spout_conf=pause)) as test:
        test.run_for(10)
        assert 18 <= len(c.LOG["asked"]) <= 22


class Money:
    def __init__(self, cents):
        self.cents = cents


class MoneyCodec:
    def encode(self, value):
        return value.cents

    def decode(self, plain):
        return Money(plain)


class OtherCodec(MoneyCodec):
    pass


class Prices(c.Numbers):
    def next_tuple(self):
        if self.next < self.count:
            self.emit([Money(self.next)], message_id=self.next)
            self.next += 1


class Sum(Bolt):
    def execute(self, tup):
        c.log("cents", tup["number"].cents)


MONEY = f"{__name__}:Money"


def registering(codec):
    return {"topology.kryo.register": [{MONEY: f"{__name__}:{codec}"}]}


def prices(bolt_conf, other_conf=None):
    builder = TopologyBuilder()
    builder.spout("prices", Prices(3))
    builder.bolt("sum", Sum(), conf=bolt_conf).shuffle("prices")
    builder.bolt("other", Sum(), conf=other_conf).shuffle("prices")
    return builder.build()


def test_a_bolts_serializer_applies_to_the_whole_topology():
    """The spout, which knows nothing of it, encodes what the bolt decodes."""
    with TopologyTest(prices(registering("MoneyCodec"))) as test:
        test.run_until_idle()
        assert test.errors == []
        assert sorted(c.LOG["cents"]) == [0, 0, 1, 1, 2, 2]


def test_serializers_that_contradict_each_other_are_refused():
    both = prices(registering("MoneyCodec"), registering("OtherCodec"))
    with pytest.raises(ConfigError, match=r"component 'sum' registers .*Money.*component 'other'"):
        TopologyTest(both).__enter__()
    with TopologyTest(both, registering("OtherCodec")) as test:  # the topology's own decides
        test.run_until_idle()
        assert test.errors == []


class Unsendable(Bolt):
    outputs = ("number",)

    def execute(self, tup):
        self.emit([object() if tup["number"] == 1 else 0])


def failed_of(test, component):
    return sum(
        sum(stats.specific.failed[":all-time"].values())
        for executor, stats in test._engine.stats().items()
        if test._engine.plan.task_to_component[executor.task_start] == component
    )


def test_a_tuple_that_cannot_be_serialized_counts_as_failed_and_its_tree_fails_at_once():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(3))
    builder.bolt("bolt", Unsendable()).shuffle("numbers")
    builder.bolt("sink", c.Collect()).shuffle("bolt")
    with TopologyTest(builder.build()) as test:
        test.run_for(1)  # the message timeout is 30 s
        assert test.failed("numbers") == [1]
        assert failed_of(test, "bolt") == 1
        assert failed_of(test, "numbers") == 1


class Counting(c.Numbers):
    def next_tuple(self):
        super().next_tuple()
        c.log("pending", self.pending_count)

    def ack(self, msg_id):
        c.log("left", self.pending_count)


def test_a_spout_sees_how_many_of_its_messages_are_in_flight():
    builder = TopologyBuilder()
    builder.spout("numbers", Counting(3))
    builder.bolt("bolt", c.Forgetful()).shuffle("numbers")
    with TopologyTest(builder.build(), {"topology.message.timeout.secs": 10}) as test:
        test.run_for(1)
        assert c.LOG["pending"][:3] == [1, 2, 3]
        test.run_for(15)
        assert c.LOG["pending"][-1] == 0
