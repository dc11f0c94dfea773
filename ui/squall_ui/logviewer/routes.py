"""The logviewer's routes: Storm's, and some that the UI's own pages read.

Pages of HTML and downloads may be opened by a link from another site (the UI has another port);
a page cannot read them by script. JSON is for programs and for our own pages.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

from aiohttp import web

from squall_common.daemon import fast_json
from squall_common.daemon.web import HttpError, Route, call_of
from squall_ui.logviewer import html
from squall_ui.logviewer.access import READ, READ_DAEMONS, LogAccess
from squall_ui.logviewer.places import LogFile, NotServedError, Places, is_dump, worker_parts
from squall_ui.logviewer.reading import (
    PAGE_BYTES,
    PAGE_BYTES_MAX,
    Part,
    TooLargeError,
    chunks,
    ended_lines,
    is_compressed,
    read_part,
    whole_lines,
)
from squall_ui.logviewer.search import (
    NUM_MATCHES,
    NUM_MATCHES_MAX,
    SEARCH_BYTES_MAX,
    Deadline,
    Found,
    deep_search,
    search_file,
)

PREFIX = "/api/v1"
_PERMISSION = READ
_DAEMONS = READ_DAEMONS
# Readers at once: uncompressing and searching take a core each.
_AT_ONCE = 4
_GREP_BYTES_MAX = 64 * 1024 * 1024

_T = TypeVar("_T")


class LogRoutes:
    """Handlers over some folders."""

    def __init__(self, places: Places, access: LogAccess | None = None) -> None:
        self._places = places
        self._access = access or LogAccess()
        self._busy = asyncio.Semaphore(_AT_ONCE)

    def routes(self) -> list[Route]:
        """All routes."""

        def get(path: str, handler: Any, permission: str, *, link: bool = False) -> Route:
            return Route("GET", path, handler, permission, cross_site=link)

        return [
            get("/", self._index, _PERMISSION, link=True),
            get(f"{PREFIX}/log", self._log, _PERMISSION, link=True),
            get(f"{PREFIX}/daemonlog", self._daemon_log, _DAEMONS, link=True),
            get(f"{PREFIX}/download", self._download, _PERMISSION, link=True),
            get(f"{PREFIX}/daemondownload", self._daemon_download, _DAEMONS, link=True),
            get(f"{PREFIX}/dumps/{{topo_id}}/{{host_port}}", self._dumps, _PERMISSION, link=True),
            get(
                f"{PREFIX}/dumps/{{topo_id}}/{{host_port}}/{{filename}}",
                self._dump, _PERMISSION, link=True,
            ),
            get(f"{PREFIX}/listLogs", self._list, _PERMISSION),
            get(f"{PREFIX}/searchLogs", self._list, _PERMISSION),
            get(f"{PREFIX}/search", self._search, _PERMISSION),
            get(f"{PREFIX}/deepSearch/{{topo_id}}", self._deep_search, _PERMISSION),
            # Squall's own.
            get(f"{PREFIX}/part", self._part, _PERMISSION),
            get(f"{PREFIX}/files", self._files, _PERMISSION),
        ]  # fmt: skip

    # Reading -----------------------------------------------------------------------------------

    async def _in_thread(self, work: Callable[[], _T]) -> _T:
        """Raises HttpError for a file that is not served."""
        async with self._busy:
            try:
                return await asyncio.to_thread(work)
            except NotServedError as error:
                raise HttpError(404, "404 Not Found", str(error)) from error
            except TooLargeError as error:
                raise HttpError(413, "413 Request Entity Too Large", str(error)) from error
            except OSError as error:
                raise HttpError(500, "500 Internal Server Error", str(error)) from error

    async def _check(self, request: web.Request, file: str, *, daemon: bool = False) -> None:
        """Raises HttpError unless who asks may read a file: to others a worker's does not
        exist."""
        if daemon:
            self._access.require_daemons(call_of(request))
            return
        try:
            topology_id, *_ = worker_parts(file)
        except NotServedError as error:
            raise HttpError(404, "404 Not Found", str(error)) from error
        if not await self._access.may_read(call_of(request), topology_id):
            raise HttpError(404, "404 Not Found", f"there is no file {file} here")

    async def _read(
        self, file: str, start: int | None, length: int, *, daemon: bool, whole: bool
    ) -> Part:
        def work() -> Part:
            opened = self._places.opened_daemon_log if daemon else self._places.opened
            with opened(file) as fd:
                part = read_part(fd, start, length, compressed=is_compressed(file))
            return whole_lines(part) if whole else part

        return await self._in_thread(work)

    # HTML --------------------------------------------------------------------------------------

    async def _index(self, request: web.Request) -> web.Response:
        def work() -> tuple[list[LogFile], list[str]]:
            return self._places.files(), self._places.daemon_logs()

        files, daemons = await self._in_thread(work)
        files = self._of_caller(request, files)
        if not self._access.may_read_daemons(call_of(request)):
            daemons = []
        return html.page("Logs of this node", html.index(files, daemons))

    def _of_caller(self, request: web.Request, files: list[LogFile]) -> list[LogFile]:
        return self._access.readable(call_of(request), files, lambda one: one.topology_id)

    async def _log(self, request: web.Request) -> web.Response:
        return await self._page(request, daemon=False)

    async def _daemon_log(self, request: web.Request) -> web.Response:
        return await self._page(request, daemon=True)

    async def _page(self, request: web.Request, *, daemon: bool) -> web.Response:
        file = _file(request)
        start = _number(request, "start", None, 1 << 62)
        length = _number(request, "length", PAGE_BYTES, PAGE_BYTES_MAX)
        assert length is not None
        await self._check(request, file, daemon=daemon)
        grep = request.query.get("grep")
        if grep:
            lines = await self._grep(file, grep.encode(), daemon=daemon)
            return html.page(file, html.grep(file, grep, lines, daemon=daemon))
        part = await self._read(file, start, length, daemon=daemon, whole=start is None)
        return html.page(file, html.log(file, part, length, daemon=daemon))

    async def _grep(self, file: str, wanted: bytes, *, daemon: bool) -> list[str]:
        """The lines with a text, of the first part of a file."""

        def work() -> list[str]:
            opened = self._places.opened_daemon_log if daemon else self._places.opened
            found: list[str] = []
            seen, left = 0, b""
            with opened(file) as fd:
                for chunk in chunks(fd, compressed=is_compressed(file)):
                    *lines, left = (left + chunk).split(b"\n")
                    left = left[-PAGE_BYTES_MAX:]
                    found += [one.decode(errors="replace") for one in lines if wanted in one]
                    seen += len(chunk)
                    if len(found) >= NUM_MATCHES_MAX or seen > _GREP_BYTES_MAX:
                        break
            if wanted in left:
                found.append(left.decode(errors="replace"))
            return found[:NUM_MATCHES_MAX]

        return await self._in_thread(work)

    # Downloads ---------------------------------------------------------------------------------

    async def _download(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, _file(request), daemon=False)

    async def _daemon_download(self, request: web.Request) -> web.StreamResponse:
        return await self._send(request, _file(request), daemon=True)

    async def _send(self, request: web.Request, file: str, *, daemon: bool) -> web.StreamResponse:
        """The file as it is, as an attachment: a browser shows no part of it."""
        await self._check(request, file, daemon=daemon)
        opened = self._places.opened_daemon_log if daemon else self._places.opened
        context = opened(file)
        fd = await self._in_thread(context.__enter__)
        try:
            name = file.replace("/", "-")
            response = web.StreamResponse(
                headers={
                    "Content-Type": "application/octet-stream",
                    "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
                }
            )
            await response.prepare(request)
            pieces = chunks(fd, compressed=False)
            while (piece := await asyncio.to_thread(next, pieces, b"")) != b"":
                await response.write(piece)
            await response.write_eof()
            return response
        finally:
            context.__exit__(None, None, None)

    async def _dumps(self, request: web.Request) -> web.Response:
        topology_id, port = request.match_info["topo_id"], _port_of(request)
        files = await self._in_thread(lambda: self._places.dumps(topology_id, port))
        files = self._of_caller(request, files)
        worker = request.match_info["host_port"]
        return html.page(f"Dumps of {worker}", html.dumps(topology_id, worker, files))

    async def _dump(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["filename"]
        if not is_dump(name):
            raise HttpError(404, "404 Not Found", f"{name!r} is not a dump")
        file = f"{request.match_info['topo_id']}/{_port_of(request)}/{name}"
        return await self._send(request, file, daemon=False)

    # JSON --------------------------------------------------------------------------------------

    async def _list(self, request: web.Request) -> web.Response:
        topology_id = request.query.get("topoId")
        port = _number(request, "port", None, 65_535)
        files = await self._in_thread(lambda: self._places.files(topology_id, port))
        files = self._of_caller(request, files)
        return _json(sorted(one.path for one in files))

    async def _files(self, request: web.Request) -> web.Response:
        topology_id = request.query.get("topoId")
        port = _number(request, "port", None, 65_535)

        def work() -> tuple[list[LogFile], list[str]]:
            return self._places.files(topology_id, port), self._places.daemon_logs()

        files, daemons = await self._in_thread(work)
        if not self._access.may_read_daemons(call_of(request)):
            daemons = []
        return _json(
            {
                "files": [
                    {
                        "file": one.path,
                        "topologyId": one.topology_id,
                        "port": one.port,
                        "name": one.name,
                        "bytes": one.bytes,
                        "modified": int(one.modified_secs),
                        "isDump": is_dump(one.name),
                    }
                    for one in self._of_caller(request, files)
                ],
                "daemonLogs": daemons,
            }
        )

    async def _part(self, request: web.Request) -> web.Response:
        length = _number(request, "length", PAGE_BYTES, PAGE_BYTES_MAX)
        assert length is not None
        start = _number(request, "start", None, 1 << 62)
        file = _file(request)
        daemon = _is_daemon(request)
        await self._check(request, file, daemon=daemon)
        part = await self._read(file, start, length, daemon=daemon, whole=start is None)
        if _is_yes(request, "lines"):
            part = ended_lines(part)
        return _json(
            {"file": file, "text": part.text, "start": part.offset, "end": part.end,
             "size": part.size, "identity": part.identity}
        )  # fmt: skip

    async def _search(self, request: web.Request) -> web.Response:
        file, wanted, most = _file(request), _wanted(request), _matches(request)
        daemon = _is_daemon(request)
        await self._check(request, file, daemon=daemon)
        start = _number(request, "start-byte-offset", 0, 1 << 62) or 0

        def work() -> Found:
            opened = self._places.opened_daemon_log if daemon else self._places.opened
            with opened(file) as fd:
                return search_file(fd, file, wanted.encode(), start, most, Deadline())

        found = await self._in_thread(work)
        answer = {
            "searchString": wanted,
            "startByteOffset": start,
            "isDaemon": "yes" if daemon else "no",
            "matches": _matches_json(found, file, daemon=daemon),
        }
        if found.next_offset is not None:
            answer["nextByteOffset"] = found.next_offset
        return _json(answer)

    async def _deep_search(self, request: web.Request) -> web.Response:
        topology_id, wanted, most = (
            request.match_info["topo_id"],
            _wanted(request),
            _matches(request),
        )
        text = request.query.get("port") or "*"
        port = None if text == "*" else _number(request, "port", None, 65_535)
        archived = request.query.get("search-archived", "").lower() in ("on", "true", "yes", "1")
        if "/" in topology_id:
            raise HttpError(404, "404 Not Found", f"{topology_id!r} is not the id of a topology")
        if not await self._access.may_read(call_of(request), topology_id):
            return _json([] if port is None else _nothing(wanted))
        results = await self._in_thread(
            lambda: deep_search(
                self._places, topology_id, wanted.encode(), port=port, archived=archived,
                matches_max=most, deadline=Deadline(),
            )
        )  # fmt: skip
        by_port: dict[int, list[dict[str, Any]]] = {}
        for one in results:
            by_port.setdefault(one.file.port, []).append(
                {
                    "fileName": one.file.path,
                    "port": str(one.file.port),
                    "isDaemon": "no",
                    "startByteOffset": 0,
                    "searchString": wanted,
                    "matches": _matches_json(one.found, one.file.path, daemon=False),
                }
            )
        matched = [
            {"fileOffset": 0, "searchString": wanted, "matches": by_port[one]}
            for one in sorted(by_port)
        ]
        if port is None:
            return _json(matched)
        return _json(matched[0] if matched else _nothing(wanted))


def _nothing(wanted: str) -> dict[str, Any]:
    """The answer of a search that has found nothing."""
    return {"fileOffset": 0, "searchString": wanted, "matches": []}


def _file(request: web.Request) -> str:
    """Raises HttpError."""
    file = request.query.get("file")
    if not file:
        raise HttpError(400, "400 Bad Request", "file is missing: TOPOLOGY_ID/PORT/FILE")
    return file


def _number(request: web.Request, name: str, default: int | None, most: int) -> int | None:
    text = request.query.get(name)
    if text is None or text == "":
        return default
    if not (text.isascii() and text.isdigit()) or len(text) > 19:
        raise HttpError(400, "400 Bad Request", f"{name} is {text!r}, not a whole number")
    return min(int(text), most)


def _wanted(request: web.Request) -> str:
    text = request.query.get("search-string") or ""
    if not text:
        raise HttpError(400, "400 Bad Request", "search-string is missing")
    if len(text.encode()) > SEARCH_BYTES_MAX:
        raise HttpError(
            400, "400 Bad Request", f"search-string has more than {SEARCH_BYTES_MAX} bytes"
        )
    return text


def _matches(request: web.Request) -> int:
    return max(1, _number(request, "num-matches", NUM_MATCHES, NUM_MATCHES_MAX) or NUM_MATCHES)


def _is_daemon(request: web.Request) -> bool:
    return _is_yes(request, "is-daemon")


def _is_yes(request: web.Request, name: str) -> bool:
    return request.query.get(name, "").lower() in ("yes", "true", "1")


def _port_of(request: web.Request) -> int:
    text = request.match_info["host_port"].rpartition(":")[2]
    if not (text.isascii() and text.isdigit() and len(text) < 6):
        raise HttpError(404, "404 Not Found", "a worker is named HOST:PORT")
    return int(text)


def _matches_json(found: Found, file: str, *, daemon: bool) -> list[dict[str, Any]]:
    path = "daemonlog" if daemon else "log"
    return [
        {
            "byteOffset": one.offset,
            "beforeString": one.before.decode(errors="replace"),
            "matchString": one.match.decode(errors="replace"),
            "afterString": one.after.decode(errors="replace"),
            "logviewerURL": f"{PREFIX}/{path}?"
            + urlencode(
                {
                    "file": file,
                    "start": max(0, one.offset - PAGE_BYTES // 2),
                    "length": PAGE_BYTES,
                }
            ),
        }
        for one in found.matches
    ]


def _json(value: Any) -> web.Response:
    response = web.Response(body=fast_json.dumps(value), content_type="application/json")
    response.enable_compression()
    return response
