"""Whole topologies on the engine, on a virtual clock: what a user would see."""

import asyncio
from collections import Counter

import pytest
from tests.support import engine_components as c
from tests.support.validated_engine import replaces_methods

from squall import Spout, SquallError, TopologyBuilder
from squall.testing import TopologyTest


@pytest.fixture(autouse=True)
def _fresh_log():
    c.LOG.clear()


LINES = ["the cow jumped over the moon", "the end", "", "cow cow cow"]


def word_count(tasks: int = 3):
    builder = TopologyBuilder()
    builder.spout("lines", c.Lines(LINES))
    builder.bolt("split", c.Split(), parallelism=2).shuffle("lines")
    builder.bolt("count", c.Count(), parallelism=tasks).fields("split", "word")
    return builder.build()


def numbers_to(bolt, count=10, *, conf=None, spout=None, tasks=1):
    """spout -> bolt -> collect (when the bolt has a default output)."""
    builder = TopologyBuilder()
    builder.spout("numbers", spout or c.Numbers(count))
    builder.bolt("bolt", bolt, parallelism=tasks, conf=conf).shuffle("numbers")
    if bolt.outputs:
        builder.bolt("collect", c.Collect()).shuffle("bolt")
    return builder.build()


def collected(key="collected"):
    return [values for _, _, values in c.LOG.get(key, [])]


@pytest.mark.parametrize("serialize", [True, False])
def test_word_count_counts_exactly_and_acks_every_line(serialize):
    conf = {"topology.testing.always.try.serialize": serialize}
    with TopologyTest(word_count(), conf) as test:
        test.run_until_idle()
        total = sum(c.LOG["counters"], Counter())
        assert total == Counter(" ".join(LINES).split())
        # Each word was counted by one task only.
        assert sum(len(counter) for counter in c.LOG["counters"]) == len(total)
        assert sorted(test.acked("lines")) == [0, 1, 2, 3]
        assert test.failed("lines") == []


def test_the_same_seed_gives_the_same_trace():
    def run(seed):
        with TopologyTest(word_count(), seed=seed) as test:
            test.run_for(5)
            return test.trace

    assert run(3) == run(3)
    assert len({run(seed) for seed in range(8)}) > 1  # shuffles differ


def test_an_execute_that_raises_fails_its_tuple_and_goes_on():
    topology = numbers_to(c.FailOn([2, 5]))
    with TopologyTest(topology) as test:
        test.run_until_idle()
        assert sorted(test.failed("numbers")) == [2, 5]
        assert sorted(test.acked("numbers")) == [0, 1, 3, 4, 6, 7, 8, 9]
        assert [(e.component, str(e.error)) for e in test.errors] == [
            ("bolt", "no 2"),
            ("bolt", "no 5"),
        ]


def test_a_failed_tuple_is_replayed_by_its_spout():
    topology = numbers_to(c.FailOn([2], times=2, raises=False), spout=c.Replaying(5))
    with TopologyTest(topology) as test:
        test.run_until_idle()
        assert test.failed("numbers") == [2, 2]
        assert sorted(test.acked("numbers")) == [0, 1, 2, 3, 4]
        assert test.errors == []


def test_die_on_error_ends_the_worker():
    conf = {"topology.bolt.die.on.error": True}
    with TopologyTest(numbers_to(c.FailOn([2])), conf) as test:
        test.run_for(1)
        assert str(test.died) == "no 2"
        assert len(test.errors) == 1


def test_a_tuple_that_is_never_acked_times_out():
    conf = {"topology.message.timeout.secs": 10}
    with TopologyTest(numbers_to(c.Forgetful(), 3), conf) as test:
        test.run_for(9.9)
        assert test.failed("numbers") == []
        test.run_for(2)
        assert sorted(test.failed("numbers")) == [0, 1, 2]


