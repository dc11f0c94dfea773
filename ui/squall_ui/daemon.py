"""The UI's process: configuration, log, one HTTP listener.

Once it listens, it prints one line on stdout: `{"ui": {"host": ..., "port": 8080, "pid": 4711}}`.
It needs no Nimbus to start: while there is none, its pages say so.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from squall_common.config.load import warn_of_ignored
from squall_common.config.options.typed import ClientOptions, UiOptions
from squall_common.daemon.logs import get_logger
from squall_common.daemon.printing import print_if_possible
from squall_common.daemon.run import (
    begin_daemon,
    read_daemon_conf,
    run_daemon,
    set_up_daemon_log,
    stop_signals,
    watch_loop,
)
from squall_common.daemon.web import WebServer
from squall_common.errors import SquallError
from squall_common.security.web_origin import known_hosts
from squall_ui.live.hub import Hub
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.pages import shell
from squall_ui.pages.logs import Logs
from squall_ui.pages.streams import Streams
from squall_ui.rest import api
from squall_ui.rest.endpoints import Site
from squall_ui.static_files import static_routes

log = get_logger(__name__)


def main() -> int:
    """Run with the configuration file named by the environment; returns the exit status."""
    begin_daemon()
    try:
        return run(read_daemon_conf(os.environ, "storm ui"))
    except SquallError as error:
        print_if_possible(f"ui: {error}", sys.stderr)
        return 1


def run(conf: Mapping[str, Any]) -> int:
    """Run until SIGTERM or SIGINT. Raises SquallError for problems that the operator can fix."""
    options = UiOptions.read(conf)
    set_up_daemon_log(
        "ui",
        level=options.storm_log_level,
        folder=options.storm_log_dir,
        form=options.storm_log_format,
    )
    warn_of_ignored(conf)
    return run_daemon(_run(options, ClientOptions.read(conf)))


class UiServer:
    """The listener and what its routes share."""

    def __init__(self, options: UiOptions, client: ClientOptions) -> None:
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


async def _run(options: UiOptions, client: ClientOptions) -> int:
    stop = stop_signals()
    server = UiServer(options, client)
    await server.start()
    ready = {"host": server.host, "port": server.http.port, "pid": os.getpid()}
    watch_loop()
    log.info("ui_started", **ready)
    print_if_possible(json.dumps({"ui": ready}), sys.stdout)
    await stop.wait()
    await server.stop()
    return 0
