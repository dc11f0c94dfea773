"""Logging in: a person pastes a token, or follows `storm login --open`, and gets a cookie.

    GET  /login         the form
    POST /login         a token, or a code -> a session, and back to the page that was asked for
    POST /login/code    a token in the header -> a code for one login within a minute
    POST /logout        ends the session

`storm login --open` exchanges the token for a code, so that no token is in a browser's history. A
code logs in only by a button on our own page: a link from another site cannot log anyone in.
"""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from urllib.parse import parse_qsl, quote

from aiohttp import web

from squall_common.daemon import fast_json
from squall_common.daemon.web import HttpError, Route, body_in_time, call_of
from squall_common.security.audit import AuditLog
from squall_thrift.serving.authentication import RefusedError
from squall_thrift.serving.authorization import PUBLIC
from squall_ui.access.authenticator import Visitor, WebPeers

POLICY = (
    "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'"
)
_BODY_BYTES_MAX = 32_768
_FIELDS_MAX = 10
_NEXT_CHARS_MAX = 2_000


class Login:
    """The routes. `ended` is called after a session has ended."""

    def __init__(
        self, peers: WebPeers, audit: AuditLog, *, title: str, ended: Callable[[], None]
    ) -> None:
        self._peers = peers
        self._audit = audit
        self._title = title
        self._ended = ended

    def routes(self) -> list[Route]:
        return [
            # A browser comes here from a file of `storm login --open`, too.
            Route("GET", "/login", self._form, PUBLIC, cross_site=True),
            Route("POST", "/login", self._log_in, PUBLIC),
            Route("POST", "/login/code", self._code, PUBLIC),
            Route("POST", "/logout", self._log_out, PUBLIC),
        ]

    async def _form(self, request: web.Request) -> web.Response:
        where = local_path(request.query.get("next", "/"))
        code = request.query.get("code", "")
        found = self._peers.sessions.of_code(code, use=False) if code else None
        if found is not None:
            return self._page(where, code=code, user=found.proved.principal)
        return self._page(where, error="This link has been used, or has expired." if code else "")

    async def _log_in(self, request: web.Request) -> web.Response:
        form = await _form_of(request)
        where = local_path(form.get("next", "/"))
        peer = call_of(request).peer
        code, token = form.get("code", ""), form.get("token", "").strip()
        try:
            if code:
                found = self._peers.sessions.of_code(code, use=True)
                if found is None:
                    raise RefusedError("the code for a login was used, or has expired")
                proved, token = found.proved, found.token
                if (why := self._peers.ended(Visitor(proved, token))) is not None:
                    raise RefusedError(why)
            else:
                proved = await self._peers.by_token(token, peer)
        except RefusedError as error:
            self._peers.refused(peer, str(error))
            return self._page(
                where, status=401, error="The token was refused: it is wrong, expired or revoked."
            )
        session = self._peers.sessions.begin(proved, token)
        self._audit.note("allowed", "login", "", proved.caller, peer, "token")
        response = web.Response(status=303, headers={"Location": where})
        response.set_cookie(
            self._peers.cookie, session, path="/", secure=True, httponly=True, samesite="Strict"
        )
        return response

    async def _code(self, request: web.Request) -> web.Response:
        visitor = call_of(request).identity
        if visitor is None or visitor.token is None or visitor.session is not None:
            raise HttpError(401, "Unauthorized", "send your token: Authorization: Bearer")
        code = self._peers.sessions.make_code(visitor.proved, visitor.token)
        return web.Response(
            body=fast_json.dumps({"login": f"/login?code={quote(code)}"}),
            content_type="application/json",
        )

    async def _log_out(self, request: web.Request) -> web.Response:
        visitor = call_of(request).identity
        if visitor is not None and visitor.session is not None:
            self._peers.sessions.end(visitor.session)
            self._audit.note("allowed", "logout", "", visitor.caller, call_of(request).peer, "")
            self._ended()
        response = web.Response(status=303, headers={"Location": "/login"})
        response.del_cookie(
            self._peers.cookie, path="/", secure=True, httponly=True, samesite="Strict"
        )
        return response

    def _page(
        self, where: str, *, status: int = 200, error: str = "", code: str = "", user: str = ""
    ) -> web.Response:
        title = escape(self._title)
        problem = f'<p class="error" role="alert">{escape(error)}</p>' if error else ""
        if code:
            fields = f"""<input type="hidden" name="code" value="{escape(code)}">
<p>You are about to log in as <strong>{escape(user)}</strong>.</p>
<button type="submit" class="main">Log in as {escape(user)}</button>"""
        else:
            fields = """<label for="token">Token</label>
<input id="token" name="token" type="password" autocomplete="off" spellcheck="false" required \
autofocus>
<p class="quiet">Get one with <code>storm login</code>: it is in <code>~/.storm/token</code>. \
<code>storm login --open</code> logs this browser in.</p>
<button type="submit" class="main">Log in</button>"""
        text = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Log in: {title}</title>
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="/static/app.css">
</head>
<body class="login">
<main>
<h1>{title}</h1>
{problem}
<form method="post" action="/login">
<input type="hidden" name="next" value="{escape(where)}">
{fields}
</form>
</main>
</body>
</html>
"""
        return web.Response(
            status=status,
            text=text,
            content_type="text/html",
            charset="utf-8",
            headers={
                "Content-Security-Policy": POLICY,
                # Without a referrer a browser says `Origin: null` with a form.
                "Referrer-Policy": "same-origin",
                "Cross-Origin-Opener-Policy": "same-origin",
            },
        )


def login_redirect(request: web.Request) -> web.Response:
    """To the form, which leads back here."""
    where = quote(local_path(request.path_qs), safe="")
    return web.Response(status=303, headers={"Location": f"/login?next={where}"})


def local_path(where: str) -> str:
    """A path of this server; `/` for anything that a browser may take for another's.

    >>> local_path("/topology/x?window=600"), local_path("//evil.example"), local_path("/\\\\evil")
    ('/topology/x?window=600', '/', '/')
    """
    wrong = (
        not where.startswith("/")
        or where.startswith("//")
        or len(where) > _NEXT_CHARS_MAX
        or not where.isascii()
        or not where.isprintable()
        or "\\" in where
    )
    return "/" if wrong else where


async def _form_of(request: web.Request) -> dict[str, str]:
    if request.content_type != "application/x-www-form-urlencoded":
        raise HttpError(415, "415 Unsupported Media Type", "a form is expected")
    # Whatever its length is said to be: anyone may send one.
    body = bytearray()
    async with body_in_time():
        async for piece in request.content.iter_any():
            body += piece
            if len(body) > _BODY_BYTES_MAX:
                raise HttpError(413, "413 Request Entity Too Large", "the form is too large")
    try:
        return dict(parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=_FIELDS_MAX))
    except ValueError as error:
        raise HttpError(400, "400 Bad Request", "the form cannot be read") from error
