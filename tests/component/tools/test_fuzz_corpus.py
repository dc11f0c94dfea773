"""What the fuzzer has found once stays refused: the corpus of each target, and a few hundred inputs
made of it, always the same."""

from __future__ import annotations

import random

import pytest
from tests.fuzz.mutation import mutate
from tests.fuzz.seeds import CORPUS
from tests.fuzz.targets import NAMES, target

_INPUTS = 300


@pytest.mark.parametrize("name", NAMES)
def test_what_was_found_once_stays_refused(name: str) -> None:
    found = target(name)
    corpus = [path.read_bytes() for path in sorted((CORPUS / name).iterdir())]
    assert corpus
    rng = random.Random(1)
    for data in corpus:
        found.check(data)
    for _ in range(_INPUTS):
        found.check(mutate(rng.choice(corpus), corpus, rng))
