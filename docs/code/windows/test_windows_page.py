import pytest
from averages import Average, build
from mean import Mean
from squall.testing import BoltTest, TopologyTest
from squall.windows import sliding, tumbling

INPUTS = {"readings": ["sensor", "celsius"]}


def test_the_average_of_a_minute():
    with BoltTest(Average(), INPUTS, windows=tumbling(secs=60, key="sensor")) as test:
        first = test.execute(["roof", 20.0])
        test.execute(["roof", 22.0])
        assert test.run_for(59) == []
        (average,) = test.run_for(2)
        assert average.values[:2] == ["roof", 21.0]
        assert first.acked


def test_a_late_reading_goes_to_its_own_stream():
    with TopologyTest(build()) as test:
        test.feed("readings", ["roof", 20.0, 1_000], message_id=1)
        test.feed("readings", ["roof", 30.0, 90_000], message_id=2)
        test.run_for(1.5)  # the watermark is advanced each second, to 90 s - 5 s
        assert test.emitted("average", "default")[0].values == ["roof", 20.0, 10_000]
        test.feed("readings", ["roof", 99.0, 2_000], message_id=3)
        test.run_for(0.1)
        (late,) = test.emitted("average", "late")
        assert late.values[0]["values"] == {"sensor": "roof", "celsius": 99.0, "at": 2_000}
        assert 3 in test.acked("readings")


@pytest.mark.parametrize("bolt", [Average, Mean])
def test_an_aggregate_gives_the_same_as_all_tuples(bolt):
    windows = sliding(count=4, every_count=2, key="sensor")
    with BoltTest(bolt(), INPUTS, windows=windows) as test:
        done = [test.execute(["roof", float(n)]) for n in range(6)]
    assert [e.values[1] for one in done for e in one.emitted] == [0.5, 1.5, 3.5]
