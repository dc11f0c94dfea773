"""How long others waited for a component."""

from squall_engine.backpressure.wait_times import WaitTimes


def test_a_component_counts_as_closed_while_any_of_its_tasks_is() -> None:
    times = WaitTimes()
    times.closed("sink", 1.0)
    times.closed("sink", 2.0)
    times.opened("sink", 5.0)
    assert times.secs("sink", 6.0) == 5.0
    times.opened("sink", 7.0)
    times.closed("sink", 10.0)
    times.opened("sink", 10.5)
    assert times.secs("sink", 99.0) == 6.5
    assert times.secs("other", 99.0) == 0.0


def test_components_that_stay_closed_are_not_counted_again() -> None:
    times = WaitTimes()
    times.changed((), ("a", "b"), 1.0)
    times.changed(("a", "b"), ("b",), 2.0)
    times.changed(("b",), (), 4.0)
    assert (times.secs("a", 9.0), times.secs("b", 9.0)) == (1.0, 3.0)
