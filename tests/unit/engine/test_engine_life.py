"""The states of an engine: which events lead where, and what is never true."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.engine_cluster import EngineCluster
from tests.support.validated_engine import COMPILED, contradictions_of

from squall import Bolt, Spout, TopologyBuilder
from squall_common.daemon.output.story import ContradictionError, IllegalEventError
from squall_common.errors import SquallError
from squall_engine.engine_life import TABLE, EngineEvent, EngineLife, EngineState
from squall_engine.loading import ComponentStartError

E, S = EngineEvent, EngineState


def after(*events):
    life = EngineLife()
    for at, event in enumerate(events):
        life.happened(event, float(at))
    return life


STARTED = (E.START_REQUESTED, E.TASKS_OPENED)
STOPPED = (E.STOP_REQUESTED, E.DRAIN_ENDED, E.COMPONENTS_CLOSED)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ((), S.NEW),
        (STARTED, S.RUNNING),
        ((*STARTED, E.STOP_REQUESTED), S.DRAINING),
        ((*STARTED, *STOPPED), S.STOPPED),
        (STOPPED, S.STOPPED),
        ((*STARTED, E.DIED), S.DEAD),
        ((*STARTED, E.STOP_REQUESTED, E.DIED, E.DRAIN_ENDED), S.CLOSING),
        ((E.START_REQUESTED, E.START_FAILED), S.CLOSING),
        ((*STARTED, E.DIED, *STOPPED, E.DIED), S.STOPPED),
    ],
)
def test_the_engine_life_follows_the_table(events, state):
    life = after(*events)
    assert life.state is state
    assert life.turns is (state in (S.RUNNING, S.DRAINING))


def test_a_second_start_is_refused_with_the_events_that_led_there():
    life = after(*STARTED)
    with pytest.raises(IllegalEventError, match=r"(?s)RUNNING.*STARTING --TASKS_OPENED--> RUNNING"):
        life.happened(E.START_REQUESTED, 2.0)
    assert life.state is S.RUNNING


@given(st.lists(st.sampled_from(EngineEvent)))
def test_components_are_closed_once_whatever_events_coincide(events):
    """Whoever brings the engine into CLOSING closes them, and nothing leads out but STOPPED."""
    life, closed = EngineLife(), 0
    for event in events:
        before = life.state
        if (before, event) in TABLE and life.happened(event, 0.0):
            closed += life.state is S.CLOSING
            assert before is not S.STOPPED
            assert before is not S.CLOSING or life.state is S.STOPPED
    assert closed <= 1


@pytest.mark.parametrize(
    "events",
    [
        (),
        STARTED[:1],
        STARTED,
        (*STARTED, E.DIED),
        (E.START_REQUESTED, E.START_FAILED),
        (*STARTED, *STOPPED),
    ],
)
def test_from_every_state_a_stop_leads_to_the_end(events):
    life = after(*events, E.STOP_REQUESTED, E.DRAIN_ENDED)
    if life.state is S.CLOSING:
        life.happened(E.COMPONENTS_CLOSED, 9.0)
    assert life.state is S.STOPPED


class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.next = 0

    def next_tuple(self):
        if self.next < 5:
            self.emit([self.next], message_id=self.next)
            self.next += 1


class Seen(Bolt):
    def execute(self, tup):
        pass


class Broken(Bolt):
    def prepare(self, conf, context):
        raise OSError("no such file")

    def execute(self, tup):
        pass


def cluster_of(bolt):
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("end", bolt).shuffle("numbers")
    return EngineCluster(builder.build(), 1)


def test_an_engine_goes_through_its_states():
    cluster = cluster_of(Seen())
    (engine,) = cluster.engines
    assert engine.state is S.NEW
    with cluster:
        assert engine.state is S.RUNNING
        cluster.run_for(1)
        assert COMPILED or engine.validations > 10
    assert engine.state is S.STOPPED


def test_a_start_that_fails_closes_the_components_and_a_stop_adds_nothing():
    cluster = cluster_of(Broken())
    (engine,) = cluster.engines
    with pytest.raises(ComponentStartError, match="no such file"):
        cluster.run(engine.start())
    assert engine.state is S.STOPPED
    cluster.run(engine.stop(0))
    cluster.loop.close()
    assert not contradictions_of(engine)


def test_a_stop_during_the_start_ends_the_start():
    class Stops(Seen):
        async def prepare(self, conf, context):
            await cluster.engines[0].stop(0)

    cluster = cluster_of(Seen())
    (engine,) = cluster.engines
    stops = Stops()
    engine.callbacks = replace(
        engine.callbacks,
        make_object=lambda component, task: stops if component.id == "end" else Numbers(),
    )
    with pytest.raises(SquallError, match="stopped while it started"):
        cluster.run(engine.start())
    assert engine.state is S.STOPPED
    cluster.loop.close()


def test_an_engine_without_a_scheduled_turn_is_a_contradiction():
    with cluster_of(Seen()) as cluster:
        (engine,) = cluster.engines
        cluster.run_for(1)
        timer, engine._timer = engine._timer, None
        scheduled, engine._scheduled = engine._scheduled, False
        with pytest.raises(ContradictionError, match="no turn is scheduled"):
            engine.validate()
        engine._timer, engine._scheduled = timer, scheduled
