"""Sessions: what the cookie of a browser that has logged in stands for.

A session ends with the token that it was begun with, after `IDLE_SECS` without a request, when its
user logs out, or with the process: it lies in memory alone. Only a hash of its id is kept.
"""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from squall_common.authentication.authenticator import Proved

IDLE_SECS = 1_800.0
CODE_SECS = 60.0
SESSIONS_MAX = 2_000
SESSIONS_OF_USER_MAX = 20
CODES_MAX = 200


@dataclass(slots=True)
class Session:
    """A browser that has logged in with a token."""

    proved: Proved
    token: str
    used: float


class Sessions:
    """The sessions of one daemon. `now` is the time in seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # longest unused first
        self._codes: OrderedDict[str, Session] = OrderedDict()  # by their hash; oldest first

    def begin(self, proved: Proved, token: str) -> str:
        """Begin one, and return its id. The least used ones make room."""
        own = [
            key for key, one in self._sessions.items() if one.proved.principal == proved.principal
        ]
        if len(own) >= SESSIONS_OF_USER_MAX:
            del self._sessions[own[0]]
        elif len(self._sessions) >= SESSIONS_MAX:
            self._sessions.popitem(last=False)
        identifier = secrets.token_urlsafe(32)
        self._sessions[_hashed(identifier)] = Session(proved, token, self._now())
        return identifier

    def find(self, identifier: str) -> Session | None:
        """The session with an id, which counts as used now; None if it has ended."""
        key = _hashed(identifier)
        session = self._sessions.get(key)
        if session is None:
            return None
        now = self._now()
        ends = session.proved.caller.expires
        if now - session.used > IDLE_SECS or (ends is not None and now >= ends):
            del self._sessions[key]
            return None
        session.used = now
        self._sessions.move_to_end(key)
        return session

    def lives(self, identifier: str) -> bool:
        """Whether a session has not ended. Does not count as a use."""
        return _hashed(identifier) in self._sessions

    def end(self, identifier: str) -> None:
        """Log out."""
        self._sessions.pop(_hashed(identifier), None)

    def make_code(self, proved: Proved, token: str) -> str:
        """A code with which a browser logs in, once, within a minute."""
        if len(self._codes) >= CODES_MAX:
            self._codes.popitem(last=False)
        code = secrets.token_urlsafe(32)
        self._codes[_hashed(code)] = Session(proved, token, self._now())
        return code

    def of_code(self, code: str, *, use: bool) -> Session | None:
        """What a code stands for; `use` makes it void."""
        key = _hashed(code)
        found = self._codes.get(key)
        if found is not None and (use or self._now() - found.used > CODE_SECS):
            del self._codes[key]
        if found is None or self._now() - found.used > CODE_SECS:
            return None
        return found


def _hashed(identifier: str) -> str:
    return hashlib.sha256(identifier.encode(errors="replace")).hexdigest()
