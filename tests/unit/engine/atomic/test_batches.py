"""A batch is one try; what fails in it is found by trying its parts."""

from __future__ import annotations

from typing import Any

import pytest

from squall_engine.atomic.batches import around_batch, parts_of
from squall_engine.atomic.tries import Tries


@pytest.mark.parametrize(
    ("failed", "parts"),
    [
        (set(), [(2, 5), (5, 9)]),
        ({2}, [(2, 3), (3, 9)]),
        ({4, 5, 8}, [(2, 4), (4, 5), (5, 6), (6, 8), (8, 9)]),
    ],
)
def test_a_batch_is_tried_again_around_what_has_failed_or_in_halves(
    failed: set[int], parts: list[tuple[int, int]]
) -> None:
    assert list(parts_of(2, 9, failed)) == parts


class Tuple_:
    """Only its identity counts."""

    def __init__(self, number: int) -> None:
        self.number = number


@pytest.mark.parametrize("says_which", [False, True])
def test_poison_is_given_up_alone_after_a_few_calls(says_which: bool) -> None:
    tuples: Any = [Tuple_(number) for number in range(1_024)]
    poison = {3, 4, 900}
    given_up: list[int] = []
    reported: list[BaseException] = []
    done: list[int] = []
    calls = [0]
    tries = Tries(
        3,
        key_of=None,
        report=reported.append,
        give_up=lambda tup, error: given_up.append(tup.number),  # type: ignore[attr-defined]
        fault=reported.append,
        sleep=lambda secs: None,
    )

    def execute(given: Any) -> None:
        calls[0] += 1
        bad = [tup for tup in given if tup.number in poison]
        if says_which:
            for tup in bad:
                tries.fail(tup)
        elif bad:
            raise ValueError(f"{len(bad)} are bad")
        if not bad:
            done.extend(tup.number for tup in given)
        given.clear()  # the list is the bolt's

    around_batch(tries, execute, None)(tuples)
    assert given_up == sorted(poison)
    assert done == [number for number in range(1_024) if number not in poison]
    assert len(reported) == 1 + 3 * len(poison)  # the batch, and each try of what is poison
    assert calls[0] < (20 if says_which else 70)
