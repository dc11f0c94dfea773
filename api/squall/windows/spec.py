"""What windows a bolt has: `tumbling`, `sliding` and `session`, and the configuration they become.

    tumbling(secs=60)
    sliding(secs=600, every_secs=10, key="word", event_time=EventTime("at", lag_secs=5))
    session(gap_secs=1800, key="user")

The keys are Storm's (`topology.bolts.window...`) where Storm has one, so the configuration of a
component can set them, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_common.errors import InvalidTopologyError

if TYPE_CHECKING:
    from squall_common.config.options.typed import TopologyOptions

DURATION_MS_MAX = 2**31 - 1  # as Storm's, 24 days
LATE_TUPLE_FIELD = "late_tuple"

_PREFIX = "topology.bolts."
_WINDOW_KEYS = tuple(
    f"{_PREFIX}window.{key}"
    for key in (
        "length.count",
        "length.duration.ms",
        "sliding.interval.count",
        "sliding.interval.duration.ms",
        "session.gap.ms",
        "key.fields",
        "allowed.lateness.ms",
    )
)
_TIME_KEYS = tuple(
    f"{_PREFIX}{key}"
    for key in (
        "tuple.timestamp.field.name",
        "tuple.timestamp.max.lag.ms",
        "watermark.event.interval.ms",
        "watermark.idle.timeout.ms",
        "late.tuple.stream",
    )
)
WINDOW_KEYS = (*_WINDOW_KEYS, *_TIME_KEYS)
_FIELD_KEYS = {
    "topology.bolts.window.key.fields": "has windows by field",
    "topology.bolts.tuple.timestamp.field.name": "takes the timestamp from field",
    "topology.bolts.message.id.field.name": "takes the message id from field",
}


@dataclass(frozen=True, slots=True)
class EventTime:
    """Windows by the time at which something happened, instead of the time at which it arrives.

        sliding(secs=60, every_secs=10, event_time=EventTime("at", lag_secs=5, late_stream="late"))

    `field` is the field of the timestamp: milliseconds since the epoch, or a datetime with a time
    zone. None: the bolt's `timestamp` method finds it. The watermark stays `lag_secs` behind the
    latest timestamp, and is advanced every `watermark_interval_secs`. An input without tuples for
    `idle_secs` does not hold it back (None: it does). A tuple that is late goes to the stream
    `late_stream` (None: it is logged), or, up to `allowed_lateness_secs`, fires its windows again.
    """

    field: str | None = None
    lag_secs: float = 0.0
    watermark_interval_secs: float = 1.0
    idle_secs: float | None = None
    allowed_lateness_secs: float = 0.0
    late_stream: str | None = None

    def conf(self) -> dict[str, Any]:
        """The options that say the same."""
        conf: dict[str, Any] = {
            "topology.bolts.tuple.timestamp.max.lag.ms": _millis("lag_secs", self.lag_secs, 0),
            "topology.bolts.watermark.event.interval.ms": _millis(
                "watermark_interval_secs", self.watermark_interval_secs
            ),
        }
        if self.field is not None:
            conf["topology.bolts.tuple.timestamp.field.name"] = self.field
        if self.idle_secs is not None:
            conf["topology.bolts.watermark.idle.timeout.ms"] = _millis("idle_secs", self.idle_secs)
        if self.allowed_lateness_secs:
            conf["topology.bolts.window.allowed.lateness.ms"] = _millis(
                "allowed_lateness_secs", self.allowed_lateness_secs
            )
        if self.late_stream is not None:
            conf["topology.bolts.late.tuple.stream"] = self.late_stream
        return conf


@dataclass(frozen=True, slots=True)
class Windows:
    """The windows of a bolt, as `tumbling`, `sliding` or `session` made them.

        windows = tumbling(secs=60)
        assert windows.conf()["topology.bolts.window.length.duration.ms"] == 60_000

    Lengths and intervals are in tuples (`_count`) or in milliseconds (`_ms`).
    """

    length_count: int | None = None
    length_ms: int | None = None
    slide_count: int | None = None
    slide_ms: int | None = None
    gap_ms: int | None = None
    key: tuple[str, ...] = ()
    event_time: EventTime | None = None

    def conf(self) -> dict[str, Any]:
        """The component's configuration that says the same."""
        conf: dict[str, Any] = {}
        for key, value in zip(
            _WINDOW_KEYS,
            (self.length_count, self.length_ms, self.slide_count, self.slide_ms, self.gap_ms),
            strict=False,
        ):
            if value is not None:
                conf[key] = value
        if self.key:
            conf["topology.bolts.window.key.fields"] = list(self.key)
        if self.event_time is not None:
            conf.update(self.event_time.conf())
        return conf


