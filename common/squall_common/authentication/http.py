"""How a request over HTTP shows a token."""

from __future__ import annotations

import re
from typing import Any

from squall_common.authentication.credentials import ACT_FOR_HEADER
from squall_thrift.serving.authentication import RefusedError

_TOKEN = re.compile(r"[A-Za-z0-9_.=-]{1,16384}")


def bearer_of(headers: Any) -> str | None:
    """The token in a request's `Authorization`; None if it has none. `headers` are aiohttp's.
    Raises RefusedError for anything that is not one token, and for one beside a user to act
    for."""
    shown = headers.getall("Authorization", [])
    if not shown:
        return None
    scheme, _, token = shown[0].partition(" ")
    if len(shown) > 1 or scheme.lower() != "bearer" or ACT_FOR_HEADER in headers:
        raise RefusedError("Authorization: it must be one Bearer token")
    return check_token(token.strip())


def check_token(text: str) -> str:
    """A text that may be a token. Raises RefusedError, which does not quote it."""
    if _TOKEN.fullmatch(text) is None:
        raise RefusedError("it is not a token")
    return text
