"""Configuration as it may be shown: secrets are replaced, at any depth."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_SECRET = re.compile(
    r"password|passwd|passphrase|secret|token|credential|private[._-]?key|auth\.payload|api[._-]?key",
    re.IGNORECASE,
)
# Keys that the words above catch, and that hold no secret: intervals, class names, sizes.
_HARMLESS = re.compile(r"\.(secs|ms|millis|class|classes|freq|plugin|size|count|enabled)$")

HIDDEN = "*****"


def redact(conf: Mapping[str, Any]) -> dict[str, Any]:
    """A copy with the values of secret keys replaced; null stays null, which tells nothing."""
    return {key: _shown(str(key), value) for key, value in conf.items()}


def _shown(key: str, value: Any) -> Any:
    if value is not None and _SECRET.search(key) and not _HARMLESS.search(key):
        return HIDDEN
    if isinstance(value, Mapping):
        return redact(value)
    if isinstance(value, list):
        return [_shown("", item) for item in value]
    return value
