"""A worker's side of a DRPC server: fetch requests and deliver answers, in the background.

Both run on the worker's event loop and never keep its components waiting. An unavailable server is
retried with growing pauses; the others go on. Squall's servers get the calls in `batches.thrift`;
a server of Apache Storm, which does not have them, gets Storm's own. In a secured cluster the
worker shows its token.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from squall_common.authentication.worker_identity import worker_credentials
from squall_common.daemon.logs import get_logger
from squall_common.security.identity import Role
from squall_drpc.batches import INVOCATIONS, Settlement
from squall_drpc.requests import Failure, Outcome, Reason, Request
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError
from squall_thrift.protocol.messages import ApplicationErrorType

log = get_logger(__name__)

Address = tuple[str, int]

_WAIT_SECS = 1.0  # of one fetch; also how often a taker shows that it is alive
_CALL_SECS = 10.0
_BATCH_MAX = 256
_FRAME_BYTES_MAX = 64 * 1024 * 1024
_SETTLE_MOST = 500
_POLL_SECS_MIN, _POLL_SECS_MAX = 0.001, 0.05  # for a Storm server, which has no long poll
_PAUSE_SECS_MIN, _PAUSE_SECS_MAX = 0.1, 3.0
_SETTLE_DEADLINE_SECS = 30.0
_UNSETTLED_MAX = 100_000


class AnswerLostError(Exception):
    """An answer that could not be delivered to its server."""


async def _stay_connected(
    address: Address,
    use: Callable[[ThriftClient], AsyncIterator[None]],
    went_away: Callable[..., None],
) -> None:
    """Use a connection forever, and a new one whenever it ends, with pauses that grow until a
    connection works again. `went_away` is called at each end, with the error and whether it is the
    `first` since a connection worked."""
    pause = _PAUSE_SECS_MIN
    credentials = worker_credentials(Role.DRPC)
    if credentials is not None:
        await credentials.wait_ready()
    while True:
        client = ThriftClient(
            INVOCATIONS,
            *address,
            timeout_secs=_CALL_SECS,
            frame_bytes_max=_FRAME_BYTES_MAX,
            credentials=credentials,
        )
        try:
            async with client:
                async for _ in use(client):
                    pause = _PAUSE_SECS_MIN
        except (
            ThriftTransportError,
            ThriftApplicationError,
            storm.AuthorizationException,
        ) as error:
            went_away(error, first=pause == _PAUSE_SECS_MIN)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _PAUSE_SECS_MAX)


def _text(address: Address) -> str:
    return f"{address[0]}:{address[1]}"


class Fetcher:
    """Fetches the requests of one function from one server."""

    def __init__(
        self,
        address: Address,
        function: str,
        *,
        room: Callable[[], int],
        deliver: Callable[[Address, Sequence[Request]], None],
        on_trouble: Callable[[Exception], None],
    ) -> None:
        """`room` returns how many requests are wanted now; call `wake` when that number grows.
        `on_trouble` is called once per outage."""
        self._address = address
        self._function = function
        self._room = room
        self._deliver = deliver
        self._on_trouble = on_trouble
        self._taker = os.urandom(8).hex()
        self._have = 0
        self._roomy = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(
            _stay_connected(self._address, self._fetch_all, self._went_away),
            name=f"drpc fetch {self._function} {self._address[0]}",
        )

    def wake(self) -> None:
        """Fetch again: there is room."""
        self._roomy.set()

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _went_away(self, error: Exception, *, first: bool) -> None:
        if first:
            log.warning("drpc_server_away", server=_text(self._address), error=error)
            self._on_trouble(error)

    async def _fetch_all(self, client: ThriftClient) -> AsyncIterator[None]:
        """Fetch forever; yields after each call."""
        batches = True
        pause = _POLL_SECS_MIN
        while True:
            self._roomy.clear()
            room = min(self._room(), _BATCH_MAX)
            if batches:
                try:
                    batch = await client.call(
                        "fetchRequests",
                        self._function,
                        room,
                        int(_WAIT_SECS * 1000) if room else 0,
                        self._taker,
                        self._have,
                    )
                except ThriftApplicationError as error:
                    if error.type is not ApplicationErrorType.UNKNOWN_METHOD:
                        raise
                    batches = False
                    continue
                if batch.number != self._have:
                    self._have = batch.number
                    self._deliver(
                        self._address, [Request(r.request_id, r.func_args) for r in batch.requests]
                    )
            elif room:
                request = await client.call("fetchRequest", self._function)
                if request.request_id:
                    self._deliver(self._address, [Request(request.request_id, request.func_args)])
                    pause = _POLL_SECS_MIN
                else:
                    await asyncio.sleep(pause)
                    pause = min(2 * pause, _POLL_SECS_MAX)
            yield
            if not room:
                try:
                    async with asyncio.timeout(_WAIT_SECS):
                        await self._roomy.wait()
                except TimeoutError:
                    pass


@dataclass(frozen=True, slots=True)
class _Answer:
    request_id: str
    outcome: Outcome
    done: asyncio.Future[None]
    deadline: float


class Answers:
    """Delivers answers to one server, many per call."""

    def __init__(self, address: Address, *, bytes_max: int = 1_048_576) -> None:
        """A result of more than `bytes_max` bytes is replaced by an error for the caller."""
        self._address = address
        self._bytes_max = bytes_max
        self._queue: deque[_Answer] = deque()
        self._filled = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def settle(self, request_id: str, outcome: Outcome) -> asyncio.Future[None]:
        """Deliver an answer. The future is done once the server has it; it raises AnswerLostError
        when the server cannot be reached for 30 s, or when too many answers wait for it."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        if len(self._queue) >= _UNSETTLED_MAX:
            done.set_exception(
                AnswerLostError(f"{_UNSETTLED_MAX} answers already wait for the DRPC server")
            )
            return done
        if isinstance(outcome, str):
            outcome = _checked(outcome, self._bytes_max)
        self._queue.append(_Answer(request_id, outcome, done, loop.time() + _SETTLE_DEADLINE_SECS))
        self._filled.set()
        if self._task is None:
            self._task = loop.create_task(
                _stay_connected(self._address, self._bring_all, self._went_away),
                name=f"drpc answer {self._address[0]}",
            )
        return done

    async def stop(self, grace_secs: float = 1.0) -> None:
        """Deliver the waiting answers for at most `grace_secs`; the rest is lost."""
        if self._task is None:
            return
        if self._queue:
            await asyncio.wait([self._queue[-1].done], timeout=grace_secs)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._give_up(AnswerLostError("the worker is stopping"), all_of_them=True)

    def _went_away(self, error: Exception, *, first: bool) -> None:
        if first:
            log.warning("drpc_answers_wait", server=_text(self._address), error=error)
        self._give_up(error)

    async def _bring_all(self, client: ThriftClient) -> AsyncIterator[None]:
        """Deliver answers forever; yields after each call. An answer leaves the queue only when the
        server has it: it may arrive twice, which does no harm."""
        batches = True
        while True:
            while not self._queue:
                self._filled.clear()
                await self._filled.wait()
            batch = self._next_batch()
            if batches:
                try:
                    await client.call("settleRequests", [_settlement(a) for a in batch])
                except ThriftApplicationError as error:
                    if error.type is not ApplicationErrorType.UNKNOWN_METHOD:
                        raise
                    batches = False
                    continue
            else:
                batch = batch[:1]
                await _bring_one(client, batch[0].request_id, batch[0].outcome)
            for answer in batch:
                self._queue.popleft()
                if not answer.done.done():
                    answer.done.set_result(None)
            yield

    def _next_batch(self) -> list[_Answer]:
        batch: list[_Answer] = []
        size = 0
        for answer in self._queue:
            size += 100 + 4 * len(
                answer.outcome if isinstance(answer.outcome, str) else answer.outcome.message
            )
            if batch and (size > self._bytes_max or len(batch) >= _SETTLE_MOST):
                break
            batch.append(answer)
        return batch

    def _give_up(self, error: Exception, *, all_of_them: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        while self._queue and (all_of_them or self._queue[0].deadline <= now):
            answer = self._queue.popleft()
            if not answer.done.done():
                answer.done.set_exception(AnswerLostError(str(error)))


def _checked(result: str, bytes_max: int) -> Outcome:
    """The result if it can be sent, or else a failure with the reason."""
    if 4 * len(result) <= bytes_max and result.isascii():
        return result
    try:
        size = len(result.encode())
    except UnicodeEncodeError as error:
        return Failure(Reason.FAILED_REQUEST, f"the result is not valid text: {error}")
    if size > bytes_max:
        return Failure(
            Reason.FAILED_REQUEST,
            f"the result has {size} bytes; the limit is {bytes_max} (drpc.max_buffer_size)",
        )
    return result


def _settlement(answer: _Answer) -> Any:
    outcome = answer.outcome
    if isinstance(outcome, str):
        return Settlement(request_id=answer.request_id, result=outcome)
    return Settlement(
        request_id=answer.request_id, error=outcome.message, error_type=int(outcome.reason)
    )


async def _bring_one(client: ThriftClient, request_id: str, outcome: Outcome) -> None:
    """Deliver an answer with Storm's own calls."""
    if isinstance(outcome, str):
        await client.call("result", request_id, outcome)
        return
    error = storm.DRPCExecutionException(
        msg=outcome.message, type=storm.DRPCExceptionType(int(outcome.reason))
    )
    try:
        await client.call("failRequestV2", request_id, error)
    except ThriftApplicationError as refused:
        if refused.type is not ApplicationErrorType.UNKNOWN_METHOD:
            raise
        await client.call("failRequest", request_id)
