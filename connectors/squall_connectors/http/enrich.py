"""`HttpEnrich`: tuples with what a service answers about them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any
from urllib.parse import quote

import aiohttp
import orjson

from squall import Bolt, Stream, TopologyContext, Tuple
from squall.metrics import CountMetric, MeanMetric
from squall_common.component.component import Outputs
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.address import with_secrets
from squall_connectors.base.backoff import Backoff
from squall_connectors.base.cache import Cache
from squall_connectors.http.breaker import Breaker
from squall_connectors.http.rate import RateLimit
from squall_connectors.http.target import connector_of

DEAD_LETTER = "dead_letter"
_DECODE: dict[str, Callable[[bytes], Any]] = {
    "json": orjson.loads,
    "text": bytes.decode,
    "bytes": bytes,
}
_TRY_AGAIN = frozenset({408, 425, 429})
_BODY_BYTES_MAX = 16 << 20


class HttpEnrich(Bolt):
    """Makes a request for each tuple, many at the same time, and emits the tuple's `keep` fields
    followed by the answer:

        HttpEnrich("https://api.example/items/{sku}", keep=["order"], outputs=["order", "item"])
        HttpEnrich("https://api.example/score", method="POST", body_fields=["user", "amount"],
                   keep=["user"], outputs=["user", "score"], rate_per_sec=50)

    `{field}` in the URL is the value of a field, quoted. With `body_fields` the request has a JSON
    object of these fields.

    - An answer of 5xx, 408, 425 or 429, a timeout, or a lost connection is tried again, `attempts`
      times in all, with waits that double (or as long as Retry-After says). Then the tuple fails.
    - Any other answer of 4xx is final: the tuple goes to the stream "dead_letter" if a bolt
      consumes it, with `values`, `fields`, `component`, `stream` and `reason`; otherwise it fails.
    - `breaker_failures` failures in a row open the circuit breaker: for `breaker_secs` no request
      is made and tuples fail at once; then one request finds out whether the service is back.
    - Answers to GET are kept for `cache_secs`. Tuples that ask the same at the same time share one
      request.

    A replayed tuple asks again: give a service that changes something an id to recognize it by.
    Metrics: `requests`, `request-secs`, `cache-hits`, `refused` (by the circuit breaker).
    """

    auto_ack = False

    def __init__(
        self,
        url: str,
        *,
        outputs: Sequence[str],
        keep: Sequence[str] = (),
        method: str = "GET",
        body_fields: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        headers_env: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        decode: str = "json",
        concurrency: int = 50,
        timeout_secs: float = 5.0,
        attempts: int = 4,
        rate_per_sec: float | None = None,
        cache_secs: float = 0.0,
        cache_size: int = 10_000,
        breaker_failures: int = 10,
        breaker_secs: float = 10.0,
    ) -> None:
        """`headers_env` maps headers to environment variables of the worker that hold their values.
        A server with TLS must prove itself to `ca_file`, or to the system's authorities. `decode`
        is "json", "text" or "bytes". `rate_per_sec` and `concurrency` are those of one task. Raises
        InvalidTopologyError if `outputs` are not the fields kept and one for the answer, or a
        number is not positive."""
        if list(outputs)[:-1] != list(keep) or not outputs:
            raise InvalidTopologyError(
                f"HttpEnrich: outputs {list(outputs)} must be the fields kept, {list(keep)}, and "
                "one for the answer"
            )
        if decode not in _DECODE:
            raise InvalidTopologyError(
                f"HttpEnrich: decode {decode!r}; expected one of {', '.join(_DECODE)}"
            )
        if min(concurrency, attempts, breaker_failures, timeout_secs, breaker_secs) <= 0:
            raise InvalidTopologyError(
                "HttpEnrich: concurrency, attempts, breaker_failures, breaker_secs and "
                "timeout_secs must be positive"
            )
        if rate_per_sec is not None and rate_per_sec <= 0:
            raise InvalidTopologyError("HttpEnrich: rate_per_sec must be positive")
        letters = Stream(["values", "fields", "component", "stream", "reason"])
        self.outputs: Outputs = MappingProxyType(
            {"default": Stream(list(outputs)), DEAD_LETTER: letters}
        )
        self.component_conf = {"topology.bolt.async.concurrency": concurrency}
        self._url, self._keep = url, list(keep)
        self._method, self._body_fields = method.upper(), list(body_fields)
        self._headers, self._headers_env = dict(headers or {}), dict(headers_env or {})
        self._ca_file = ca_file
        self._decode = decode
        self._concurrency, self._timeout_secs = concurrency, timeout_secs
        self._attempts, self._rate_per_sec = attempts, rate_per_sec
        self._cache_secs, self._cache_size = cache_secs, cache_size
        self._breaker_failures, self._breaker_secs = breaker_failures, breaker_secs

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._session = aiohttp.ClientSession(
            headers=with_secrets("HttpEnrich", self._headers, self._headers_env),
            timeout=aiohttp.ClientTimeout(total=self._timeout_secs),
            connector=connector_of(self._ca_file, limit=self._concurrency),
        )
        self._now = asyncio.get_running_loop().time
        self._breaker = Breaker(self._breaker_failures, self._breaker_secs)
        self._rate = None if self._rate_per_sec is None else RateLimit(self._rate_per_sec)
        # In a tuple, so that an answer of null is one.
        self._cache: Cache[tuple[Any]] = Cache(self._cache_secs, self._cache_size)
        self._asking: dict[str, asyncio.Future[Any]] = {}
        self._dead_letters = DEAD_LETTER in context.this_targets
        self._requests = context.register_metric("requests", CountMetric())
        self._request_secs = context.register_metric("request-secs", MeanMetric())
        self._hits = context.register_metric("cache-hits", CountMetric())
        self._refused = context.register_metric("refused", CountMetric())

    async def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self.ack(tup)
            return
        try:
            answer = await self._answer(tup)
        except _FinalError as error:
            self.report_error(error)
            if not self._dead_letters:
                self.fail(tup)
                return
            where = [tup.source_component, tup.source_stream]
            values = [list(tup.values), list(tup.fields), *where, str(error)]
            self.emit(values, anchors=tup, stream=DEAD_LETTER)
        else:
            self.emit([*(tup[field] for field in self._keep), answer], anchors=tup)
        self.ack(tup)

    async def _answer(self, tup: Tuple) -> Any:
        try:
            url = self._url.format_map(_Quoted(tup))
            fields = self._body_fields
            body = orjson.dumps({field: tup[field] for field in fields}) if fields else None
        except (KeyError, TypeError, ValueError) as error:
            raise _FinalError(f"no request can be made: {describe(error)}") from error
        if self._method != "GET" or body is not None:
            return await self._ask(url, body)
        if (kept := self._cache.get(url)) is not None:
            self._hits.incr()
            return kept[0]
        asking = self._asking.get(url)
        if asking is None:
            # A task of its own: those who share it do not end it when one of them is cancelled.
            asking = asyncio.ensure_future(self._ask(url, None))
            self._asking[url] = asking
            asking.add_done_callback(lambda done: self._asked(url, done))
        else:
            self._hits.incr()
        return await asyncio.shield(asking)

    def _asked(self, url: str, done: asyncio.Future[Any]) -> None:
        del self._asking[url]
        if not done.cancelled() and done.exception() is None:
            self._cache.put(url, (done.result(),))

    async def _ask(self, url: str, body: bytes | None) -> Any:
        """Make the request until it is answered, or all attempts are used up."""
        attempt = 0
        while True:
            attempt += 1
            if self._rate is not None:
                await asyncio.sleep(self._rate.wait_secs(self._now()))
            if not self._breaker.may_ask(self._now()):
                self._refused.incr()
                raise ConnectionError(f"{self._method} {url}: the circuit breaker is open")
            try:
                answer = await self._ask_once(url, body)
            except (_TryAgainError, aiohttp.ClientError, OSError, TimeoutError) as error:
                self._breaker.failed(self._now())
                if attempt >= self._attempts:
                    raise ConnectionError(
                        f"{self._method} {url}: {describe(error)}, after {attempt} attempts"
                    ) from error
                wait = error.wait_secs if isinstance(error, _TryAgainError) else None
                await asyncio.sleep(Backoff(0.1, 5.0).secs(attempt) if wait is None else wait)
            except BaseException:
                self._breaker.succeeded()  # it has answered, or was not waited for
                raise
            else:
                self._breaker.succeeded()
                return answer

    async def _ask_once(self, url: str, body: bytes | None) -> Any:
        headers = {"Content-Type": "application/json"} if body is not None else None
        start = self._now()
        self._requests.incr()
        async with self._session.request(self._method, url, data=body, headers=headers) as response:
            if response.status >= 500 or response.status in _TRY_AGAIN:
                raise _TryAgainError(response.status, response.headers.get("Retry-After"))
            if response.status >= 400:
                text = (await response.content.read(200)).decode("utf-8", "replace")
                raise _FinalError(f"{self._method} {url}: status {response.status}: {text}")
            data = await response.content.read(_BODY_BYTES_MAX + 1)
            while len(data) <= _BODY_BYTES_MAX and not response.content.at_eof():
                data += await response.content.read(_BODY_BYTES_MAX + 1 - len(data))
        self._request_secs.update(self._now() - start)
        if len(data) > _BODY_BYTES_MAX:
            raise _FinalError(f"{self._method} {url}: more than {_BODY_BYTES_MAX} bytes")
        try:
            return _DECODE[self._decode](data)
        except ValueError as error:
            raise _FinalError(f"{self._method} {url}: {describe(error)}") from error

    async def cleanup(self) -> None:
        for asking in list(self._asking.values()):
            asking.cancel()
        await self._session.close()


class _FinalError(Exception):
    """No other attempt would end differently."""


class _TryAgainError(Exception):
    def __init__(self, status: int, retry_after: str | None) -> None:
        super().__init__(f"status {status}")
        # It may also be a date: then the usual wait does.
        known = retry_after is not None and retry_after.isdecimal()
        self.wait_secs = min(60.0, float(retry_after or 0)) if known else None


class _Quoted:
    """The fields of a tuple, for the `{field}` of a URL."""

    def __init__(self, tup: Tuple) -> None:
        self._tup = tup

    def __getitem__(self, field: str) -> str:
        return quote(str(self._tup[field]), safe="")
