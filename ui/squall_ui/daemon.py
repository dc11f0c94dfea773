"""The UI: one HTTP listener, and one reader of the cluster for all of its pages; in a secured
cluster one for each user.

It needs no Nimbus to start: while there is none, its pages say so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aiohttp import web

from squall_common.authentication.latch import require_role
from squall_common.config.options.typed import ClientOptions, UiOptions
from squall_common.daemon.web import WebServer
from squall_common.security.acl import ClusterAcl
from squall_common.security.identity import Role
from squall_common.security.web_origin import known_hosts
from squall_common.telemetry.page import DaemonMetrics
from squall_ui.live.hub import Hub
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.pages import shell
from squall_ui.pages.logs import Logs
from squall_ui.pages.reports import Reports
from squall_ui.pages.streams import Streams
from squall_ui.process import run_http_daemon
from squall_ui.rest import api
from squall_ui.rest.endpoints import Site
from squall_ui.rest.text import Logviewers
from squall_ui.static_files import static_routes
from squall_ui.viewers import OneViewer, SignedIn, UserViewers

if TYPE_CHECKING:
    from squall_common.authentication.files import Trusted
    from squall_ui.access.issuer import IssuerPages
    from squall_ui.access.secured import SecuredWeb


def main() -> int:
    """Run with the configuration file named by the environment; returns the exit status."""
    return run_http_daemon(
        "ui",
        UiOptions.read,
        lambda conf: UiServer(UiOptions.read(conf), ClientOptions.read(conf)),
    )


class UiServer:
    """The listener and what its routes share."""

    def __init__(self, options: UiOptions, client: ClientOptions) -> None:
        trusted = require_role(options, Role.UI, options.storm_local_dir)
        port = options.logviewer_port
        secured = None if trusted is None else _secured(trusted, options, client)
        logviewers = Logviewers(port, "http" if secured is None else "https")

        def make_hub(nimbus: NimbusGateway) -> Hub:
            return Hub(nimbus, logviewers=logviewers)

        self.metrics = DaemonMetrics("ui")
        self.nimbus = NimbusGateway(client)
        self.viewers: OneViewer | UserViewers
        if secured is None:
            self.hub = make_hub(self.nimbus)
            self.viewers = OneViewer(self.nimbus, self.hub)
        else:
            self.viewers = UserViewers(secured, client, make_hub)
        self.secured = secured
        site = Site(
            self.nimbus,
            logviewers=logviewers,
            actions_enabled=options.ui_actions_enabled,
            title=options.ui_title,
        )

        def site_of(request: web.Request) -> Site:
            return replace(site, nimbus=self.viewers.of(request).nimbus)

        self.logs = Logs(
            self.viewers, port, None if secured is None else secured.credentials(Role.LOGVIEWER)
        )
        # In an open cluster the option is refused.
        issuer: IssuerPages | None = None
        if secured is not None and options.storm_identity_issuer is not None:
            issuer = secured.issuer_pages(options.storm_identity_issuer)
        self.issuer = issuer
        host = options.ui_host or options.storm_bind_host
        names = [host, *([options.storm_local_hostname] if options.storm_local_hostname else [])]
        self.http = WebServer(
            [
                *api.routes(site_of),
                *Streams(self.viewers).routes(),
                *self.logs.routes(),
                *Reports(self.viewers, client).routes(),
                *static_routes(),
                self.metrics.route(),
                *([] if secured is None else secured.routes(options.ui_title, self._ended)),
                *([] if issuer is None else issuer.routes()),
                *shell.routes(site, secured=secured is not None),
            ],
            name="ui",
            host=host,
            port=options.ui_port,
            # Pages that are open follow a stream that does not end by itself.
            stop_grace_secs=1.0,
            authorizer=None if secured is None else SignedIn(),
            authenticator=None if secured is None else secured.peers,
            insecure=options.storm_security_insecure,
            hosts=known_hosts(options.storm_http_hosts, names)
            | (set() if issuer is None else {issuer.host}),
            observe=self.metrics.observe_requests(),
        )
        self.host = host

    def _ended(self) -> None:
        """A session has ended."""
        self.http.end_stale()

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.http.port

    async def start(self) -> None:
        """Listen, and begin to read the cluster. Raises SquallError."""
        await self.http.start()
        self.metrics.start()
        if self.secured is not None:
            self.secured.start()
        self.viewers.start()

    async def stop(self) -> None:
        """Close the listener and the connections to Nimbus and to logviewers."""
        self.metrics.stop()
        await self.viewers.close()
        await self.http.stop()
        await self.logs.close()
        await self.nimbus.close()
        if self.secured is not None:
            await self.secured.close()


def _secured(trusted: Trusted, options: UiOptions, client: ClientOptions) -> SecuredWeb:
    # Imported only where a cluster is secured: it takes some 40 ms.
    from squall_common.authentication.groups import fixed_groups
    from squall_ui.access.secured import SecuredWeb

    # The UI has no lists: Nimbus decides.
    return SecuredWeb(
        "ui",
        trusted,
        options,
        client,
        acls=ClusterAcl(),
        groups=fixed_groups({}),
        own_issuer=options.storm_identity_issuer,
    )
