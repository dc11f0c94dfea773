"""See `__init__.py`. Nothing of the product knows about this."""

from __future__ import annotations

import os
import sys
from typing import Any


def fails_are_acks() -> None:
    """A worker's spouts hear of a tree that failed as if it had been acked."""
    from squall_engine.tasks.spout import SpoutTask

    notify = SpoutTask._notify

    def inverted(self: Any, kind: str, *rest: Any, **more: Any) -> None:
        notify(self, "ack" if kind == "fail" else kind, *rest, **more)  # type: ignore[arg-type]

    SpoutTask._notify = inverted  # type: ignore[method-assign]


def never_isolated() -> None:
    """A supervisor that is cut off lets its workers run."""
    from squall_supervisor.node.isolation import Isolation

    Isolation.probed = lambda *_: None  # type: ignore[method-assign,assignment]


_BUGS = {
    "fails are acks": ("squall_worker", fails_are_acks),
    "never isolated": ("squall_supervisor", never_isolated),
}

_package, _plant = _BUGS.get(os.environ.get("SQUALL_TEST_BUG", ""), ("", None))
if _plant is not None and _package in sys.orig_argv:
    _plant()
