"""The CA's own key, and with it the signing keys of Nimbus, turn under load: lines flow, clients
connect all the time, and nothing is lost, refused or restarted."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from tests.integration.test_secure import as_user, submit
from tests.support.devcluster import DevCluster, wait_for
from tests.support.ledger import Ledger, nothing_lost, text
from tests.support.live_files import found

from squall_common.authentication.credentials import ClientCredentials, credentials_of
from squall_common.security.certificates import (
    Authorities,
    generation_of,
    issuer_of,
    read_certificate,
)
from squall_common.security.signing import is_by_newest
from squall_thrift import storm
from squall_thrift.client import ThriftClient

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

# Longer in `make soak`: that many rotations, one after the other.
SOAK = bool(os.environ.get("SQUALL_SOAK"))
ROUNDS = 10 if SOAK else 1
LINES_A_SEC = 100


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path / "cluster", secure=True, slots=2) as cluster:
        yield cluster


class Callers:
    """Clients that connect anew for each call, in a thread, until they are stopped."""

    def __init__(self, port: int, credentials: dict[str, ClientCredentials]) -> None:
        self.port = port
        self.credentials = credentials
        self.calls = dict.fromkeys(credentials, 0)
        self.refused: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    def __enter__(self) -> Callers:
        self._thread.start()
        return self

    def __exit__(self, *about: object) -> None:
        self._stopped.set()
        self._thread.join(60)

    async def _run(self) -> None:
        await asyncio.gather(*(self._call(name) for name in self.credentials))

    async def _call(self, name: str) -> None:
        while not self._stopped.is_set():
            try:
                async with ThriftClient(
                    storm.Nimbus, "127.0.0.1", self.port, credentials=self.credentials[name]
                ) as client:
                    await client.call("getClusterInfo")
                self.calls[name] += 1
            except Exception as error:
                self.refused.append(f"{name}: {error!r}")
            await asyncio.sleep(0.05)

    def wait_more(self) -> None:
        """Until each has made five calls more."""
        before = dict(self.calls)
        wait_for(
            "calls of all clients",
            lambda: self.refused or all(self.calls[name] >= before[name] + 5 for name in before),
            60.0,
        )
        assert self.refused == []


def client_of(ca: Path, stem: Path | None, token: Path | None) -> ClientCredentials:
    credentials = credentials_of(
        SimpleNamespace(  # type: ignore[arg-type]
            storm_security_ca=str(ca),
            storm_security_certificate=None if stem is None else f"{stem}.pem",
            storm_security_key=None if stem is None else f"{stem}.key",
            storm_security_token_file=None if token is None else str(token),
            storm_do_as_user=None,
        )
    )
    assert credentials is not None
    return credentials


def certificates_in(folder: Path, ca: Path) -> list[Path]:
    """Those of daemons and users, which are not the CA's own."""
    return sorted(one for one in found(folder, "*.pem") if ca.parent not in one.parents)


def stale_texts(cluster: DevCluster, ca: Path) -> list[str]:
    """Files of daemons and workers that carry an endorsement of an older CA."""
    newest = Authorities(Authorities.read(ca.read_bytes()).newest)
    stale = []
    for path in found(cluster.data_dir):
        try:
            if not path.is_file() or path.suffix not in (".jws", ".json"):
                continue
            data = path.read_text("ascii", "replace").strip()
        except OSError:
            continue  # it went meanwhile
        if path.name == "identity.json":
            data = data.partition('"token": "')[2].partition('"')[0]
        named = path.name in ("catalog.jws", "token-register.jws", "identity.json")
        if (named or path.parent.name == "topologies") and not is_by_newest(data, newest):
            stale.append(str(path.relative_to(cluster.data_dir)))
    return stale


