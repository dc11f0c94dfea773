"""When a call that does not return is named, reported, and the end of its worker."""

from __future__ import annotations

from dataclasses import dataclass, field

from squall_worker.watch.stalls import AGAIN_SECS, NAME_SECS, StallWatch, Step, counted_secs


@dataclass(frozen=True)
class Limits:
    error_secs: float | None = 30.0
    restart_secs: float | None = 300.0


@dataclass(frozen=True)
class Call:
    key: tuple[object, ...] = ("split", 7, 1)
    component: str = "split"
    limits: Limits = field(default_factory=Limits)
    task: int = 7


def steps_by_second(watch: StallWatch[Call], calls: list[Call], secs: int) -> dict[int, list[Step]]:
    """What is to be done, by the second, of calls that are under way all the time."""
    found = {}
    for second in range(secs + 1):
        notices = watch.observe(calls, 1.0 if second else 0.0)
        if notices:
            found[second] = [notice.step for notice in notices]
    return found


def test_a_call_is_named_each_minute_reported_once_and_ends_its_worker():
    found = steps_by_second(StallWatch(), [Call()], 300)
    named = [second for second, steps in found.items() if Step.NAMED in steps]
    assert named == [1, 61, 121, 181, 241]
    assert [second for second, steps in found.items() if Step.OVERDUE in steps] == [30]
    assert [second for second, steps in found.items() if Step.STALLED in steps] == [300]


def test_calls_that_return_are_never_reported():
    watch: StallWatch[Call] = StallWatch()
    steps = []
    for second in range(1000):
        steps += watch.observe([Call(key=("split", 7, second))], 1.0)
    assert steps == []


def test_a_task_is_named_once_a_minute_however_many_of_its_calls_are_slow():
    endless = Limits(None, None)
    calls = [Call(("split", number), "split", endless) for number in range(5)]
    calls.append(Call(("split", "other"), "split", endless, task=8))
    watch: StallWatch[Call] = StallWatch()
    watch.observe(calls, 0.0)
    named = [notice.call.task for notice in watch.observe(calls, NAME_SECS)]
    assert named == [7, 8]
    assert watch.observe(calls, AGAIN_SECS - 1) == []
    assert len(watch.observe(calls, 1.0)) == 2


def test_a_hundred_calls_that_wait_for_one_server_are_one_error_per_minute():
    calls = [Call(("ask", number), "ask", Limits(30.0, None)) for number in range(100)]
    watch: StallWatch[Call] = StallWatch()
    errors = [
        second
        for second in range(200)
        for notice in watch.observe(calls, 1.0)
        if notice.step is Step.OVERDUE
    ]
    assert errors == [30, 90, 150]


def test_messages_are_looked_up_before_they_time_out():
    """At the message timeout itself the stuck tree has failed, and its name is gone."""
    for limits, second in [
        (Limits(30.0, 300.0), 10),
        (Limits(4.0, 300.0), 2),
        (Limits(None, 6.0), 3),
        (Limits(None, None), None),
    ]:
        found = steps_by_second(StallWatch(), [Call(limits=limits)], 200)
        looked_up = [at for at, steps in found.items() if Step.LOOKED_UP in steps]
        assert looked_up == ([] if second is None else [second])


def test_messages_are_looked_up_for_one_call_per_component_and_minute():
    calls = [Call(("ask", number), "ask", Limits(30.0, None)) for number in range(100)]
    watch: StallWatch[Call] = StallWatch()
    looked_up = [
        second
        for second in range(200)
        for notice in watch.observe(calls, 1.0)
        if notice.step is Step.LOOKED_UP
    ]
    assert looked_up == [10, 70, 130, 190]


def test_each_component_has_its_own_limits_and_null_means_never():
    patient = Call(("a",), "a", Limits(error_secs=None, restart_secs=None))
    hasty = Call(("b",), "b", Limits(error_secs=30.0, restart_secs=5.0))
    watch: StallWatch[Call] = StallWatch()
    watch.observe([patient, hasty], 0.0)
    steps = {(n.call.component, n.step) for n in watch.observe([patient, hasty], 5.0)}
    assert steps == {
        ("a", Step.NAMED), ("b", Step.NAMED), ("b", Step.LOOKED_UP), ("b", Step.STALLED)
    }  # fmt: skip
    assert {n.step for n in watch.observe([patient], 10_000.0)} == {Step.NAMED}


def test_time_that_the_process_was_stopped_does_not_count():
    assert counted_secs(1.02, 1.0) == 1.02
    assert counted_secs(3600.0, 1.0) == 1.5
    watch: StallWatch[Call] = StallWatch()
    watch.observe([Call()], 0.0)
    watch.observe([Call()], counted_secs(3600.0, 0.25))
    assert watch.observe([Call()], 0.25) == []
