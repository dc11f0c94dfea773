"""A supervisor of a secured cluster: its id is its certificate's name, and callers of its port show
certificates."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.authentication.latch import require_role
from squall_common.config.options.typed import ClientOptions, SupervisorOptions
from squall_common.daemon.files import make_private_dirs
from squall_common.daemon.logs import get_logger
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.errors import ConfigError
from squall_common.security.identity import Role
from squall_supervisor.confine.users import ENABLED
from squall_thrift.serving.server import ThriftServer
from squall_thrift.serving.throttle import Throttle

if TYPE_CHECKING:
    from squall_common.authentication.files import RevokedFile, Trusted
    from squall_supervisor.metrics_access import MetricsReaders

log = get_logger(__name__)

SHARED = "supervisor.workers.share.user"
_REFRESH_SECS = 10.0


def secured_conf(
    conf: Mapping[str, Any], options: SupervisorOptions
) -> tuple[Mapping[str, Any], Trusted | None]:
    """The configuration with the supervisor's id, and the root of trust; in an open cluster the
    configuration as it is, and None. Raises ConfigError for a supervisor that a secured cluster
    cannot have."""
    trusted = require_role(options, Role.SUPERVISOR, options.storm_local_dir)
    if trusted is None:
        return conf, None
    assert trusted.own is not None
    name = trusted.own.holder.name
    if options.storm_id not in (None, name):
        raise ConfigError(
            f"storm.id is {options.storm_id!r}, and the certificate is that of {name!r}",
            hint="In a secured cluster the certificate gives a supervisor its id: leave storm.id "
            "out.",
        )
    if not options.supervisor_run_worker_as_user and not options.supervisor_workers_share_user:
        raise ConfigError(
            "in a secured cluster the workers of different owners must not run as one user, who "
            "could read the files and keys of all of them",
            hint=f"Set {ENABLED}: true; or {SHARED}: true if all who submit topologies may know "
            "each other's secrets.",
        )
    return {**conf, "storm.id": name}, trusted


class SecuredServer:
    """Makes the supervisor's Thrift server, and keeps the revocations that it goes by."""

    def __init__(self, trusted: Trusted, options: SupervisorOptions) -> None:
        # Imported only where a cluster is secured: it takes some 40 ms.
        from squall_common.authentication.authenticator import PeerAuthenticator
        from squall_common.authentication.files import RevokedFile
        from squall_common.authentication.groups import Groups, fixed_groups
        from squall_common.security.access import NodeAccess
        from squall_common.security.acl import ClusterAcl
        from squall_common.security.audit import AuditFile, AuditLog

        local = Path(options.storm_local_dir)
        folder = local / "supervisor" / "security"
        make_private_dirs(folder)
        revoked = RevokedFile(
            options.storm_security_revoked, trusted, folder / "revoked-certificates.jws"
        )
        revoked.open()
        logs = Path(options.storm_log_dir) if options.storm_log_dir else local / "logs"
        self._file = AuditFile(logs / "supervisor-audit.log")
        audit = self._audit = AuditLog(self._file, time.time)
        self._trusted, self._options = trusted, options
        authenticator = PeerAuthenticator(
            trusted,
            acls=ClusterAcl(),
            groups=Groups(fixed_groups({})),
            revoked=_Certificates(revoked),
            audit=audit,
            now=time.time,
        )
        assert trusted.own is not None
        self.ca = trusted.ca_pem  # for workers
        self._revoked = revoked
        self._throttle = Throttle()
        self._tasks = BackgroundTasks(
            lambda task, error: log.error("task_crashed", task=task, exc_info=error)
        )
        self._authenticator = authenticator
        self._access = NodeAccess(
            trusted.own.holder.name, audit, ended=authenticator.ended, now=time.time
        )
        self._servers: list[ThriftServer] = []

    def make(self, *what: Any, **named: Any) -> ThriftServer:
        """The server of a service, as `ThriftServer` is made."""
        server = ThriftServer(
            *what, **named, authorizer=self._access, authenticator=self._authenticator
        )
        self._servers.append(server)
        return server

    def serials(self) -> frozenset[int]:
        """Of certificates that were revoked."""
        return self._revoked.serials()

    def metrics_readers(self, client: ClientOptions) -> MetricsReaders:
        """Who may read the page with the metrics; `client` says where Nimbus is. Raises
        ConfigError, SquallError, OSError."""
        from squall_supervisor.metrics_access import MetricsReaders

        return MetricsReaders(self._trusted, self._options, client, self._audit)

    def start(self) -> None:
        """Begin to look for new revocations, and for another CA."""
        self._tasks.every("revocations", _REFRESH_SECS, self._refresh)

    async def close(self) -> None:
        """End that."""
        await self._tasks.close()
        self._file.close()

    async def _refresh(self) -> None:
        why = await asyncio.to_thread(self._revoked.refresh)
        if why is not None and (left_out := self._throttle.left_out("revoked")) is not None:
            log.error("revoked_certificates_refused", reason=why, left_out=left_out)
        for server in self._servers:
            server.end_stale(self._authenticator.ended, calls=False)


class _Certificates:
    """A supervisor accepts no tokens: it does not know which were revoked."""

    def __init__(self, revoked: RevokedFile) -> None:
        self._revoked = revoked

    def serials(self) -> frozenset[int]:
        return self._revoked.serials()

    def tokens(self) -> None:
        return None
