"""The REST API over HTTP, against a fake Nimbus: every route, its shape, and its errors."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from typing import Any

import aiohttp
import jsonschema
import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families
from tests.support import ui_structs
from tests.support.fake_nimbus import FakeNimbus, fake_nimbus
from tests.support.ui_structs import ID, answer_everything, summary

from squall_common.config.options.typed import ClientOptions, UiOptions
from squall_thrift import storm
from squall_ui.daemon import UiServer
from squall_ui.rest.api import ENDPOINTS
from squall_ui.rest.endpoints import Endpoint


class Client:
    """Requests to one UI."""

    def __init__(self, server: UiServer, session: aiohttp.ClientSession) -> None:
        self.server, self.session = server, session

    async def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None
    ) -> tuple[int, Any]:
        url = f"http://127.0.0.1:{self.server.http.port}/api/v1{path}"
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body)
        async with self.session.request(method, url, data=data, headers=headers) as response:
            assert response.content_type == "application/json", await response.text()
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        status, answer = await self.ask("GET", path)
        assert status == 200, answer
        return answer


@pytest.fixture
def nimbus() -> Iterator[FakeNimbus]:
    with fake_nimbus() as fake:
        answer_everything(fake)
        yield fake


@pytest.fixture
async def ui(nimbus: FakeNimbus) -> AsyncIterator[Client]:
    async for client in _client(nimbus, {}):
        yield client


async def _client(nimbus: FakeNimbus, conf: dict[str, Any]) -> AsyncIterator[Client]:
    conf = {**nimbus.conf, "ui.port": 0, "storm.nimbus.retry.times": 0, **conf}
    server = UiServer(UiOptions.read(conf), ClientOptions.read(conf))
    # (Not `server.start`, which also begins to read the cluster for the pages.)
    await server.http.start()
    async with aiohttp.ClientSession() as session:
        yield Client(server, session)
    await server.stop()


PARTS = {
    "id": ID, "component": "split", "host-port": "node1:6700", "wait-time": "3", "timeout": "0.5",
    "action": "enable", "spct": "12.5", "secs": "2",
}  # fmt: skip
BODIES = {
    "/topology/{id}/rebalance/{wait-time}": {"rebalanceOptions": {"numWorkers": 2}},
    "/topology/{id}/logconfig": {"namedLoggerLevels": {"ROOT": {"target_level": "DEBUG"}}},
}


def path_of(endpoint: Endpoint) -> str:
    return re.sub(r"\{([^}]+)\}", lambda found: PARTS[found[1]], endpoint.path)


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.path}")
async def test_an_answer_has_the_shape_that_the_document_promises(
    ui: Client, endpoint: Endpoint
) -> None:
    path = path_of(endpoint)
    if endpoint.path == "/supervisor":
        path += "?host=node1"
    if endpoint.path == "/owner-resources/{id}":
        path = "/owner-resources/ann"
    status, answer = await ui.ask(
        endpoint.method, path, BODIES.get(endpoint.path) if endpoint.method == "POST" else None
    )
    assert status == 200, answer
    jsonschema.validate(answer, endpoint.answer, jsonschema.Draft202012Validator)


async def test_a_spout_has_the_shape_of_a_component(ui: Client) -> None:
    (endpoint,) = (one for one in ENDPOINTS if one.path == "/topology/{id}/component/{component}")
    answer = await ui.get(f"/topology/{ID}/component/lines?sys=true&window=600")
    jsonschema.validate(answer, endpoint.answer, jsonschema.Draft202012Validator)
    assert answer["componentType"] == "spout"
    assert answer["spoutSummary"][-1]["window"] == ":all-time"


async def test_the_document_names_every_route_and_is_openapi(ui: Client) -> None:
    document = await ui.get("/openapi.json")
    assert document["openapi"] == "3.1.0"
    routes = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    assert routes == {(one.method, f"/api/v1{one.path}") for one in ENDPOINTS}
    ids = [one["operationId"] for methods in document["paths"].values() for one in methods.values()]
    assert len(ids) == len(set(ids))
    for path, methods in document["paths"].items():
        for operation in methods.values():
            named = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
            assert named == set(re.findall(r"\{([^}]+)\}", path))
            schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
            jsonschema.Draft202012Validator.check_schema(schema)


# What Storm's own web page is tested with: names and types of fields.
TEXT, INT, NUM, BOOL, LIST, MAP = str, int, (int, float), bool, list, dict
CONTRACT: dict[str, dict[str, Any]] = {
    "/cluster/summary": {
        "stormVersion": TEXT, "nimbusUptime": TEXT, "nimbusUptimeSeconds": INT, "supervisors": INT,
        "topologies": INT, "slotsTotal": INT, "slotsUsed": INT, "slotsFree": INT,
        "executorsTotal": INT, "tasksTotal": INT, "schedulerDisplayResource": BOOL, "totalMem": NUM,
        "totalCpu": NUM, "availMem": NUM, "availCpu": NUM, "memAssignedPercentUtil": NUM,
        "cpuAssignedPercentUtil": NUM, "bugtracker-url": (str, type(None)),
        "central-log-url": (str, type(None)),
    },
    "/nimbus/summary nimbuses": {
        "host": TEXT, "port": INT, "status": TEXT, "nimbusUpTime": TEXT, "nimbusUpTimeSeconds": INT,
        "nimbusLogLink": TEXT, "version": TEXT, "isLeader": BOOL,
    },
    "/owner-resources owners": {
        "owner": TEXT, "totalTopologies": INT, "totalExecutors": INT, "totalWorkers": INT,
        "totalMemoryUsage": NUM, "totalCpuUsage": NUM, "isolatedNodes": INT,
    },
    "/supervisor/summary supervisors": {
        "id": TEXT, "host": TEXT, "uptime": TEXT, "uptimeSeconds": INT, "slotsTotal": INT,
        "slotsUsed": INT, "totalMem": NUM, "usedMem": NUM, "totalCpu": NUM, "usedCpu": NUM,
        "version": TEXT, "blacklisted": BOOL,
    },
    "/supervisor?id=sup-1 workers": {
        "host": TEXT, "port": INT, "supervisorId": TEXT, "topologyId": TEXT, "topologyName": TEXT,
        "owner": TEXT, "uptime": TEXT, "uptimeSeconds": INT, "executorsTotal": INT,
        "assignedMemOnHeap": NUM, "assignedMemOffHeap": NUM, "assignedCpu": NUM,
        "workerLogLink": TEXT, "componentNumTasks": MAP,
    },
    "/topology/summary topologies": {
        "id": TEXT, "encodedId": TEXT, "name": TEXT, "status": TEXT, "uptime": TEXT,
        "uptimeSeconds": INT, "tasksTotal": INT, "workersTotal": INT, "executorsTotal": INT,
        "replicationCount": INT, "requestedMemOnHeap": NUM, "requestedMemOffHeap": NUM,
        "requestedTotalMem": NUM, "requestedCpu": NUM, "assignedMemOnHeap": NUM,
        "assignedMemOffHeap": NUM, "assignedTotalMem": NUM, "assignedCpu": NUM, "owner": TEXT,
        "schedulerInfo": TEXT,
    },
    f"/topology/{ID}": {
        "id": TEXT, "encodedId": TEXT, "name": TEXT, "status": TEXT, "uptime": TEXT,
        "uptimeSeconds": INT, "tasksTotal": INT, "workersTotal": INT, "executorsTotal": INT,
        "msgTimeout": NUM, "windowHint": TEXT, "debug": BOOL, "samplingPct": NUM,
        "schedulerDisplayResource": BOOL, "replicationCount": INT, "topologyStats": LIST,
        "spouts": LIST, "bolts": LIST, "configuration": MAP, "workers": LIST,
    },
    f"/topology/{ID} topologyStats": {
        "windowPretty": TEXT, "window": TEXT, "emitted": INT, "transferred": INT,
        "completeLatency": TEXT, "acked": INT, "failed": INT,
    },
    f"/topology/{ID} spouts": {
        "spoutId": TEXT, "encodedSpoutId": TEXT, "executors": INT, "tasks": INT, "emitted": INT,
        "transferred": INT, "completeLatency": TEXT, "acked": INT, "failed": INT, "errorHost": TEXT,
        "errorPort": TEXT, "errorWorkerLogLink": TEXT, "errorLapsedSecs": type(None),
        "lastError": TEXT,
    },
    f"/topology/{ID} bolts": {
        "boltId": TEXT, "encodedBoltId": TEXT, "executors": INT, "tasks": INT, "emitted": INT,
        "transferred": INT, "capacity": TEXT, "executeLatency": TEXT, "executed": INT,
        "processLatency": TEXT, "acked": INT, "failed": INT, "lastError": TEXT,
    },
    f"/topology/{ID}/component/split": {
        "id": TEXT, "encodedId": TEXT, "topologyId": TEXT, "encodedTopologyId": TEXT, "name": TEXT,
        "componentType": TEXT, "topologyStatus": TEXT, "executors": INT, "tasks": INT,
        "windowHint": TEXT, "debug": BOOL, "samplingPct": NUM, "eventLoggerCount": INT,
        "profilingAndDebuggingCapable": BOOL, "profileActionEnabled": BOOL, "profilerActive": LIST,
        "schedulerDisplayResource": BOOL, "boltStats": LIST, "componentErrors": LIST,
    },
    f"/topology/{ID}/component/split inputStats": {
        "component": TEXT, "encodedComponent": TEXT, "stream": TEXT, "executeLatency": TEXT,
        "processLatency": TEXT, "executed": INT, "acked": INT, "failed": INT,
    },
    f"/topology/{ID}/component/split outputStats": {
        "stream": TEXT, "emitted": INT, "transferred": INT,
    },
    f"/topology/{ID}/component/split executorStats": {
        "id": TEXT, "encodedId": TEXT, "uptime": TEXT, "uptimeSeconds": INT, "host": TEXT,
        "port": INT, "emitted": INT, "transferred": INT, "capacity": TEXT, "executeLatency": TEXT,
        "executed": INT, "processLatency": TEXT, "acked": INT, "failed": INT, "workerLogLink": TEXT,
    },
    f"/topology/{ID}/visualization split": {
        ":type": TEXT, ":capacity": NUM, ":latency": TEXT, ":stats": LIST, ":inputs": LIST,
    },
}  # fmt: skip


@pytest.mark.parametrize("where", CONTRACT)
async def test_storms_fields_have_storms_types(ui: Client, where: str) -> None:
    path, _, field = where.partition(" ")
    answer = await ui.get(path)
    if field:
        answer = answer[field][0] if isinstance(answer[field], list) else answer[field]
    wrong = {
        name: answer.get(name, "missing")
        for name, kind in CONTRACT[where].items()
        if name not in answer
        or not isinstance(answer[name], kind)
        or (isinstance(answer[name], bool) and kind is not BOOL)
    }
    assert not wrong


async def test_numbers_are_where_clients_look_for_them(ui: Client) -> None:
    page = await ui.get(f"/topology/{ID}")
    assert page["uptime"] == "1d 5h 30m 10s"
    assert page["msgTimeout"] == 45
    assert page["topologyStats"][0]["completeLatency"] == "5.123"
    assert page["bolts"][0]["capacity"] == "0.150"
    assert page["workers"][0]["workerLogLink"] == (
        f"http://node1:8000/api/v1/log?file={ID}%2F6700%2Fworker.log"
    )
    graph = await ui.get(f"/topology/{ID}/visualization")
    assert graph["lines"][":transferred"] == {"default": 2400}
    assert graph["split"][":inputs"][0][":grouping"] == "shuffle"


async def test_a_component_shows_what_it_does(ui: Client, nimbus: FakeNimbus) -> None:
    assert (await ui.get(f"/topology/{ID}/component/split"))["plan"] == []
    code = ui_structs.code()
    code.bolts["split"].common.plan = [
        storm.PlanStep(call="map(normalise)", functions=["shop:normalise"]),
        storm.PlanStep(call="", functions=["shop:Totals"], windows="tumbling 60 s"),
    ]
    nimbus.answers["getTopology"] = lambda *_: code
    ui.server.nimbus._answers.clear()
    assert (await ui.get(f"/topology/{ID}/component/split"))["plan"] == [
        {"step": "map(normalise)", "functions": ["shop:normalise"], "windows": None},
        {"step": "Totals", "functions": ["shop:Totals"], "windows": "tumbling 60 s"},
    ]


async def test_prometheus_finds_how_requests_were_answered(ui: Client) -> None:
    await ui.get("/cluster/summary")
    await ui.ask("GET", "/topology/not-there-1-1")
    await ui.ask("GET", "/made-up/" + "x" * 100)
    url = f"http://127.0.0.1:{ui.server.http.port}/metrics"
    async with ui.session.get(url) as response:
        assert response.headers["Content-Type"].startswith("application/openmetrics-text")
        families = text_string_to_metric_families(await response.text())  # type: ignore[no-untyped-call]
    samples = [sample for family in families for sample in family.samples]
    answers = {
        (one.labels["route"], one.labels["status"]): one.value
        for one in samples
        if one.name == "squall_http_requests_total"
    }
    assert answers["GET /api/v1/cluster/summary", "200"] == 1
    assert answers["GET /api/v1/topology/{id}", "404"] == 1
    assert not [route for route, _ in answers if "xxx" in route]
    assert [one.labels["daemon"] for one in samples if one.name == "squall_build"] == ["ui"]


async def test_a_topology_is_found_by_its_name_too(ui: Client) -> None:
    assert (await ui.get("/topology/words"))["id"] == ID


async def test_a_rebalance_honours_its_body(ui: Client, nimbus: FakeNimbus) -> None:
    body = {"rebalanceOptions": {"numWorkers": 3, "executors": {"split": "4"}}}
    assert await ui.ask("POST", f"/topology/{ID}/rebalance/7", body) == (
        200,
        {"topologyOperation": "rebalance", "topologyId": ID, "status": "success"},
    )
    ((name, options),) = nimbus.called("rebalance")
    assert name == "words"
    assert (options.wait_secs, options.num_workers, options.num_executors) == (7, 3, {"split": 4})


@pytest.mark.parametrize(
    "body",
    [
        {"rebalanceOptions": {"numWorkers": 0}},
        {"rebalanceOptions": {"numWorkers": True}},
        {"rebalanceOptions": {"workers": 1}},
        {"rebalanceOptions": {"executors": ["split"]}},
        ["rebalanceOptions"],
        b"{",
    ],
)
async def test_a_bad_body_is_refused_and_nothing_is_asked_of_nimbus(
    ui: Client, nimbus: FakeNimbus, body: Any
) -> None:
    status, answer = await ui.ask("POST", f"/topology/{ID}/rebalance/7", body)
    assert status == 400
    assert answer["error"] == "400 Bad Request"
    assert not nimbus.called("rebalance")


@pytest.mark.parametrize(
    ("path", "method", "arguments"),
    [
        ("activate", "activate", ("words",)),
        ("deactivate", "deactivate", ("words",)),
        ("debug/enable/12.5", "debug", ("words", "", True, 12.5)),
        ("component/split/debug/disable/10", "debug", ("words", "split", False, 10.0)),
    ],
)
async def test_an_action_is_one_call(
    ui: Client, nimbus: FakeNimbus, path: str, method: str, arguments: tuple[Any, ...]
) -> None:
    status, answer = await ui.ask("POST", f"/topology/{ID}/{path}")
    assert (status, answer["status"]) == (200, "success")
    assert nimbus.called(method) == [arguments]


async def test_a_worker_is_asked_at_its_supervisor(ui: Client, nimbus: FakeNimbus) -> None:
    _, answer = await ui.ask("POST", f"/topology/{ID}/profiling/dumpjstack/node1:6700")
    ((topology_id, request),) = nimbus.called("setWorkerProfiler")
    assert (topology_id, request.nodeInfo.node) == (ID, "sup-1")
    assert answer["file"] == f"stacks-{request.time_stamp}.txt"
    status, _ = await ui.ask("POST", f"/topology/{ID}/profiling/dumpjstack/node1:6799")
    assert status == 404


@pytest.mark.parametrize(
    "secs", ["0", "61", "-1", "1.5", "00019999", "9" * 5000], ids=lambda secs: secs[:9]
)
async def test_only_up_to_a_minute_is_sampled(ui: Client, nimbus: FakeNimbus, secs: str) -> None:
    for route in ("sample", "samplenative", "samplenativeidle"):
        path = f"/topology/{ID}/profiling/{route}/node1:6700/{secs}"
        status, answer = await ui.ask("POST", path)
        assert status == 400
        assert "is not a number of seconds from 1 to 60" in answer["errorMessage"]
    assert not nimbus.called("setWorkerProfiler")


@pytest.mark.parametrize(
    ("path", "status", "part"),
    [
        ("/topology/other-1-1", 404, "other-1-1 is not alive"),
        (f"/topology/{ID}/component/other", 404, "no component 'other'"),
        (f"/topology/{ID}?window=7", 400, "unknown window"),
        ("/topology/summary?callback=f", 400, "JSONP"),
        ("/supervisor", 400, "by id"),
        ("/nothing", 404, "there is no /api/v1/nothing"),
    ],
)
async def test_errors_are_json_with_a_status(ui: Client, path: str, status: int, part: str) -> None:
    found, answer = await ui.ask("GET", path)
    assert found == status
    assert answer["error"]
    assert part in answer["errorMessage"]


async def test_without_nimbus_the_answer_says_so(ui: Client, nimbus: FakeNimbus) -> None:
    nimbus.answers["getLeader"] = RuntimeError("no")
    status, answer = await ui.ask("GET", "/cluster/summary")
    assert status == 503
    assert "Nimbus" in answer["errorMessage"]


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
@pytest.mark.parametrize("path", [path_of(one) for one in ENDPOINTS if one.method == "POST"])
async def test_actions_from_another_sites_page_are_refused(
    ui: Client, nimbus: FakeNimbus, path: str, headers: dict[str, str]
) -> None:
    status, _ = await ui.ask("POST", path, headers=headers)
    assert status == 403
    assert not nimbus.calls


async def test_actions_can_be_switched_off(nimbus: FakeNimbus) -> None:
    async for ui in _client(nimbus, {"ui.actions.enabled": False}):
        for one in ENDPOINTS:
            if one.method == "POST":
                status, answer = await ui.ask("POST", path_of(one))
                assert (status, answer["errorMessage"][:7]) == (403, "actions")
        assert (await ui.get("/topology/summary"))["topologies"][0]["id"] == ID
        assert {name for name, _ in nimbus.calls} == {
            "getLeader",
            "getClusterInfo",
            "getNimbusConf",
        }


async def test_many_readers_cost_nimbus_as_much_as_one(ui: Client, nimbus: FakeNimbus) -> None:
    nimbus.delays["getClusterInfo"] = 0.2
    await asyncio.gather(*(ui.get("/topology/summary") for _ in range(20)))
    assert len(nimbus.called("getClusterInfo")) == 1


async def test_an_action_is_seen_by_the_next_request(ui: Client, nimbus: FakeNimbus) -> None:
    from tests.support.ui_structs import cluster

    assert (await ui.get("/topology/summary"))["topologies"][0]["status"] == "ACTIVE"
    await ui.ask("POST", f"/topology/{ID}/deactivate")
    nimbus.answers["getClusterInfo"] = lambda: cluster(summary(status="INACTIVE"))
    assert (await ui.get("/topology/summary"))["topologies"][0]["status"] == "INACTIVE"


def test_no_route_of_storms_is_missing() -> None:
    """Of docs/STORM-UI-REST-API.md and StormApiResource.java."""
    storms = {
        "GET /cluster/configuration", "GET /cluster/summary", "GET /nimbus/summary",
        "GET /owner-resources", "GET /owner-resources/{id}", "GET /history/summary",
        "GET /supervisor/summary", "GET /supervisor", "GET /topology/summary",
        "GET /topology/{id}", "GET /topology-workers/{id}", "GET /topology/{id}/metrics",
        "GET /topology/{id}/lag", "GET /topology/{id}/visualization-init",
        "GET /topology/{id}/visualization", "GET /topology/{id}/component/{component}",
        "GET /topology/{id}/logconfig", "POST /topology/{id}/logconfig",
        "POST /topology/{id}/activate", "POST /topology/{id}/deactivate",
        "POST /topology/{id}/rebalance/{wait-time}", "POST /topology/{id}/kill/{wait-time}",
        "POST /topology/{id}/debug/{action}/{spct}",
        "POST /topology/{id}/component/{component}/debug/{action}/{spct}",
        "POST /topology/{id}/profiling/start/{host-port}/{timeout}",
        "POST /topology/{id}/profiling/stop/{host-port}",
        "POST /topology/{id}/profiling/dumpprofile/{host-port}",
        "POST /topology/{id}/profiling/dumpjstack/{host-port}",
        "POST /topology/{id}/profiling/restartworker/{host-port}",
        "POST /topology/{id}/profiling/dumpheap/{host-port}",
    }  # fmt: skip
    assert storms <= {f"{one.method} {one.path}" for one in ENDPOINTS}
