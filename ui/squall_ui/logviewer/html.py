"""The logviewer's pages, as HTML without any script: text from logs is escaped, never markup."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from urllib.parse import quote, urlencode

from aiohttp import web

from squall_ui.logviewer.places import LogFile
from squall_ui.logviewer.reading import Part

PREFIX = "/api/v1"
POLICY = "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'"


def page(title: str, body: str) -> web.Response:
    """A whole page."""
    text = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title>"
        '<link rel="icon" href="/static/icon.svg"><link rel="stylesheet" href="/static/app.css">'
        f'</head><body class="plain"><main><h1>{escape(title)}</h1>{body}</main></body></html>'
    )
    return web.Response(
        text=text,
        content_type="text/html",
        charset="utf-8",
        headers={"Content-Security-Policy": POLICY, "Cross-Origin-Resource-Policy": "same-origin"},
    )


def link(path: str, query: dict[str, object], text: str) -> str:
    """A link to a route of ours."""
    return f'<a href="{escape(f"{PREFIX}/{path}?{urlencode(query)}")}">{escape(text)}</a>'


def log(file: str, part: Part, length: int, *, daemon: bool) -> str:
    """A part of a log, with links to what is before and after it."""
    path = "daemonlog" if daemon else "log"
    download = "daemondownload" if daemon else "download"
    before = max(0, part.offset - length)
    links = [
        link(path, {"file": file, "start": 0, "length": length}, "First"),
        link(path, {"file": file, "start": before, "length": length}, "Previous"),
        link(path, {"file": file, "start": part.end, "length": length}, "Next"),
        link(path, {"file": file, "length": length}, "Last"),
        link(download, {"file": file}, "Download"),
    ]
    form = (
        f'<form action="{PREFIX}/{path}" method="get" role="search">'
        f'<input type="hidden" name="file" value="{escape(file)}">'
        '<label>Lines with <input type="search" name="grep"></label> '
        "<button>Find</button></form>"
    )
    return (
        f'<nav class="pager" aria-label="Parts of the file">{" ".join(links)}</nav>{form}'
        f"<p>Bytes {part.offset:,} to {part.end:,} of {part.size:,}</p>"
        f'<pre class="log" tabindex="0" aria-label="Log">{escape(part.text)}</pre>'
    )


def grep(file: str, wanted: str, lines: list[str], *, daemon: bool) -> str:
    """Lines that were found."""
    path = "daemonlog" if daemon else "log"
    text = escape("\n".join(lines))
    everything = link(path, {"file": file}, "All")
    return (
        f'<nav class="pager" aria-label="Parts of the file">{everything}</nav>'
        f"<p>{len(lines):,} lines with <code>{escape(wanted)}</code></p>"
        f'<pre class="log" tabindex="0" aria-label="Lines that were found">{text}</pre>'
    )


def index(files: Iterable[LogFile], daemons: Iterable[str]) -> str:
    """All logs of the node."""
    rows = "".join(
        f"<tr><td>{link('log', {'file': one.path}, one.path)}</td>"
        f'<td class="num">{one.bytes:,}</td></tr>'
        for one in files
    )
    names = "".join(f"<li>{link('daemonlog', {'file': name}, name)}</li>" for name in daemons)
    return (
        f"<h2>Daemons</h2><ul>{names}</ul><h2>Workers</h2>"
        f'<table><thead><tr><th>File</th><th class="num">Bytes</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )


def dumps(topology_id: str, worker: str, files: Iterable[LogFile]) -> str:
    """The dumps of a worker."""
    base = f"{PREFIX}/dumps/{quote(topology_id, safe='')}/{quote(worker, safe=':')}"
    rows = "".join(
        f'<tr><td><a href="{escape(f"{base}/{quote(one.name)}")}">{escape(one.name)}</a></td>'
        f'<td class="num">{one.bytes:,}</td></tr>'
        for one in files
    )
    return (
        f"<p>Topology {escape(topology_id)}</p>"
        '<table><thead><tr><th>File</th><th class="num">Bytes</th></tr></thead>'
        f"<tbody>{rows}</tbody></table>"
    )
