from squall import Bolt, TopologyBuilder
from squall.testing import BoltTest, FeederSpout, TopologyTest
from window import Window


def test_the_window_closes_after_five_seconds():
    with BoltTest(Window(), {"numbers": ["n"]}) as test:
        first = test.execute([1])
        test.execute([2])
        assert not first.acked  # `acked` and `failed` follow what happens later
        assert [e.values for e in test.run_for(6)] == [[3]]
        assert first.acked


class Numbers(FeederSpout):
    """A spout that emits what the test feeds."""

    outputs = ["n"]


def test_a_message_that_is_not_acked_in_time_fails():
    class Forgets(Bolt):  # components may be defined in the test
        auto_ack = False

        def execute(self, tup):
            pass

    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("forgets", Forgets()).shuffle("numbers")
    with TopologyTest(builder, {"topology.message.timeout.secs": 30}) as test:
        test.feed("numbers", [1], message_id="first")
        test.run_for(61)  # takes milliseconds
        assert test.failed("numbers") == ["first"]


def test_an_error_fails_the_message_and_is_kept():
    class Divide(Bolt):
        def execute(self, tup):
            1 / tup["n"]

    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("divide", Divide()).shuffle("numbers")
    with TopologyTest(builder) as test:
        test.feed("numbers", [0], message_id=1)
        test.run_until_idle()
        assert [str(e.error) for e in test.errors] == ["division by zero"]
        assert test.failed("numbers") == [1]


def test_the_same_seed_gives_the_same_run():
    def trace(seed):
        builder = TopologyBuilder()
        builder.spout("numbers", Numbers())
        builder.bolt("window", Window(), parallelism=3).shuffle("numbers")
        with TopologyTest(builder, seed=seed) as test:
            for number in range(50):
                test.feed("numbers", [number], message_id=number)
            test.run_for(10)
            return test.trace

    assert trace(1) == trace(1)
