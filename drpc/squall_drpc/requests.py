"""The requests of a DRPC server: waiting, taken by workers, and ended. No clock, no I/O.

    add ──▶ waiting, by function ──take──▶ taken ──settle──▶ ended
                 │                           │
                 └────── timeout ────────────┴── timeout, or its taker is gone

Each request ends exactly once, and then everything about it is forgotten: anything that arrives for
it later is dropped. An id is never reused, not even by the next server on the same port: it begins
with a random text of the server, so that a late result for a previous server is dropped.

A *taker* is a worker that fetches in batches. It chooses its own name, and its fetches show that it
is alive; when it has not fetched for `taker_timeout_secs`, the requests that it took fail, because
no other worker would ever answer them. A taker does not know of a batch that was lost on the way;
each fetch gives the number of the last batch that it *has*, so that it gets a lost one again.
Storm's own workers take requests one by one, without a name: those that they lose end by the
timeout.

The memory that callers can use is bounded (`Bounds`): requests waiting for one function, requests
in all, and the bytes of their arguments; one caller's address may use only a share of each, so that
there is room for others. A function without callers or without workers leaves nothing behind.
"""

from __future__ import annotations

import enum
import sys
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

_BATCH_CHARS_MAX = 262_144  # of arguments, in a batch of more than one request
_NUMBER_MAX = 2**31 - 1  # of a batch: an i32 on the wire


class Reason(enum.IntEnum):
    """Why a request failed: the numbers of Storm's DRPCExceptionType."""

    INTERNAL_ERROR = 0
    SERVER_SHUTDOWN = 1
    SERVER_TIMEOUT = 2
    FAILED_REQUEST = 3


@dataclass(frozen=True, slots=True)
class Failure:
    """The end of a request without a result."""

    reason: Reason
    message: str


Outcome = str | Failure


class BusyError(Exception):
    """A bound is reached: the request was not accepted."""


@dataclass(frozen=True, slots=True)
class Request:
    """A request on its way to a topology."""

    id: str
    args: str


