"""`SseSpout`: server-sent events."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import aiohttp

from squall import Stream, TopologyContext
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import require_at_least
from squall_connectors.base.offsets import Offsets
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.http.event_stream import Event, EventParser, EventTooLargeError
from squall_connectors.http.target import Position, Target

_READ_BYTES = 1 << 16
_WAIT_SECS_MAX = 60.0


class SseSpout(AsyncSource):
    """Reads a stream of server-sent events, and emits `id`, `event` (its type) and `data` of each:

        SseSpout("https://stream.example/orders", state="/var/lib/app/positions",
                 headers_env={"Authorization": "STREAM_AUTHORIZATION"})

    When the connection is lost, the next one asks with Last-Event-ID for what came after the last
    event. A server that keeps events and gives them ids thus loses nothing; any other loses what
    happens while there is no connection. With `state`, a folder on the worker's node, the id of the
    last event before which all are done is kept there for the next worker: pin the spout to that
    node.

    Events come in order. Of several tasks the first alone reads. The message id is `(id, number)`,
    where the number counts the events with that id.
    """

    def __init__(
        self,
        url: str,
        *,
        state: str | Path | None = None,
        events: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        headers_env: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        silence_secs_max: float = 60.0,
        event_bytes_max: int = 1_048_576,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`events` are the types that are emitted; none: all. `headers_env` maps headers to
        environment variables of the worker that hold their values. A server with TLS must
        prove itself to `ca_file`, or to the system's authorities. A server that sends nothing for
        `silence_secs_max`, not even a comment, counts as lost. An event above `event_bytes_max` is
        reported as an error and passed over. The others are those of `Source`. Raises
        InvalidTopologyError for a value that cannot be."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        self._target = Target("SseSpout", url, ("http", "https"), headers, headers_env, ca_file)
        self.server_shown = str(self._target)
        require_at_least("SseSpout", 1, event_bytes_max=event_bytes_max)
        if silence_secs_max <= 0:
            raise InvalidTopologyError("SseSpout: silence_secs_max must be positive")
        self.outputs = {"default": Stream(["id", "event", "data"])}
        self._state, self._types = state, frozenset(events)
        self._silence_secs_max, self._event_bytes_max = silence_secs_max, event_bytes_max

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._response: aiohttp.ClientResponse | None = None
        self._reads = context.this_task_index == 0
        self._position = Position(self._state if self._reads else None, context)
        self._last_id: str = self._position.value.get("last_id", "")
        # Events are counted in the order of the stream; each that is read and not done has its id.
        self._offsets = Offsets(0)
        self._ids: deque[tuple[int, str]] = deque()
        self._done_id: str | None = None
        self._numbers: dict[Hashable, int] = {}
        self._same = (self._last_id, 0)
        self._ready_events: deque[Event] = deque()
        self._wait_secs = 0.0
        await super().open(conf, context)

    async def connect(self) -> None:
        if not self._reads:
            return
        await asyncio.sleep(self._wait_secs)
        self._ready_events.clear()  # they come again
        self._parser = EventParser(self._event_bytes_max, self._last_id)
        self._session = self._target.session(10.0, self._silence_secs_max)
        try:
            await self._request(self._session)
        except BaseException:
            await self.disconnect()
            raise

    async def _request(self, session: aiohttp.ClientSession) -> None:
        headers = {"Accept": "text/event-stream", "Cache-Control": "no-store"}
        if self._last_id:
            headers["Last-Event-ID"] = self._last_id
        with self._target.asked():
            async with asyncio.timeout(30):
                response = self._response = await session.get(self._target.url, headers=headers)
        if response.status != 200 or response.content_type != "text/event-stream":
            raise ConnectionError(
                f"{self._target} answers {response.status} {response.reason} with "
                f"{response.content_type}, not a stream of events"
            )

    async def disconnect(self) -> None:
        session, self._session = self._session, None
        response, self._response = self._response, None
        # The session first: with TLS a response alone would wait for the server's goodbye.
        if session is not None:
            await session.close()
        if response is not None:
            response.close()

    async def fetch(self, limit: int) -> Sequence[Record]:
        if not self._reads:
            await asyncio.sleep(1.0)
            return []
        self._advance()  # past events of other types, which nothing settles
        if not self._ready_events:
            await self._receive()
        records: list[Record] = []
        while self._ready_events and len(records) < limit:
            records += self._record(self._ready_events.popleft())
        return records

    async def _receive(self) -> None:
        """Read what the server has sent, and wait for it a second at the most."""
        assert self._response is not None
        try:
            async with asyncio.timeout(1.0):
                data = await self._response.content.read(_READ_BYTES)
        except TimeoutError as error:
            if isinstance(error, aiohttp.ServerTimeoutError):
                raise
            return
        if not data:
            self._wait_secs = min(_WAIT_SECS_MAX, self._parser.retry_secs or 0.0)
            raise ConnectionError(f"{self._target}: the server has ended the stream")
        for event in self._parser.feed(data):
            if isinstance(event, EventTooLargeError):
                self.report_error(event)
            else:
                self._ready_events.append(event)

    def _record(self, event: Event) -> list[Record]:
        self._last_id = event.last_id
        number = self._offsets.position
        self._ids.append((number, event.last_id))
        if self._types and event.type not in self._types:
            self._offsets.skipped(number)
            return []
        last, count = self._same
        self._same = (event.last_id, count + 1 if last == event.last_id else 0)
        message_id = self._same
        if message_id in self._numbers:  # in flight: the server repeats more than it was asked for
            self._offsets.skipped(number)
            return []
        values = [event.last_id, event.type, event.data]
        self._offsets.emitted([number], [values])
        self._numbers[message_id] = number
        return [(message_id, values)]

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        for message_id in message_ids:
            number = self._numbers.pop(message_id, None)
            if number is not None:
                self._offsets.acked(number)
        self._advance()

    def _advance(self) -> None:
        """Keep the id of the last event before which all are done."""
        while self._ids and self._ids[0][0] < self._offsets.committable:
            self._done_id = self._ids.popleft()[1]
        done_id = self._done_id
        # An id stands for all events that have it: the last of them must be done.
        if done_id is not None and (not self._ids or self._ids[0][1] != done_id):
            self._position.save({"last_id": done_id})