def test_timeouts_can_be_turned_off():
    conf = {"topology.message.timeout.secs": 10, "topology.enable.message.timeouts": False}
    with TopologyTest(numbers_to(c.Forgetful(), 3), conf) as test:
        test.run_for(60)
        assert test.failed("numbers") == []


def test_reset_timeout_keeps_a_slow_tuple_alive():
    conf = {"topology.message.timeout.secs": 10}
    bolt_conf = {"topology.tick.tuple.freq.secs": 4}
    with TopologyTest(numbers_to(c.Resetting(20), 1, conf=bolt_conf), conf) as test:
        test.run_for(79)
        assert test.failed("numbers") == test.acked("numbers") == []
        test.run_for(2)
        assert test.acked("numbers") == [0]


def test_max_spout_pending_bounds_the_messages_in_flight():
    conf = {"topology.max.spout.pending": 3, "topology.message.timeout.secs": 10}
    with TopologyTest(numbers_to(c.Forgetful(), 10), conf) as test:
        test.run_for(5)
        assert len(c.LOG["forgotten"]) == 3
        test.run_for(7)
        assert len(c.LOG["forgotten"]) == 6


def test_without_ackers_a_message_is_acked_when_it_is_emitted():
    conf = {"topology.acker.executors": 0}
    with TopologyTest(numbers_to(c.Forgetful(), 5), conf) as test:
        test.run_for(1)
        assert test.acked("numbers") == [0, 1, 2, 3, 4]


def test_a_message_without_an_id_is_not_tracked():
    topology = numbers_to(c.FailOn([1]), spout=c.Numbers(3, reliable=False))
    with TopologyTest(topology) as test:
        test.run_until_idle()
        assert test.acked("numbers") == test.failed("numbers") == []
        assert collected() == [(0,), (2,)]


def test_a_tuple_with_several_anchors_fails_all_of_its_trees():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(6))
    builder.bolt("sum", c.Manual(3)).shuffle("numbers")
    builder.bolt("fail", c.FailOn([12], raises=False)).shuffle("sum")  # 3 + 4 + 5
    with TopologyTest(builder.build()) as test:
        test.run_until_idle()
        assert sorted(test.acked("numbers")) == [0, 1, 2]
        assert sorted(test.failed("numbers")) == [3, 4, 5]


def test_anchoring_twice_to_the_same_tree_is_counted_correctly():
    """Two tuples of one tree join again: a diamond."""
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(4))
    builder.bolt("twice", c.Multiply(2)).shuffle("numbers")
    builder.bolt("join", c.Manual(2)).shuffle("twice")
    builder.bolt("collect", c.Collect()).shuffle("join")
    with TopologyTest(builder.build()) as test:
        test.run_until_idle()
        assert sorted(test.acked("numbers")) == [0, 1, 2, 3]
        assert collected() == [(0,), (2,), (4,), (6,)]


def test_using_a_settled_tuple_raises():
    with TopologyTest(numbers_to(c.EmitsSettled(), 3)) as test:
        test.run_until_idle()
        assert [type(e.error).__name__ for e in test.errors] == ["SettledTupleError"] * 2
        assert sorted(test.failed("numbers")) == [1, 2]


def test_auto_anchor_off_leaves_emits_out_of_the_tree():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(5))
    builder.bolt("bolt", c.Unanchored()).shuffle("numbers")
    builder.bolt("fail", c.FailOn([1, 2, 33], raises=False)).shuffle("bolt")
    with TopologyTest(builder.build()) as test:
        test.run_until_idle()
        assert test.failed("numbers") == [3]
        assert sorted(test.acked("numbers")) == [0, 1, 2, 4]


def test_ticks_come_at_their_frequency():
    topology = numbers_to(c.Ticked(), 0, conf={"topology.tick.tuple.freq.secs": 2})
    with TopologyTest(topology) as test:
        test.run_for(11)
        assert [(e.values, e.time) for e in test.emitted("bolt")] == [
            ([n], pytest.approx(2.0 * n, abs=0.05)) for n in range(1, 6)
        ]


