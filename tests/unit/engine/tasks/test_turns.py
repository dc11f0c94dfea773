"""Short turns and whole ones: what a turn may leave out, and what must not be left out with it."""

import asyncio
import threading

import pytest
from tests.support import engine_components as c
from tests.support.engine_cluster import EngineCluster
from tests.support.validated_engine import replaces_methods

from squall import Bolt, LocalCluster, Spout, TopologyBuilder
from squall_engine.embed import EngineCallbacks
from squall_engine.engine_life import TurnReason


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


class Idle(Spout):
    """Emits when it is told to, not when it is asked."""

    outputs = ["n"]
    asked = 0

    def next_tuple(self):
        self.asked += 1


def idle_topology():
    builder = TopologyBuilder()
    builder.spout("numbers", Idle())
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    return builder.build()


def whole_turns(engine):
    """Counts the whole turns of an engine, from now on: each settles the trees."""
    turns = []
    trees = engine._coordinator._trees

    class Counting:
        def __getattr__(self, name):
            return getattr(trees, name)

        def __len__(self):
            return len(trees)

        def settle(self):
            turns.append(1)
            return trees.settle()

    engine._coordinator._trees = Counting()
    return turns


def user_of(engine, component):
    (user,) = [one.task.user for one in engine.built if one.task.component == component]
    return user


def test_turns_of_an_idle_worker_end_after_the_spouts():
    with EngineCluster(idle_topology(), 1) as cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]
        spout, turns = user_of(engine, "numbers"), whole_turns(engine)
        asked = spout.asked
        cluster.run_for(10)
        assert 150 < spout.asked - asked < 250  # every 50 ms
        assert len(turns) <= 20  # one a second, and another after it


class Sometimes(Spout):
    """Emits a tuple without a message id at each hundredth call."""

    outputs = ["n"]
    asked = 0

    def next_tuple(self):
        self.asked += 1
        if self.asked % 100 == 0:
            self.emit([self.asked])


@replaces_methods
def test_no_turn_follows_for_a_spout_that_rests():
    builder = TopologyBuilder()
    builder.spout("numbers", Sometimes())
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    with EngineCluster(builder.build(), 1) as cluster:
        cluster.run_for(1)
        engine = cluster.engines[0]
        spout = user_of(engine, "numbers")
        turns, emitting, take = [], [], engine._turn

        def counted():
            before = spout.asked // 100
            turns.append(take())
            if spout.asked // 100 > before:
                emitting.append(turns[-1])
            return turns[-1]

        engine._turn = counted
        cluster.run_for(20)
        assert len(emitting) > 5
        assert not any(emitting), "it was asked again in the same turn, and had nothing"


class Queued(Spout):
    """Emits what others have put there."""

    outputs = ["n"]

    def open(self, conf, context):
        self.queue = []

    def next_tuple(self):
        if self.queue:
            brought_at = self.queue.pop()
            self.emit([brought_at], message_id=1)
            c.log("waited", self.now() - brought_at)


class QueuedAsync(Queued):
    async def next_tuple(self):
        Queued.next_tuple(self)


@replaces_methods
@pytest.mark.parametrize("kind", [Queued, QueuedAsync])
def test_a_wake_just_as_a_spout_goes_idle_is_not_lost(kind):
    """The spout has found nothing; before its wait is noted, another thread brings something and
    wakes it."""
    builder = TopologyBuilder()
    builder.spout("numbers", kind())
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    with EngineCluster(builder.build(), 1) as cluster:
        cluster.run_for(30)
        (spout,) = cluster.engines[0]._flow.spouts
        idle_wait = spout._idle_wait

        spout.user.now = cluster.clock.monotonic

        def bring():
            spout.user.queue.append(cluster.clock.monotonic())
            spout.user.context.wake()

        def woken_meanwhile():
            spout._idle_wait = idle_wait
            secs = idle_wait()
            thread = threading.Thread(target=bring)
            thread.start()
            thread.join()
            return secs

        spout._idle_wait = woken_meanwhile
        cluster.run_until(lambda: "waited" in c.LOG)
        assert c.LOG["waited"] == [0]


