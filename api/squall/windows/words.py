"""The windows of a component in words, for plans and pages."""

from __future__ import annotations

from squall.windows.spec import WindowPlan


def words_of(windows: WindowPlan, *, event_time: bool) -> str:
    """What windows a component has, without their key: "tumbling 60 s of event time, lag 5 s"; ""
    for windows that have neither a length nor a gap."""
    parts = [_kind(windows, "event time" if event_time else "processing time", event_time)]
    if event_time:
        if windows.lag_ms:
            parts.append(f"lag {_secs(windows.lag_ms)}")
        if windows.lateness_ms:
            parts.append(f"allowed lateness {_secs(windows.lateness_ms)}")
        if windows.late_stream is not None:
            parts.append(f"late tuples to {windows.late_stream}")
    return ", ".join(parts) if parts[0] else ""


def _kind(windows: WindowPlan, time: str, event_time: bool) -> str:
    if windows.gap_ms is not None:
        return f"sessions with a gap of {_secs(windows.gap_ms)} of {time}"
    if windows.length_ms is None and windows.length_count is None:
        return ""
    length = _length(windows.length_ms, windows.length_count)
    interval = _length(windows.slide_ms, windows.slide_count)
    kind = f"tumbling {length}" if length == interval else f"sliding {length} every {interval}"
    in_values = windows.length_ms is None and windows.slide_ms is None
    return kind if in_values and not event_time else f"{kind} of {time}"


def _length(millis: int | None, count: int | None) -> str:
    if millis is not None:
        return _secs(millis)
    return "1 value" if count == 1 else f"{count} values"


def _secs(millis: int) -> str:
    return f"{millis / 1000:g} s"