def test_streams_and_direct_streams_reach_their_consumers():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(6))
    builder.bolt("streams", c.Streams()).shuffle("numbers")
    builder.bolt("odd", c.Collect("odd")).shuffle("streams", stream="odd")
    builder.bolt("even", c.Collect("even")).shuffle("streams", stream="even")
    builder.bolt("direct", c.Collect("direct"), parallelism=3).direct("streams", stream="to")
    with TopologyTest(builder.build()) as test:
        test.run_until_idle()
        assert collected("odd") == [(1,), (3,), (5,)]
        assert collected("even") == [(0,), (2,), (4,)]
        tasks = sorted({task for task, _, _ in c.LOG["direct"]})
        assert sorted((v[0], tasks.index(task)) for task, _, v in c.LOG["direct"]) == [
            (n, n % 3) for n in range(6)
        ]
        assert len(test.acked("numbers")) == 6


def test_a_wrong_emit_is_refused_with_the_reason():
    with TopologyTest(numbers_to(c.WrongEmits(), 1)) as test:
        test.run_until_idle()
        reported = c.LOG["told"]
        assert "1 values [1] for 2 fields" in reported[0]
        assert "expected a list of values" in reported[1]
        assert "expected a list of values" in reported[2]
        assert "did you mean 'direct'?" in reported[3]
        assert "is direct: use emit_direct" in reported[4]
        assert "is not direct" in reported[5]
        assert "anchors are tuples" in reported[6]
        assert test.acked("numbers") == [0]


def targets(grouping, count=40, tasks=4):
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(count))
    grouping(builder.bolt("collect", c.Collect(), parallelism=tasks))
    with TopologyTest(builder.build()) as test:
        test.run_until_idle()
        assert len(test.acked("numbers")) + len(test.failed("numbers")) == count
        return [(task, values[0]) for task, _, values in c.LOG.get("collected", [])], test


@pytest.mark.parametrize("kind", ["shuffle", "none", "local_or_shuffle"])
def test_shuffle_spreads_evenly(kind):
    found, _ = targets(lambda bolt: getattr(bolt, kind)("numbers"))
    assert sorted(Counter(task for task, _ in found).values()) == [10, 10, 10, 10]


def test_all_reaches_every_task():
    found, _ = targets(lambda bolt: bolt.all("numbers"), count=5)
    assert sorted(Counter(task for task, _ in found).values()) == [5, 5, 5, 5]


def test_global_reaches_the_lowest_task():
    found, test = targets(lambda bolt: bolt.global_("numbers"), count=5)
    assert {task for task, _ in found} == {min(test._engine.plan.tasks_of["collect"])}


def test_partial_key_uses_two_tasks_a_key():
    found, _ = targets(lambda bolt: bolt.partial_key("numbers", "number"), count=100)
    assert len(found) == 100
    assert max(Counter(task for task, _ in found).values()) < 45


def test_a_custom_grouping_chooses_any_number_of_tasks():
    found, test = targets(lambda bolt: bolt.custom("numbers", c.ToAllAndNone()), count=4)
    assert Counter(number for _, number in found) == {0: 4, 2: 4}
    assert len(test.acked("numbers")) == 4


def test_a_custom_grouping_that_chooses_another_components_task_is_an_error():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(100))
    builder.bolt("collect", c.Collect()).custom("numbers", c.ToAllAndNone())
    with TopologyTest(builder.build()) as test:
        test.run_for(1)
        assert "chose task 12345" in str(test.errors[0].error)


def test_a_cycle_runs_until_it_ends():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(5))
    builder.bolt("loop", c.Looping()).shuffle("numbers").shuffle("loop")
    with TopologyTest(builder.build()) as test:
        test.run_until_idle()
        assert Counter(c.LOG["looped"]) == {0: 5, 1: 4, 2: 3, 3: 2, 4: 1}
        assert len(test.acked("numbers")) == 5


