"""How Storm's REST API writes numbers, times and links."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote, quote_plus, urlencode

from squall_thrift import storm


@dataclass(frozen=True, slots=True)
class Logviewers:
    """How all logviewers are reached."""

    port: int = 8000
    scheme: str = "http"


def pretty_secs(secs: int | None) -> str:
    """`1d 5h 30m 10s`, without leading zeros."""
    left = max(0, int(secs or 0))
    parts = [(left // 86400, "d"), (left // 3600 % 24, "h"), (left // 60 % 60, "m")]
    while parts and parts[0][0] == 0:
        parts.pop(0)
    return " ".join([*(f"{count}{unit}" for count, unit in parts), f"{left % 60}s"])


def decimal(value: float | None) -> str:
    """Three decimals, as text: `0.020`."""
    return f"{value or 0.0:.3f}"


def encoded(text: str) -> str:
    """As part of a URL, in the way of Java's URLEncoder."""
    return quote_plus(text)


def pretty_executor(executor: storm.ExecutorInfo) -> str:
    """`[2-3]`."""
    return f"[{executor.task_start}-{executor.task_end}]"


def log_link(
    host: str | None, logviewers: Logviewers, file: str, *, daemon: bool = False
) -> str | None:
    """Where a logviewer shows a file; None if the host is not known."""
    if not host:
        return None
    path = "daemonlog" if daemon else "log"
    name = f"[{host}]" if ":" in host else host
    return (
        f"{logviewers.scheme}://{name}:{logviewers.port}/api/v1/{path}?{urlencode({'file': file})}"
    )


def worker_log_link(
    host: str | None, port: int | None, topology_id: str, logviewers: Logviewers
) -> str | None:
    """Where a worker's log is shown."""
    return log_link(host, logviewers, f"{topology_id}/{port}/worker.log")


def dump_link(host: str, port: int, topology_id: str, logviewers: Logviewers) -> str:
    """Where a worker's dumps are listed."""
    name = f"[{host}]" if ":" in host else host
    worker = quote(f"{host}:{port}", safe=":")
    return (
        f"{logviewers.scheme}://{name}:{logviewers.port}/api/v1/dumps/{quote(topology_id)}/{worker}"
    )


def sanitized_stream(stream: str) -> str:
    """A stream's id as part of an HTML id: other characters become `_`."""
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in stream)
