"""Streams: topologies from functions instead of bolts.

    from squall import StreamBuilder
    from squall.windows import tumbling

    builder = StreamBuilder()
    lines = builder.source("lines", Lines(), of=Line).event_time(Line.at)
    words = lines.flat_map(words_of)
    words.key_by().window(tumbling(secs=60)).count().print()
    topology = builder.build()

    stream      Stream, KeyedStream, WindowedStream, WindowResults: what a program calls
    builder     StreamBuilder
    nodes       the graph of these calls
    planning    from the graph to tasks: what is fused, what is sent; `plan` shows it
    compiling   from tasks to components
    functions   users' functions, which travel by import path
    values      the values of streams, and the fields in which they travel
    steps       narrow steps, on batches
    bolts, windowing    the bolts

It uses the builder and the windows of `squall`, and nothing of the engine.
"""

from squall.streams.bolts import KeyState
from squall.streams.builder import StreamBuilder
from squall.streams.plan import Plan
from squall.streams.stream import KeyedStream, Stream, WindowedStream, WindowResults
from squall.streams.values import Windowed

__all__ = [
    "KeyState",
    "KeyedStream",
    "Plan",
    "Stream",
    "StreamBuilder",
    "WindowResults",
    "Windowed",
    "WindowedStream",
]
