"""`WebSocketSpout`: messages of a WebSocket."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import aiohttp

from squall import Stream, TopologyContext
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import require_at_least
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.http.target import Target

_CLOSED = (
    aiohttp.WSMsgType.CLOSE,
    aiohttp.WSMsgType.CLOSING,
    aiohttp.WSMsgType.CLOSED,
    aiohttp.WSMsgType.ERROR,
)


class WebSocketSpout(AsyncSource):
    """Connects to a WebSocket, sends `greetings`, and emits `data` of each message that comes: a
    string, or bytes.

        WebSocketSpout("wss://feed.example/v1", greetings=['{"subscribe": "trades"}'])

    The protocol has neither positions nor acknowledgements: what is sent while there is no
    connection is lost, and so is what a killed worker had in flight. Within a worker a record that
    fails is emitted again. A slow topology reads no more, so that the server's sends wait.

    Messages come in order. Of several tasks the first alone reads. The message id is a number of
    the worker's own.
    """

    def __init__(
        self,
        url: str,
        *,
        greetings: Sequence[str | bytes] = (),
        protocols: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        headers_env: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        ping_secs: float = 15.0,
        message_bytes_max: int = 1_048_576,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`url` begins with `ws://` or `wss://`; `protocols` are sub-protocols. `headers_env` maps
        headers to environment variables of the worker that hold their values. A server with TLS
        must prove itself to `ca_file`, or to the system's authorities. After `ping_secs` without a
        message the spout sends a ping; after twice that the server counts as lost. A message above
        `message_bytes_max` ends the connection. The others are those of `Source`. Raises
        InvalidTopologyError for a value that cannot be."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        self._target = Target("WebSocketSpout", url, ("ws", "wss"), headers, headers_env, ca_file)
        self.server_shown = str(self._target)
        require_at_least("WebSocketSpout", 1, message_bytes_max=message_bytes_max)
        if ping_secs <= 0:
            raise InvalidTopologyError("WebSocketSpout: ping_secs must be positive")
        if any(not isinstance(one, str | bytes) for one in greetings):
            raise InvalidTopologyError("WebSocketSpout: greetings are strings or bytes")
        self.outputs = {"default": Stream(["data"])}
        self._greetings, self._protocols = list(greetings), list(protocols)
        self._ping_secs, self._message_bytes_max = ping_secs, message_bytes_max

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._socket: aiohttp.ClientWebSocketResponse | None = None
        self._reads = context.this_task_index == 0
        self._numbers = count(1)
        await super().open(conf, context)

    async def connect(self) -> None:
        if not self._reads:
            return
        self._session = self._target.session(10.0, None)
        try:
            with self._target.asked():
                async with asyncio.timeout(30):
                    self._socket = await self._session.ws_connect(
                        self._target.url,
                        protocols=self._protocols,
                        autoping=False,
                        max_msg_size=self._message_bytes_max,
                    )
                    for greeting in self._greetings:
                        if isinstance(greeting, str):
                            await self._socket.send_str(greeting)
                        else:
                            await self._socket.send_bytes(greeting)
        except BaseException:
            await self.disconnect()
            raise
        self._heard = self._looked = time.monotonic()
        self._pinged = False

    async def disconnect(self) -> None:
        session, self._session, self._socket = self._session, None, None
        if session is not None:
            await session.close()

    async def fetch(self, limit: int) -> Sequence[Record]:
        if not self._reads:
            await asyncio.sleep(1.0)
            return []
        # While the topology was slow nothing was read, and so nothing was heard.
        self._heard += time.monotonic() - self._looked
        records: list[Record] = []
        while len(records) < limit:
            data = await self._receive(0.0 if records else min(1.0, self._ping_secs))
            if data is None:
                break
            records.append((next(self._numbers), [data]))
        self._looked = time.monotonic()
        return records

    async def _receive(self, secs: float) -> str | bytes | None:
        """The next message, or None if there is none within this time."""
        socket = self._socket
        assert socket is not None
        while True:
            try:
                message = await socket.receive(timeout=max(secs, 0.001))
            except TimeoutError:
                await self._look(socket)
                return None
            self._heard, self._pinged = time.monotonic(), False
            if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
                data: str | bytes = message.data
                return data
            if message.type is aiohttp.WSMsgType.PING:
                await socket.pong(message.data)
            elif message.type in _CLOSED:
                why = message.extra or message.data or socket.close_code or "no reason given"
                raise ConnectionError(f"{self._target}: the connection was closed: {why}")

    async def _look(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        silence = time.monotonic() - self._heard
        if silence >= 2 * self._ping_secs:
            raise ConnectionError(f"{self._target}: the server was silent for {silence:.0f} s")
        if silence >= self._ping_secs and not self._pinged:
            self._pinged = True
            await socket.ping()
