"""The logviewer: one HTTP listener over the logs of its node."""

from __future__ import annotations

from pathlib import Path

from squall_common.authentication.latch import refuse_secured
from squall_common.config.options.typed import LogviewerOptions
from squall_common.daemon.web import WebServer
from squall_common.security.web_origin import known_hosts
from squall_ui.logviewer.places import Places
from squall_ui.logviewer.routes import LogRoutes
from squall_ui.process import run_http_daemon
from squall_ui.static_files import static_routes


def main() -> int:
    """Run with the configuration file named by the environment; returns the exit status."""
    return run_http_daemon(
        "logviewer", LogviewerOptions.read, lambda conf: make_server(LogviewerOptions.read(conf))
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


def make_server(options: LogviewerOptions) -> WebServer:
    """The listener, not started."""
    refuse_secured(options, "the logviewer")
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
