"""The HTML of every page: a head, and where the script puts the page."""

from __future__ import annotations

from html import escape

from aiohttp import web

from squall_common.daemon.web import HttpError, Route, call_of
from squall_thrift.serving.authorization import PUBLIC
from squall_ui.access.login import login_redirect
from squall_ui.rest.endpoints import Site

POLICY = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
# The addresses of pages. Each is answered with the same HTML; `static/app.js` knows them, too.
PATHS = (
    "/",
    "/topology/{id}",
    "/topology/{id}/{page:errors|configuration|workers|dead-letters|logs|flame}",
    "/topology/{id}/component/{component}",
    "/topology/{id}/component/{component}/executor/{tasks}",
    "/supervisor/{id}",
    "/owner/{id}",
    "/logs",
    "/logs/view",
    "/search",
    "/configuration",
)


def html(site: Site, user: str = "") -> str:
    """The whole document, for a user who has logged in."""
    title = escape(site.title)
    who = f' data-user="{escape(user)}"' if user else ""
    actions = "yes" if site.actions_enabled else "no"
    return f"""<!doctype html>
<html lang="en" data-title="{title}" data-actions="{actions}"{who}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/app.css">
<script src="/static/theme.js"></script>
<script type="module" src="/static/app.js"></script>
</head>
<body>
<a class="skip" href="#main">Skip to content</a>
<header id="top"></header>
<main id="main" tabindex="-1"><p class="quiet">Loading …</p></main>
<div id="status" role="status" aria-live="polite"></div>
<noscript><p>These pages need JavaScript. The REST API is at /api/v1/openapi.json.</p></noscript>
</body>
</html>
"""


def routes(site: Site, *, secured: bool = False) -> list[Route]:
    """One for each address. Other sites may link to them: they hold no data. In a `secured` cluster
    they lead a browser that has not logged in to the form."""

    def page(request: web.Request, status: int) -> web.Response:
        user = call_of(request).principal
        if secured and user is None:
            return login_redirect(request)
        return web.Response(
            status=status,
            text=html(site, user or ""),
            content_type="text/html",
            charset="utf-8",
            headers={
                "Content-Security-Policy": POLICY,
                # Without a referrer a browser says `Origin: null` with a form: of logging out.
                "Referrer-Policy": "same-origin",
                "Cross-Origin-Opener-Policy": "same-origin",
                "Cross-Origin-Resource-Policy": "same-origin",
            },
        )

    async def serve(request: web.Request) -> web.Response:
        return page(request, 200)

    async def missing(request: web.Request) -> web.Response:
        """For a person a page that says so, for a program an error."""
        if "text/html" in request.headers.get("Accept", ""):
            return page(request, 404)
        raise HttpError(404, "404 Not Found", f"there is no {request.path}")

    known = [Route("GET", path, serve, PUBLIC, cross_site=True) for path in PATHS]
    return [*known, Route("GET", "/{other:.*}", missing, PUBLIC, cross_site=True)]