@replaces_methods
def test_a_spout_that_may_not_emit_is_not_polled_a_thousand_times_a_second():
    """Its wait was over, and each timer set another one for now."""
    place = {"numbers": 0, "pass": 1, "__acker": 0}
    cluster = EngineCluster(idle_topology(), 2, place=lambda _, component: place[component])
    with cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]
        engine.set_routes({})  # nobody knows where its bolt is
        cluster.run_for(1)
        turns, turn = [], engine._turn
        engine._turn = lambda: turns.append(1) or turn()
        asked = user_of(engine, "numbers").asked
        cluster.run_for(10)
        assert 150 < len(turns) < 250  # every 50 ms: what it emits unasked leaves then
        assert user_of(engine, "numbers").asked == asked
        engine.set_routes(cluster.routes)
        cluster.run_for(1)
        assert user_of(engine, "numbers").asked > asked


def test_emits_outside_next_tuple_leave_at_the_next_idle_poll():
    with EngineCluster(idle_topology(), 1) as cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]
        spout = user_of(engine, "numbers")

        async def emit():
            spout.emit([7], message_id=7)

        cluster.run(emit())
        cluster.run_for(0.06)
        assert engine._flow.spouts[0].counts.acked["default"] == 1


def test_a_thread_that_wakes_the_worker_gets_a_whole_turn_even_if_a_short_one_is_due():
    with EngineCluster(idle_topology(), 1) as cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]

        async def wake():
            engine._why &= ~int(TurnReason.ACTIVITY)
            engine._call_turn()
            assert engine._scheduled
            turns = whole_turns(engine)
            thread = threading.Thread(target=engine.wake)
            thread.start()
            thread.join()
            for _ in range(5):
                await asyncio.sleep(0)
            assert turns

        cluster.run(wake())


def test_a_pending_timer_is_kept_when_the_next_turn_is_due_later():
    with EngineCluster(idle_topology(), 1) as cluster:
        cluster.run_for(30)
        engine = cluster.engines[0]

        async def turn():
            timer = engine._timer
            engine._schedule()
            for _ in range(5):
                await asyncio.sleep(0)
            assert engine._timer is timer
            engine._wake_spouts()  # due sooner: idle for a millisecond only
            for _ in range(5):
                await asyncio.sleep(0)
            assert engine._timer is not timer
            assert engine._timer_at < engine.now() + 0.01

        cluster.run(turn())


class Batches(Bolt):
    """Logs how many of each source came at once."""

    def execute_batch(self, tuples):
        c.log(tuples[0].source_component, len(tuples))


@replaces_methods
@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize(
    ("own", "sinks", "most"),
    [({}, 1, 512), ({}, 600, 1_202), ({"topology.spout.batch": 3}, 400, 3)],
)
def test_a_turn_calls_next_tuple_up_to_the_limit(own, sinks, most, workers):
    """512 times; or once for each of the 601 edges, to this worker and another, and then twice as
    often, because the bolts are quick (but not while another worker has granted little); or as its
    own configuration says."""
    if workers == 2:
        most = min(most, 601)
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(2_000), conf=own)
    builder.bolt("many", c.Pass(), parallelism=sinks).shuffle("numbers")
    builder.bolt("batches", Batches()).all("numbers")
    conf = {"topology.acker.executors": 0, "topology.run.turn.ms": 1_000}
    with EngineCluster(builder.build(), workers, conf) as cluster:
        (spout,) = [spout for engine in cluster.engines for spout in engine._flow.spouts]
        runs = []
        run = spout.run

        def counted(deadline):
            before = spout.calls.emitted()
            worked = run(deadline)
            runs.append(spout.calls.emitted() - before)
            return worked

        spout.run = counted
        cluster.run_until(lambda: sum(c.LOG.get("numbers", ())) == 2_000)
        assert max(runs) == most
        first = 2_000 - sum(runs)  # a turn before we counted
        assert first == (601 if sinks == 600 else most)
        assert max(c.LOG["numbers"]) <= most


class Bursts(c.Numbers):
    """Never waits, so nothing else runs until it has been asked as often as a turn allows."""

    async def next_tuple(self):
        c.Numbers.next_tuple(self)


