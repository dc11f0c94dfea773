"""What a secured cluster costs and withstands.

decision      one question to the authorizer, among 200,000 topologies with lists of 50 entries
list          10,000 topologies, filtered for one user
submit        what a submit costs more than in an open cluster: CPU of Nimbus and of the client
half_open_*   a new client beside 10,000 connections that say nothing
slow_*        a new client beside 100 callers who read none of their answers
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import yaml
from tests.support.devcluster import DevCluster
from tests.support.nimbus_service import LocalNimbus, package, topology
from tests.support.secured_nimbus import Certificates, secured_nimbus

from bench.crowds import credentials
from bench.runs import ROOT, RunError, WrongCountError
from bench.tables import Table, met, number
from squall_common.security.acl import ClusterAcl, Members, Topology, TopologyAcl
from squall_common.security.authorize import Allowed, authorize, visible
from squall_common.security.identity import Channel, Principal, Role
from squall_nimbus.service.limits import LIMITS
from squall_thrift import storm
from squall_thrift.client import ThriftClient
from squall_thrift.serving.server import ThriftServer

TOPOLOGIES, LISTED, SUBMITS = 200_000, 10_000, 10
HALF_OPEN, SLOW, CLIENTS = 10_000, 100, 20
_DAEMONS = ("nimbus", "drpc", "ui", "logviewer")
_NOW = 1_700_000_000.0
_ANSWER_SECS_MAX = 60.0


@dataclass(frozen=True, slots=True)
class Case:
    """A figure in a unit, which may be `goal` at the most."""

    name: str
    title: str
    unit: str
    goal: float


def cases() -> list[Case]:
    return [
        Case("decision", f"a decision, {TOPOLOGIES:,} topologies x 50 entries, p99", "us", 20.0),
        Case("list", f"a list of {LISTED:,} topologies, filtered", "ms", 50.0),
        Case("submit", "a submit, more CPU than in an open cluster", "ms", 5.0),
        *(
            Case(f"half_open_{name}", f"{name}: beside {HALF_OPEN:,} half-open", "ms", 1_000.0)
            for name in _DAEMONS
        ),
        *(
            Case(f"slow_{name}", f"{name}: beside {SLOW} slow readers", "ms", 1_000.0)
            for name in _DAEMONS
        ),
    ]


def _world(count: int) -> tuple[Principal, list[Topology]]:
    """A user, and topologies whose lists have 50 entries each: 25 users, 25 groups."""
    chance = random.Random(7)
    names = [f"user-{one}" for one in range(5_000)]
    # Lists share their members, or they would take a gigabyte.
    lists = [
        Members(frozenset(chance.sample(names, 25)), frozenset(f"g{n + k}" for k in range(25)))
        for n in range(500)
    ]
    things = [
        Topology(f"t{n}-1-1700000000", f"t{n}", TopologyAcl(names[n % 5_000], one, one, one))
        for n, one in zip(range(count), cycle(lists), strict=False)
    ]
    chance.shuffle(things)
    groups = frozenset({"g40", "nobody"})
    return Principal(Role.USER, "user-17", Channel.CERTIFICATE, groups), things


def decision() -> float:
    """The 99th percentile, in microseconds, of one decision: the mean of each hundred, so that the
    clock's own cost does not count."""
    caller, things = _world(TOPOLOGIES)
    acls, batches, allowed = ClusterAcl(), [], 0
    for begin in range(0, len(things), 100):
        action = "killTopology" if begin % 200 else "getTopologyInfo"
        began = time.process_time()
        for thing in things[begin : begin + 100]:
            allowed += isinstance(authorize(caller, action, thing, acls, _NOW), Allowed)
        batches.append((time.process_time() - began) / 100)
    if not 0 < allowed < len(things):
        raise WrongCountError(f"decision: {allowed} of {len(things)} were allowed")
    return 1e6 * sorted(batches)[int(0.99 * len(batches))]


def filtered() -> float:
    """CPU of one list, in milliseconds."""
    caller, things = _world(LISTED)
    began = time.process_time()
    shown = visible(caller, "getTopologyInfo", things, lambda one: one, ClusterAcl(), _NOW)
    took = time.process_time() - began
    if not 0 < len(shown) < len(things):
        raise WrongCountError(f"list: {len(shown)} of {len(things)} are shown")
    return 1e3 * took


async def _submits(client: ThriftClient, kind: str, first: int) -> float:
    """CPU of a submit in this process, which is Nimbus and client, in milliseconds."""
    began = time.process_time()
    for index in range(SUBMITS):
        location = await client.call("beginFileUpload")
        await client.call("uploadChunk", location, package())
        await client.call("finishFileUpload", location)
        name = f"{kind}-{first + index}"
        await client.call("submitTopology", name, location, "{}", topology())
    return 1e3 * (time.process_time() - began) / SUBMITS


async def _submit(pairs: int) -> list[float]:
    found = []
    with tempfile.TemporaryDirectory(prefix="squall-bench-") as scratch:
        folder = Path(scratch)
        certificates = Certificates(folder / "certificates").create()
        async with (
            secured_nimbus(folder / "secured", certificates) as secured,
            secured.user("alice") as alice,
            LocalNimbus(folder / "open") as local,
        ):
            await local.leads()
            server = ThriftServer(storm.Nimbus, local.service, limits=LIMITS)
            await server.start()
            try:
                async with ThriftClient(storm.Nimbus, "127.0.0.1", server.port) as client:
                    for turn in range(pairs):
                        plain = await _submits(client, "open", turn * SUBMITS)
                        found.append(await _submits(alice, "secured", turn * SUBMITS) - plain)
            finally:
                await server.stop(1.0)
    return found


