"""The UI: one HTTP listener, and one reader of the cluster for all of its pages.

It needs no Nimbus to start: while there is none, its pages say so.
"""

from __future__ import annotations

from squall_common.authentication.latch import refuse_secured
from squall_common.config.options.typed import ClientOptions, UiOptions
from squall_common.daemon.web import WebServer
from squall_common.security.web_origin import known_hosts
from squall_ui.live.hub import Hub
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.pages import shell
from squall_ui.pages.logs import Logs
from squall_ui.pages.reports import Reports
from squall_ui.pages.streams import Streams
from squall_ui.process import run_http_daemon
from squall_ui.rest import api
from squall_ui.rest.endpoints import Site
from squall_ui.static_files import static_routes


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
        refuse_secured(options, "the UI")
        self.nimbus = NimbusGateway(client)
        self.site = Site(
            self.nimbus,
            logviewer_port=options.logviewer_port,
            actions_enabled=options.ui_actions_enabled,
            title=options.ui_title,
        )
        self.hub = Hub(self.nimbus, logviewer_port=options.logviewer_port)
        self.logs = Logs(self.nimbus, options.logviewer_port)
        host = options.ui_host or options.storm_bind_host
        names = [host, *([options.storm_local_hostname] if options.storm_local_hostname else [])]
        self.http = WebServer(
            [
                *api.routes(self.site),
                *Streams(self.hub, self.nimbus).routes(),
                *self.logs.routes(),
                *Reports(self.nimbus, client).routes(),
                *static_routes(),
                *shell.routes(self.site),
            ],
            name="ui",
            host=host,
            port=options.ui_port,
            # Pages that are open follow a stream that does not end by itself.
            stop_grace_secs=1.0,
            insecure=options.storm_security_insecure,
            hosts=known_hosts(options.storm_http_hosts, names),
        )
        self.host = host

    @property
    def port(self) -> int:
        """The port that it listens on."""
        return self.http.port

    async def start(self) -> None:
        """Listen, and begin to read the cluster. Raises SquallError."""
        await self.http.start()
        self.hub.start()

    async def stop(self) -> None:
        """Close the listener and the connections to Nimbus and to logviewers."""
        await self.hub.stop()
        await self.http.stop()
        await self.logs.close()
        await self.nimbus.close()
