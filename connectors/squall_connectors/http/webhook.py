"""`WebhookSpout`: requests that others send, as tuples."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import sqlite3
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson
from aiohttp import web

from squall import Stream, TopologyContext
from squall_common.daemon.files import make_dirs
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.http.durable_queue import DurableQueue, QueueFullError

_KEY_CHARS_MAX = 200


class WebhookSpout(AsyncSource):
    """Listens for requests, and emits `body` (bytes) and `headers` (a dict) of each:

        WebhookSpout(8080, queue="/var/lib/app/webhook", secret_env="WEBHOOK_SECRET")

    A request is answered with 202 once it is on the disk of the worker's node; it is removed when
    its tuple tree is done. So a sender that got 202 need not keep anything, and one that got no
    answer sends again: a request with the Idempotency-Key of one that still waits is not added.

    Other answers: 401 without a valid signature, 413 above `body_bytes_max`, 503 with Retry-After
    when `queue_max` requests wait or the disk is full. GET on the path answers 200 and how many
    wait, for load balancers.

    Requests come in order of arrival. Pin the spout to the node that senders reach, where the queue
    is; a second task listens on the next port and has a queue of its own.
    """

    def __init__(
        self,
        port: int,
        *,
        queue: str | Path,
        path: str = "/",
        host: str = "0.0.0.0",
        secret_env: str | None = None,
        signature_header: str = "X-Hub-Signature-256",
        body_bytes_max: int = 1_048_576,
        queue_max: int = 100_000,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`queue` is a folder. With `secret_env`, the name of an environment variable of the
        worker, requests must have the HMAC-SHA256 of their body under that secret in
        `signature_header`, as `sha256=HEX`, the way GitHub signs. The others are those of
        `Source`. Raises InvalidTopologyError for a port or a bound that cannot be."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        if not 0 < port < 65_536 or not path.startswith("/"):
            raise InvalidTopologyError(f"WebhookSpout: port {port}, path {path!r}")
        if body_bytes_max < 1 or queue_max < 1:
            raise InvalidTopologyError(
                "WebhookSpout: body_bytes_max and queue_max must be positive"
            )
        self.outputs = {"default": Stream(["body", "headers"])}
        self._port, self._path, self._host = port, path, host
        self._folder = Path(queue)
        self._secret_env, self._signature_header = secret_env, signature_header
        self._body_bytes_max, self._queue_max = body_bytes_max, queue_max

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._secret = _secret(self._secret_env)
        name = f"{context.topology_name}-{context.this_component_id}-{context.this_task_index}"
        make_dirs(self._folder)
        self._queue = DurableQueue(self._folder / f"{name}.db", self._queue_max)
        await self._queue.open()
        self._last = 0  # the id of the last request that was read from the queue
        self._arrived = asyncio.Event()
        app = web.Application(client_max_size=self._body_bytes_max)
        app.router.add_post(self._path, self._take_request)
        app.router.add_get(self._path, self._answer_health)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
        await self._runner.setup()
        port = self._port + context.this_task_index
        await web.TCPSite(self._runner, self._host, port).start()
        await super().open(conf, context)

    async def close(self) -> None:
        await self._runner.cleanup()
        await super().close()
        await self._queue.close()

    # -- requests --

    async def _take_request(self, request: web.Request) -> web.Response:
        body = await request.read()  # raises 413 for one that is too large
        if self._secret is not None:
            wanted = "sha256=" + hmac.new(self._secret, body, hashlib.sha256).hexdigest()
            given = request.headers.get(self._signature_header, "")
            if not hmac.compare_digest(wanted.encode(), given.encode("utf-8", "replace")):
                return _answer(401, f"{self._signature_header} is missing or wrong")
        key = request.headers.get("Idempotency-Key")
        if key is not None and len(key) > _KEY_CHARS_MAX:
            return _answer(400, f"Idempotency-Key has more than {_KEY_CHARS_MAX} characters")
        headers = orjson.dumps({name.lower(): value for name, value in request.headers.items()})
        try:
            await self._queue.put(key, headers, body)
        except QueueFullError as error:
            return _answer(503, str(error), {"Retry-After": "5"})
        except sqlite3.Error as error:
            self.report_outage(error)
            return _answer(503, f"not stored: {describe(error)}", {"Retry-After": "5"})
        self._arrived.set()
        return _answer(202, "stored")

    async def _answer_health(self, request: web.Request) -> web.Response:
        return _answer(200, f"{self._queue.count} requests wait")

    # -- records --

    async def fetch(self, limit: int) -> Sequence[Record]:
        self._arrived.clear()
        found = await self._queue.after(self._last, limit)
        if not found:
            try:
                async with asyncio.timeout(1.0):
                    await self._arrived.wait()
            except TimeoutError:
                pass
            return []
        self._last = found[-1][0]
        return [(of, [body, orjson.loads(headers)]) for of, headers, body in found]

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        ids: Any = message_ids
        await self._queue.remove(ids)

    async def measure_lag(self) -> int | None:
        return self._queue.count


def _secret(variable: str | None) -> bytes | None:
    if variable is None:
        return None
    secret = os.environ.get(variable)
    if not secret:
        raise InvalidTopologyError(
            f"WebhookSpout: the environment variable {variable} is not set in the worker"
        )
    return secret.encode()


def _answer(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"message": message}, status=status, headers=headers)
