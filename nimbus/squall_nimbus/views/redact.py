"""Hides possible secrets in a configuration before it is shown, at any depth.

Without authentication every caller sees the same, so only what is known to be harmless is shown:
the value of a key that Squall knows; of any other key, only that it is set. A topology's own keys
may hold database passwords under names of all kinds.

In the values that are shown, the password of a URL and text after `password=` and the like are
replaced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from squall_common.config.schema import SCHEMA
from squall_common.daemon.output.redaction import HIDDEN, SECRET_WORDS, redact_text

_SECRET = re.compile(SECRET_WORDS, re.IGNORECASE)
# Keys of Squall that match the words above but hold no secret: intervals, class names, sizes.
_HARMLESS = re.compile(r"\.(secs|ms|millis|class|classes|freq|plugin|size|count|enabled)$")
# Keys of Squall that may have any content.
_FREE = frozenset({"topology.environment", "worker.environment"})
# Keys that Nimbus itself puts into a topology's configuration.
_OWN = frozenset({"storm.id"})


def redact(conf: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of a configuration without secrets; null stays null, which reveals nothing."""
    return {
        key: _shown(str(key), value) if _is_known(str(key)) else _hidden(value)
        for key, value in conf.items()
    }


def _is_known(key: str) -> bool:
    return key in _OWN or (key in SCHEMA and key not in _FREE)


def _hidden(value: Any) -> Any:
    """A map keeps its keys: they show which variables are set, but not their values."""
    if isinstance(value, Mapping):
        return {key: _hidden(one) for key, one in value.items()}
    return None if value is None else HIDDEN


def _shown(key: str, value: Any) -> Any:
    if value is not None and _SECRET.search(key) and not (key in SCHEMA and _HARMLESS.search(key)):
        return HIDDEN
    if isinstance(value, Mapping):
        return {key: _shown(str(key), one) for key, one in value.items()}
    if isinstance(value, list):
        return [_shown("", item) for item in value]
    if isinstance(value, str):
        return redact_text(value)
    return value