def test_deactivated_spouts_stop_until_they_are_activated():
    with TopologyTest(numbers_to(c.Pass(), 10_000)) as test:
        test._engine.set_active(False)
        seen = len(test.emitted("numbers"))
        test.run_for(1)
        assert len(test.emitted("numbers")) == seen
        test._engine.set_active(True)
        test.run_until(lambda: len(test.emitted("numbers")) == 10_000)
    assert c.LOG["spout"] == ["activate", "deactivate", "activate", "deactivate", "close"]


def test_coroutines_run_concurrently_up_to_the_limit():
    conf = {"topology.bolt.async.concurrency": 4}
    with TopologyTest(numbers_to(c.Sleeps(0.01, fail_on=6), 20, conf=conf)) as test:
        test.run_until_idle()
        assert max(c.LOG["flying"]) == 4
        assert test.failed("numbers") == [6]
        assert sorted(test.acked("numbers")) == [n for n in range(20) if n != 6]
        assert [values for _, _, values in c.LOG["collected"]] != [(n,) for n in range(20)]
        assert sorted(collected()) == [(n,) for n in range(20) if n != 6]


def test_a_failed_tuple_cancels_its_coroutine():
    with TopologyTest(numbers_to(c.Sleeps(1000), 1)) as test:
        test.run_for(1)
        (bolt,) = (b.task for b in test._engine.built if b.task.component == "bolt")
        (tup,) = bolt._flying
        test._loop.call_soon(bolt.user.fail, tup)
        test.run_for(0.1)
        assert test.failed("numbers") == [0]
        assert bolt.user.flying == 0


def test_an_async_spout_emits():
    with TopologyTest(numbers_to(c.Pass(), spout=c.AsyncNumbers(20))) as test:
        test.run_until_idle()
        assert sorted(c.LOG["acked"]) == list(range(20))


@replaces_methods
def test_an_async_spout_that_waits_leaves_the_engine_idle(monkeypatch):
    """What it waited for the last time is no reason to take a turn each millisecond."""

    class Patient(Spout):
        outputs = ("number",)
        calls = 0

        async def next_tuple(self):
            self.calls += 1
            await asyncio.sleep(0.01 if self.calls < 3 else 3600)

    topology = numbers_to(c.Pass(), spout=c.AsyncNumbers(1))
    with TopologyTest(topology, objects={"numbers": Patient()}) as test:
        test.run_for(1)
        turns = []
        turn = test._engine._turn
        monkeypatch.setattr(test._engine, "_turn", lambda: turns.append(1) or turn())
        test.run_for(60)
        assert len(turns) < 100


def test_execute_batch_acks_the_tuples_that_it_did_not_fail():
    with TopologyTest(numbers_to(c.Batches(fail_on=3), 50)) as test:
        test.run_until_idle()
        assert max(c.LOG["batches"]) > 1
        assert test.failed("numbers") == [3]
        assert sorted(test.acked("numbers")) == [n for n in range(50) if n != 3]
        assert sorted(collected()) == [(2 * n,) for n in range(50) if n != 3]


def test_execute_batch_must_name_its_anchors():
    with TopologyTest(numbers_to(c.BatchWithoutAnchors(), 2)) as test:
        test.run_until_idle()
        assert "must name the tuples" in str(test.errors[0].error)
        assert sorted(test.failed("numbers")) == [0, 1]


def test_errors_in_a_spout_are_reported_and_it_goes_on():
    with TopologyTest(numbers_to(c.Pass(), spout=c.BreakingSpout())) as test:
        test.run_for(10)
        assert c.LOG["acked"] == [1, 2, 4, 5]
        messages = [str(e.error) for e in test.errors]
        assert messages.count("no ack") == 1
        assert 3 <= messages.count("no next_tuple") <= 30  # it backs off


