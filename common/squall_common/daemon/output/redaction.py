"""Hides secrets in text: the password of a URL, and what is assigned to a word like `password`."""

from __future__ import annotations

import re

HIDDEN = "*****"

SECRET_WORDS = (
    r"password|passwd|passphrase|pwd|secret|token|credential|private[._-]?key|auth\.payload"
    r"|api[._-]?key|access[._-]?key|authorization"
)
# Texts are anybody's, so both take a time that grows with the length alone: a match begins where a
# word begins, and is not tried again at each of its letters. The name of an exception
# (NoCredentialsError: ...) is assigned nothing.
_URL_PASSWORD = re.compile(r"(?<=[A-Za-z0-9+.-])(?P<head>://[^/\s:@]*+:)[^/\s]*(?=@)")
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?=[\w.-]*?(?:{SECRET_WORDS}))(?!(?-i:[\w.]*[a-z](?:Error|Exception):))"
    r"(?P<head>[\w.-]++[\"']?\s*+[=:]\s*)(?:\"[^\"]*\"|'[^']*'|[^\s,;&]+)",
    re.IGNORECASE,
)


def redact_text(text: str) -> str:
    """The text without the secrets that can be recognized in it."""
    if "://" in text:
        text = _URL_PASSWORD.sub(rf"\g<head>{HIDDEN}", text)
    if "=" in text or ":" in text:
        text = _ASSIGNED.sub(rf"\g<head>{HIDDEN}", text)
    return text
