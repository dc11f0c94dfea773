"""The files in `static`: read once at start, served compressed, never from anywhere else."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from aiohttp import web

from squall_common.daemon.web import HttpError, Route
from squall_thrift.serving.authorization import PUBLIC

FOLDER = Path(__file__).parent / "static"
TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
    ".txt": "text/plain",
}


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file, as it is sent."""

    body: bytes
    compressed: bytes
    content_type: str
    tag: str


def load_static(folder: Path = FOLDER) -> Mapping[str, StaticFile]:
    """By path relative to the folder."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.suffix in TYPES:
            body = path.read_bytes()
            found[path.relative_to(folder).as_posix()] = StaticFile(
                body,
                gzip.compress(body, 9, mtime=0),
                TYPES[path.suffix],
                f'"{hashlib.sha256(body).hexdigest()[:32]}"',
            )
    return found


def static_routes() -> list[Route]:
    """`/static/...`. A browser keeps a file and asks each time whether it has changed."""
    files = load_static()

    async def serve(request: web.Request) -> web.Response:
        found = files.get(request.match_info["path"])
        if found is None:
            raise HttpError(404, "404 Not Found", "there is no such file")
        headers = {
            "Cache-Control": "no-cache",
            "ETag": found.tag,
            "Vary": "Accept-Encoding",
            "Cross-Origin-Resource-Policy": "same-origin",
        }
        if request.headers.get("If-None-Match") == found.tag:
            return web.Response(status=304, headers=headers)
        body = found.body
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            body = found.compressed
            headers["Content-Encoding"] = "gzip"
        return web.Response(
            body=body, content_type=found.content_type, charset="utf-8", headers=headers
        )

    return [Route("GET", "/static/{path:.+}", serve, PUBLIC, cross_site=True)]
