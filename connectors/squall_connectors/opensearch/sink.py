"""`OpenSearchSink`: tuples as documents, by the bulk API."""

from __future__ import annotations

import asyncio
import base64
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import orjson

from squall import TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.address import parse_address, secret_of, tls_context
from squall_connectors.base.backoff import Backoff
from squall_connectors.base.sink import RecordsRejectedError, Sink

# Of a document: the server is too busy for it just now.
_TRY_AGAIN = frozenset({429, 503})
_CONFLICT = 409


class _TooLargeError(Exception):
    """The server takes no request of this size: the sink divides the batch."""


class _RefusedError(Exception):
    """The server takes nothing of a request because of one document (its id is too long): the sink
    divides the batch."""


class OpenSearchSink(Sink):
    """Writes each tuple as a document, and acks it when the server has confirmed it.

        OpenSearchSink("https://shop@search:9200", ["sku", "price"], index="prices", id_field="sku",
                       password_env="SEARCH_PASSWORD")

    With `id_field` a document replaces the one with the same id, so a replayed tuple changes
    nothing. Without it the sink gives each document an id of its own: a batch that is repeated
    because an answer was lost doubles nothing, a replayed tuple does.

    A document that does not fit the index's mapping is a dead letter. One that the server is too
    busy for (429) is sent again, alone.
    """

    outage_errors = (OSError, TimeoutError, EOFError, aiohttp.ClientError)

    def __init__(
        self,
        url: str,
        fields: Sequence[str],
        *,
        index: str | None = None,
        index_field: str | None = None,
        id_field: str | None = None,
        password_env: str | None = None,
        ca_file: str | None = None,
        batch_records: int = 1_000,
        batch_secs: float = 0.2,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """`url` is `http://[USER@]HOST[:PORT]`, or `https://`, which trusts `ca_file` or the
        system's authorities. The document has `fields` of the tuple. The index is `index`, or the
        value of `index_field`. `password_env` names an environment variable of the worker. The
        others are those of `Sink`. Raises InvalidTopologyError for arguments that contradict each
        other."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        self._address = parse_address("OpenSearchSink", url, {"http": 9200, "https": 9200})
        self.server_shown = str(self._address)
        if (index is None) == (index_field is None):
            raise InvalidTopologyError("OpenSearchSink: give either index or index_field")
        if not fields:
            raise InvalidTopologyError("OpenSearchSink: fields is empty")
        if ca_file is not None and self._address.scheme != "https":
            raise InvalidTopologyError("OpenSearchSink: ca_file needs a url with https://")
        self._fields, self._index, self._index_field = list(fields), index, index_field
        self._id_field, self._password_env, self._ca_file = id_field, password_env, ca_file

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._last: tuple[Sequence[Tuple], str] = ((), "")
        await super().prepare(conf, context)

    async def connect(self) -> None:
        headers = {"Content-Type": "application/x-ndjson"}
        address = self._address
        if address.user is not None:
            password = secret_of("OpenSearchSink", self._password_env) or address.password or ""
            login = base64.b64encode(f"{address.user}:{password}".encode()).decode()
            headers["Authorization"] = f"Basic {login}"
        tls = tls_context(self._ca_file)
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=tls if address.scheme == "https" else True),
            timeout=aiohttp.ClientTimeout(total=self._write_timeout_secs, sock_connect=5),
            headers=headers,
        )

    async def disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def write(self, tuples: Sequence[Tuple]) -> None:
        if self._last[0] is not tuples:
            self._last = (tuples, uuid.uuid4().hex)
        rejected: dict[int, str] = {}
        lines: dict[int, bytes] = {}
        for index, tup in enumerate(tuples):
            try:
                lines[index] = self._lines(tup, f"{self._last[1]}-{index}")
            except (KeyError, TypeError, ValueError) as error:
                rejected[index] = describe(error)
        attempt = 0
        while lines:
            for index, item in zip(list(lines), await self._bulk(lines), strict=True):
                [(operation, result)] = item.items()
                status = result["status"]
                if status in _TRY_AGAIN:
                    continue
                del lines[index]
                # It is there already: the answer to an attempt before was lost.
                if status >= 300 and not (operation == "create" and status == _CONFLICT):
                    rejected[index] = _reason(result.get("error"))
            if lines:
                attempt += 1
                await asyncio.sleep(Backoff(0.1, 5.0).secs(attempt))
        if rejected:
            raise RecordsRejectedError(rejected)

    async def _bulk(self, lines: Mapping[int, bytes]) -> list[dict[str, Any]]:
        """Send documents. Returns what became of each."""
        assert self._session is not None
        url = f"{self._address}/_bulk"
        async with self._session.post(url, data=b"".join(lines.values())) as response:
            body = await response.read()
        if response.status == 413:
            raise _TooLargeError(f"{self._address} takes no request of this size")
        try:
            answer = orjson.loads(body)
        except orjson.JSONDecodeError:
            answer = None
        error = answer.get("error") if isinstance(answer, dict) else None
        if response.status == 400 and isinstance(error, dict):
            raise _RefusedError(_reason(error))
        if response.status != 200:
            reason = response.reason if error is None else _reason(error)
            raise ConnectionError(f"{self._address} answers {response.status}: {reason}")
        items = answer.get("items") if isinstance(answer, dict) else None
        if not isinstance(items, list) or len(items) != len(lines):
            # Of a proxy, or of something else that listens there.
            raise ConnectionError(f"{self._address} answers 200, but not to a bulk request")
        return items

    def _lines(self, tup: Tuple, own_id: str) -> bytes:
        index = self._index if self._index_field is None else tup[self._index_field]
        if not isinstance(index, str) or not index:
            raise ValueError(f"{str(index)[:50]!r} is not the name of an index")
        if self._id_field is None:
            action = {"create": {"_index": index, "_id": own_id}}
        else:
            action = {"index": {"_index": index, "_id": str(tup[self._id_field])}}
        document = {field: tup[field] for field in self._fields}
        option = orjson.OPT_APPEND_NEWLINE
        return orjson.dumps(action, option=option) + orjson.dumps(document, option=option)


def _reason(error: Any) -> str:
    """The server's error in a line."""
    if not isinstance(error, dict):
        return str(error)
    text = f"{error.get('type')}: {error.get('reason')}"
    cause = error.get("caused_by")
    return f"{text} ({_reason(cause)})" if cause else text
