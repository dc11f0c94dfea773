"""DRPCSpout: emits the requests of a function as tuples."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from squall import Spout, TopologyContext
from squall_common.config.options.typed import TopologyOptions
from squall_drpc.client import Address, server_addresses
from squall_drpc.local import LocalDRPC, in_local_mode, local_server, shared_server
from squall_drpc.origin import Origin
from squall_drpc.remote import Answers, Fetcher
from squall_drpc.requests import Failure, Outcome, Reason, Request

_QUEUE_MAX = 512  # requests that are fetched and not yet emitted

_FAILED = Failure(
    Reason.FAILED_REQUEST, "the topology failed the request, or did not complete it in time"
)
_LEFT = Failure(Reason.FAILED_REQUEST, "the topology was deactivated or ended")


class DRPCSpout(Spout):
    """Emits each request of a function as its arguments and its return info.

    It pulls from all of `drpc.servers`; with more tasks than servers, each task pulls from one. A
    request whose tuple tree fails or times out is emitted again until it was tried `attempts`
    times; then its caller gets the failure. (The default is 1, as in Storm, because repeating a
    function may have side effects.)

        builder.spout("requests", DRPCSpout("shout"))
    """

    outputs = ["args", "return-info"]  # noqa: RUF012 - how components are written

    def __init__(self, function: str, *, attempts: int = 1, local: str | None = None) -> None:
        """`local` is the name of a LocalDRPC in this process."""
        if not function:
            raise ValueError("a DRPC function needs a name")
        if attempts < 1:
            raise ValueError(f"attempts is {attempts}; expected 1 or more")
        self._function = function
        self._attempts = attempts
        self._local = local

    def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        # message id -> the request's tuple, and the number of times it was emitted
        self._pending: dict[tuple[str, str], tuple[list[str], int]] = {}
        self._again: deque[tuple[str, str]] = deque()
        self._active = False
        self._source: _Source
        if self._local is not None or in_local_mode():
            server = shared_server() if self._local is None else local_server(self._local)
            self._source = _LocalSource(server, self._function, context.wake)
        else:
            options = TopologyOptions.read(conf)
            self._source = _RemoteSource(
                _addresses(options, context),
                self._function,
                context.wake,
                self.report_error,
                bytes_max=options.drpc_max_buffer_size,
            )

    def activate(self) -> None:
        self._active = True
        self._source.set_active(True)

    def deactivate(self) -> None:
        self._active = False
        self._source.set_active(False)
        while self._again:
            self._give_up(self._again.popleft(), _LEFT)

    def next_tuple(self) -> None:
        if self._again:
            self._emit(self._again.popleft())
            return
        taken = self._source.take()
        if taken is None:
            return
        request, host, port = taken
        origin = Origin(request.id, host, port)
        key = (host, request.id)
        self._pending[key] = ([request.args, origin.to_json()], 0)
        self._emit(key)

    def ack(self, msg_id: tuple[str, str]) -> None:
        self._pending.pop(msg_id, None)

    def fail(self, msg_id: tuple[str, str]) -> None:
        pending = self._pending.get(msg_id)
        if pending is None:
            return
        if pending[1] < self._attempts and self._active:
            self._again.append(msg_id)
        else:
            self._give_up(msg_id, _FAILED)

    async def close(self) -> None:
        for msg_id in list(self._pending):
            self._give_up(msg_id, _LEFT)
        await self._source.close()

    def _give_up(self, key: tuple[str, str], failure: Failure) -> None:
        del self._pending[key]
        self._source.settle(*key, failure)

    def _emit(self, key: tuple[str, str]) -> None:
        values, times = self._pending[key]
        self._pending[key] = (values, times + 1)
        self.emit(values, message_id=key)


class _Source(Protocol):
    """The source of a spout's requests."""

    def take(self) -> tuple[Request, str, int] | None:
        """The next request, with host and port of its server."""
        ...

    def settle(self, host: str, request_id: str, outcome: Outcome) -> None: ...

    def set_active(self, active: bool) -> None: ...

    async def close(self) -> None: ...


class _LocalSource:
    def __init__(self, server: LocalDRPC, function: str, wake: Callable[[], None]) -> None:
        self._server = server
        self._function = function
        self._wake = wake
        server.serve(function, wake)

    def take(self) -> tuple[Request, str, int] | None:
        request = self._server.take(self._function)
        return None if request is None else (request, self._server.name, 0)

    def settle(self, host: str, request_id: str, outcome: Outcome) -> None:
        self._server.settle(request_id, outcome)

    def set_active(self, active: bool) -> None:
        pass  # an inactive spout does not take

    async def close(self) -> None:
        self._server.leave(self._function, self._wake)


class _RemoteSource:
    def __init__(
        self,
        addresses: Sequence[Address],
        function: str,
        wake: Callable[[], None],
        on_trouble: Callable[[Exception], None],
        *,
        bytes_max: int,
    ) -> None:
        self._queue: deque[tuple[Request, str, int]] = deque()
        self._wake = wake
        self._active = False
        self._answers = {a[0]: Answers(a, bytes_max=bytes_max) for a in addresses}
        self._fetchers = [
            Fetcher(a, function, room=self._room, deliver=self._deliver, on_trouble=on_trouble)
            for a in addresses
        ]
        for fetcher in self._fetchers:
            fetcher.start()

    def take(self) -> tuple[Request, str, int] | None:
        if not self._queue:
            return None
        if len(self._queue) == _QUEUE_MAX:
            self._wake_fetchers()
        return self._queue.popleft()

    def settle(self, host: str, request_id: str, outcome: Outcome) -> None:
        # If the answer is lost, the request ends by the server's timeout.
        self._answers[host].settle(request_id, outcome).add_done_callback(_looked_at)

    def set_active(self, active: bool) -> None:
        self._active = active
        if active:
            self._wake_fetchers()
        else:
            self._hand_back()

    async def close(self) -> None:
        await asyncio.gather(*(fetcher.stop() for fetcher in self._fetchers))
        self._active = False
        self._hand_back()
        await asyncio.gather(*(answers.stop() for answers in self._answers.values()))

    def _room(self) -> int:
        return max(0, _QUEUE_MAX - len(self._queue)) if self._active else 0

    def _deliver(self, address: Address, requests: Sequence[Request]) -> None:
        host, port = address
        self._queue.extend((request, host, port) for request in requests)
        if self._active:
            self._wake()
        else:
            self._hand_back()

    def _hand_back(self) -> None:
        """Fail the requests that were fetched and will not be emitted, so that no caller waits."""
        while self._queue:
            request, host, _ = self._queue.popleft()
            self.settle(host, request.id, _LEFT)

    def _wake_fetchers(self) -> None:
        for fetcher in self._fetchers:
            fetcher.wake()


def _addresses(options: TopologyOptions, context: TopologyContext) -> list[Address]:
    """The servers of this task."""
    addresses = server_addresses(options.drpc_servers, options.drpc_invocations_port)
    tasks = len(context.component_tasks(context.this_component_id))
    if tasks <= len(addresses):
        return addresses
    return [addresses[context.this_task_index % len(addresses)]]


def _looked_at(done: asyncio.Future[None]) -> None:
    if not done.cancelled():
        done.exception()
