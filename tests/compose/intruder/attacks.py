"""What an intruder tries on a cluster in containers, from inside one of them: as a stranger, with a
tenant's token, or as a tenant's code in a worker. Runs in the image, alone:

    python attacks.py < plan.json > outcomes.json

The plan names what there is to attack; an outcome is a text for each try: "refused ..." if it got
nothing, else "GOT ..." with what it got.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SECS = 15.0


class Intruder:
    """Tries everything that a plan names, and notes what came of it."""

    def __init__(self, plan: dict[str, Any]) -> None:
        self.plan = plan
        self.outcomes: dict[str, str] = {}
        self.token: str | None = plan.get("token")
        # A server keeps a stranger waiting until its time is over: all at a time, nearly.
        self.at_once = asyncio.Semaphore(32)

    async def run(self) -> dict[str, str]:
        """All outcomes."""
        # By itself a machine with two cores has six threads, and what is refused late takes long.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(16))
        tries = [
            self.thrift(),
            self.http(),
            self.workers(),
            self.zookeeper(),
            *(self.plain_port(host, port) for host, port in self.plan["plain"]),
        ]
        await asyncio.gather(*tries)
        return self.outcomes

    def note(self, what: str, outcome: str) -> None:
        self.outcomes[what] = outcome

    # Thrift

    async def thrift(self) -> None:
        """Calls, in the clear, over TLS without a proof, and with the token."""
        ways = {"bare": None}
        if self.token is not None:
            ways = {"token": self.credentials()}
        elif self.plan.get("ca"):
            ways |= {"tls": _NoProof()}
        await asyncio.gather(
            *(
                self.one_call(host, port, service, way, credentials, call)
                for host, port, service, calls in self.plan["thrift"]
                for way, credentials in ways.items()
                for call in calls
            )
        )

    async def one_call(
        self, host: str, port: int, service: str, way: str, credentials: Any, call: Any
    ) -> None:
        method, *arguments = call
        async with self.at_once:
            said = await self.call(host, port, service, credentials, method, arguments)
        self.note(f"{host}:{port} {method} {way} {arguments[:1]}", said)

    def credentials(self) -> Any:
        """Of the token, as the command line has them."""
        from squall_common.authentication.credentials import credentials_of
        from squall_common.config.options.typed import ClientOptions

        folder = Path(tempfile.mkdtemp())
        (folder / "token").touch(mode=0o600)
        (folder / "token").write_text(self.token or "")
        (folder / "ca.pem").write_text(self.plan["ca"])
        return credentials_of(
            ClientOptions(
                storm_security_ca=str(folder / "ca.pem"),
                storm_security_token_file=str(folder / "token"),
                storm_do_as_user=self.plan.get("as"),
            )
        )

    async def call(
        self, host: str, port: int, service: str, credentials: Any, method: str, arguments: Any
    ) -> str:
        from squall_thrift import storm
        from squall_thrift.client import (
            ThriftApplicationError,
            ThriftClient,
            ThriftTransportError,
        )

        try:
            async with ThriftClient(
                getattr(storm, service), host, port, timeout_secs=SECS, credentials=credentials
            ) as client:
                answer = await client.call(method, *map(_value, arguments))
        except ThriftTransportError as error:
            return f"refused: {error}"
        except ThriftApplicationError as error:
            return f"refused: {error}"
        except Exception as error:
            # What the server has declared is its answer; anything else is a fault of this plan.
            declared = any(type(error) is one.cls for one in storm.INTERFACE.structs.values())
            what = f"{type(error).__name__} {error}"
            return f"refused: {what}" if declared else f"BROKEN {what}"
        text = str(answer)
        secrets = [one for one in self.plan["secrets"] if one in text]
        # What is one's own, or says nothing, is not a secret.
        if method in self.plan.get("may", ()) and not secrets:
            return "refused: it says nothing of others"
        return f"GOT {text[:300]}"

    # HTTP

    async def http(self) -> None:
        """Pages, in the clear and over TLS, without a proof or with the token."""
        await asyncio.gather(
            *(
                self.one_request(host, port, method, path, tls)
                for host, port, method, path in self.plan["http"]
                for tls in (False, True)
            )
        )

    async def one_request(self, host: str, port: int, method: str, path: str, tls: bool) -> None:
        said = await asyncio.to_thread(self.ask, host, port, method, path, tls)
        self.note(f"{host}:{port} {method} {path} {'tls' if tls else 'clear'}", said)

    def ask(self, host: str, port: int, method: str, path: str, tls: bool) -> str:
        import http.client

        context = ssl.create_default_context()
        # An intruder does not care whose certificate it is.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        connection = (
            http.client.HTTPSConnection(host, port, timeout=SECS, context=context)
            if tls
            else http.client.HTTPConnection(host, port, timeout=SECS)
        )
        headers = {"X-Requested-With": "x"}
        if self.token is not None:
            headers["Authorization"] = f"Bearer {self.token}"
        try:
            connection.request(method, path, headers=headers)
            answer = connection.getresponse()
            body = answer.read().decode("utf-8", "replace")
        except (OSError, http.client.HTTPException) as error:
            return f"refused: {type(error).__name__}"
        finally:
            connection.close()
        # A refusal may name what was asked for.
        new = body.replace(self.plan["victim"], "")
        secrets = [one for one in self.plan["secrets"] if one in new]
        if answer.status >= 400 and not secrets:
            return f"refused: {answer.status}"
        if self.token is not None and not secrets and method == "GET":
            return f"refused: {answer.status}, it says nothing of others"
        return f"GOT {answer.status} {body[:300]}"

    # Workers' ports, and all others

    async def workers(self) -> None:
        """Whether a worker's port takes messages of somebody without the topology's key."""
        import zmq

        context = zmq.Context()
        ports = [(host, port) for host, port in self.plan["zeromq"]]
        # At once: one that answers nothing is waited for.
        await asyncio.gather(
            *(
                asyncio.to_thread(self._worker, context, host, port, curve)
                for host, port in ports
                for curve in (False, True)
            )
        )
        context.term()

    def _worker(self, context: Any, host: str, port: int, curve: bool) -> None:
        import zmq
        from zmq.utils.monitor import recv_monitor_message

        sock = context.socket(zmq.DEALER)
        sock.linger = 0
        if curve:
            # A key of its own, and a guess at the server's.
            sock.curve_publickey, sock.curve_secretkey = zmq.curve_keypair()
            sock.curve_serverkey = zmq.curve_keypair()[0]
        monitor = sock.get_monitor_socket()
        monitor.rcvtimeo = 3000
        sock.connect(f"tcp://{host}:{port}")
        said = "refused: no handshake"
        deadline = time.monotonic() + 3
        try:
            # (A closed port is tried again and again.)
            while time.monotonic() < deadline:
                event = recv_monitor_message(monitor)["event"]
                if event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                    said = "GOT a handshake"
                    break
                if event in (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_DISCONNECTED):
                    break
        except zmq.Again:
            pass
        sock.disable_monitor()
        monitor.close()
        sock.close()
        self.note(f"{host}:{port} zeromq {'curve' if curve else 'null'}", said)

    async def plain_port(self, host: str, port: int) -> None:
        """Whether a port can be reached at all that must not be."""
        try:
            async with asyncio.timeout(3):
                _, writer = await asyncio.open_connection(host, port)
            writer.close()
            self.note(f"{host}:{port} reach", "GOT a connection")
        except (OSError, TimeoutError) as error:
            self.note(f"{host}:{port} reach", f"refused: {type(error).__name__}")

    # ZooKeeper

    async def zookeeper(self) -> None:
        """Everything with every node, as nobody and with each secret that one has."""
        asked = self.plan.get("zookeeper")
        if asked is None:
            return
        proofs = {"nobody": None} | {f"secret {n}": one for n, one in enumerate(asked["payloads"])}
        # In a worker: its topology's own digest, which it finds in its folder.
        with contextlib.suppress(FileNotFoundError):
            shown = json.loads(Path("zookeeper.json").read_text())["payloads"]
            proofs |= {f"own {n}": one for n, one in enumerate(shown)}
        await asyncio.gather(
            *(
                asyncio.to_thread(self._nodes, asked["host"], asked["paths"], who, payload)
                for who, payload in proofs.items()
            )
        )

    def _nodes(self, host: str, paths: list[str], who: str, payload: str | None) -> None:
        from kazoo.client import KazooClient
        from kazoo.exceptions import KazooException, NoAuthError, NoNodeError

        client = KazooClient(host, timeout=SECS)
        client.start(timeout=SECS)
        if payload is not None:
            client.add_auth("digest", payload)
        for path in paths:
            for what, attempt in _attempts(client, path).items():
                # That is a right on the node above, which is not the cluster's. It is never empty.
                if (what, path) == ("delete", "/storm"):
                    continue
                try:
                    attempt()
                    said = "GOT it"
                except (NoAuthError, NoNodeError) as error:
                    said = f"refused: {type(error).__name__}"
                except KazooException as error:  # the right was there, and the version never is
                    said = f"GOT {type(error).__name__}"
                self.note(f"zookeeper {who} {what} {path}", said)
        client.stop()
        client.close()


def _attempts(client: Any, path: str) -> dict[str, Callable[[], object]]:
    """All that can be tried with a node; where it succeeds, it does no harm."""
    from kazoo.security import OPEN_ACL_UNSAFE

    never = 987_654  # a version
    return {
        "get": lambda: client.get(path),
        "list": lambda: client.get_children(path),
        "lists": lambda: client.get_acls(path),
        "create": lambda: client.create(f"{path}/intruder", b"", ephemeral=True),
        "set": lambda: client.set(path, b"", version=never),
        "delete": lambda: client.delete(path, version=never),
        "open": lambda: client.set_acls(path, OPEN_ACL_UNSAFE, version=never),
    }


class _NoProof:
    """TLS, and as a proof an empty certificate."""

    context = ssl._create_unverified_context()

    def check_server(self, _certificate: bytes) -> None:
        pass

    def initial(self) -> tuple[str, bytes]:
        return "EXTERNAL", b""


def _value(argument: Any) -> Any:
    """An argument of a plan: {"struct": NAME, ...} stands for a struct of Thrift."""
    from squall_thrift import storm

    if isinstance(argument, dict) and "struct" in argument:
        fields = {key: value for key, value in argument.items() if key != "struct"}
        return getattr(storm, argument["struct"])(**fields)
    return argument


# Code of a tenant in a worker ------------------------------------------------------------


def inside() -> dict[str, str]:
    """What a worker's code gets of the machine that it runs on."""
    outcomes = {}
    for path in _interesting():
        outcomes[f"read {path}"] = _read(path)
    for pid in _processes():
        if pid == os.getpid() or _is_mine(pid):
            continue
        for name in ("environ", "mem", "maps", "fd"):
            outcomes[f"read /proc/{pid}/{name}"] = _read(Path(f"/proc/{pid}/{name}"))
        try:
            os.kill(pid, signal.SIGKILL)
            outcomes[f"kill {pid}"] = "GOT killed"
        except PermissionError:
            outcomes[f"kill {pid}"] = "refused"
        except ProcessLookupError:
            outcomes[f"kill {pid}"] = "refused: it has ended"
    for uid in (0, 1000):
        try:
            os.setuid(uid)
            outcomes[f"become {uid}"] = "GOT it"
        except PermissionError:
            outcomes[f"become {uid}"] = "refused"
    for path in ("/etc/passwd", "/enrol/accounts", "/conf/storm.yaml", "/entrypoint.py"):
        try:
            with open(path, "a"):
                outcomes[f"write {path}"] = "GOT it"
        except OSError as error:
            outcomes[f"write {path}"] = f"refused: {error.strerror}"
    outcomes["certificate of a supervisor"] = _enrol("supervisor")
    outcomes["certificate of a user"] = _enrol("user")
    return outcomes


