"""The initial responses of the SASL mechanisms that Squall speaks, inside TLS.

`EXTERNAL` (RFC 4422, appendix A): the certificate says who it is, and the response is empty or
names the user to act for. `OAUTHBEARER` (RFC 7628): `n,a=USER,` with the user to act for, if there
is one, then ^A, `auth=Bearer TOKEN`, ^A and ^A.
"""

from __future__ import annotations

EXTERNAL, OAUTHBEARER = "EXTERNAL", "OAUTHBEARER"
_END = "\x01"


class ResponseError(ValueError):
    """It is not an initial response of its mechanism. The text is for the log."""


def external(act_for: str | None) -> bytes:
    """EXTERNAL's response."""
    return (act_for or "").encode()


def parse_external(response: bytes) -> str | None:
    """The user to act for, or None. Raises ResponseError."""
    return _text(response) or None


def bearer(token: str, act_for: str | None) -> bytes:
    """OAUTHBEARER's response.

    >>> bearer("TOKEN", None)
    b'n,,\\x01auth=Bearer TOKEN\\x01\\x01'
    """
    name = "" if act_for is None else "a=" + act_for.replace("=", "=3D").replace(",", "=2C")
    return f"n,{name},{_END}auth=Bearer {token}{_END}{_END}".encode()


def parse_bearer(response: bytes) -> tuple[str, str | None]:
    """The token, and the user to act for. Raises ResponseError, which does not quote the token."""
    head, *pairs = _text(response).split(_END)
    parts = head.split(",")
    if len(parts) != 3 or parts[0] != "n" or parts[2]:
        raise ResponseError("OAUTHBEARER: it does not begin with n,[a=USER],")
    if pairs[-2:] != ["", ""]:
        raise ResponseError("OAUTHBEARER: it does not end as it should")
    tokens = [
        pair.removeprefix("auth=Bearer ") for pair in pairs if pair.startswith("auth=Bearer ")
    ]
    if len(tokens) != 1 or not tokens[0]:
        raise ResponseError("OAUTHBEARER: it must have exactly one token")
    act_for = parts[1]
    if act_for and not act_for.startswith("a="):
        raise ResponseError("OAUTHBEARER: the user to act for is not a=USER")
    name = act_for.removeprefix("a=").replace("=2C", ",").replace("=3D", "=")
    return tokens[0], name or None


def _text(response: bytes) -> str:
    try:
        return response.decode()
    except UnicodeDecodeError:
        raise ResponseError("the response is not UTF-8") from None
