"""What a component does, in words."""

from __future__ import annotations

import time

import pytest

from squall_common.topology.plan import (
    FUNCTIONS_MAX,
    PLAN_MAX,
    TEXT_MAX,
    PlanStep,
    bounded,
    brief,
    plan_as_json,
    with_windows,
)


def calls(*names: str) -> list[PlanStep]:
    return [PlanStep(name) for name in names]


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ([], ""),
        (calls("map(normalise)"), "map(normalise)"),
        (calls("map(f)", "map(g)", "key_by()"), "map ×2, key_by"),
        (calls("map(f)", "filter(g)", "map(h)"), "map, filter, map"),
        ([PlanStep("count()", windows="tumbling 60 s")], "count over tumbling 60 s"),
        ([PlanStep("", ("shop:Totals",), "tumbling 60 s")], "tumbling 60 s"),
        ([PlanStep("", ("shop:Totals",))], "Totals"),
    ],
)
def test_a_plan_in_few_words(steps: list[PlanStep], text: str) -> None:
    assert brief(steps) == text


def test_few_words_are_cut() -> None:
    assert brief(calls("map(f)", "filter(g)", "map(h)"), 10) == "map, filt…"
    assert brief(calls("map(normalise)"), 10) == "map(norma…"


def test_long_texts_are_cut_and_functions_counted() -> None:
    (step,) = bounded([PlanStep("m" * 500, ("f" * 500,) * 100, "w" * 500)])
    assert len(step.call) == len(step.windows) == TEXT_MAX
    assert len(step.functions) == FUNCTIONS_MAX
    assert {len(path) for path in step.functions} == {TEXT_MAX}


@pytest.mark.parametrize("step", [PlanStep("map(f)", ("m:f",)), PlanStep(""), PlanStep("m" * 200)])
def test_a_plan_is_bounded_and_says_how_many_steps_are_left_out(step: PlanStep) -> None:
    found = bounded([step] * 10_000)
    assert sum(one.size for one in found) <= PLAN_MAX
    assert found[-1].call == f"and {10_000 - len(found) + 1} more"
    assert len(found) > 30
    assert bounded(found) == found


def test_what_is_left_out_is_not_looked_at() -> None:
    """Nimbus bounds what any client sends: it took minutes to hide secrets in all of this."""
    step = PlanStep("password=x " * 100_000, ("f" * 1_000_000,) * 50)
    began = time.process_time()
    found = bounded([step] * 100_000)
    assert time.process_time() - began < 5.0
    assert found[-1].call == f"and {100_000 - len(found) + 1} more"


def test_a_plan_that_fits_is_whole() -> None:
    steps = tuple(calls(*(f"map(f{number})" for number in range(200))))
    assert bounded(steps) == steps
    assert bounded([]) == ()


def test_recognizable_secrets_are_hidden() -> None:
    (step,) = bounded(calls("print('db=postgres://ann:hunter2@db ')"))
    assert "hunter2" not in step.call
    # Also where the text ends within one.
    (step,) = bounded(calls("x" * (TEXT_MAX - 20) + " postgres://ann:hunter2-and-more@db"))
    assert "hunter2" not in step.call


def test_windows_are_those_of_the_last_step() -> None:
    assert with_windows(calls("map(f)", "count()"), "tumbling 1 s") == (
        PlanStep("map(f)"),
        PlanStep("count()", windows="tumbling 1 s"),
    )


def test_as_json() -> None:
    steps = [PlanStep("count()"), PlanStep("", ("shop:Totals",), "tumbling 60 s")]
    assert plan_as_json(steps) == [
        {"step": "count()", "functions": [], "windows": None},
        {"step": "Totals", "functions": ["shop:Totals"], "windows": "tumbling 60 s"},
    ]
