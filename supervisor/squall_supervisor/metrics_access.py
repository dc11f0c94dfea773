"""Who reads a supervisor's page for Prometheus in a secured cluster: administrators, and whom
`metrics.users` and `metrics.groups` name, by certificate or token.

Which tokens were revoked it asks Nimbus when one is shown, at most every ten seconds; while Nimbus
is away, the last answer counts.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import msgspec

from squall_common.authentication.authenticator import PeerAuthenticator
from squall_common.authentication.files import Trusted
from squall_common.authentication.followed import FollowedRevocations
from squall_common.authentication.groups import Groups, groups_source
from squall_common.authentication.programs import ProgramPeers
from squall_common.authentication.provider import provider_of
from squall_common.client.nimbus import NimbusClient
from squall_common.config.options.typed import ClientOptions, SupervisorOptions
from squall_common.security.access import SecuredAccess
from squall_common.security.acl import ClusterAcl, Members
from squall_common.security.audit import AuditLog

_CALL_SECS = 10.0


class MetricsReaders:
    """The parts that the listener goes by. Raises ConfigError, SquallError, OSError."""

    def __init__(
        self, trusted: Trusted, options: SupervisorOptions, client: ClientOptions, audit: AuditLog
    ) -> None:
        # A single try: the next one is ten seconds away.
        self._client = msgspec.structs.replace(client, storm_nimbus_retry_times=0)
        self._revocations = FollowedRevocations(
            trusted,
            Path(options.storm_local_dir) / "supervisor" / "security" / "metrics",
            revoked=options.storm_security_revoked,
            fetch=self._register,
            on_demand=True,
        )
        self._revocations.open()
        acls = ClusterAcl(
            admins=Members.of(options.nimbus_admins, options.nimbus_admins_groups),
            metrics=Members.of(options.metrics_users, options.metrics_groups),
        )
        peers = PeerAuthenticator(
            trusted,
            acls=acls,
            groups=Groups(groups_source(options)),
            revoked=self._revocations,
            audit=audit,
            now=time.time,
            provider=provider_of(options),
        )
        self.access = SecuredAccess(acls, audit, ended=peers.ended, now=time.time)
        self.peers = ProgramPeers(peers, peers.ended, ready=self._revocations.ready)

    def start(self) -> None:
        """Begin to follow what was revoked."""
        self._revocations.start()

    async def close(self) -> None:
        """End that."""
        await self._revocations.close()

    async def _register(self, known: int) -> str:
        async with await NimbusClient.connect(self._client) as nimbus:
            text: Any = await nimbus.call("getTokenRegister", known, timeout_secs=_CALL_SECS)
            return str(text)
