"""The sink of OpenSearch against real nodes: of OpenSearch, and of Elasticsearch, whose API is the
same."""

from __future__ import annotations

import base64
import itertools
import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from tests.support.certificates import Certificates
from tests.support.effort import KILL_RECORDS, KILLS, SLOW_SERVER_KILLS, SOAK
from tests.support.http_service import service
from tests.support.opensearch_server import ELASTICSEARCH, OpensearchServer
from tests.support.secure import VARIABLE, check_refusal, check_writes

from squall import Bolt
from squall.testing.connectors import SinkContract, wait_until
from squall_common.errors import InvalidTopologyError
from squall_connectors.opensearch import OpenSearchSink

_names = itertools.count(1)


@pytest.fixture(scope="module")
def opensearch() -> Iterator[OpensearchServer]:
    # Not below pytest's own folder, which other users may not enter.
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        with OpensearchServer.start(Path(name)) as server:
            yield server


@pytest.fixture(scope="module")
def elasticsearch() -> Iterator[OpensearchServer]:
    with tempfile.TemporaryDirectory() as name:
        os.chmod(name, 0o711)
        with OpensearchServer.start(Path(name), ELASTICSEARCH) as server:
            yield server


class TestOpenSearchSink(SinkContract):
    kills = KILLS
    server_kills = SLOW_SERVER_KILLS
    kill_records = KILL_RECORDS
    node = "opensearch"

    @pytest.fixture(autouse=True)
    def _new_index(self, request: pytest.FixtureRequest) -> None:
        self.server: OpensearchServer = request.getfixturevalue(self.node)
        self.index = f"index-{next(_names)}"
        settings = {"number_of_shards": 1, "number_of_replicas": 0}
        mappings = {"properties": {"value": {"type": "integer"}}}
        self.server.ask("PUT", f"/{self.index}", {"settings": settings, "mappings": mappings})

    def make_sink(self, **options: Any) -> Bolt:
        given = {"index": self.index, "batch_secs": 0.02, **options}
        return OpenSearchSink(self.server.url, ["value"], **given)

    def stored(self) -> list[str]:
        self.server.ask("POST", f"/{self.index}/_refresh")
        answer = self.server.ask("GET", f"/{self.index}/_search?scroll=1m&size=10000")
        found: list[str] = []
        while hits := answer["hits"]["hits"]:
            found += [hit["_source"]["value"] for hit in hits]
            scroll = {"scroll": "1m", "scroll_id": answer["_scroll_id"]}
            answer = self.server.ask("POST", "/_search/scroll", scroll)
        return found

    def rejected(self) -> list[Any]:
        return ["not a number"]

    def test_a_document_with_an_id_replaces_the_one_before(self) -> None:
        with self.running(id_field="value") as (feeder, acked, _):
            for number in range(20):
                feeder.feed([str(number % 5)], number)
            wait_until("the acks", lambda: len(acked.acked) == 20)
        assert sorted(self.stored()) == ["0", "1", "2", "3", "4"]

    def test_a_batch_whose_answer_was_lost_is_there_once(self) -> None:
        sink: Any = self.make_sink()
        with self.running_sink(sink) as (feeder, run):
            bulk, failures = sink._bulk, iter([OSError("the answer was lost")])

            async def sent(lines: Any) -> Any:
                answer = await bulk(lines)
                for error in failures:
                    raise error
                return answer

            sink._bulk = sent
            self._feed(feeder, ["1"])
            wait_until("the ack", lambda: feeder.acked == ["1"])
            assert "the answer was lost" in str(run.errors[0])
        assert self.stored() == ["1"]

    def test_a_batch_that_is_too_large_is_divided(self) -> None:
        sink = OpenSearchSink(self.server.url, ["text"], index=self.index, batch_secs=0.3)
        with self.running_sink(sink, fields=("text",)) as (feeder, _):
            for number in range(8):
                feeder.feed(["x" * 300_000], number)
            feeder.feed(["x" * 1_200_000], "too large")
            wait_until("all", lambda: len(feeder.acked) == 8 and feeder.failed == ["too large"])

    def test_a_document_for_which_the_whole_request_is_refused_is_found(self) -> None:
        with self.running_sink(self.make_sink(id_field="value", batch_secs=0.3)) as (feeder, run):
            for number in range(8):
                feeder.feed([str(number)], number)
            feeder.feed(["1" * 600], "long")
            wait_until("all", lambda: len(feeder.acked) == 8 and feeder.failed == ["long"])
            assert "is too long" in str(run.errors[0])

    def test_an_index_that_is_refused_is_the_records_fault(self) -> None:
        sink = OpenSearchSink(self.server.url, ["value"], index_field="to")
        with self.running_sink(sink, fields=("to", "value")) as (feeder, run):
            feeder.feed([self.index, "1"], 1)
            feeder.feed(["Not an index", "2"], 2)
            wait_until("both", lambda: feeder.acked == [1] and feeder.failed == [2])
            assert "invalid_index_name_exception" in str(run.errors[0])


class TestElasticsearch(TestOpenSearchSink):
    """The kills, and the outage, are the same code: `make soak` repeats them here."""

    node = "elasticsearch"
    importable = SOAK

    def test_an_outage_of_the_server_loses_nothing_and_keeps_no_core_busy(self) -> None:
        if SOAK:
            super().test_an_outage_of_the_server_loses_nothing_and_keeps_no_core_busy()


def test_tls_and_a_password_from_the_environment(
    opensearch: OpensearchServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through a proxy that has both: the node's own are a plugin, which is not in Maven Central."""
    made = Certificates.make(tmp_path)

    async def proxied(request: web.Request) -> web.Response:
        if request.headers["Authorization"] != f"Basic {base64.b64encode(b'app:right').decode()}":
            return web.json_response({"error": "unauthorized"}, status=401)
        headers = {"Content-Type": request.headers["Content-Type"]}
        url, body = f"{opensearch.url}{request.path}", await request.read()
        async with (
            aiohttp.ClientSession() as session,
            session.request(request.method, url, data=body, headers=headers) as response,
        ):
            return web.json_response(await response.json(), status=response.status)

    with service(proxied, made) as url:
        address = url.replace("https://", "https://app@")
        arguments: dict[str, Any] = {"index": "secure", "password_env": VARIABLE}
        trusting = {**arguments, "ca_file": str(made.ca)}
        check_writes(OpenSearchSink(address, ["value"], **trusting), "right", monkeypatch)
        check_refusal(OpenSearchSink(address, ["value"], **trusting), monkeypatch, says="401")
        untrusting = OpenSearchSink(address, ["value"], **arguments)
        check_refusal(untrusting, monkeypatch, says="certificate")
    opensearch.ask("POST", "/secure/_refresh")
    assert opensearch.ask("GET", "/secure/_search")["hits"]["total"]["value"] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "search:9200"}, "url has scheme"),
        ({}, "either index or index_field"),
        ({"index": "a", "fields": []}, "fields is empty"),
        ({"index": "a", "ca_file": "/ca.pem"}, "ca_file needs a url with https://"),
    ],
)
def test_it_refuses_what_cannot_be(arguments: dict[str, Any], message: str) -> None:
    given = {"url": "http://search:9200", "fields": ["a"], **arguments}
    with pytest.raises(InvalidTopologyError, match=re.escape(message)):
        OpenSearchSink(given.pop("url"), given.pop("fields"), **given)
