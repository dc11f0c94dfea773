"""Windows as bytes: only the objects of the package are stored, and only they are read."""

from __future__ import annotations

import io
import os
import pickle
from decimal import Decimal
from typing import Any

import pytest

from squall import AggregateBolt, TupleWindow, WindowedBolt
from squall.testing import BoltTest
from squall.windows import EventTime, Windows, session, sliding, tumbling
from squall.windows.snapshot import dump, load
from squall_common.errors import SquallError
from squall_common.topology.serialization import Registry
from squall_engine.embed import Tuple, ValueCodec

CODEC = ValueCodec(Registry(), allow_pickle=False)
AT = EventTime("at", allowed_lateness_secs=2)


class Rest(WindowedBolt):
    outputs = ("key",)

    def execute_window(self, window: TupleWindow) -> None:
        self.emit([window.key])


class Count(AggregateBolt):
    outputs = ("key",)

    def init(self) -> int:
        return 0

    def add(self, total: int, tup: Any) -> int:
        return total + 1

    def merge(self, first: int, second: int) -> int:
        return first + second

    def result(self, total: int, window: TupleWindow) -> None:
        self.emit([total])


def attributes(made: WindowedBolt, windows: Windows) -> dict[str, set[str]]:
    """The attributes of all objects in the snapshot of windows that hold something, by class."""
    found: dict[str, set[str]] = {}
    with BoltTest(made, {"s": ["user", "at"]}, windows=windows) as test:
        for at in (1_000, 2_000, 9_000):
            test.execute(["a", at])
        test.run_for(1.1)
        (bolt,) = test.test.instances("bolt")
        ((_, _, _, data),) = CODEC.decode_rows(bolt._squall_shell.stored(CODEC, Tuple))

        class Reader(pickle.Unpickler):
            def persistent_load(self, pid: Any) -> Any:
                return None

            def find_class(self, module: str, name: str) -> Any:
                return kept(name)

        def kept(name: str) -> type:
            class Stored:
                def __init__(self, *_: Any) -> None: ...

                def __setstate__(self, state: Any) -> None:
                    parts = state if isinstance(state, tuple) else (state,)
                    names = {key for part in parts if isinstance(part, dict) for key in part}
                    found.setdefault(name, set()).update(names)

            return Stored

        Reader(io.BytesIO(data)).load()
    return found


def test_the_attributes_that_are_stored_are_known() -> None:
    """If this fails because a class has changed, raise `FORMAT`: older checkpoints are then refused
    with a message, instead of being read wrongly."""
    found: dict[str, set[str]] = {}
    for made, windows in (
        (Rest, tumbling(secs=2, event_time=AT)),
        (Rest, sliding(count=2, every_count=1, event_time=EventTime("at"))),
        (Rest, sliding(count=2, every_secs=1, event_time=EventTime("at"))),
        (Rest, tumbling(count=2)),
        (Rest, sliding(secs=2, every_secs=1)),
        (Rest, session(gap_secs=5, key="user", event_time=AT)),
        (Count, sliding(secs=2, every_secs=1, event_time=AT)),
        (Count, sliding(count=4, every_count=2, key="user")),
        (Count, session(gap_secs=5, key="user", event_time=AT)),
    ):
        for name, names in attributes(made(), windows).items():
            found.setdefault(name, set()).update(names)
    assert {name: sorted(names) for name, names in sorted(found.items()) if names} == KNOWN


KNOWN: dict[str, list[str]] = {
    "AggregateCount": ["_contents", "_hold", "_key_of", "_keys", "_length", "_pane", "_slide"],
    "AggregateSession": ["_hold", "_key_of", "_sessions"],
    "AggregateTime": [
        "_by_clock",
        "_held",
        "_key_of",
        "_lateness_ms",
        "_length_ms",
        "_released",
        "_shift_ms",
        "_watermark_ms",
        "_windows",
    ],
    "AggregateWindows": [
        "_contents",
        "_first",
        "_has_gaps",
        "_keys",
        "_known",
        "_lateness_ms",
        "_length",
        "_next_end_ms",
        "_numbers",
        "_pane_ms",
        "_slide_ms",
        "_watermark_ms",
    ],
    "CountEvictor": ["_count", "_length", "moment"],
    "CountTrigger": ["_count", "_slide"],
    "LateFirings": ["_kept", "_lateness_ms", "_length_ms", "_slide_ms"],
    "Panes": [
        "_back",
        "_back_sum",
        "_changed",
        "_contents",
        "_front",
        "_numbers",
        "_panes",
        "_taken",
        "_waiting",
    ],
    "QueueWindows": [
        "_event_time",
        "_failed",
        "_key_of",
        "_lateness",
        "_managers",
        "_plan",
        "_releases_at_once",
        "_shared",
        "_watermark_ms",
    ],
    "Session": ["closed", "contents", "end_ms", "fired", "key", "start_ms"],
    "SessionTuples": ["_key_of", "_sessions"],
    "SessionWindows": [
        "_contents",
        "_due",
        "_gap_ms",
        "_lateness_ms",
        "_now_ms",
        "_open",
        "_serial",
    ],
    "TimeEvictor": ["_late_ms", "_length_ms", "moment"],
    "WatermarkCountEvictor": ["_count", "_length", "_processed", "moment"],
    "WatermarkCountTrigger": ["_ends", "_last_ms", "_slide"],
    "WatermarkTimeEvictor": ["_lag_ms", "_length_ms", "moment"],
    "WatermarkTimeTrigger": ["_fired", "_slide_ms", "_watermark_ms", "_windows_max", "next_end_ms"],
    "Watermarks": ["_heard_ms", "_idle_ms", "_lag_ms", "_latest_ms", "current_ms"],
    "WindowManager": [
        "_by_count",
        "_by_watermark",
        "_evictor",
        "_expired",
        "_found",
        "_last_ms",
        "_queue",
        "_since_split",
        "_slide_ms",
        "_window",
    ],
    "_Counted": ["count", "held", "panes"],
    "_Holding": ["_contents"],
}


def test_what_is_read_cannot_name_other_classes() -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, ("exit 1",)

    with pytest.raises(SquallError, match=r"they name posix\.system"):
        load(pickle.dumps(Evil()), {}, CODEC, [])


def test_values_of_users_classes_are_stored_as_tuples_are() -> None:
    parts = {"total": Decimal("1.5"), ("a", Decimal(2)): [None, 1, b"x", {"y": {3}}]}
    assert load(dump(parts, {}, CODEC, Tuple, []), {}, CODEC, []) == parts
