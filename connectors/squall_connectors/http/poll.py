"""`HttpPollSpout`: what a URL answers, again and again."""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import orjson

from squall import Stream, TopologyContext
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.address import require_at_least
from squall_connectors.base.source import AsyncSource, Record
from squall_connectors.http.target import Position, Target

FORMATS = ("body", "json", "lines")
_RETRY_AFTER_SECS_MAX = 3600.0


@dataclass(slots=True)
class _Answer:
    """An answer whose records are not all done. `position` is what is known once they are."""

    position: dict[str, Any]
    rows: list[Sequence[Any]]
    name: str
    next: int = 0  # the record to emit next
    left: set[int] = field(default_factory=set)  # the numbers of those that are not done

    def __post_init__(self) -> None:
        self.left = set(range(len(self.rows)))


class HttpPollSpout(AsyncSource):
    """Requests a URL every `poll_secs`, and emits what has changed:

        HttpPollSpout("https://api.example/rates", poll_secs=60, state="/var/lib/app/positions")
        HttpPollSpout("https://api.example/orders?limit=100", ["id", "sku"], format="json",
                      items="data.orders", cursor_field="id", cursor_parameter="after",
                      state="/var/lib/app/positions")

    `format` says what a record is: "body" (the whole answer: one field, bytes), "lines" (each line:
    one field, a string) or "json" (the answer is an array of objects, or has one at `items`: the
    values of `fields`, None where one is missing).

    The next request is made when all records of the last answer are done, with its ETag or
    Last-Modified: an answer of 304, or with the same bytes, emits nothing. With `cursor_field` and
    `cursor_parameter`, the request has in that parameter the value that the last object had in that
    field; as long as there are objects it is made again at once. With `state`, a folder on the
    worker's node, this position is kept there for the next worker: pin the spout to that node.

    What changes and changes back between two requests is not seen. Records of an answer come in
    order. Of several tasks the first alone reads. The message id is `(digest of the answer, number
    of the record)`.
    """

    def __init__(
        self,
        url: str,
        fields: Sequence[str] = ("body",),
        *,
        format: str = "body",
        items: str = "",
        cursor_field: str | None = None,
        cursor_parameter: str | None = None,
        poll_secs: float = 60.0,
        state: str | Path | None = None,
        headers: Mapping[str, str] | None = None,
        headers_env: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        timeout_secs: float = 30.0,
        body_bytes_max: int = 16 << 20,
        in_flight_max: int = 1_000,
        max_replays: int | None = 10,
        retry_first_secs: float = 0.1,
        retry_max_secs: float = 30.0,
    ) -> None:
        """`items` is a path of keys, separated by dots. `headers_env` maps headers to environment
        variables of the worker that hold their values. A server with TLS must prove itself to
        `ca_file`, or to the system's authorities. An answer above `body_bytes_max`, or one that is
        not of the format, is reported as an error, and asked for again after `poll_secs`; so is a
        status that is neither 200, 204 nor 304, after Retry-After if the server says so. The others
        are those of `Source`. Raises InvalidTopologyError for arguments that contradict each
        other."""
        super().__init__(
            in_flight_max=in_flight_max,
            max_replays=max_replays,
            retry_first_secs=retry_first_secs,
            retry_max_secs=retry_max_secs,
        )
        self._target = Target(
            "HttpPollSpout", url, ("http", "https"), headers, headers_env, ca_file
        )
        self.server_shown = str(self._target)
        if format not in FORMATS:
            raise InvalidTopologyError(
                f"HttpPollSpout: format {format!r}; expected one of {', '.join(FORMATS)}"
            )
        if not fields or (format != "json" and len(fields) != 1):
            raise InvalidTopologyError(
                f"HttpPollSpout: format {format!r} does not take {len(fields)} fields"
            )
        if (cursor_field is None) != (cursor_parameter is None):
            raise InvalidTopologyError(
                "HttpPollSpout: cursor_field and cursor_parameter need each other"
            )
        if format != "json" and (items or cursor_field is not None):
            raise InvalidTopologyError("HttpPollSpout: items and cursor_field need format='json'")
        if poll_secs <= 0 or timeout_secs <= 0:
            raise InvalidTopologyError("HttpPollSpout: poll_secs and timeout_secs must be positive")
        require_at_least("HttpPollSpout", 1, body_bytes_max=body_bytes_max)
        self.outputs = {"default": Stream(list(fields))}
        self._fields, self._format = list(fields), format
        self._items = items.split(".") if items else []
        self._cursor_field, self._cursor_parameter = cursor_field, cursor_parameter
        self._poll_secs, self._state = poll_secs, state
        self._timeout_secs, self._body_bytes_max = timeout_secs, body_bytes_max

    async def open(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._reads = context.this_task_index == 0
        self._position = Position(self._state if self._reads else None, context)
        self._answer: _Answer | None = None
        self._due = 0.0
        self._finished = asyncio.Event()
        await super().open(conf, context)

    async def connect(self) -> None:
        self._session = self._target.session(self._timeout_secs, self._timeout_secs)

    async def disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def fetch(self, limit: int) -> Sequence[Record]:
        if not self._reads:
            await asyncio.sleep(1.0)
            return []
        answer = self._answer
        if answer is None:
            if (wait := self._due - time.monotonic()) > 0:
                await asyncio.sleep(min(1.0, wait))
                return []
            self._due = time.monotonic() + self._poll_secs
            try:
                with self._target.asked():
                    answer = self._answer = await self._ask()
            except (ValueError, aiohttp.ClientError, OSError) as error:
                self.report_outage(error)
                return []
            if answer is None:
                return []
        if answer.next >= len(answer.rows):  # all are in flight
            self._finished.clear()
            try:
                async with asyncio.timeout(1.0):
                    await self._finished.wait()
            except TimeoutError:
                pass
            return []
        numbers = range(answer.next, min(len(answer.rows), answer.next + limit))
        answer.next = numbers.stop
        return [((answer.name, number), answer.rows[number]) for number in numbers]

    async def _ask(self) -> _Answer | None:
        """Make a request. Returns None if there is nothing new."""
        assert self._session is not None
        known = self._position.value
        headers = {}
        if "etag" in known:
            headers["If-None-Match"] = known["etag"]
        elif "last_modified" in known:
            headers["If-Modified-Since"] = known["last_modified"]
        parameters = {}
        if self._cursor_parameter is not None and "cursor" in known:
            parameters[self._cursor_parameter] = str(known["cursor"])
        async with (
            asyncio.timeout(self._timeout_secs),
            self._session.get(self._target.url, headers=headers, params=parameters) as response,
        ):
            if response.status in (204, 304):
                return None
            if response.status != 200:
                self._heed_retry_after(response)
                raise ConnectionError(f"{self._target} answers {response.status} {response.reason}")
            body = await self._body(response)
        digest = hashlib.sha256(body).hexdigest()[:32]
        position: dict[str, Any] = {"digest": digest}
        for name, header in (("etag", "ETag"), ("last_modified", "Last-Modified")):
            if header in response.headers:
                position[name] = response.headers[header]
        if "cursor" in known:
            position["cursor"] = known["cursor"]
        if known.get("digest") == digest:
            self._position.save(position)
            return None
        return self._answer_of(body, position)

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        chunks, size = [], 0
        async for chunk in response.content.iter_chunked(1 << 16):
            size += len(chunk)
            if size > self._body_bytes_max:
                raise ValueError(
                    f"{self._target} answers more than {self._body_bytes_max} bytes "
                    "(body_bytes_max)"
                )
            chunks.append(chunk)
        return b"".join(chunks)

    def _heed_retry_after(self, response: aiohttp.ClientResponse) -> None:
        after = response.headers.get("Retry-After", "")
        if after.isascii() and after.isdigit():
            secs = min(_RETRY_AFTER_SECS_MAX, float(after[:6]))
            self._due = max(self._due, time.monotonic() + secs)

    def _answer_of(self, body: bytes, position: dict[str, Any]) -> _Answer | None:
        """The records of a body. Raises ValueError if it is not of the format."""
        rows: list[Sequence[Any]] = []
        if self._format == "body":
            rows = [[body]]
        elif self._format == "lines":
            rows = [[line] for line in body.decode("utf-8", "replace").splitlines()]
        else:
            objects = self._objects(body)
            rows = [[one.get(field) for field in self._fields] for one in objects]
            if self._cursor_field is not None and objects:
                cursor = objects[-1].get(self._cursor_field)
                if cursor is None or cursor == position.get("cursor"):
                    raise ValueError(
                        f"{self._target}: the last object has no {self._cursor_field!r} beyond the "
                        f"one that was asked for ({cursor!r})"
                    )
                position = {"cursor": cursor}  # the next request is another one
        if not rows:
            self._position.save(position)
            return None
        digest = hashlib.sha256(body).hexdigest()[:32]
        return _Answer(position, rows, digest)

    def _objects(self, body: bytes) -> list[dict[str, Any]]:
        try:
            found = orjson.loads(body)
        except orjson.JSONDecodeError as error:
            raise ValueError(f"{self._target} answers no JSON: {describe(error)}") from error
        for key in self._items:
            found = found.get(key) if isinstance(found, dict) else None
        if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
            where = f"at {'.'.join(self._items)!r}" if self._items else "in it"
            raise ValueError(f"{self._target} answers JSON without an array of objects {where}")
        return found

    async def settle(self, message_ids: Sequence[Hashable]) -> None:
        answer = self._answer
        ids: Any = message_ids
        if answer is None:
            return
        answer.left -= {number for name, number in ids if name == answer.name}
        if not answer.left:
            self._position.save(answer.position)
            self._answer = None
            if self._cursor_field is not None:
                self._due = 0.0  # there may be more
            self._finished.set()
