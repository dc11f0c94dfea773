"""DRPC: requests a second and their latency, beside a bare Thrift echo server.

    python -m bench.drpc        JSON on stdout, progress on stderr

200 clients ask the exclamation function, a linear topology of one bolt in one worker, each the next
request as soon as the last one is answered. The same clients ask a bare Thrift server that does the
same by itself, in turns with DRPC, in the same run. Then they ask at 70 % of DRPC's rate, at random
moments that do not wait for answers, and the latency from the moment that a request was due is
taken. Every answer is compared. Server, worker and clients are processes of their own, and the CPU
of each is listed: the clients take a part of the machine, too.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import statistics
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import uvloop

from bench.ids import new_topology_id
from squall import Bolt
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_drpc import LinearDRPCTopologyBuilder
from squall_drpc.batched.coordinated import CoordinatedBolt
from squall_engine import core
from squall_engine.embed import (
    EmbeddedEngine,
    EngineCallbacks,
    EngineSettings,
    tune_garbage_collector,
)
from squall_thrift import codec, storm
from squall_thrift.protocol import messages
from squall_thrift.protocol.messages import MessageType
from squall_thrift.serving.authorization import PUBLIC, Call, permission
from squall_thrift.serving.server import ThriftServer

ROOT = Path(__file__).resolve().parent.parent
CLIENTS = 200
LIFE_SECS_MAX = 600.0  # a process whose parent is gone ends by itself
HOST = "127.0.0.1"


class Exclaim(Bolt):
    outputs = ["id", "result"]  # noqa: RUF012 - how components are written

    def execute(self, tup: Any) -> None:
        self.emit([tup[0], tup[1] + "!"])


# ---- the processes ----


class Echo:
    """What the exclamation function does, in the server itself."""

    @permission(PUBLIC)
    async def execute(self, call: Call, functionName: str | None, funcArgs: str | None) -> str:
        return (funcArgs or "") + "!"


async def serve_echo(_: Mapping[str, Any]) -> None:
    server = ThriftServer(storm.DistributedRPC, Echo(), connections_max=2 * CLIENTS)
    await server.start()
    say({"port": server.port})
    await hear()
    await server.stop(0)


async def serve_drpc(conf: Mapping[str, Any]) -> None:
    from squall_common.config.options.typed import DrpcOptions
    from squall_drpc.server.daemon import DrpcServer

    server = DrpcServer(DrpcOptions.read(conf))
    await server.start()
    say({"port": server.callers.port, "invocations_port": server.workers.port})
    await hear()
    await server.stop(0)


async def work(conf: Mapping[str, Any]) -> None:
    builder = LinearDRPCTopologyBuilder("exclaim")
    builder.add_bolt(Exclaim())
    stored = normalize_topology_conf(dict(conf), default_conf(), name="bench")
    prepared = prepare(builder.create_remote_topology(), stored)
    errors: list[str] = []
    settings = EngineSettings(
        prepared=prepared,
        topology_id=new_topology_id(),
        slot=WorkerSlot("bench", 1),
        executors=prepared.executors,
    )
    engine = EmbeddedEngine(
        settings,
        EngineCallbacks(
            on_reported=lambda component, task, error: errors.append(f"{component}: {error}")
        ),
    )
    await engine.start()
    engine.set_active(True)
    tune_garbage_collector()
    say({"core": core.NAME})
    await hear()
    await engine.run_until_drained()
    left = 0
    for user in engine.users():
        if isinstance(user, CoordinatedBolt):
            left += len(user.coordination) + user.coordination.remembered
        left += getattr(user, "waiting", 0)
    await engine.stop(1)
    say({"errors": errors[:5], "left": left})


class Child:
    """One of these processes."""

    def __init__(self, role: str, conf: Mapping[str, Any]) -> None:
        self.role = role
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.drpc", "--role", role, "--conf", json.dumps(conf)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
        self.said: dict[str, Any] = self.hear()

    def cpu_secs(self) -> float:
        times = psutil.Process(self._process.pid).cpu_times()
        return float(times.user + times.system)

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"{self.role} ended with status {self._process.wait()}")
        heard: dict[str, Any] = json.loads(line)
        return heard

    def tell(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write('"end"\n')
        self._process.stdin.flush()

    def end(self) -> None:
        if self._process.poll() is None:
            try:
                self._process.communicate('"end"\n', timeout=10)
            except (subprocess.TimeoutExpired, ValueError, OSError):
                self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def say(message: Any) -> None:
    print(json.dumps(message), flush=True)


async def hear() -> Any:
    return json.loads(
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline) or '"end"'
    )


# ---- the clients ----


def frames_of(name: str) -> tuple[bytes, bytes]:
    """A call of the function, and its right answer, as they travel."""
    method = storm.DistributedRPC.methods["execute"]
    asked = codec.to_bytes(method.args.cls("exclaim", name))
    answered = codec.to_bytes(method.result.cls(success=name + "!"))
    call = messages.serialize(MessageType.CALL, "execute", 1, asked)
    reply = messages.serialize(MessageType.REPLY, "execute", 1, answered)
    return struct.pack(">I", len(call)) + call, struct.pack(">I", len(reply)) + reply


class Client(asyncio.Protocol):
    """One connection: asks, compares the answer's bytes, tells. As cheap as a client can be."""

    def __init__(self, name: str, on_answer: Any) -> None:
        self._call, self._reply = frames_of(name)
        self._on_answer = on_answer
        self._got = b""
        self.due = 0.0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def ask(self, due: float) -> None:
        self.due = due
        self.transport.write(self._call)

    def data_received(self, data: bytes) -> None:
        self._got += data
        if len(self._got) >= len(self._reply):
            if self._got != self._reply:
                raise SystemExit(f"a wrong answer: {self._got!r}")
            self._got = b""
            self._on_answer(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_answer = lambda client: None


async def connect(port: int, on_answer: Any) -> list[Client]:
    loop = asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda i=i: Client(f"client {i}", on_answer), HOST, port)  # type: ignore[misc]
        for i in range(CLIENTS)
    ]
    return [client for _, client in made]


