"""The test kit: runs a bolt or a whole topology in this process, on a clock that the test controls.

    with BoltTest(Split(), {"sentences": ["sentence"]}) as test:
        done = test.execute(["the cow jumped"])
        assert [e.values for e in done.emitted] == [["the"], ["cow"], ["jumped"]]
        assert done.acked

    with TopologyTest(builder, {"topology.message.timeout.secs": 30}, seed=7) as test:
        test.run_for(31)
        assert test.failed("sentences") == [4]

The test kit runs the same engine as a worker, and every emitted tuple goes through the codec
(`topology.testing.always.try.serialize`). Only the clock, the event loop's clock and the random
numbers belong to the test. Waiting takes no real time: when there is nothing left to do at the
current moment, the clock jumps to the next timer. With the same core, the same seed gives the same
`trace`, byte for byte. (Components with `blocking = True` run on real threads, in real time: they
work here, but their runs are not repeatable.)

`squall.testing.connectors` is the contract that sources and sinks pass, in real time, against the
real system that they connect to.
"""

from squall.testing.replayable import ReplayableSpout
from squall.testing.topologies import BoltTest, Emitted, Execution, FeederSpout, TopologyTest

__all__ = [
    "BoltTest",
    "Emitted",
    "Execution",
    "FeederSpout",
    "ReplayableSpout",
    "TopologyTest",
]
