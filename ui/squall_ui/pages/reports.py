"""Reports on a topology's history: what `storm report --html` writes, made when a page asks for it,
and the rebalance that a report recommends.

A report is made by a process of its own (`squall_spark.report`), one at a time, which ends with
this one. Documents are kept in memory. Each is whole, with its own style and without a script, so
it has a policy of its own, under which no script runs and nothing is loaded.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import tempfile
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from aiohttp import web

from squall_common.config.options.typed import ClientOptions
from squall_common.daemon import fast_json
from squall_common.daemon.logs import get_logger
from squall_common.daemon.parent import end_with_parent
from squall_common.daemon.web import HttpError, Route, body_in_time, call_of
from squall_common.errors import NimbusError, SquallError
from squall_common.history.recommendation import read_report, recommendation_of, running_of
from squall_common.history.settings import history_url
from squall_thrift import storm
from squall_ui.nimbus.gateway import NimbusGateway
from squall_ui.rest.graph import WITHOUT_ERRORS
from squall_ui.viewers import Viewers

log = get_logger(__name__)

POLICY = (
    "sandbox; default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'"
)
SPANS = {"1 hour": "1h", "6 hours": "6h", "1 day": "1d", "all": None}
_PROGRAM = ("-P", "-m", "squall_spark.report.main")
_SECS = 60.0
_KEPT = 20
_BYTES_MAX = 8 * 1024 * 1024
_SAID_MAX = 2_000


class Reports:
    """`program`: the arguments of Python for the process that makes a report."""

    def __init__(
        self, viewers: Viewers, client: ClientOptions, program: Sequence[str] = _PROGRAM
    ) -> None:
        self._viewers = viewers
        self._client = client
        self._program = tuple(program)
        self._one = asyncio.Lock()
        self._kept: OrderedDict[str, bytes] = OrderedDict()  # by topology

    def routes(self) -> list[Route]:
        return [
            Route("POST", "/reports/{id}", self._make, "getTopologyInfo"),
            Route("GET", "/reports/{id}", self._show, "getTopologyInfo"),
            Route("POST", "/reports/{id}/recommendation", self._recommend, "getTopologyInfo"),
        ]

    async def _make(self, request: web.Request) -> web.Response:
        """Make a report on the `span` of the body, and say where it is."""
        summary, document = await self._report(request, "html")
        self._kept[summary.id] = document
        self._kept.move_to_end(summary.id)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
        return _json({"report": f"/reports/{quote(summary.id, safe='')}"})

    async def _recommend(self, request: web.Request) -> web.Response:
        """The changes that a report on the `span` of the body recommends to the topology as it runs
        now; `component` "" stands for the workers."""
        summary, document = await self._report(request, "json")
        try:
            info: storm.TopologyInfo = await self._viewers.of(request).nimbus.read(
                "getTopologyInfoWithOpts", summary.id, WITHOUT_ERRORS
            )
            found = recommendation_of(
                read_report(document, "the report"),
                topology_id=summary.id,
                running=running_of(info),
                workers=summary.num_workers,
                now_secs=time.time(),
                force=False,
            )
        except storm.NotAliveException as error:
            raise HttpError(404, "404 Not Found", str(error)) from error
        except NimbusError as error:
            raise HttpError(503, "503 Service Unavailable", error.message) from error
        except SquallError as error:
            raise HttpError(409, "409 Conflict", error.message) from error
        return _json(
            {"changes": [asdict(one) for one in found.changes], "unjudged": found.unjudged}
        )

    async def _report(
        self, request: web.Request, kind: Literal["html", "json"]
    ) -> tuple[storm.TopologySummary, bytes]:
        """The topology, and its report on the `span` of the body."""
        try:
            async with body_in_time():
                body = await request.json()
            span = body["span"]
            since = SPANS[span]
        except (ValueError, KeyError, TypeError):
            known = ", ".join(SPANS)
            raise HttpError(400, "400 Bad Request", f"span: expected one of {known}") from None
        topology_id = request.match_info["id"]
        nimbus = self._viewers.of(request).nimbus
        summary = await _summary(nimbus, topology_id)
        try:
            history = await self._history(nimbus)
        except SquallError as error:
            raise HttpError(503, "503 Service Unavailable", error.message) from error
        if self._one.locked():
            raise HttpError(409, "409 Conflict", "another report is being made: try again soon")
        async with self._one:
            return summary, await self._run(summary.id, history, since, kind)

    async def _show(self, request: web.Request) -> web.Response:
        topology_id = request.match_info["id"]
        if call_of(request).identity is not None:
            await _summary(self._viewers.of(request).nimbus, topology_id)  # may the user see it?
        found = self._kept.get(topology_id)
        if found is None:
            raise HttpError(
                404, "404 Not Found", "the report was not found: make it again on the page of the "
                "topology",
            )  # fmt: skip
        response = web.Response(
            body=found,
            content_type="text/html",
            charset="utf-8",
            headers={"Content-Security-Policy": POLICY},
        )
        response.enable_compression()
        return response

    async def _history(self, nimbus: NimbusGateway) -> str:
        """Where it is: as this program's configuration says, or else Nimbus'."""
        if self._client.storm_history_dir is not None:
            return history_url(self._client)
        conf = json.loads(await nimbus.read("getNimbusConf", max_age_secs=10.0))
        return history_url(ClientOptions.read(conf, where="Nimbus"))

    async def _run(
        self, topology_id: str, history: str, since: str | None, kind: Literal["html", "json"]
    ) -> bytes:
        """The document. Raises HttpError with what the process said."""
        with tempfile.TemporaryDirectory(prefix="squall-report-") as folder:
            file = Path(folder) / f"report.{kind}"
            order: dict[str, object] = {
                "topology": topology_id, "history": history, "since": since, "json_file": None,
                "html_file": None, f"{kind}_file": str(file), "quiet": True, "spark": False,
                "master": "local", "spark_conf": [], "log_file": str(Path(folder) / "spark.log"),
            }  # fmt: skip
            said = await self._process({"SQUALL_SPARK_REPORT": json.dumps(order)})
            try:
                document = await asyncio.to_thread(_read, file)
            except FileNotFoundError:
                raise HttpError(409, "409 Conflict", _reason(said)) from None
        if len(document) > _BYTES_MAX:
            raise HttpError(409, "409 Conflict", f"the report has more than {_BYTES_MAX >> 20} MiB")
        return document

    async def _process(self, environment: Mapping[str, str]) -> str:
        """Run the program to its end; its stderr."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *self._program,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
            preexec_fn=end_with_parent(signal.SIGKILL),
        )
        try:
            async with asyncio.timeout(_SECS):
                _, said = await process.communicate()
        except TimeoutError:
            raise HttpError(
                409, "409 Conflict", f"the report takes longer than {_SECS:.0f} s: use `storm "
                "report`, or `storm spark report` for a large history",
            ) from None  # fmt: skip
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return said.decode(errors="replace")


def _json(value: object) -> web.Response:
    return web.Response(body=fast_json.dumps(value), content_type="application/json")


async def _summary(nimbus: NimbusGateway, topology_id: str) -> storm.TopologySummary:
    """Of a topology that who asks may look at. Raises HttpError."""
    try:
        found: storm.TopologySummary = await nimbus.read("getTopologySummary", topology_id)
        return found
    except storm.NotAliveException as error:
        raise HttpError(404, "404 Not Found", str(error)) from error
    except SquallError as error:
        raise HttpError(503, "503 Service Unavailable", error.message) from error


def _read(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(_BYTES_MAX + 1)


def _reason(said: str) -> str:
    """The error and the hint among the last lines that a report's process wrote."""
    lines = [line for line in said.splitlines() if line.startswith(("error: ", "hint: "))]
    text = "; ".join(line.partition(": ")[2] for line in lines)
    return (text or "the report could not be made: see `storm report`")[:_SAID_MAX]
