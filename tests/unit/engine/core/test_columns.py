"""Origins of columns that wait for the end of a call: both cores."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest

from squall_common.component.columns.fan_out import FanOut
from squall_engine.core import COMPILED, EmitError, pure

cores: list[ModuleType] = [pure]
if COMPILED:
    from squall_engine.core import compiled

    cores.append(compiled)


class Whole:
    """A whole number of a library's."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


@pytest.fixture(params=cores, ids=lambda core: core.__name__.rpartition(".")[2])
def core(request: pytest.FixtureRequest) -> ModuleType:
    found: ModuleType = request.param
    return found


@pytest.mark.parametrize(
    ("origins", "emitted", "held"),
    [
        (None, 3, [10, 11, 12]),
        ((), 5, []),
        ([], 0, []),
        ([2, 0, 0, 1], 4, [12, 10, 10, 11]),
        ((2, True), 2, [12, 11]),
        (range(1, 3), 2, [11, 12]),
        (FanOut([2, 0, 1]), 3, [10, 10, 12]),
        (FanOut([0, 0, 0]), 0, []),
        (FanOut([True, False, Whole(2)]), 3, [10, 12, 12]),
    ],
)
def test_held_origins_are_rows_of_the_batch(
    core: ModuleType, origins: Any, emitted: int, held: list[int]
) -> None:
    assert core.held_origins(origins, emitted, 3, 10) == held


@pytest.mark.parametrize(
    ("origins", "emitted", "error"),
    [
        (None, 2, EmitError),
        ([0], 2, EmitError),
        ([0, 3], 2, EmitError),
        ([-1, 0], 2, EmitError),
        ((0, 3), 2, EmitError),
        ([0, 1.0], 2, TypeError),
        ([0, "1"], 2, TypeError),
        ([0, None], 2, TypeError),
        (FanOut([1, 1]), 2, EmitError),
        (FanOut([1, 1, 0, 0]), 2, EmitError),
        (FanOut([2, 1, -1]), 2, EmitError),
        (FanOut([1, 1, 1]), 2, EmitError),
        (FanOut([0, 0, 0]), 2, EmitError),
        (FanOut([]), 0, EmitError),
        (FanOut([1, 1, 0.0]), 2, EmitError),  # type: ignore[list-item]
        (FanOut([1, 1, None]), 2, EmitError),  # type: ignore[list-item]
        (FanOut([1, 1, 2**80]), 2, EmitError),
    ],
)
def test_origins_that_are_not_rows_are_refused(
    core: ModuleType, origins: Any, emitted: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        core.held_origins(origins, emitted, 3, 10)


def test_held_origins_are_a_list_of_their_own(core: ModuleType) -> None:
    origins = [0, 1]
    held = core.held_origins(origins, 2, 2, 0)
    origins[:] = [1, 0]
    assert held == [0, 1]