Key = str | Sequence[str]


def tumbling(
    *,
    secs: float | None = None,
    count: int | None = None,
    key: Key = (),
    event_time: EventTime | None = None,
) -> Windows:
    """Windows without an overlap: of `secs` seconds, or of `count` tuples. Each tuple is in one.

    With `key`, the fields of a key, each key has windows of its own. Raises InvalidTopologyError
    for lengths that make no window.

        tumbling(secs=60)
        tumbling(count=100, key="sensor")
    """
    length = _one("tumbling", "secs", secs, "count", count)
    return Windows(
        length_count=length if secs is None else None,
        length_ms=None if secs is None else length,
        slide_count=length if secs is None else None,
        slide_ms=None if secs is None else length,
        key=_fields(key),
        event_time=event_time,
    )


def sliding(
    *,
    secs: float | None = None,
    count: int | None = None,
    every_secs: float | None = None,
    every_count: int | None = None,
    key: Key = (),
    event_time: EventTime | None = None,
) -> Windows:
    """Windows of the last `secs` seconds, or of the last `count` tuples, that fire every
    `every_secs` seconds or after every `every_count` tuples. A tuple may be in several.

    With `key`, the fields of a key, each key has windows of its own; one that is idle for `secs`
    seconds begins anew. Raises InvalidTopologyError for lengths that make no window.

        sliding(secs=60, every_secs=10)
        sliding(count=1000, every_count=100)
        sliding(secs=60, every_count=1)
    """
    length = _one("sliding", "secs", secs, "count", count)
    slide = _one("sliding", "every_secs", every_secs, "every_count", every_count)
    return Windows(
        length_count=length if secs is None else None,
        length_ms=None if secs is None else length,
        slide_count=slide if every_secs is None else None,
        slide_ms=None if every_secs is None else slide,
        key=_fields(key),
        event_time=event_time,
    )


def session(*, gap_secs: float, key: Key = (), event_time: EventTime | None = None) -> Windows:
    """Windows that end when nothing came for `gap_secs` seconds; with `key`, the fields of a key,
    for each key by itself.

        session(gap_secs=1800, key="user")
    """
    gap_ms = _millis("gap_secs", gap_secs, call="session(): ")
    return Windows(gap_ms=gap_ms, key=_fields(key), event_time=event_time)


def _one(what: str, secs_name: str, secs: Any, count_name: str, count: Any) -> int:
    if (secs is None) == (count is None):
        raise InvalidTopologyError(f"{what}(): give either {secs_name} or {count_name}")
    if secs is not None:
        return _millis(secs_name, secs, call=f"{what}(): ")
    if not isinstance(count, int) or isinstance(count, bool) or not 1 <= count <= DURATION_MS_MAX:
        raise InvalidTopologyError(
            f"{what}(): {count_name} is {count!r}; expected a whole number from 1"
        )
    return count


def _millis(name: str, secs: Any, minimum: int = 1, call: str = "") -> int:
    if isinstance(secs, (int, float)) and not isinstance(secs, bool):
        try:
            millis = round(secs * 1000)
        except (ValueError, OverflowError):
            millis = -1
        if minimum <= millis <= DURATION_MS_MAX:
            return millis
    raise InvalidTopologyError(
        f"{call}{name} is {secs!r}; expected seconds, from {minimum / 1000:g} to "
        f"{DURATION_MS_MAX // 1000}"
    )