def _interesting() -> Iterator[Path]:
    """Keys, configuration, and all that belongs to another topology than this worker's own."""
    for name in ("supervisor.key", "zookeeper.digest"):
        yield Path("/data/security") / name
    yield Path("/conf/storm.yaml")
    own, folder_of_mine = os.getuid(), Path.cwd()
    for folder in ("/data", "/logs"):
        for where, names, files in os.walk(folder):
            here = Path(where)
            for name in [*names, *files]:
                path = here / name
                try:
                    found = path.lstat()
                except OSError:
                    continue
                words = ("ledger", ".key", "identity", "security", "zookeeper")
                is_named = any(one in str(path) for one in words)
                if found.st_uid != own and is_named and folder_of_mine not in path.parents:
                    yield path


def _read(path: Path) -> str:
    try:
        if path.is_dir():
            return f"GOT {os.listdir(path)[:5]}"
        with path.open("rb") as file:
            return f"GOT {file.read(100)!r}"
    except OSError as error:
        return f"refused: {error.strerror}"


def _processes() -> list[int]:
    return [int(one) for one in os.listdir("/proc") if one.isdecimal()]


def _is_mine(pid: int) -> bool:
    try:
        return os.stat(f"/proc/{pid}").st_uid == os.getuid()
    except OSError:
        return True  # it has ended


def _enrol(role: str) -> str:
    try:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(SECS)
            sock.connect("/enrol/ca.sock")
            asked = {"role": role, "name": "intruder", "hosts": []}
            sock.sendall(json.dumps(asked).encode() + b"\n")
            answer = json.loads(sock.makefile("rb").readline())
    except (OSError, ValueError) as error:
        return f"refused: {error}"
    return f"refused: {answer['error']}" if "error" in answer else "GOT a certificate"


def main() -> int:
    outcomes = asyncio.run(Intruder(json.load(sys.stdin)).run())
    json.dump(outcomes, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
