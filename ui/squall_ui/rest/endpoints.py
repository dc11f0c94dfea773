"""An endpoint of the REST API: what it is asked, what it answers, and how errors are answered.

An endpoint's handler gets an `Ask` and returns a JSON value. It knows nothing of HTTP: errors are
exceptions, which `problem` turns into a status and Storm's `{"error": ..., "errorMessage": ...}`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final

from squall_common.errors import NimbusConnectionError, NimbusError
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.rest.shapes import TEXT, Shape, obj
from squall_ui.rest.text import Logviewers

PREFIX: Final = "/api/v1"
WINDOWS: Final = {
    "600": "10m 0s",
    "10800": "3h 0m 0s",
    "86400": "1d 0h 0m 0s",
    ":all-time": "All time",
}
ALL_TIME: Final = ":all-time"
ERROR = obj(error=TEXT, errorMessage=TEXT)


class RequestError(Exception):
    """A request that is answered with a status of its own."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class Site:
    """What answers need to know of this UI."""

    nimbus: NimbusGateway
    logviewers: Logviewers = field(default_factory=Logviewers)
    actions_enabled: bool = True
    title: str = "Squall UI"


@dataclass(frozen=True, slots=True)
class Ask:
    """One request: the parts of its path, its query, and its body as JSON (None: there is none)."""

    site: Site
    path: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None

    @property
    def window(self) -> str:
        """The window that is asked for; all time if none is, as in Storm. Raises RequestError."""
        window = self.query.get("window") or ALL_TIME
        if window not in WINDOWS:
            raise RequestError(400, f"unknown window {window!r}: one of {', '.join(WINDOWS)}")
        return window

    @property
    def with_system(self) -> bool:
        """Whether system components and streams are asked for."""
        return self.query.get("sys", "").lower() in ("true", "1", "yes")

    async def topology(self) -> storm.TopologySummary:
        """The topology of the path, by id or by name. Raises NotAliveException."""
        wanted = self.path["id"]
        for one in (await self.site.nimbus.read("getClusterInfo")).topologies:
            if wanted in (one.id, one.name):
                found: storm.TopologySummary = one
                return found
        raise storm.NotAliveException(msg=f"{wanted} is not alive")


Handler = Callable[[Ask], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of the path or of the query."""

    name: str
    sentence: str
    shape: Shape = field(default_factory=lambda: dict(TEXT))
    in_path: bool = False


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One route. `path` is below /api/v1, with its parts as `{name}`."""

    method: str
    path: str
    sentence: str
    answer: Shape
    handler: Handler
    permission: str
    params: tuple[Param, ...] = ()
    body: Shape | None = None
    content_type: str = "application/json"


ID = Param("id", "A topology's id, or its name.", in_path=True)
COMPONENT = Param("component", "A spout's or bolt's id.", in_path=True)
HOST_PORT = Param("host-port", "A worker, as HOST:PORT.", in_path=True)
WINDOW = Param(
    "window",
    "The window of the statistics: 600, 10800, 86400 or :all-time.",
    {"type": "string", "enum": list(WINDOWS)},
)
SYS = Param("sys", "true: with system components and streams.", {"type": "string"})


def phrase(status: int) -> str:
    """Storm's short text of an error: `404 Not Found`."""
    return f"{status} {HTTPStatus(status).phrase}"


def problem(error: Exception) -> tuple[int, str, str] | None:
    """The status, the short text and the message for an exception; None for a bug of ours."""
    match error:
        case RequestError():
            status = error.status
        case storm.AuthorizationException():
            return 403, "No Authorization", error.msg or "not allowed"
        case storm.NotAliveException():
            return 404, phrase(404), error.msg or "it is not alive"
        case storm.InvalidTopologyException():
            return 400, phrase(400), error.msg or "invalid"
        case ThriftApplicationError():
            status = 400
        case NimbusConnectionError():
            status = 503
        case NimbusError():
            status = 503
        case _:
            return None
    return status, phrase(status), str(error)
