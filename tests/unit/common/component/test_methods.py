"""Which methods of a component are called."""

from __future__ import annotations

from typing import Any

import pytest

from squall import Spout
from squall_common.component.methods import acks_in_batches


class Single(Spout):
    def ack(self, msg_id: Any) -> None: ...


class Both(Single):
    def ack_batch(self, msg_ids: Any) -> None: ...


class SingleAgain(Both):
    def ack(self, msg_id: Any) -> None: ...


class Derived(Both):
    pass


@pytest.mark.parametrize(
    ("cls", "batched"),
    [(Spout, False), (Single, False), (Both, True), (SingleAgain, False), (Derived, True)],
)
def test_the_lowest_class_that_defines_acks_decides_how_they_are_called(
    cls: type[Spout], batched: bool
) -> None:
    assert acks_in_batches(cls()) is batched