@dataclass(frozen=True, slots=True)
class Batch:
    """Requests for one taker. `number` is 0 for a taker without a name."""

    number: int
    requests: tuple[Request, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the requests in progress, for all callers and for one peer among them."""

    waiting: int  # for one function
    requests: int
    bytes: int = 2**63
    peer_percent: int = 100  # of each of the above

    def of_peer(self, bound: int) -> int:
        """One peer's share of a bound, at least one."""
        return max(1, bound * self.peer_percent // 100)


@dataclass(slots=True)
class _Held:
    """The requests in progress, of all peers or of one."""

    requests: int = 0
    bytes: int = 0
    waiting: dict[str, int] = field(default_factory=dict)  # by function; none is 0

    def count_waiting(self, function: str, change: int) -> None:
        count = self.waiting.get(function, 0) + change
        if count:
            self.waiting[function] = count
        else:
            del self.waiting[function]


@dataclass(slots=True)
class _Pending:
    peer: str
    size: int  # bytes of its arguments, in memory
    request: Request
    function: str
    deadline: float
    on_end: Callable[[Outcome], None]
    taker: str | None = None
    server: str | None = None  # who has taken it, if workers prove who they are


@dataclass(slots=True)
class _Taker:
    seen: float
    number: int = 0  # of the last batch that it was given
    last: tuple[str, ...] = ()  # the requests of that batch
    holds: set[str] = field(default_factory=set)


class Requests:
    """All of a server's requests. Times are seconds of one monotonic clock."""

    def __init__(
        self,
        server: str,
        *,
        timeout_secs: float,
        taker_timeout_secs: float,
        bounds: Bounds,
    ) -> None:
        """`server` is a text that no other run of a server has ever had."""
        self._server = server
        self._timeout_secs = timeout_secs
        self._taker_timeout_secs = taker_timeout_secs
        self._bounds = bounds
        self._number = 0
        self._all = _Held()
        self._peers: dict[str, _Held] = {}  # only peers with requests in progress
        # All timeouts are equally long: the oldest request is the first to end.
        self._pending: OrderedDict[str, _Pending] = OrderedDict()
        self._waiting: dict[str, OrderedDict[str, None]] = {}  # by function; none is empty
        self._takers: dict[str, _Taker] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def waiting_functions(self) -> list[str]:
        """The functions for which requests wait."""
        return list(self._waiting)

    def add(
        self,
        function: str,
        args: str,
        now: float,
        on_end: Callable[[Outcome], None],
        peer: str = "",
    ) -> Request:
        """Accept a request from a `peer` (an address). `on_end` is called once, within the timeout.
        Raises BusyError."""
        size = sys.getsizeof(args)
        held = self._peers.get(peer) or _Held()
        self._check_room(function, size, self._all, lambda bound: bound, "")
        self._check_room(function, size, held, self._bounds.of_peer, f" of {peer or 'this peer'}")
        self._number += 1
        request = Request(f"{self._server}-{self._number}", args)
        self._pending[request.id] = _Pending(
            peer, size, request, function, now + self._timeout_secs, on_end
        )
        self._waiting.setdefault(function, OrderedDict())[request.id] = None
        self._peers[peer] = held
        for one in (self._all, held):
            one.requests += 1
            one.bytes += size
            one.count_waiting(function, 1)
        return request

    def _check_room(
        self, function: str, size: int, held: _Held, part: Callable[[int], int], whose: str
    ) -> None:
        bounds = self._bounds
        if held.requests >= part(bounds.requests):
            raise BusyError(f"the server has {held.requests} requests{whose} under way")
        if (waiting := held.waiting.get(function, 0)) >= part(bounds.waiting):
            raise BusyError(f"{waiting} requests{whose} already wait for function {function!r}")
        if held.bytes + size > part(bounds.bytes):
            raise BusyError(
                f"the server has requests{whose} with {held.bytes} bytes of arguments under way"
            )

    def _no_longer_waits(self, pending: _Pending) -> None:
        for one in (self._all, self._peers[pending.peer]):
            one.count_waiting(pending.function, -1)

    def take(
        self,
        function: str,
        most: int,
        now: float,
        taker: str | None = None,
        have: int = 0,
        server: str | None = None,
    ) -> Batch:
        """The oldest waiting requests of a function, at most `most`. A `taker` that does not have
        the last batch sent to it gets that one again, without the requests ended since. `server` is
        for whom they are taken (`taken_by`)."""
        known = self._takers.get(taker) if taker is not None else None
        if known is not None:
            known.seen = now
            if have != known.number and known.last:
                again = [self._pending[i].request for i in known.last if i in known.holds]
                if again:
                    return Batch(known.number, tuple(again))
        taken: list[Request] = []
        queue = self._waiting.get(function)
        size = 0
        while queue and len(taken) < most:
            request_id = next(iter(queue))
            pending = self._pending[request_id]
            size += len(pending.request.args)
            if taken and size > _BATCH_CHARS_MAX:
                break
            del queue[request_id]
            self._no_longer_waits(pending)
            pending.taker, pending.server = taker, server
            taken.append(pending.request)
        if queue is not None and not queue:
            del self._waiting[function]
        if taker is None or not taken:
            return Batch(0 if taker is None else have, tuple(taken))
        if known is None:
            known = self._takers[taker] = _Taker(now, number=have)
        known.number = have % _NUMBER_MAX + 1
        known.last = tuple(request.id for request in taken)
        known.holds.update(known.last)
        return Batch(known.number, tuple(taken))

    def taken_by(self, request_id: str) -> tuple[str, str | None] | None:
        """The function of a request, and for whom it was taken (None: for no one yet, or for one
        without a name); None for a request that has ended or never existed."""
        pending = self._pending.get(request_id)
        return None if pending is None else (pending.function, pending.server)

    def settle(self, request_id: str, outcome: Outcome) -> bool:
        """Answer a request; returns False when it has already ended or never existed."""
        pending = self._forget(request_id)
        if pending is None:
            return False
        pending.on_end(outcome)
        return True

    def withdraw(self, request_id: str) -> None:
        """Forget a request whose caller no longer waits: `on_end` is not called."""
        self._forget(request_id)

    def expire(self, now: float) -> None:
        """End the requests that have timed out, and those taken by workers that are gone."""
        while self._pending:
            oldest = next(iter(self._pending.values()))
            if oldest.deadline > now:
                break
            what = (
                "no worker has taken it"
                if oldest.request.id in self._waiting.get(oldest.function, ())
                else "the topology has not answered"
            )
            self.settle(
                oldest.request.id,
                Failure(
                    Reason.SERVER_TIMEOUT,
                    f"no answer from function {oldest.function!r} within "
                    f"{self._timeout_secs:g} s: {what}",
                ),
            )
        for name, taker in list(self._takers.items()):
            if now - taker.seen < self._taker_timeout_secs:
                continue
            for request_id in list(taker.holds):
                self.settle(
                    request_id,
                    Failure(Reason.FAILED_REQUEST, "the worker that took the request is gone"),
                )
            self._takers.pop(name, None)

    def end_all(self, failure: Failure) -> None:
        """End every request."""
        for request_id in list(self._pending):
            self.settle(request_id, failure)
        self._takers.clear()

    def next_expiry(self) -> float | None:
        """The earliest time at which `expire` has something to do; None without requests."""
        times = [taker.seen + self._taker_timeout_secs for taker in self._takers.values()]
        if self._pending:
            times.append(next(iter(self._pending.values())).deadline)
        return min(times, default=None)

    def _forget(self, request_id: str) -> _Pending | None:
        pending = self._pending.pop(request_id, None)
        if pending is None:
            return None
        queue = self._waiting.get(pending.function)
        if queue is not None and request_id in queue:
            del queue[request_id]
            self._no_longer_waits(pending)
            if not queue:
                del self._waiting[pending.function]
        held = self._peers[pending.peer]
        for one in (self._all, held):
            one.requests -= 1
            one.bytes -= pending.size
        if not held.requests:
            del self._peers[pending.peer]
        if pending.taker is not None:
            taker = self._takers.get(pending.taker)
            if taker is not None:
                taker.holds.discard(request_id)
        return pending

    def validate(self) -> None:
        """Assert what must always hold."""
        assert self._all.requests == len(self._pending)
        assert self._all.requests == sum(held.requests for held in self._peers.values())
        assert self._all.bytes == sum(held.bytes for held in self._peers.values())
        assert self._all.waiting == {f: len(queue) for f, queue in self._waiting.items()}
        for peer, held in self._peers.items():
            assert held.requests, peer
            assert held.requests <= self._bounds.of_peer(self._bounds.requests)
            assert all(held.waiting.values())
        for function, queue in self._waiting.items():
            assert queue, function
            for request_id in queue:
                assert self._pending[request_id].function == function
                assert self._pending[request_id].taker is None
        for name, taker in self._takers.items():
            for request_id in taker.holds:
                assert self._pending[request_id].taker == name
