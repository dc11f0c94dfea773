"""Topologies: the windows of windowed bolts. `squall.windows` reads them in a worker; a bolt's own
configuration usually has them, from `windowed()` in the builder."""

from __future__ import annotations

from squall_common.config.options.declaration import (
    COMMAND,
    COMPONENT,
    OURS,
    TOPOLOGY,
    WORKER,
    Option,
)
from squall_common.config.options.kinds import TEXT, Kind, list_of, whole


def _option(key: str, kind: Kind, default: object, sentence: str, **more: object) -> Option:
    return Option(
        key,
        kind,
        default,
        sentence,
        **{"readers": WORKER, "scope": TOPOLOGY | COMPONENT, **more},  # type: ignore[arg-type]
    )


_LENGTH = whole(1)
_MILLIS = {"unit": "milliseconds"}

OPTIONS = (
    _option(
        "topology.bolts.window.length.count",
        _LENGTH,
        None,
        "Length of a bolt's windows in tuples.",
    ),
    _option(
        "topology.bolts.window.length.duration.ms",
        _LENGTH,
        None,
        "Length of a bolt's windows in milliseconds.",
        **_MILLIS,
    ),
    _option(
        "topology.bolts.window.sliding.interval.count",
        _LENGTH,
        None,
        "Number of tuples after which a bolt's window fires. Without any interval: 1.",
    ),
    _option(
        "topology.bolts.window.sliding.interval.duration.ms",
        _LENGTH,
        None,
        "Time after which a bolt's window fires, in milliseconds.",
        **_MILLIS,
    ),
    _option(
        "topology.bolts.window.session.gap.ms",
        _LENGTH,
        None,
        "Pause that ends a session window, in milliseconds; instead of a length and an interval.",
        storm=OURS,
        **_MILLIS,
    ),
    _option(
        "topology.bolts.window.key.fields",
        list_of(TEXT),
        None,
        "Fields of the key by which a bolt has windows; null: one window over all of a task's "
        "tuples.",
        storm=OURS,
    ),
    _option(
        "topology.bolts.tuple.timestamp.field.name",
        TEXT,
        None,
        "Field that holds the timestamp of a tuple, for windows in event time; null: the time of "
        "arrival counts, unless the bolt defines timestamp(). (A key of Storm 1.)",
        storm=OURS,
        readers=COMMAND | WORKER,
    ),
    _option(
        "topology.bolts.tuple.timestamp.max.lag.ms",
        whole(0),
        0,
        "How far the watermark stays behind the latest timestamp, in milliseconds.",
        storm=None,
        **_MILLIS,
    ),
    _option(
        "topology.bolts.watermark.event.interval.ms",
        _LENGTH,
        1000,
        "How often the watermark is advanced, in milliseconds.",
        storm=None,
        **_MILLIS,
    ),
    _option(
        "topology.bolts.watermark.idle.timeout.ms",
        _LENGTH,
        None,
        "An input from which a task gets nothing for this long does not hold the watermark back, "
        "in milliseconds; null: it does.",
        storm=OURS,
        **_MILLIS,
    ),
    _option(
        "topology.bolts.watermark.from",
        list_of(TEXT),
        None,
        "Components whose tasks say how far event time has come in them, in place of the "
        "timestamps of their tuples; null: none. The streams API sets it.",
        storm=OURS,
        scope=COMPONENT,
    ),
    _option(
        "topology.bolts.window.allowed.lateness.ms",
        whole(0),
        0,
        "How much later than the watermark a tuple may come to fire its windows again, in "
        "milliseconds.",
        storm=OURS,
        **_MILLIS,
    ),
    _option(
        "topology.bolts.late.tuple.stream",
        TEXT,
        None,
        "Stream of the bolt to which late tuples go; null: they are logged.",
    ),
    _option(
        "topology.bolts.message.id.field.name",
        TEXT,
        None,
        "Field that identifies a tuple: while a task holds a tuple, another one with the same "
        "value is acked and left out, as it is a replay. null: replays count as new tuples.",
    ),
    _option(
        "topology.bolts.window.tuples.max",
        _LENGTH,
        1000000,
        "How many tuples one task may hold for its windows. Above it tuples fail, and an error is "
        "reported.",
        storm=OURS,
    ),
    _option(
        "topology.bolts.window.tuples.in.memory.max",
        _LENGTH,
        None,
        "How many of the tuples that one task holds for its windows have their values in memory; "
        "those of the others are in files of the worker, in topology.state.backend.folder. null: "
        "all are in memory.",
        storm=OURS,
    ),
)
