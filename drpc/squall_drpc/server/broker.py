"""`Requests` on an event loop: callers wait for answers, workers for requests."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections import OrderedDict

from squall_common.config.options.typed import DrpcOptions
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger
from squall_common.names import character_error
from squall_drpc.requests import Batch, Bounds, BusyError, Failure, Outcome, Reason, Requests
from squall_thrift import storm

log = get_logger(__name__)

FUNCTION_BYTES_MAX = 512  # of a function's name
FETCH_MOST = 1000  # requests that one call may fetch
FETCH_WAIT_SECS_MAX = 5.0
_EXPIRY_SECS_MIN = 0.05  # the shortest interval between searches for expired requests


class CallRefusedError(Exception):
    """An invalid call, such as one of a function without a name."""


class RequestBroker:
    """The requests of one server. All methods are called on the running event loop."""

    def __init__(self, options: DrpcOptions, *, clock: Clock | None = None) -> None:
        self._now = (clock or SystemClock()).monotonic
        self._requests = Requests(
            os.urandom(6).hex(),
            timeout_secs=options.drpc_request_timeout_secs,
            taker_timeout_secs=options.drpc_worker_timeout_secs,
            bounds=Bounds(
                waiting=options.drpc_function_requests_max,
                requests=options.drpc_requests_max,
                bytes=options.drpc_requests_bytes_max,
                peer_percent=options.drpc_peer_percent_max,
            ),
        )
        # Workers that wait for requests of a function, the longest waiting first; never empty.
        self._fetching: dict[str, OrderedDict[asyncio.Future[None], None]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = math.inf
        self._ending = False

    @property
    def under_way(self) -> int:
        """The number of requests that have not ended."""
        return len(self._requests)

    async def execute(self, function: str, args: str, peer: str = "") -> str:
        """Call a function and return its result; the request counts for the share of `peer`. Raises
        storm.DRPCExecutionException when there is no result, BusyError when a bound is reached,
        CallRefusedError for an invalid function name."""
        _check_name(function)
        if self._ending:
            raise failure_exception(_SHUTDOWN)
        answer: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()

        def end(outcome: Outcome) -> None:
            if not answer.done():
                answer.set_result(outcome)

        request = self._requests.add(function, args, self._now(), end, peer)
        self._set_timer()
        self._wake_one(function)
        try:
            outcome = await answer
        except asyncio.CancelledError:
            self._requests.withdraw(request.id)
            raise
        if isinstance(outcome, Failure):
            raise failure_exception(outcome)
        return outcome

    async def fetch(
        self,
        function: str,
        most: int = 1,
        wait_secs: float = 0.0,
        taker: str | None = None,
        have: int = 0,
        server: str | None = None,
    ) -> Batch:
        """Requests for a worker, as `Requests.take`; if there are none, waits up to `wait_secs`."""
        _check_name(function)
        most = max(0, min(most, FETCH_MOST))
        batch = self._take(function, most, taker, have, server)
        if batch.requests or wait_secs <= 0 or most == 0 or self._ending:
            return batch
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._fetching.setdefault(function, OrderedDict())[woken] = None
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(min(wait_secs, FETCH_WAIT_SECS_MAX)):
                    await woken
        except asyncio.CancelledError:
            if woken.done() and not woken.cancelled():
                self._wake_one(function)  # a worker that hung up when it was its turn
            raise
        finally:
            waiting = self._fetching.get(function)
            if waiting is not None:
                waiting.pop(woken, None)
                if not waiting:
                    del self._fetching[function]
        return self._take(function, most, taker, have, server)

    def taken_by(self, request_id: str) -> tuple[str, str | None] | None:
        """As `Requests.taken_by`."""
        return self._requests.taken_by(request_id)

    def settle(self, request_id: str, outcome: Outcome) -> None:
        """Take a worker's answer. A late answer is dropped."""
        if not self._requests.settle(request_id, outcome):
            log.debug("late_answer_dropped", request_id=request_id)

    def stop(self) -> None:
        """End every request with SERVER_SHUTDOWN, and accept no more."""
        self._ending = True
        self._requests.end_all(_SHUTDOWN)
        for waiting in list(self._fetching.values()):
            for woken in list(waiting):
                if not woken.done():
                    woken.set_result(None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take(
        self, function: str, most: int, taker: str | None, have: int, server: str | None
    ) -> Batch:
        batch = self._requests.take(function, most, self._now(), taker, have, server)
        self._set_timer()
        return batch

    def _wake_one(self, function: str) -> None:
        waiting = self._fetching.get(function)
        while waiting:
            woken, _ = waiting.popitem(last=False)
            if not woken.done():
                woken.set_result(None)
                return

    def _set_timer(self) -> None:
        at = self._requests.next_expiry()
        if at is None or at >= self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        secs = max(_EXPIRY_SECS_MIN, at - self._now())
        self._timer = asyncio.get_running_loop().call_later(secs, self._expire)
        self._timer_at = at

    def _expire(self) -> None:
        self._timer, self._timer_at = None, math.inf
        self._requests.expire(self._now())
        self._set_timer()


_SHUTDOWN = Failure(Reason.SERVER_SHUTDOWN, "the DRPC server is shutting down")


def failure_exception(failure: Failure) -> storm.DRPCExecutionException:
    """A failure as Storm's exception."""
    return storm.DRPCExecutionException(
        msg=failure.message, type=storm.DRPCExceptionType(int(failure.reason))
    )


def _check_name(function: str) -> None:
    if not function:
        raise CallRefusedError("a DRPC function needs a name")
    if (why := character_error(function)) is not None:
        raise CallRefusedError(f"the name of a DRPC function has {why}")
    if len(function.encode()) > FUNCTION_BYTES_MAX:
        raise CallRefusedError(
            f"the name of a DRPC function has at most {FUNCTION_BYTES_MAX} bytes"
        )


__all__ = ["Batch", "BusyError", "CallRefusedError", "RequestBroker", "failure_exception"]
