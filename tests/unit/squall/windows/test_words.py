"""Windows in words."""

from __future__ import annotations

import pytest

from squall.windows import session, sliding, tumbling
from squall.windows.spec import EventTime, WindowPlan, Windows, options_of
from squall.windows.words import words_of

AT = EventTime("at", lag_secs=5, allowed_lateness_secs=60, late_stream="late")


@pytest.mark.parametrize(
    ("windows", "words"),
    [
        (tumbling(secs=60), "tumbling 60 s of processing time"),
        (tumbling(count=100), "tumbling 100 values"),
        (sliding(secs=0.5, every_secs=0.1), "sliding 0.5 s every 0.1 s of processing time"),
        (sliding(count=10, every_count=1), "sliding 10 values every 1 value"),
        (sliding(secs=60, every_count=5), "sliding 60 s every 5 values of processing time"),
        (session(gap_secs=30), "sessions with a gap of 30 s of processing time"),
        (tumbling(secs=60, event_time=EventTime("at")), "tumbling 60 s of event time"),
        (
            session(gap_secs=30, event_time=AT),
            "sessions with a gap of 30 s of event time, lag 5 s, allowed lateness 60 s, "
            "late tuples to late",
        ),
        (Windows(), ""),
    ],
)
def test_windows_in_words(windows: Windows, words: str) -> None:
    plan = WindowPlan.read(options_of(windows.conf()))
    assert words_of(plan, event_time=windows.event_time is not None) == words
