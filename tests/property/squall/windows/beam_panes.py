"""Windows by Apache Beam's own trigger driver, for an interpreter that has Beam.

Reads a list of cases from stdin as JSON and writes, for each, the panes of each step:

    {"windows": ["fixed", 10] | ["sliding", 20, 10] | ["sessions", 5],
     "steps": [["add", 7, 0], ["watermark", 12], ...]}      add: timestamp, number
    [[[start, end, [numbers]], ...], ...]

Late tuples are always allowed; panes accumulate; the trigger is Beam's default.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from apache_beam.transforms.core import Windowing
from apache_beam.transforms.trigger import (
    AccumulationMode,
    DefaultTrigger,
    GeneralTriggerDriver,
    InMemoryUnmergedState,
)
from apache_beam.transforms.window import FixedWindows, Sessions, SlidingWindows, WindowFn
from apache_beam.utils.timestamp import MIN_TIMESTAMP, Timestamp
from apache_beam.utils.windowed_value import WindowedValue

_KINDS = {"fixed": FixedWindows, "sliding": SlidingWindows, "sessions": Sessions}


class Clock:
    def time(self) -> float:
        return 0.0


def panes_of(case: dict[str, Any]) -> list[list[Any]]:
    kind, *lengths = case["windows"]
    windows = _KINDS[kind](*lengths)
    windowing = Windowing(
        windows,
        DefaultTrigger(),
        AccumulationMode.ACCUMULATING,
        allowed_lateness=10**9,
    )
    driver, state = GeneralTriggerDriver(windowing, Clock()), InMemoryUnmergedState()
    watermark = MIN_TIMESTAMP
    found = []
    for what, at, *number in case["steps"]:
        panes: list[Any] = []
        if what == "add":
            stamp = Timestamp(at)
            assigned = windows.assign(WindowFn.AssignContext(stamp, number[0]))
            value = WindowedValue(number[0], stamp, assigned)
            panes += driver.process_elements(state, [value], watermark, watermark)
        else:
            watermark = Timestamp(at)
            while timers := state.get_and_clear_timers(watermark):
                for window_id, (name, domain, due, _) in timers:
                    panes += driver.process_timer(window_id, name, domain, due, state, watermark)
        found.append(
            sorted(
                [int(window.start), int(window.end), sorted(pane.value)]
                for pane in panes
                for window in pane.windows
            )
        )
    return found


if __name__ == "__main__":
    json.dump([panes_of(case) for case in json.load(sys.stdin)], sys.stdout)
