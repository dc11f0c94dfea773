"""What the UI and a logviewer of a secured cluster have besides."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from squall_common.authentication.authenticator import PeerAuthenticator
from squall_common.authentication.credentials import ClientCredentials, credentials_of
from squall_common.authentication.files import Trusted
from squall_common.authentication.followed import FollowedRevocations
from squall_common.authentication.groups import Groups, Source
from squall_common.authentication.provider import provider_of
from squall_common.client.nimbus import NimbusClient
from squall_common.config.options.typed import ClientOptions, LogviewerOptions, UiOptions
from squall_common.daemon.web import Route
from squall_common.security.access import SecuredAccess
from squall_common.security.acl import ClusterAcl
from squall_common.security.audit import AuditFile, AuditLog
from squall_common.security.identity import Role
from squall_common.security.signing import Trust
from squall_ui.access.authenticator import WebPeers
from squall_ui.access.issuer import IssuerPages
from squall_ui.access.login import Login
from squall_ui.access.sessions import Sessions

_CALL_SECS = 10.0


class SecuredWeb:
    """The parts that know who asks. `name` is the daemon's, `own_issuer` what it serves the keys
    of. Raises ConfigError, OSError."""

    def __init__(
        self,
        name: str,
        trusted: Trusted,
        options: UiOptions | LogviewerOptions,
        client: ClientOptions,
        *,
        acls: ClusterAcl,
        groups: Source,
        own_issuer: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.client = client
        self._trusted = trusted
        self._now = now
        self.own = self.credentials(Role.NIMBUS)
        local = Path(options.storm_local_dir)
        self.folder = local / name / "security"
        self.revocations = FollowedRevocations(
            trusted, self.folder, revoked=options.storm_security_revoked, fetch=self._register
        )
        self.revocations.open()
        logs = Path(options.storm_log_dir) if options.storm_log_dir else local / "logs"
        self._file = AuditFile(logs / f"{name}-audit.log")
        self.audit = AuditLog(self._file, now)
        peers = PeerAuthenticator(
            trusted,
            acls=acls,
            groups=Groups(groups),
            revoked=self.revocations,
            audit=self.audit,
            now=now,
            provider=provider_of(options, own_issuer),
        )
        self.access = SecuredAccess(acls, self.audit, ended=self._ended, now=now)
        # Cookies know hosts and no ports: the name keeps two daemons on one host apart. `__Host-`
        # is refused by browsers unless it is Secure, of this host alone and for all paths.
        self.peers = WebPeers(
            peers, self.revocations, Sessions(now), cookie=f"__Host-squall-{name}", now=now
        )

    def routes(self, title: str, ended: Callable[[], None]) -> list[Route]:
        """Those of logging in and out."""
        return Login(self.peers, self.audit, title=title, ended=ended).routes()

    def issuer_pages(self, issuer: str) -> IssuerPages:
        """What foreign parties read. Raises ConfigError."""
        trust = Trust(self._trusted.cluster, self._trusted.ca, self.revocations.serials)
        return IssuerPages(
            issuer, trust, self._outside_keys, now=self._now, monotonic=time.monotonic
        )

    def credentials(self, server: Role) -> ClientCredentials:
        """This daemon's own, for daemons of a role."""
        found = credentials_of(self.client, server)
        assert found is not None
        return found

    def _ended(self, identity: Any) -> str | None:
        return self.peers.ended(identity)

    def start(self) -> None:
        """Begin to follow what is revoked."""
        self.revocations.start()

    async def close(self) -> None:
        """End that."""
        await self.revocations.close()
        self._file.close()

    async def _register(self, known: int) -> str:
        async with await NimbusClient.connect(self.client) as nimbus:
            text: str = await nimbus.call("getTokenRegister", known, timeout_secs=_CALL_SECS)
            return text

    async def _outside_keys(self) -> Sequence[str]:
        async with asyncio.timeout(_CALL_SECS), await NimbusClient.connect(self.client) as nimbus:
            texts: list[str] = await nimbus.call("getIdentityKeys")
            return texts
