"""The logviewer: one HTTP listener over the logs of its node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from squall_common.authentication.latch import require_role
from squall_common.client.nimbus import NimbusClient
from squall_common.config.options.typed import ClientOptions, LogviewerOptions
from squall_common.daemon.web import WebServer
from squall_common.security.acl import ClusterAcl, Members, impersonation_of
from squall_common.security.identity import Role
from squall_common.security.web_origin import known_hosts
from squall_common.telemetry.page import DaemonMetrics
from squall_thrift import storm
from squall_ui.logviewer.access import LogAccess, LogLists
from squall_ui.logviewer.places import Places
from squall_ui.logviewer.routes import LogRoutes
from squall_ui.process import run_http_daemon
from squall_ui.static_files import static_routes

if TYPE_CHECKING:
    from squall_common.authentication.files import Trusted
    from squall_ui.access.secured import SecuredWeb

_CALL_SECS = 10.0


def main() -> int:
    """Run with the configuration file named by the environment; returns the exit status."""
    return run_http_daemon(
        "logviewer",
        LogviewerOptions.read,
        lambda conf: LogServer(LogviewerOptions.read(conf), ClientOptions.read(conf)),
    )


def places_of(options: LogviewerOptions) -> Places:
    """The folders that the configuration names."""
    log_dir = (
        Path(options.storm_local_dir) / "logs"
        if options.storm_log_dir is None
        else Path(options.storm_log_dir)
    ).absolute()
    folders = [log_dir, *(Path(one).absolute() for one in options.logviewer_log_dirs)]
    return Places(folders, [one / options.storm_workers_artifacts_dir for one in folders])


class LogServer:
    """The listener and what it goes by. Raises ConfigError."""

    def __init__(self, options: LogviewerOptions, client: ClientOptions) -> None:
        places = places_of(options)
        trusted = require_role(options, Role.LOGVIEWER, options.storm_local_dir)
        self.secured: SecuredWeb | None = None
        self._lists: LogLists | None = None
        access, authorizer = None, None
        if trusted is not None:
            self.secured = secured = _secured(trusted, options, client)
            self._lists = LogLists(
                secured.folder / "log-lists.json", self._fetch, places.topologies
            )
            self._lists.open()
            authorizer = secured.access
            access = LogAccess(authorizer, self._lists)
        self.metrics = DaemonMetrics("logviewer")
        self.host = options.storm_bind_host
        names = [self.host]
        if options.storm_local_hostname:
            names.append(options.storm_local_hostname)
        self.http = WebServer(
            [
                *LogRoutes(places, access).routes(),
                *static_routes(),
                self.metrics.route(),
                *([] if self.secured is None else self.secured.routes("Logs", self._ended)),
            ],
            name="logviewer",
            host=self.host,
            port=options.logviewer_port,
            authorizer=authorizer,
            authenticator=None if self.secured is None else self.secured.peers,
            insecure=options.storm_security_insecure,
            hosts=known_hosts(options.storm_http_hosts, names),
            observe=self.metrics.observe_requests(),
        )

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.http.port

    async def start(self) -> None:
        """Listen. Raises SquallError."""
        await self.http.start()
        self.metrics.start()
        if self.secured is not None and self._lists is not None:
            self.secured.start()
            self._lists.start()

    async def stop(self) -> None:
        """Close everything."""
        self.metrics.stop()
        await self.http.stop()
        if self.secured is not None and self._lists is not None:
            await self._lists.close()
            await self.secured.close()

    def _ended(self) -> None:
        """A session has ended."""
        self.http.end_stale()

    async def _fetch(self, ids: Sequence[str]) -> Mapping[str, storm.LogAccess]:
        assert self.secured is not None
        async with await NimbusClient.connect(self.secured.client) as nimbus:
            found: Mapping[str, storm.LogAccess] = await nimbus.call(
                "getLogAccess", list(ids), timeout_secs=_CALL_SECS
            )
            return found


def _secured(trusted: Trusted, options: LogviewerOptions, client: ClientOptions) -> SecuredWeb:
    # Imported only where a cluster is secured: it takes some 40 ms.
    from squall_common.authentication.groups import groups_source
    from squall_ui.access.secured import SecuredWeb

    acls = ClusterAcl(
        admins=Members.of(options.nimbus_admins, options.nimbus_admins_groups),
        logs=Members.of(options.logs_users, options.logs_groups),
        impersonation=impersonation_of(options.nimbus_impersonation_acl),
    )
    return SecuredWeb(
        "logviewer", trusted, options, client, acls=acls, groups=groups_source(options)
    )
