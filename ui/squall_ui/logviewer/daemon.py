"""The logviewer's process: configuration, log, one HTTP listener.

Once it listens, it prints one line on stdout:
`{"logviewer": {"host": ..., "port": 8000, "pid": 4711}}`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from squall_common.config.load import warn_of_ignored
from squall_common.config.options.typed import LogviewerOptions
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
from squall_ui.logviewer.places import Places
from squall_ui.logviewer.routes import LogRoutes
from squall_ui.static_files import static_routes

log = get_logger(__name__)


def main() -> int:
    """Run with the configuration file named by the environment; returns the exit status."""
    begin_daemon()
    try:
        return run(read_daemon_conf(os.environ, "storm logviewer"))
    except SquallError as error:
        print_if_possible(f"logviewer: {error}", sys.stderr)
        return 1


def run(conf: Mapping[str, Any]) -> int:
    """Run until SIGTERM or SIGINT. Raises SquallError for problems that the operator can fix."""
    options = LogviewerOptions.read(conf)
    set_up_daemon_log(
        "logviewer",
        level=options.storm_log_level,
        folder=options.storm_log_dir,
        form=options.storm_log_format,
    )
    warn_of_ignored(conf)
    return run_daemon(_run(options))


def places_of(options: LogviewerOptions) -> Places:
    """The folders that the configuration names."""
    log_dir = (
        Path(options.storm_local_dir) / "logs"
        if options.storm_log_dir is None
        else Path(options.storm_log_dir)
    ).absolute()
    folders = [log_dir, *(Path(one).absolute() for one in options.logviewer_log_dirs)]
    return Places(folders, [one / options.storm_workers_artifacts_dir for one in folders])


def make_server(options: LogviewerOptions) -> WebServer:
    """The listener, not started."""
    host = options.storm_bind_host
    names = [host, *([options.storm_local_hostname] if options.storm_local_hostname else [])]
    return WebServer(
        [*LogRoutes(places_of(options)).routes(), *static_routes()],
        name="logviewer",
        host=host,
        port=options.logviewer_port,
        insecure=options.storm_security_insecure,
        hosts=known_hosts(options.storm_http_hosts, names),
    )


async def _run(options: LogviewerOptions) -> int:
    stop = stop_signals()
    server = make_server(options)
    await server.start()
    ready = {"host": options.storm_bind_host, "port": server.port, "pid": os.getpid()}
    watch_loop()
    log.info("logviewer_started", **ready)
    print_if_possible(json.dumps({"logviewer": ready}), sys.stdout)
    await stop.wait()
    await server.stop()
    return 0
