"""Windows: bolts that get many tuples at once, by count, by time or by session.

    from squall import WindowedBolt
    from squall.windows import sliding

    class Count(WindowedBolt):
        outputs = ["word", "count"]

        def execute_window(self, window):
            self.emit([window.key, len(window)])

    builder.bolt("count", Count()).windowed(
        sliding(secs=60, every_secs=10, key="word")
    ).fields("words", "word")

What fires and what leaves a window is decided here without a clock, a collector or an engine:

    spec          tumbling, sliding, session, and the configuration that they are
    evictors, triggers, manager, lateness    Storm's windows over a queue of tuples
    sessions      windows that end with a pause
    panes         aggregates of sliding windows, at a constant cost a tuple
    watermarks    how far event time has come
    operators     all of these behind one interface
    held          how many tuples wait in them
    on_disk       values of tuples in files, for windows larger than memory
    task_windows  those of a task, as they are stored and go on

`bolt` has `WindowedBolt` and `AggregateBolt`, and `join` Storm's JoinBolt. `shell` drives the
windows of a task by clock and collector: it reads tuples by `reading`, and logs late ones by
`left_out`.
"""

from squall.windows.bolt import AggregateBolt, WindowedBolt
from squall.windows.join import JoinBolt
from squall.windows.spec import EventTime, Windows, session, sliding, tumbling
from squall.windows.tuple_window import TupleWindow

__all__ = [
    "AggregateBolt",
    "EventTime",
    "JoinBolt",
    "TupleWindow",
    "WindowedBolt",
    "Windows",
    "session",
    "sliding",
    "tumbling",
]
