"""Log lines that a peer can cause at will: one a minute, with a count."""

from squall_thrift.serving.throttle import Throttle


def test_one_line_a_minute_of_each_kind_with_the_number_left_out() -> None:
    now = 0.0
    throttle = Throttle(60.0, lambda: now)
    assert throttle.left_out("a") == 0
    assert [throttle.left_out("a") for _ in range(1_000)] == [None] * 1_000
    assert throttle.left_out("b") == 0
    now = 60.0
    assert throttle.left_out("a") == 1_000
    assert throttle.left_out("a") is None


def test_any_number_of_kinds_takes_bounded_memory() -> None:
    throttle = Throttle()
    for number in range(5_000):
        assert throttle.left_out(number) == 0
    assert len(throttle._kinds) <= 1_000
