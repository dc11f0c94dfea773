"""What windows read of a tuple: its time, and its key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from squall.windows.spec import WindowPlan

if TYPE_CHECKING:
    from squall_common.component.tuples import Tuple

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def timestamp_getter(plan: WindowPlan) -> Callable[[Tuple], Any] | None:
    """What gets the field of a tuple that has its time; None: no field has."""
    return None if plan.timestamp_field is None else itemgetter(plan.timestamp_field)


def key_getter(fields: Sequence[str]) -> Callable[[Tuple], Hashable]:
    """What gets the key of a tuple: the value of one field, or those of several."""
    if not fields:
        return lambda tup: None
    if len(fields) == 1:
        return itemgetter(fields[0])
    return lambda tup: tuple(tup[field] for field in fields)


def millis_of(at: Any) -> int:
    """A timestamp in milliseconds."""
    if isinstance(at, int) and not isinstance(at, bool):
        return at
    if isinstance(at, float) and at == at and abs(at) < 2**63:
        return int(at)
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise ValueError(f"timestamp {at} has no time zone")
        return (at - _EPOCH) // timedelta(milliseconds=1)
    raise ValueError(
        f"timestamp {at!r:.100} is neither milliseconds since the epoch nor a datetime"
    )


def whole_times(timestamp: Callable[[Tuple], Any], tuples: Sequence[Tuple]) -> list[int]:
    """The timestamps of tuples, if all are whole numbers; otherwise none."""
    try:
        found = list(map(timestamp, tuples))
    except Exception:
        return []
    return found if set(map(type, found)) == {int} else []
