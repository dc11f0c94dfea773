"""Verdicts: how Squall treats a key of Apache Storm.

supported  Squall has an option of this name, with the same meaning
mapped     Squall has another option for it, which gets the value
ignored    it has no effect here; a value other than Storm's default is warned of
refused    it asks for protection that Squall does not give: going on would be false safety

A value that asks for nothing (null, false, empty, Storm's own default) is never refused nor warned
of, so that a site file which spells out Storm's defaults can be used as it is.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


class Verdict(enum.Enum):
    SUPPORTED = "supported"
    MAPPED = "mapped"
    IGNORED = "ignored"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class StormKey:
    """A key of Storm's that is not an option of Squall's."""

    key: str
    default: Any  # Storm's
    verdict: Verdict
    reason: str
    ours: str | None = None  # MAPPED: the option that gets the value
    # MAPPED: Storm's value as ours; None where it leaves ours as it is.
    convert: Callable[[Any], Any] | None = None


def ignored(reason: str, defaults: Mapping[str, Any]) -> list[StormKey]:
    """Keys that have no effect for one reason, with Storm's defaults."""
    return [StormKey(key, value, Verdict.IGNORED, reason) for key, value in defaults.items()]


def refused(reason: str, defaults: Mapping[str, Any]) -> list[StormKey]:
    """Keys that are refused for one reason, with Storm's defaults."""
    return [StormKey(key, value, Verdict.REFUSED, reason) for key, value in defaults.items()]


# Classes of Storm's that protect nothing.
_OPEN = frozenset(
    {
        "org.apache.storm.security.auth.SimpleTransportPlugin",
        "org.apache.storm.security.auth.authorizer.NoopAuthorizer",
    }
)


def asks_for_something(value: Any, default: Any) -> bool:
    """Whether a value wants more than what holds without it."""
    if value is None or value is False or value == default:
        return False
    if isinstance(value, str):
        return value != "" and value not in _OPEN
    if isinstance(value, (list, tuple, dict)):
        return len(value) > 0
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value > 0  # -1 and 0: no such port
    return True
