"""The table of routes of each HTTP listener, as its daemon has it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from squall_cli.proxy.web import WebProxy
from squall_common.daemon.web import Route
from squall_common.telemetry.page import DaemonMetrics
from squall_drpc.server.http import DrpcHttp
from squall_ui.access.issuer import IssuerPages
from squall_ui.access.login import Login
from squall_ui.logviewer.places import Places
from squall_ui.logviewer.routes import LogRoutes
from squall_ui.pages import shell
from squall_ui.pages.logs import Logs
from squall_ui.pages.reports import Reports
from squall_ui.pages.streams import Streams
from squall_ui.rest import api
from squall_ui.rest.endpoints import Site
from squall_ui.static_files import static_routes


def route_tables(folder: Path) -> dict[str, list[Route]]:
    """By daemon. The handlers are not to be called; `folder` stands for those of logs."""
    nothing: Any = None
    drpc = DrpcHttp(nothing).server(host="", port=0, body_bytes_max=1, insecure=False)
    site = Site(nothing)
    return {
        "ui": [
            *api.routes(nothing),
            *Streams(nothing).routes(),
            *Logs(nothing, 8000).routes(),
            *Reports(nothing, nothing).routes(),
            *static_routes(),
            *Login(nothing, nothing, title="", ended=nothing).routes(),
            *IssuerPages(
                "https://id.example.org", nothing, nothing, now=nothing, monotonic=nothing
            ).routes(),
            *shell.routes(site),
        ],
        "logviewer": [
            *LogRoutes(Places([folder], [folder])).routes(),
            *static_routes(),
            *Login(nothing, nothing, title="", ended=nothing).routes(),
        ],
        "drpc": [*drpc.routes],
        "metrics": [DaemonMetrics("test").route()],
        "metrics of nimbus, supervisor": [DaemonMetrics("test").route("readMetrics")],
    }


def proxy_table() -> list[Route]:
    """The table of `storm proxy`, behind which the UI decides."""
    nothing: Any = None
    return [*WebProxy("https://ui.example", 0, nothing).routes]