@pytest.mark.parametrize("where", ["constructor", "prepare"])
def test_a_component_that_fails_to_start_is_reported(where):
    import threading

    thread = threading.current_thread()
    name, thread.name = thread.name, "client"
    try:
        topology = numbers_to(c.Breaks(where))
    finally:
        thread.name = name
    with pytest.raises(SquallError, match=f"no {where}"), TopologyTest(topology):
        pass


def test_cleanup_is_not_called_where_prepare_failed():
    with pytest.raises(SquallError), TopologyTest(numbers_to(c.Breaks("prepare"), 1, tasks=2)):
        pass
    assert "cleanup" not in c.LOG


def test_cleanup_is_called_for_all_components_even_if_one_raises():
    topology = numbers_to(c.Breaks("cleanup"), 1, tasks=2)
    with TopologyTest(topology) as test:
        test.run_for(1)
    assert c.LOG["cleanup"] == ["cleanup", "cleanup"]
    assert len(test.errors) == 2


def test_values_that_change_after_they_were_emitted_are_reported():
    with TopologyTest(numbers_to(c.Mutates(), 1)) as test:
        test.run_until_idle()
        assert "'bolt' changed the values" in str(test.errors[0].error)


def test_a_value_that_cannot_travel_fails_its_tuple_and_names_the_field():
    builder = TopologyBuilder()
    builder.spout("numbers", c.Numbers(3))
    builder.bolt("bolt", c.EmitsUnencodable()).shuffle("numbers")
    builder.bolt("collect", c.Collect()).shuffle("bolt")
    with TopologyTest(builder.build()) as test:
        test.run_until_idle()
        assert test.failed("numbers") == [1]
        message = str(test.errors[0].error)
        for part in ("'bolt'", "'default'", "'thing'", "builtins:object"):
            assert part in message
        assert sorted(collected()) == [(0, None), (2, None)]


def test_statistics_count_exactly():
    topology = numbers_to(c.FailOn([2, 5], raises=False), 100, tasks=2)
    conf = {"topology.testing.always.try.serialize": False}
    with TopologyTest(topology, conf) as test:
        test.run_until_idle()
        stats = test._engine.stats()
        component = test._engine.plan.task_to_component
        by = {}
        for executor, one in stats.items():
            by.setdefault(component[executor.task_start], []).append(one)
        (spout,) = by["numbers"]
        assert spout.emitted[":all-time"] == spout.transferred[":all-time"] == {"default": 100}
        assert spout.specific.acked["600"] == {"default": 98}
        assert spout.specific.failed["86400"] == {"default": 2}
        key = ("numbers", "default")
        assert sum(s.specific.executed[":all-time"][key] for s in by["bolt"]) == 100
        assert sum(s.specific.acked[":all-time"][key] for s in by["bolt"]) == 98
        assert sum(s.specific.failed[":all-time"].get(key, 0) for s in by["bolt"]) == 2
        assert sum(s.emitted[":all-time"]["default"] for s in by["bolt"]) == 98
        assert by["collect"][0].specific.executed["10800"] == {("bolt", "default"): 98}


def test_windows_drop_counts_older_than_their_length():
    with TopologyTest(numbers_to(c.Pass(), 50)) as test:
        test.run_for(700)
        (stats,) = (
            s
            for e, s in test._engine.stats().items()
            if test._engine.plan.task_to_component[e.task_start] == "numbers"
        )
        assert stats.emitted[":all-time"] == {"default": 50}
        assert stats.emitted["10800"] == {"default": 50}
        assert stats.emitted["600"] == {}


def test_worker_lost_fails_the_messages_pending_on_it():
    with TopologyTest(numbers_to(c.Forgetful(), 5)) as test:
        test.run_for(1)
        test._engine.worker_lost(test._engine.plan.tasks_of["numbers"])  # not downstream
        test.run_for(1)
        assert test.failed("numbers") == []
        test._engine.worker_lost(test._engine.plan.tasks_of["bolt"])
        test.run_for(1)
        assert sorted(test.failed("numbers")) == [0, 1, 2, 3, 4]