def trusts(cluster: DevCluster, ca: Path) -> bool | None:
    """Whether each daemon has read the file as it is now, and each worker was given it."""
    trusted = Authorities.read(ca.read_bytes())
    read = "authorities=" + ",".join(str(generation_of(one)) for one in trusted.certificates)
    daemons = ("nimbus", "supervisor", "ui", "drpc", "logviewer")
    logs = [one for one in found(cluster.data_dir / "logs", "*.log") if daemon_of(one) in daemons]
    assert {daemon_of(one) for one in logs} >= {"nimbus", "supervisor", "ui", "drpc"}
    for log in logs:
        lines = [one for one in log.read_text().splitlines() if "certificates_read_again" in one]
        if not lines or f"{read} " not in lines[-1]:
            return None
    for file in found(cluster.data_dir / "supervisor-1", "identity.json"):
        if json.loads(file.read_text())["ca"] != trusted.pem():
            return None
    return True


def is_ready(cluster: DevCluster, place: tuple[str, Path]) -> bool:
    """Whether only tokens still stand on the old CA: their users get new ones."""
    checked = cluster.storm("admin", "ca", "rotate", "status", "--check", *place, check=False)
    assert "the new one issues" in checked.stderr
    passing = ("/", "Nimbus ", "DRPC ", "Without ")
    others = ("both CAs are trusted", "CA of generation ", "token ", "All that ")
    lines = checked.stderr.splitlines()
    # What could not be asked is not ready.
    assert all(line.startswith((*passing, *others)) for line in lines), checked.stderr
    return not any(line.startswith(passing) for line in lines)


def daemon_of(log: Path) -> str:
    return log.stem.rstrip("-0123456789")


def test_the_ca_turns_under_load_and_nothing_is_lost_or_refused(cluster: DevCluster) -> None:
    security, people = cluster.data_dir / "security", cluster.data_dir / "people"
    folder = security / "ca"
    ca = folder / "ca.pem"
    bob = as_user(cluster, "bob")
    token = people / "token"
    login = ("login", "-c", f"storm.security.token.file={token}", *bob)
    cluster.storm(*login)
    first_token = token.read_text()
    rotate = ("admin", "ca", "rotate")
    place = ("--dir", folder)
    port = cluster.first_state["nimbus"]["port"]
    credentials = {
        "certificate": client_of(ca, people / "user-bob", None),
        "token": client_of(ca, None, token),
    }
    with Ledger(text(100_000)) as ledger:
        ledger.pace(LINES_A_SEC)
        submit(cluster, ledger, "mine")
        wait_for("lines", lambda: ledger.acks > 50, 60.0)
        workers = cluster.worker_pids(1)
        with Callers(port, credentials) as callers:
            for number in range(2, 2 + ROUNDS):
                callers.wait_more()
                cluster.storm(*rotate, "begin", *place)
                callers.wait_more()
                wait_for("all to trust both", lambda: trusts(cluster, ca), 60.0)
                cluster.storm(
                    *(*rotate, "issue", *place),
                    *(certificates_in(security, ca) + certificates_in(people, ca)),
                )
                wait_for("all to stand on the new CA", lambda: is_ready(cluster, place), 60.0)
                cluster.storm(*login)
                wait_for("files of daemons", lambda: not stale_texts(cluster, ca), 90.0)
                callers.wait_more()
                cluster.storm(*rotate, "end", *place)
                trusted = Authorities.read(ca.read_bytes()).certificates
                assert [generation_of(one) for one in trusted] == [number]
                wait_for("all to trust one", lambda: trusts(cluster, ca), 60.0)
                callers.wait_more()
        with nothing_lost():
            assert ledger.fails == 0
        assert callers.refused == []
        assert cluster.worker_pids(1) == workers
        assert token.read_text() != first_token
        for file in certificates_in(security, ca):
            assert issuer_of(read_certificate(file.read_bytes()), trusted[0]) is not None
        ledger.serve_up_to(ledger.handed_out())
        ledger.pace(None)
        ledger.wait_done(ledger.handed_out(), timeout_secs=60)
        ledger.check()
        assert ledger.lines_repeated() == 0