def _fields(key: Key) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else tuple(key)


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """The windows of a task, as its configuration says."""

    length_count: int | None
    length_ms: int | None
    slide_count: int | None
    slide_ms: int | None
    gap_ms: int | None
    key: tuple[str, ...]
    timestamp_field: str | None
    lag_ms: int
    watermark_ms: int
    idle_ms: int | None
    lateness_ms: int
    late_stream: str | None
    tuples_max: int
    message_id_field: str | None

    @classmethod
    def read(cls, options: TopologyOptions) -> WindowPlan:
        """The windows that options describe. As in Storm, a window without an interval slides with
        every tuple."""
        slide_count = options.topology_bolts_window_sliding_interval_count
        slide_ms = options.topology_bolts_window_sliding_interval_duration_ms
        length_count = options.topology_bolts_window_length_count
        gap_ms = options.topology_bolts_window_session_gap_ms
        if slide_count is None and slide_ms is None and gap_ms is None:
            slide_count = 1
        return cls(
            length_count=length_count,
            length_ms=options.topology_bolts_window_length_duration_ms,
            slide_count=slide_count,
            slide_ms=slide_ms,
            gap_ms=gap_ms,
            key=tuple(options.topology_bolts_window_key_fields or ()),
            timestamp_field=options.topology_bolts_tuple_timestamp_field_name,
            lag_ms=options.topology_bolts_tuple_timestamp_max_lag_ms,
            watermark_ms=options.topology_bolts_watermark_event_interval_ms,
            idle_ms=options.topology_bolts_watermark_idle_timeout_ms,
            lateness_ms=options.topology_bolts_window_allowed_lateness_ms,
            late_stream=options.topology_bolts_late_tuple_stream,
            tuples_max=options.topology_bolts_window_tuples_max,
            message_id_field=options.topology_bolts_message_id_field_name,
        )

    @property
    def tumbles(self) -> bool:
        """Whether no tuple is in two windows."""
        if self.length_ms is not None:
            return self.length_ms == self.slide_ms
        return self.length_count is not None and self.length_count == self.slide_count

    def problems(self, *, event_time: bool, aggregates: bool) -> list[str]:
        """What is wrong with it, one sentence each."""
        found = []
        by_length = self.length_count is not None or self.length_ms is not None
        if self.gap_ms is None and not by_length:
            found.append(
                "it has no windows: pass tumbling(...), sliding(...) or session(...) to "
                "windowed(), or set the class attribute `windows`"
            )
        if self.gap_ms is not None and by_length:
            found.append("it has both a length and a session gap; choose one")
        if self.length_count is not None and self.length_ms is not None:
            found.append("its windows have a length in tuples and one in time; choose one")
        if self.slide_count is not None and self.slide_ms is not None:
            found.append("its windows have two intervals, in tuples and in time; choose one")
        if not event_time:
            names = {
                "late stream": self.late_stream,
                "allowed lateness": self.lateness_ms,
            }
            found += [
                f"it has {'an' if name[0] == 'a' else 'a'} {name}, but only windows in event time "
                "have late tuples: name the field of the timestamp (EventTime), or define "
                "timestamp()"
                for name, value in names.items()
                if value
            ]
        in_time = self.length_ms is not None and self.slide_ms is not None
        if self.lateness_ms and not in_time and self.gap_ms is None:
            found.append(
                "allowed lateness needs windows whose length and interval are in time, or sessions"
            )
        if aggregates and self.gap_ms is None and by_length and not in_time:
            in_tuples = self.length_count is not None and self.slide_count is not None
            if event_time or not in_tuples:
                found.append(
                    "an aggregate needs windows whose length and interval are both in time, or "
                    "(without event time) both in tuples; define execute_window() instead"
                )
        return found


def window_fields(conf: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields that a component's configuration names, and what for."""
    for key, use in _FIELD_KEYS.items():
        found = conf.get(key)
        for field in (found,) if isinstance(found, str) else found or ():
            if isinstance(field, str):
                yield field, use


def options_of(conf: Mapping[str, Any]) -> TopologyOptions:
    """Raises ConfigError. Imported here: whoever builds a topology without windows needs none."""
    from squall_common.config.options.typed import TopologyOptions

    return TopologyOptions.read(dict(conf))