def test_a_coroutine_that_does_not_wait_emits_no_more_when_turns_grow():
    """The bolts' time is looked at for that, and not the time between two turns."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(20_000))
    builder.spout("bursts", Bursts(20_000))
    builder.bolt("many", c.Pass(), parallelism=600).shuffle("numbers")
    builder.bolt("batches", Batches()).all("numbers").all("bursts")
    conf = {"topology.acker.executors": 0, "topology.run.turn.ms": 1_000}
    with EngineCluster(builder.build(), 1, conf) as cluster:
        cluster.run_until(lambda: sum(c.LOG.get("bursts", ())) == 20_000)
        assert max(c.LOG["numbers"]) > 602
        assert max(c.LOG["bursts"]) == 602


class Blocking(Bolt):
    blocking = True
    outputs = ["n"]

    def execute(self, tup):
        self.emit(tup.values)


def test_a_task_that_many_threads_feed_counts_once_for_the_size_of_a_turn():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(0))
    builder.bolt("threads", Blocking(), parallelism=30).shuffle("numbers")
    builder.bolt("many", c.Pass(), parallelism=30).shuffle("threads")  # by 900 edges
    with EngineCluster(builder.build(), 1) as cluster:
        assert cluster.engines[0]._flow.spouts[0].calls_max == 512


def test_a_spout_with_a_small_batch_of_its_own_does_not_make_the_turns_of_others_grow():
    builder = TopologyBuilder()
    builder.spout("small", c.Numbers(1_000), conf={"topology.spout.batch": 3})
    builder.spout("idle", Idle())
    builder.bolt("many", c.Pass(), parallelism=600).shuffle("small").shuffle("idle")
    with EngineCluster(builder.build(), 1, {"topology.acker.executors": 0}) as cluster:
        cluster.run_until(lambda: user_of(cluster.engines[0], "small").next == 1_000)
        cluster.run_for(1)
        assert sorted(spout.calls_max for spout in cluster.engines[0]._flow.spouts) == [3, 1_200]


class Counting(Spout):
    """Emits up to `limit`, and calls what `at` has for a number."""

    outputs = ["n"]

    def open(self, conf, context):
        self.emitted, self.limit = 0, 3
        self.at = {}

    def next_tuple(self):
        if self.emitted < self.limit:
            self.emitted += 1
            self.emit([self.emitted], message_id=self.emitted)
            self.at.pop(self.emitted, lambda: None)()


class Executions(Bolt):
    outputs = []

    def prepare(self, conf, context):
        self.seen = []

    def execute(self, tup):
        self.seen.append(tup["n"])


def test_a_worker_that_may_not_take_turns_executes_nothing():
    """It may lose that right within a turn, too: what spouts have emitted waits for the bolts."""
    builder = TopologyBuilder()
    builder.spout("numbers", Counting())
    builder.bolt("seen", Executions()).shuffle("numbers")
    allowed = [True]
    callbacks = EngineCallbacks(may_turn=lambda: bool(allowed))
    with EngineCluster(builder.build(), 1, callbacks=callbacks) as cluster:
        engine = cluster.engines[0]
        spout, bolt = user_of(engine, "numbers"), user_of(engine, "seen")
        cluster.run_for(1)
        assert bolt.seen == [1, 2, 3]
        spout.at[4] = allowed.clear
        spout.limit = 9
        cluster.run_for(1)
        emitted = spout.emitted
        assert emitted >= 4
        cluster.run_for(10)
        assert (bolt.seen, spout.emitted) == ([1, 2, 3], emitted)
        allowed.append(True)
        engine.resume()
        cluster.run_for(1)
        assert bolt.seen == list(range(1, 10))


BATCHES = []


class InBatches(Spout):
    """Emits ten numbers at a time, and hears of them together."""

    outputs = ["n"]

    def __init__(self, fails=False):
        self.fails = fails

    def open(self, conf, context):
        self.next = 0

    def next_tuple(self):
        if self.next < 50:
            ids = list(range(self.next, self.next + 10))
            self.next += 10
            self.emit_columns([ids], message_ids=ids)

    def ack(self, msg_id):
        raise AssertionError("ack_batch is called instead")

    def ack_batch(self, msg_ids):
        BATCHES.append(list(msg_ids))
        if self.fails:
            raise ValueError("no")


class InBatchesOnThread(InBatches):
    blocking = True


@pytest.mark.parametrize("kind", [InBatches, InBatchesOnThread])
@pytest.mark.parametrize("fails", [False, True])
def test_a_spout_with_ack_batch_is_notified_of_several_messages_at_once(kind, fails):
    BATCHES.clear()
    builder = TopologyBuilder()
    builder.spout("numbers", kind(fails))
    builder.bolt("pass", c.Pass()).shuffle("numbers")
    with LocalCluster() as local:
        local.submit_topology("batches", {}, builder.build())
        local.wait_until(lambda: sum(map(len, BATCHES)) >= 50)
    # Each message once, also when the call raised.
    assert sorted(one for batch in BATCHES for one in batch) == list(range(50))
    assert len(BATCHES) <= 10
