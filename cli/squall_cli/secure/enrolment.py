"""Certificates over a socket of the machine: how the containers of one machine get theirs.

The CA runs in a container without a network, which alone has its key. Each container that needs a
certificate shares one folder with it, and no other:

    ca.pem, revoked.jws   copies from the CA's folder, for storm.security.ca and .revoked
    accounts              a line `NAME UID` for each user, so that every node runs workers of a user
                          under the same id
    ca.sock               one request, a line of JSON, gets one answer, another line:
                          {"role": "supervisor", "name": "3f2a", "hosts": ["3f2a"]}
                          {"certificate": "PEM", "key": "PEM"} or {"error": "why"}; Nimbus and
                          supervisors also get {"digest": "..."}, which they show to ZooKeeper,
                          and nothing else if they ask with "digest": true

The folder says which roles can be had there, and the kernel says who asks (SO_PEERCRED): a worker,
which runs as another user in the same container as its supervisor, gets nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from squall_cli.secure.authority_folder import CERTIFICATE_DAYS, AuthorityFolder
from squall_cli.secure.zookeeper_digest import FILE as DIGEST_FILE
from squall_cli.secure.zookeeper_digest import cluster_digest
from squall_common.daemon.files import write_atomic
from squall_common.errors import SquallError
from squall_common.security.certificates import (
    Authorities,
    CertificateError,
    check_issued,
    cluster_of,
    hosts_of,
    read_certificate,
)
from squall_common.security.identity import IdentityError, Role
from squall_common.security.jws import SignatureError
from squall_common.security.revocation import RevokedCertificates

SOCKET, CA, REVOKED, ACCOUNTS = "ca.sock", "ca.pem", "revoked.jws", "accounts"
# Users that are made for the cluster: above those of distributions.
FIRST_UID = 20_000
# Daemons that use ZooKeeper.
_WITH_DIGEST = frozenset({Role.NIMBUS, Role.SUPERVISOR})
_ACCOUNT = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
_REQUEST_BYTES_MAX = 8192
_ASK_SECS = 10.0
_LOOK_SECS = 1.0
# A certificate is renewed at the next start of its daemon in the second half of its life.
_RENEW_SECS = CERTIFICATE_DAYS * 86_400 // 2
_PEER = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder that is shared with containers: who gets which certificates there.

    `roles` maps a role to the only name that it may have; None: any. `uid` is the user that may
    ask.
    """

    path: Path
    roles: dict[Role, str | None]
    uid: int

    @classmethod
    def parse(cls, text: str) -> Folder:
        """Read `PATH:ROLE[=NAME][,ROLE...]:UID`. Raises ValueError.

        >>> folder = Folder.parse("/enrol/ui:ui,user=scraper:1000")
        >>> folder.roles[Role.USER], folder.roles[Role.UI], folder.uid
        ('scraper', None, 1000)
        """
        path, roles, uid = text.rsplit(":", 2)  # ValueError, if they are fewer
        found: dict[Role, str | None] = {}
        for one in roles.split(","):
            role, _, name = one.partition("=")
            found[Role(role)] = name or None
        if Role.WORKER in found or not path.startswith("/"):
            raise ValueError(text)
        return cls(Path(path), found, int(uid))


@dataclass(frozen=True, slots=True)
class Request:
    """A certificate that is asked for; or, for a daemon that has one, its digest alone."""

    role: Role
    name: str
    hosts: tuple[str, ...]
    digest_only: bool = False


class EnrolmentRefusedError(Exception):
    """The CA does not give this certificate here; the text says why."""


def check_user(folder: Folder, uid: int) -> None:
    """Raises EnrolmentRefusedError for a user that gets nothing in the folder."""
    if uid != folder.uid:
        raise EnrolmentRefusedError(f"the user with the id {uid} gets no certificates here")


