"""What a state machine remembers for the error that finds it in a contradiction."""

from __future__ import annotations

import enum

import pytest

from squall_common.daemon.output.story import ContradictionError, IllegalEventError, Story


class Light(enum.Enum):
    RED = 1
    GREEN = 2


def test_a_change_of_state_is_remembered_and_staying_is_not() -> None:
    story = Story()
    assert story.step(Light.RED, "Waited", Light.RED, 1.0) is Light.RED
    assert story.step(Light.RED, "Switched", Light.GREEN, 2.0) is Light.GREEN
    assert str(story) == "\n  2.000 RED --Switched--> GREEN"


def test_an_event_without_a_row_is_refused_with_the_story() -> None:
    story = Story()
    story.step(Light.RED, "Switched", Light.GREEN, 2.0)
    with pytest.raises(IllegalEventError, match=r"Crashed cannot happen in GREEN.*\n.*Switched"):
        story.step(Light.GREEN, "Crashed", None, 3.0)


def test_a_failed_assertion_shows_the_machine_and_its_last_steps() -> None:
    story = Story()
    for machine in ("cars=1", "cars=1", "cars=2"):
        with story.checking(machine):
            pass
    with pytest.raises(ContradictionError) as caught, story.checking("cars=-1"):
        raise AssertionError("fewer than none")
    assert str(caught.value) == "cars=-1: fewer than none; what led here:\n  cars=1\n  cars=2"


def test_only_the_last_steps_are_kept() -> None:
    story = Story()
    for number in range(1000):
        story.saw(f"{number}")
    assert str(story).count("\n") < 100
    assert str(story).endswith("\n  999")