async def rate_of(port: int, secs: float) -> float:
    """Answers a second, when each client asks again as soon as it is answered."""
    count, going = 0, True

    def answered(client: Client) -> None:
        nonlocal count
        count += 1
        if going:
            client.ask(0)

    clients = await connect(port, answered)
    for client in clients:
        client.ask(0)
    await asyncio.sleep(min(1.0, secs / 4))
    first, start = count, time.monotonic()
    await asyncio.sleep(secs)
    rate = (count - first) / (time.monotonic() - start)
    going = False
    await asyncio.sleep(0.3)  # the last answers
    for client in clients:
        client.transport.abort()
    return rate


async def latencies_at(port: int, rate: float, secs: float) -> list[float]:
    """Seconds from the moment that each request was due to its answer."""
    taken: list[float] = []
    waiting: deque[float] = deque()  # due, and no client free
    free: list[Client] = []
    now = time.monotonic

    def answered(client: Client) -> None:
        taken.append(now() - client.due)
        if waiting:
            client.ask(waiting.popleft())
        else:
            free.append(client)

    clients = await connect(port, answered)
    free += clients
    draw = random.Random(1)
    end = now() + secs
    due = now()
    asked = 0
    while due < end:
        # Never without letting answers in, however high the rate; uvloop's timers are whole ms.
        await asyncio.sleep(max(due - now(), 0.001))
        while due <= now():
            asked += 1
            if free:
                free.pop().ask(due)
            else:
                waiting.append(due)
            due += draw.expovariate(rate)
    deadline = now() + 20
    while len(taken) < asked and now() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    for client in clients:
        client.transport.abort()
    if len(taken) < asked:
        raise SystemExit(f"{asked - len(taken)} of {asked} requests were not answered")
    return sorted(taken)


# ---- the measurement ----


async def measure(rounds: int, secs: float) -> dict[str, Any]:
    ports = {"drpc.port": 0, "drpc.invocations.port": 0, "drpc.http.port": 0}
    children: list[Child] = []
    try:
        echo = Child("echo", {})
        children.append(echo)
        drpc = Child("drpc", ports)
        children.append(drpc)
        worker = Child(
            "worker",
            {
                "drpc.servers": [HOST],
                "drpc.invocations.port": drpc.said["invocations_port"],
                "topology.workers": 1,
            },
        )
        children.append(worker)
        await rate_of(drpc.said["port"], secs / 4)  # warm
        rows: dict[str, list[dict[str, float]]] = {"echo": [], "drpc": []}
        for number in range(rounds):
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
            rows["echo"].append(await _row(echo.said["port"], secs, {"server": echo}))
            rows["drpc"].append(
                await _row(drpc.said["port"], secs, {"server": drpc, "worker": worker})
            )
        rate = statistics.median(row["rate"] for row in rows["drpc"])
        print(f"latency at {0.7 * rate:.0f} a second", file=sys.stderr)
        taken = await latencies_at(drpc.said["port"], 0.7 * rate, 2 * secs)
        worker.tell()
        end = worker.hear()
    finally:
        for child in reversed(children):
            child.end()
    if end["errors"] or end["left"]:
        raise SystemExit(f"errors: {end['errors']}; requests left in bolts: {end['left']}")
    echo_rate = statistics.median(row["rate"] for row in rows["echo"])
    return {
        "core": worker.said["core"],
        "clients": CLIENTS,
        "rounds": rounds,
        "echo_a_sec": round(echo_rate),
        "drpc_a_sec": round(rate),
        "goal_a_sec": 3_000,
        "drpc_to_echo": round(rate / echo_rate, 3),
        "limit_drpc_to_echo": 0.25,
        "latency_ms_at_70_percent": {
            name: round(1e3 * taken[min(len(taken) - 1, int(len(taken) * share))], 1)
            for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("max", 1.0))
        },
        "limit_p99_ms": 100,
        "requests_checked": round(sum(row["answers"] for rows_ in rows.values() for row in rows_))
        + len(taken),
        "left_in_bolts": end["left"],
        "cpu_us_a_request": {
            name: {
                part: round(statistics.median(row[part] for row in of), 1)
                for part in of[0]
                if part not in ("rate", "answers")
            }
            for name, of in rows.items()
        },
    }


async def _row(port: int, secs: float, parts: Mapping[str, Child]) -> dict[str, float]:
    before = {name: child.cpu_secs() for name, child in parts.items()}
    own, start = time.process_time(), time.monotonic()
    rate = await rate_of(port, secs)
    answers = rate * (time.monotonic() - start)
    cpu = {name: child.cpu_secs() - before[name] for name, child in parts.items()}
    cpu["clients"] = time.process_time() - own
    return {"rate": rate, "answers": answers, **{k: 1e6 * v / answers for k, v in cpu.items()}}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.drpc", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--secs", type=float, default=4.0, help="of each measurement (4)")
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    parser.add_argument("--role", choices=["echo", "drpc", "worker"], help=argparse.SUPPRESS)
    parser.add_argument("--conf", type=json.loads, default={}, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.role:
        role = {"echo": serve_echo, "drpc": serve_drpc, "worker": work}[options.role]
        uvloop.run(asyncio.wait_for(role(options.conf), LIFE_SECS_MAX))
        return
    report = {
        "benchmark": "drpc",
        "python": platform.python_version(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        **uvloop.run(measure(options.rounds, options.secs)),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