def decide(folder: Folder, uid: int, line: bytes) -> Request:
    """The request in a line, if the user may make it in this folder. Raises
    EnrolmentRefusedError."""
    check_user(folder, uid)
    try:
        asked = json.loads(line)
        role, name, hosts = Role(asked["role"]), asked["name"], asked["hosts"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EnrolmentRefusedError("this is not a request for a certificate") from None
    if not isinstance(name, str) or not isinstance(hosts, list) or len(hosts) > 32:
        raise EnrolmentRefusedError("this is not a request for a certificate")
    if not all(isinstance(host, str) for host in hosts):
        raise EnrolmentRefusedError("this is not a request for a certificate")
    if role not in folder.roles:
        listed = ", ".join(sorted(folder.roles))
        raise EnrolmentRefusedError(f"certificates here are those of {listed}, not of {role.value}")
    only = folder.roles[role]
    if only is not None and name != only:
        raise EnrolmentRefusedError(f"a {role.value} here is {only}, not {name!r}")
    digest_only = asked.get("digest") is True
    if digest_only and role not in _WITH_DIGEST:
        raise EnrolmentRefusedError(f"a {role.value} shows ZooKeeper no digest")
    return Request(role, name, tuple(hosts), digest_only)


class Accounts:
    """The users of the cluster and their ids, in a file of the CA's folder that only grows. `known`
    are users with an id of the image's own; all other users of the image are refused."""

    def __init__(self, path: Path, known: Sequence[str], taken: Sequence[str]) -> None:
        self.path = path
        self._known, self._taken = frozenset(known), frozenset(taken)

    def add(self, name: str) -> None:
        """See to it that a user has an id. Raises EnrolmentRefusedError, OSError."""
        if name in self._known:
            return
        if _ACCOUNT.fullmatch(name) is None:
            raise EnrolmentRefusedError(
                f"{name!r} cannot be a user of the machines that run workers: it takes a small "
                "letter first, then small letters, digits, - and _, 32 in all"
            )
        if name in self._taken:
            raise EnrolmentRefusedError(f"{name} is a user of the system")
        lines = self.text().splitlines()
        if name not in {line.split()[0] for line in lines}:
            lines.append(f"{name} {FIRST_UID + len(lines)}")
            write_atomic(self.path, ("\n".join(lines) + "\n").encode(), mode=0o644)

    def text(self) -> str:
        """The file's content."""
        with contextlib.suppress(FileNotFoundError):
            return self.path.read_text("ascii")
        return ""


class EnrolmentServer:
    """Serves the folders until it is closed. All in one process, so that the file of accounts has
    one writer. `start` raises SquallError."""

    def __init__(
        self, authority: AuthorityFolder, folders: Sequence[Folder], accounts: Accounts
    ) -> None:
        self._authority = authority
        self._folders = folders
        self._accounts = accounts
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Publish the files, then listen."""
        self.publish()
        for folder in self._folders:
            path = folder.path / SOCKET
            path.unlink(missing_ok=True)

            async def answer(
                reader: asyncio.StreamReader, writer: asyncio.StreamWriter, folder: Folder = folder
            ) -> None:
                await self._answer(folder, reader, writer)

            try:
                server = await asyncio.start_unix_server(answer, path, limit=_REQUEST_BYTES_MAX)
                # Whoever the folder is shared with may connect: who it is, the kernel says.
                path.chmod(0o666)
            except OSError as error:
                raise SquallError(f"cannot listen at {path}: {error.strerror}") from error
            self._servers.append(server)

    async def run(self) -> None:
        """Publish what changes, forever."""
        while True:
            await asyncio.sleep(_LOOK_SECS)
            self.publish()

    async def close(self) -> None:
        """Listen no more."""
        for server in self._servers:
            server.close()

    def publish(self) -> None:
        """Copy what all may read into the folders, where it differs. Raises SquallError."""
        try:
            texts = {
                CA: self._authority.certificate.read_bytes(),
                REVOKED: self._authority.revoked.read_bytes(),
                ACCOUNTS: self._accounts.text().encode(),
            }
            for folder in self._folders:
                folder.path.mkdir(parents=True, exist_ok=True)
                for name, text in texts.items():
                    path = folder.path / name
                    if not path.exists() or path.read_bytes() != text:
                        write_atomic(path, text, mode=0o644)
        except OSError as error:
            raise SquallError(f"cannot publish {error.filename}: {error.strerror}") from error

    async def _answer(
        self, folder: Folder, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        peer = writer.get_extra_info("socket")
        _, uid, _ = _PEER.unpack(peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size))
        try:
            # Before anything is read: a worker cannot keep connections open here.
            check_user(folder, uid)
            async with asyncio.timeout(_ASK_SECS):
                line = await reader.readline()
            answer = self._issue(decide(folder, uid, line))
        except (EnrolmentRefusedError, SquallError) as error:
            print(f"refused at {folder.path}: {error}", flush=True)
            answer = {"error": str(error)}
        except (TimeoutError, ConnectionError, ValueError):  # no line, or one that is too long
            answer = {"error": "this is not a request for a certificate"}
        except OSError as error:
            print(f"error at {folder.path}: {error}", flush=True)
            answer = {"error": f"the CA cannot write its files: {error.strerror}"}
        with contextlib.suppress(OSError):
            writer.write(json.dumps(answer).encode() + b"\n")
            await writer.drain()
        writer.close()

    def _issue(self, request: Request) -> dict[str, str]:
        if request.digest_only:
            return {"digest": self._digest()}
        if request.role is Role.USER:
            self._accounts.add(request.name)
        with tempfile.TemporaryDirectory(dir=self._authority.path, prefix=".issued.") as name:
            certificate, key = self._authority.issue(
                request.role, request.name, request.hosts, Path(name), days=CERTIFICATE_DAYS
            )
            answer = {"certificate": certificate.read_text(), "key": key.read_text()}
        if request.role in _WITH_DIGEST:
            answer["digest"] = self._digest()
        self.publish()  # before the user is known to Nimbus, its account is known to the nodes
        print(f"issued {request.role.value}:{request.name} for {request.hosts}", flush=True)
        return answer

    def _digest(self) -> str:
        return cluster_digest(self._authority.path / DIGEST_FILE)


def obtain(
    folder: Path, role: Role, name: str, hosts: Sequence[str], out: Path, *, wait_secs: float = 60.0
) -> tuple[Path, Path]:
    """The paths of a certificate and its key in the folder `out`, which only we may enter: those
    that are there if they are for this name and these hosts, in the first half of their life and
    not revoked, else new ones from the CA that serves `folder`. A daemon that uses ZooKeeper gets
    the digest that the CA has now beside them (`DIGEST_FILE`). Raises SquallError."""
    certificate, key = out / f"{role.value}.pem", out / f"{role.value}.key"
    wanted = Request(role, name, tuple(hosts))
    if is_issued(folder / CA, certificate, role, name, hosts, time.time() + _RENEW_SECS):
        if role in _WITH_DIGEST:
            _follow_digest(folder, wanted, out / DIGEST_FILE, wait_secs)
        return certificate, key
    answer = _ask(folder / SOCKET, wanted, time.monotonic() + wait_secs)
    with _writing():
        out.mkdir(parents=True, exist_ok=True, mode=0o700)
        # A kill in between leaves a key without its certificate: the next start asks again.
        certificate.unlink(missing_ok=True)
        if "digest" in answer:  # not from a CA of an earlier version
            write_atomic(out / DIGEST_FILE, answer["digest"].encode(), mode=0o600)
        write_atomic(key, answer["key"].encode(), mode=0o600)
        write_atomic(certificate, answer["certificate"].encode(), mode=0o644)
    return certificate, key


def _follow_digest(folder: Path, wanted: Request, file: Path, wait_secs: float) -> None:
    """Get the digest that the CA has now, which may be another one than before. Who has one starts
    with it when the CA does not answer at once. Raises SquallError."""
    has_one = file.exists()
    asked = replace(wanted, digest_only=True)
    try:
        answer = _ask(folder / SOCKET, asked, time.monotonic() + (0 if has_one else wait_secs))
    except SquallError:
        if has_one:
            return
        raise
    found = answer.get("digest", "").encode()
    if found and not (has_one and file.read_bytes() == found):
        with _writing():
            write_atomic(file, found, mode=0o600)


@contextlib.contextmanager
def _writing() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SquallError(f"cannot write {error.filename}: {error.strerror}") from error


def is_issued(
    ca: Path, certificate: Path, role: Role, name: str, hosts: Sequence[str], at: float
) -> bool:
    """Whether a file is a certificate of the CA for this name and these hosts, with its key beside
    it, valid at a time (seconds since the epoch), and not revoked by the list beside the CA's
    certificate."""
    try:
        # Of two, while the CA's key turns, the first one issues.
        issuer, found = (read_certificate(path.read_bytes()) for path in (ca, certificate))
        trusted = Authorities.read(ca.read_bytes())
        cluster = cluster_of(issuer)
        holder = check_issued(found, issuer, cluster, at)
        text = ca.with_name(REVOKED).read_text("ascii")
        if found.serial_number in RevokedCertificates.verify(text, cluster, trusted).serials:
            return False
    except (OSError, UnicodeDecodeError, CertificateError, IdentityError, SignatureError):
        return False
    same = (holder.role, holder.name) == (role, name) and hosts_of(found) == set(hosts)
    return same and certificate.with_suffix(".key").exists()


def _ask(path: Path, wanted: Request, deadline: float) -> dict[str, str]:
    line: dict[str, object] = {
        "role": wanted.role.value,
        "name": wanted.name,
        "hosts": list(wanted.hosts),
    }
    if wanted.digest_only:
        line["digest"] = True
    while True:
        try:
            with socket.socket(socket.AF_UNIX) as sock, contextlib.ExitStack() as stack:
                sock.settimeout(_ASK_SECS)
                sock.connect(str(path))
                stream = stack.enter_context(sock.makefile("rwb"))
                stream.write(json.dumps(line).encode() + b"\n")
                stream.flush()
                answer = json.loads(stream.readline())
            break
        except (OSError, ValueError) as error:
            if time.monotonic() >= deadline:
                raise SquallError(
                    f"the CA does not answer at {path}: {error}",
                    hint="Does its container run?",
                ) from error
            time.sleep(0.2)
    if "error" in answer:
        raise SquallError(f"the CA gives no certificate: {answer['error']}")
    return dict(answer)


def uids(text: str) -> dict[str, int]:
    """The users in a file of accounts, and their ids. Lines that are none are left out.

    >>> uids("alice 20000\\nroot 0\\n")
    {'alice': 20000}
    """
    found = {}
    for line in text.splitlines():
        name, _, uid = line.partition(" ")
        if _ACCOUNT.fullmatch(name) and uid.isdecimal() and int(uid) >= FIRST_UID:
            found[name] = int(uid)
    return found


def users_of_image(passwd: Path = Path("/etc/passwd")) -> list[str]:
    """The names of the users that an image has."""
    return [line.split(":")[0] for line in passwd.read_text().splitlines() if line]
