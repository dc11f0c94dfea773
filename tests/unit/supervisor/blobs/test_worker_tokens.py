"""Tokens on their way from Nimbus into the folders of workers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall_common.daemon.clock import ManualClock
from squall_common.errors import NimbusConnectionError
from squall_common.security import jws
from squall_common.security.jws import b64
from squall_common.security.worker_tokens import RENEW_SECS
from squall_supervisor.blobs.worker_tokens import WorkerTokens

ID = "words-1-17"


class Nimbus:
    """Issues a numbered token for each slot that it knows."""

    def __init__(self) -> None:
        self.away = False
        self.ports = {6700}
        self.topology_id = ID
        self.asked = 0

    async def connect(self) -> Any:
        self.asked += 1
        if self.away:
            raise NimbusConnectionError("away")
        return self

    async def call(self, method: str, node: str, topologies: list[str]) -> dict[int, str]:
        assert (method, node) == ("getWorkerTokens", "node-1")
        assert self.topology_id in topologies
        return {port: self.token(port) for port in self.ports}

    def token(self, port: int) -> str:
        head = {"typ": "squall-worker-token"}
        payload = {"sub": self.topology_id, "port": port, "number": self.asked}
        return ".".join(
            b64(part) for part in (json.dumps(head).encode(), json.dumps(payload).encode(), b"-")
        )

    async def close(self) -> None: ...


@pytest.fixture
def worker(tmp_path: Path) -> Path:
    folder = tmp_path / "worker"
    folder.mkdir(mode=0o700)
    return folder


def token_in(worker: Path) -> str:
    file = worker / "identity.json"
    assert file.stat().st_mode & 0o777 == 0o600
    value = json.loads(file.read_bytes())
    assert value["ca"] == "PEM"
    payload = jws.parse(value["token"]).payload
    return f"token {payload['number']} of {payload['port']}"


async def test_a_worker_gets_its_token_once_and_the_next_one_after_a_third(worker: Path) -> None:
    nimbus, clock = Nimbus(), ManualClock()
    running = {(6700, ID): worker}
    tokens = WorkerTokens(
        nimbus.connect, "node-1", ca=lambda: "PEM", running=lambda: running, clock=clock
    )
    for _ in range(3):
        await tokens.look()
    assert nimbus.asked == 1
    assert token_in(worker) == "token 1 of 6700"
    clock.advance(RENEW_SECS)
    await tokens.look()
    assert token_in(worker) == "token 2 of 6700"


async def test_a_new_worker_of_a_slot_gets_its_token_while_nimbus_is_away(
    worker: Path, tmp_path: Path
) -> None:
    nimbus, clock = Nimbus(), ManualClock()
    running = {(6700, ID): worker}
    tokens = WorkerTokens(
        nimbus.connect, "node-1", ca=lambda: "PEM", running=lambda: running, clock=clock
    )
    await tokens.look()
    nimbus.away = True
    running[6700, ID] = fresh = tmp_path / "fresh"
    fresh.mkdir(mode=0o700)
    await tokens.look()
    assert token_in(fresh) == "token 1 of 6700"
    assert nimbus.asked == 1


async def test_a_nimbus_that_is_away_or_does_not_know_the_slot_yet_is_asked_again(
    worker: Path,
) -> None:
    nimbus, clock = Nimbus(), ManualClock()
    tokens = WorkerTokens(
        nimbus.connect,
        "node-1",
        ca=lambda: "PEM",
        running=lambda: {(6700, ID): worker},
        clock=clock,
    )
    nimbus.away = True
    for _ in range(5):
        await tokens.look()
    assert nimbus.asked == 1  # it is left alone for a while
    nimbus.away, nimbus.ports = False, set()
    clock.advance(30)
    await tokens.look()
    assert not (worker / "identity.json").exists()
    nimbus.ports = {6700}
    clock.advance(30)
    await tokens.look()
    assert token_in(worker) == "token 3 of 6700"


async def test_a_folder_that_has_gone_keeps_the_others_from_nothing(
    worker: Path, tmp_path: Path
) -> None:
    nimbus, clock = Nimbus(), ManualClock()
    nimbus.ports = {6700, 6701}
    tokens = WorkerTokens(
        nimbus.connect,
        "node-1",
        ca=lambda: "PEM",
        running=lambda: {(6700, ID): tmp_path / "gone", (6701, ID): worker},
        clock=clock,
    )
    await tokens.look()
    assert token_in(worker) == "token 1 of 6701"


async def test_a_worker_that_still_ends_gets_no_token_of_the_topology_that_follows_on_its_port(
    worker: Path, tmp_path: Path
) -> None:
    other = "other-2-17"
    folder = tmp_path / "other"
    folder.mkdir(mode=0o700)
    nimbus, clock = Nimbus(), ManualClock()
    nimbus.ports, nimbus.topology_id = {6700, 6701}, other
    tokens = WorkerTokens(
        nimbus.connect,
        "node-1",
        ca=lambda: "PEM",
        running=lambda: {(6700, ID): worker, (6701, other): folder},
        clock=clock,
    )
    await tokens.look()
    assert token_in(folder) == "token 1 of 6701"
    assert not (worker / "identity.json").exists()