class _Cluster:
    """`storm dev --secure`, and a new client of each of its daemons."""

    def __init__(self, started: DevCluster) -> None:
        state = started.state()
        self.conf = started.conf_file
        self.ports = {
            "nimbus": state["nimbus"]["port"],
            "drpc": int(yaml.safe_load(self.conf.read_text())["drpc.http.port"]),
            "ui": state["ui"]["port"],
            "logviewer": state["logviewer"]["port"],
        }

    async def answered(self, name: str) -> float:
        """How long a new client waits for its first answer, in milliseconds."""
        ask: Callable[[], Awaitable[None]] = self._thrift
        if name != "nimbus":

            async def ask() -> None:
                await self._https(name)

        began = time.monotonic()
        async with asyncio.timeout(_ANSWER_SECS_MAX):
            await ask()
        return 1e3 * (time.monotonic() - began)

    async def _thrift(self) -> None:
        own = credentials(self.conf, Role.NIMBUS)
        async with ThriftClient(
            storm.Nimbus, "127.0.0.1", self.ports["nimbus"], credentials=own
        ) as client:
            await client.call("getLeader")

    async def _https(self, name: str) -> None:
        own = credentials(self.conf, Role.NIMBUS)
        context: ssl.SSLContext = own.context
        path = {"drpc": "/metrics", "ui": "/static/app.css", "logviewer": "/api/v1/files"}[name]
        connector = aiohttp.TCPConnector(ssl=context)
        async with (
            aiohttp.ClientSession(connector=connector, headers=own.http_headers()) as session,
            session.get(f"https://127.0.0.1:{self.ports[name]}{path}") as answer,
        ):
            if answer.status != 200:
                raise WrongCountError(f"{name}: {answer.status} {await answer.text()}")


@contextlib.contextmanager
def _crowd(*arguments: str) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.crowds", *arguments],
        cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        if process.stdout.readline() != "ready\n":
            raise RunError(f"the crowd did not come: {' '.join(arguments)}")
        yield
    finally:
        process.stdin.close()
        process.wait()
        process.stdout.close()


def _beside(cluster: _Cluster, name: str, crowd: str, count: int) -> float:
    """The slowest of some new clients, in milliseconds."""
    port = str(cluster.ports[name])
    kind = crowd
    if crowd == "slow":
        kind = "slow-thrift" if name == "nimbus" else "slow-https"
    arguments = [kind, port, str(count), *([str(cluster.conf)] if crowd == "slow" else [])]

    async def ask() -> float:
        return max([await cluster.answered(name) for _ in range(CLIENTS)])

    with _crowd(*arguments):
        return asyncio.run(ask())


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Each case `pairs` times; medians are reported."""
    chosen = [case for case in cases() if only is None or case.name in only]
    taken: dict[str, list[float]] = {case.name: [] for case in chosen}
    for _ in range(pairs):
        for name, measured in (("decision", decision), ("list", filtered)):
            if name in taken:
                print(f"{name} ...", file=sys.stderr, flush=True)
                taken[name].append(measured())
    if "submit" in taken:
        print("submit ...", file=sys.stderr, flush=True)
        taken["submit"] = asyncio.run(_submit(pairs))
    crowds = [case.name for case in chosen if case.name.startswith(("half_open_", "slow_"))]
    if crowds:
        _take_crowds(crowds, pairs, taken)
    rows = {
        case.name: {
            "title": case.title,
            "unit": case.unit,
            "goal": case.goal,
            "value": round(statistics.median(taken[case.name]), 3),
            "all": [round(value, 3) for value in taken[case.name]],
        }
        for case in chosen
    }
    return {"pairs": pairs, "cases": rows}


def _take_crowds(names: list[str], pairs: int, taken: dict[str, list[float]]) -> None:
    folder = Path(tempfile.mkdtemp(prefix="squall-bench-"))
    try:
        started = DevCluster.launch(folder, supervisors=1, slots=1, secure=True)
        try:
            cluster = _Cluster(started)
            for _ in range(pairs):
                for name in names:
                    print(f"{name} ...", file=sys.stderr, flush=True)
                    kind, _, daemon = name.rpartition("_")
                    crowd, count = ("slow", SLOW) if kind == "slow" else ("half-open", HALF_OPEN)
                    taken[name].append(_beside(cluster, daemon, crowd, count))
            started.stop()
        finally:
            started.destroy()
    except (AssertionError, TimeoutError) as error:
        raise RunError(f"the cluster: {error or 'a client was not answered'}") from error
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        low, high = min(row["all"]), max(row["all"])
        rows.append(
            [
                row["title"],
                f"{number(row['value'])} {row['unit']}",
                f"{number(low)}-{number(high)}",
                f"{number(row['goal'])} {row['unit']}",
                met(row["value"], row["goal"], None, at_most=True),
            ]
        )
    columns = ["a secured cluster", "median", "all", "goal", "goal met"]
    note = (
        f"Medians of {report['pairs']} runs. Decisions, lists and submits are CPU time, the others "
        f"the slowest of {CLIENTS} clients one after the other, each with a connection of its own, "
        "until its first answer."
    )
    return [Table("A secured cluster", columns, rows, [note])]
