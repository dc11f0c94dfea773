"""Logs a browser in to the UI of a secured cluster.

The UI exchanges the token for a code, with which a browser logs in once, within a minute. The
browser gets it from a file that only its user can read: everyone on the machine sees the arguments
of a program.
"""

from __future__ import annotations

import asyncio
from html import escape
from pathlib import Path
from urllib.parse import urlsplit

from squall_common.authentication.credentials import credentials_of
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.files import write_atomic
from squall_common.errors import SquallError
from squall_common.security.identity import Role
from squall_thrift.serving.authentication import RefusedError

_TIMEOUT_SECS = 20.0
_PAGE = "login.html"


def login_page(client: ClientOptions, ui: str, token_file: Path) -> Path:
    """Get a code from the UI at an address, and write a page that leads to the login with it,
    beside the token. Raises SquallError."""
    base = base_of(ui)
    path = asyncio.run(_ask(client, base, token_file))
    page = token_file.parent / _PAGE
    text = (
        "<!doctype html><title>Log in to Squall</title>"
        f'<meta http-equiv="refresh" content="0; url={escape(base + path)}">'
        f'<p><a href="{escape(base + path)}">Log in</a> (once, within a minute)'
    )
    try:
        write_atomic(page, text.encode(), mode=0o600)
    except OSError as error:
        raise SquallError(f"cannot write {page}: {error.strerror}") from error
    return page


def base_of(ui: str) -> str:
    """The address of a UI, without anything after it. Raises SquallError.

    >>> base_of("https://ui.example.org:8080/")
    'https://ui.example.org:8080'
    """
    parts = urlsplit(ui)
    if parts.scheme != "https" or not parts.netloc or parts.path not in ("", "/"):
        raise SquallError(f"{ui!r} is not the address of a UI, as in https://ui.example.org:8080")
    return f"https://{parts.netloc}"


async def _ask(client: ClientOptions, base: str, token_file: Path) -> str:
    """The path of a login with a code."""
    import aiohttp

    by_token = ClientOptions(
        storm_security_ca=client.storm_security_ca, storm_security_token_file=str(token_file)
    )
    credentials = credentials_of(by_token, Role.UI)
    if credentials is None:
        raise SquallError("this cluster is open: it has no logins")
    try:
        headers = credentials.http_headers()
        async with (
            aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=_TIMEOUT_SECS),
                connector=aiohttp.TCPConnector(ssl=credentials.checked_context),
            ) as session,
            session.post(f"{base}/login/code", headers=headers, allow_redirects=False) as answer,
        ):
            if answer.status == 401:
                raise SquallError(
                    f"the UI at {base} refused the token: its log says why",
                    hint="'storm login' gets a new one.",
                )
            if answer.status != 200:
                raise SquallError(f"{base} answered {answer.status}: is that the UI?")
            path = (await answer.json())["login"]
    except RefusedError as error:
        raise SquallError(str(error)) from error
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, TypeError) as error:
        raise SquallError(f"the UI at {base} does not answer: {error}") from error
    return str(path)


def show(page: Path) -> bool:
    """Open the page in a browser; whether there is one."""
    import webbrowser

    return webbrowser.open(page.as_uri())
