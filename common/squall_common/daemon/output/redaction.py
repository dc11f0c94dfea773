"""Hides secrets in text: the password of a URL, and what is assigned to a word like `password`."""

from __future__ import annotations

import re

HIDDEN = "*****"

SECRET_WORDS = (
    r"password|passwd|passphrase|pwd|secret|token|credential|private[._-]?key|auth\.payload"
    r"|api[._-]?key|access[._-]?key|authorization"
)
_URL_PASSWORD = re.compile(r"(?P<head>[A-Za-z][A-Za-z0-9+.-]*://[^/\s:@]*:)[^/\s]*(?=@)")
_ASSIGNED = re.compile(
    rf"(?P<head>(?:{SECRET_WORDS})[\w.-]*[\"']?\s*[=:]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,;&]+)",
    re.IGNORECASE,
)


def redact_text(text: str) -> str:
    """The text without the secrets that can be recognized in it."""
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\g<head>{HIDDEN}", text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(rf"\g<head>{HIDDEN}", text)
    return text
