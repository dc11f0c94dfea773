"""A circuit breaker: stops asking a service that does not answer, and finds out when it does again.

    CLOSED --too many failures--> OPEN --its time is up, one may try--> HALF_OPEN
       ^                            ^                                       |
       |                            +----------------it failed--------------+
       +-----------------------------------------it succeeded---------------+

Pure: the time comes in as `now`.
"""

from __future__ import annotations

import enum


class BreakerState(enum.Enum):
    """The states of a breaker."""

    CLOSED = "requests are made; failures in a row are counted"
    OPEN = "no request is made until its time is up"
    HALF_OPEN = "one request is under way, on which it depends"


class BreakerEvent(enum.Enum):
    """What can happen to one."""

    TOO_MANY_FAILED = "as many requests in a row have failed as may"
    TRIED = "its time is up, and a request was let through"
    SUCCEEDED = "a request succeeded"
    FAILED = "the request that was let through failed"


_S, _E = BreakerState, BreakerEvent
TABLE: dict[tuple[BreakerState, BreakerEvent], BreakerState] = {
    # state        what happened         next state
    (_S.CLOSED,    _E.TOO_MANY_FAILED):  _S.OPEN,
    (_S.CLOSED,    _E.SUCCEEDED):        _S.CLOSED,
    (_S.OPEN,      _E.TRIED):            _S.HALF_OPEN,
    # Requests that were under way when it opened.
    (_S.OPEN,      _E.SUCCEEDED):        _S.CLOSED,
    (_S.HALF_OPEN, _E.SUCCEEDED):        _S.CLOSED,
    (_S.HALF_OPEN, _E.FAILED):           _S.OPEN,
}  # fmt: skip


class Breaker:
    """Opens after `failures_max` failures in a row, for `open_secs`."""

    def __init__(self, failures_max: int, open_secs: float) -> None:
        self.state = BreakerState.CLOSED
        self._failures_max = failures_max
        self._open_secs = open_secs
        self._failures = 0  # in a row
        self._open_until = 0.0  # meant in OPEN and HALF_OPEN

    def may_ask(self, now: float) -> bool:
        """Whether a request may be made now. Each that is must be followed by `succeeded` or
        `failed`."""
        if self.state is BreakerState.CLOSED:
            return True
        # A request that was let through and never ended must not close it for good.
        if now < self._open_until:
            return False
        if self.state is BreakerState.OPEN:
            self._happened(BreakerEvent.TRIED)
        self._open_until = now + self._open_secs
        return True

    def succeeded(self) -> None:
        self._failures = 0
        self._happened(BreakerEvent.SUCCEEDED)

    def failed(self, now: float) -> None:
        self._failures += 1
        if self.state is BreakerState.HALF_OPEN:
            self._happened(BreakerEvent.FAILED)
            self._open_until = now + self._open_secs
        elif self.state is BreakerState.CLOSED and self._failures >= self._failures_max:
            self._happened(BreakerEvent.TOO_MANY_FAILED)
            self._open_until = now + self._open_secs

    def _happened(self, event: BreakerEvent) -> None:
        self.state = TABLE[self.state, event]

    def validate(self) -> None:
        """Raise AssertionError if the parts contradict each other."""
        closed = self.state is BreakerState.CLOSED
        assert closed or self._open_until > 0
        assert not closed or self._failures < self._failures_max
