"""Answers to a bulk request, without a server."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Any

import orjson
import pytest

from squall_connectors.opensearch import OpenSearchSink


class Answer:
    """An answer of aiohttp's, and the session that gets it."""

    reason = "Reason"

    def __init__(self, status: int, body: bytes) -> None:
        self.status, self._body = status, body

    def post(self, url: str, **options: Any) -> Answer:
        return self

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(
        self, kind: type | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    async def read(self) -> bytes:
        return self._body


def ask(status: int, body: bytes) -> OpenSearchSink:
    """Send one document, which gets this answer."""
    sink = OpenSearchSink("http://search", ["a"], index="i")
    session: Any = Answer(status, body)
    sink._session = session
    asyncio.run(sink._bulk({0: b"{}\n"}))
    return sink


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"{}", b'{"items": []}', b'{"items": 1}'])
def test_an_answer_of_something_else_is_an_outage(body: bytes) -> None:
    with pytest.raises(ConnectionError, match="answers 200, but not to a bulk request"):
        ask(200, body)


@pytest.mark.parametrize("status", [400, 401, 502])
def test_an_error_that_names_no_document_is_an_outage(status: int) -> None:
    with pytest.raises(ConnectionError, match=f"answers {status}: Reason"):
        ask(status, b"<html>")
    with pytest.raises(ConnectionError, match=f"answers {status}: no"):
        ask(status, b'{"error": "no"}')


def test_a_request_that_is_refused_for_a_document_is_the_records_fault() -> None:
    error = {"type": "action_request_validation_exception", "reason": "id is too long"}
    with pytest.raises(Exception, match="id is too long") as raised:
        ask(400, orjson.dumps({"error": error, "status": 400}))
    assert not OpenSearchSink("http://search", ["a"], index="i").is_outage(raised.value)
