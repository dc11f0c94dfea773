"""A Nimbus of a secured cluster in this process, with its port, and callers of all kinds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from tests.support.nimbus_service import LocalNimbus

from squall_cli.secure.authority_folder import AuthorityFolder
from squall_cli.secure.rotation import Rotation
from squall_common.authentication.credentials import ClientCredentials, credentials_of
from squall_common.authentication.files import Trusted, read_trusted
from squall_common.cluster.store import Store
from squall_common.daemon.clock import SystemClock
from squall_common.security.identity import Role
from squall_nimbus.service.limits import LIMITS
from squall_supervisor.records.signed_work import SignedWork
from squall_thrift import storm
from squall_thrift.client import ThriftClient
from squall_thrift.serving.server import ThriftServer

HOSTS = ["127.0.0.1", "localhost"]


@dataclass(frozen=True, slots=True)
class Certificates:
    """A CA, and what it has issued."""

    folder: Path
    cluster: str = "test"
    days: int = 30  # that what it issues is valid

    @property
    def authority(self) -> AuthorityFolder:
        return AuthorityFolder(self.folder / "ca")

    def create(self) -> Certificates:
        self.authority.create(self.cluster)
        self.issue(Role.NIMBUS, "n1")
        return self

    def issue(self, role: Role, name: str, *, hosts: list[str] | None = None) -> Path:
        given = HOSTS if hosts is None else hosts
        return self.authority.issue(role, name, given, self.folder, days=self.days)[0]

    def turn(self, *files: Path) -> None:
        """Let the next CA issue, and replace these certificates by ones of it."""
        rotation = Rotation(self.authority)
        rotation.begin()
        rotation.turn()
        for file in files:
            assert self.authority.certify(file, days=self.days)

    def conf(self, role: Role, name: str) -> dict[str, Any]:
        """The keys by which a process proves who it is."""
        stem = self.folder / f"{role.value}-{name}"
        if not stem.with_suffix(".pem").exists():
            self.issue(role, name)
        return {
            "storm.security.ca": str(self.authority.certificate),
            "storm.security.certificate": f"{stem}.pem",
            "storm.security.key": f"{stem}.key",
        }

    def trusted(self, role: Role, name: str) -> Trusted:
        """The root of trust as this daemon has it."""
        conf = self.conf(role, name)
        found = read_trusted(
            SimpleNamespace(**{key.replace(".", "_"): value for key, value in conf.items()})  # type: ignore[arg-type]
        )
        assert found is not None
        return found

    def credentials(
        self,
        role: Role,
        name: str,
        *,
        act_for: str | None = None,
        server: Role = Role.NIMBUS,
    ) -> ClientCredentials:
        """By the certificate of a user or a daemon."""
        conf = self.conf(role, name)
        found = credentials_of(
            SimpleNamespace(  # type: ignore[arg-type]
                storm_security_ca=conf["storm.security.ca"],
                storm_security_certificate=conf["storm.security.certificate"],
                storm_security_key=conf["storm.security.key"],
                storm_security_token_file=None,
                storm_do_as_user=act_for,
            ),
            server,
        )
        assert found is not None
        return found

    def by_token(self, token: str) -> ClientCredentials:
        """By a token alone."""
        file = self.folder / "token"
        file.touch(mode=0o600)
        file.write_text(token)
        found = credentials_of(
            SimpleNamespace(  # type: ignore[arg-type]
                storm_security_ca=str(self.authority.certificate),
                storm_security_certificate=None,
                storm_security_key=None,
                storm_security_token_file=str(file),
                storm_do_as_user=None,
            )
        )
        assert found is not None
        return found


class SecuredNimbus:
    """A LocalNimbus behind its port."""

    def __init__(self, local: LocalNimbus, server: ThriftServer, certificates: Certificates):
        self.local = local
        self.server = server
        self.certificates = certificates

    def signed(self, node: str) -> Callable[[Store], Store]:
        """What signs as this supervisor does, in front of a store."""
        trusted = self.certificates.trusted(Role.SUPERVISOR, node)
        folder = self.certificates.folder / f"signed-{node}"
        work = SignedWork(trusted, node, folder, revoked=frozenset, clock=SystemClock())
        return work.verified

    @contextlib.asynccontextmanager
    async def client(self, credentials: ClientCredentials | None) -> AsyncIterator[ThriftClient]:
        async with ThriftClient(
            storm.Nimbus, "127.0.0.1", self.server.port, credentials=credentials
        ) as client:
            yield client

    @contextlib.asynccontextmanager
    async def user(self, name: str, act_for: str | None = None) -> AsyncIterator[ThriftClient]:
        async with self.client(
            self.certificates.credentials(Role.USER, name, act_for=act_for)
        ) as client:
            yield client

    @contextlib.asynccontextmanager
    async def daemon(self, role: Role, name: str) -> AsyncIterator[ThriftClient]:
        async with self.client(self.certificates.credentials(role, name)) as client:
            yield client


@contextlib.asynccontextmanager
async def secured_nimbus(
    folder: Path, certificates: Certificates, conf: dict[str, Any] | None = None, **server: Any
) -> AsyncIterator[SecuredNimbus]:
    """A Nimbus that leads and listens. Administrators: root. `ops` is bob's group."""
    all_conf = {
        "nimbus.admins": ["root"],
        "storm.group.mapping.service": "org.apache.storm.security.auth.FixedGroupsMapping",
        "storm.group.mapping.service.params": {
            "storm.fixed.group.mapping": {"bob": ["ops"], "alice": ["dev"]}
        },
        "storm.security.revoked": str(certificates.authority.revoked),
        **certificates.conf(Role.NIMBUS, "n1"),
        **(conf or {}),
    }
    # As it is known to others: with `port`, they find it there.
    async with LocalNimbus(folder, conf=all_conf, port=server.get("port", 6627)) as local:
        await local.leads()
        listener = ThriftServer(
            storm.Nimbus,
            local.service,
            limits=LIMITS,
            authorizer=local.nimbus.access,
            authenticator=local.nimbus.authenticator,
            **server,
        )
        listeners = [listener]
        if local.nimbus.legacy is not None:
            listeners.append(
                ThriftServer(
                    storm.Nimbus,
                    local.service,
                    port=all_conf["nimbus.legacy.thrift.port"],
                    limits=LIMITS,
                    authorizer=local.nimbus.access,
                    authenticator=local.nimbus.legacy,
                )
            )
        try:
            for one in listeners:
                await one.start()
            yield SecuredNimbus(local, listener, certificates)
        finally:
            await asyncio.gather(*(one.stop(1.0) for one in listeners))
