"""What a source of HTTP reads: a URL, headers, and the position up to which all is done."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import orjson

from squall import TopologyContext
from squall_common.daemon.files import make_dirs, write_atomic
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.address import secret_of, tls_context


class Target:
    """A URL with the headers of each request. Its text has neither query nor user, in which keys
    may be."""

    def __init__(
        self,
        connector: str,
        url: str,
        schemes: tuple[str, ...],
        headers: Mapping[str, str] | None,
        headers_env: Mapping[str, str] | None,
        ca_file: str | None,
    ) -> None:
        """`headers_env` names the environment variables of the worker that hold headers' values.
        Raises InvalidTopologyError for another kind of URL."""
        try:
            parts = urlsplit(url)
            host, port = parts.hostname, parts.port
        except ValueError:
            host, port = None, None
        if not host or parts.scheme not in schemes:
            expected = " or ".join(f"{scheme}://HOST..." for scheme in schemes)
            raise InvalidTopologyError(f"{connector}: url is not a URL; expected {expected}")
        self.connector, self.url = connector, url
        self._shown = f"{parts.scheme}://{host}{'' if port is None else f':{port}'}{parts.path}"
        if ca_file is not None and parts.scheme not in ("https", "wss"):
            raise InvalidTopologyError(f"{connector}: ca_file needs a url with TLS")
        self._ca_file = ca_file
        self._headers, self._headers_env = dict(headers or {}), dict(headers_env or {})

    def __str__(self) -> str:
        return self._shown

    def headers(self) -> dict[str, str]:
        """The headers, with secrets. Raises InvalidTopologyError if one is not set."""
        secrets = {
            name: secret_of(self.connector, variable) or ""
            for name, variable in self._headers_env.items()
        }
        return {**self._headers, **secrets}

    @contextlib.contextmanager
    def asked(self) -> Iterator[None]:
        """Around a request: turns errors whose text has the whole URL into others."""
        try:
            yield
        except aiohttp.ClientResponseError as error:
            raise ConnectionError(f"{self} answers {error.status} {error.message}") from None
        except aiohttp.InvalidURL:
            raise ConnectionError(f"{self}: the client does not take this URL") from None

    def session(self, connect_secs: float, read_secs: float | None) -> aiohttp.ClientSession:
        """A session for this target. `read_secs` is the longest silence within an answer."""
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=connect_secs, sock_read=read_secs)
        return aiohttp.ClientSession(
            headers=self.headers(), timeout=timeout, connector=connector_of(self._ca_file)
        )


def connector_of(ca_file: str | None, *, limit: int = 100) -> aiohttp.TCPConnector:
    """Connections that trust `ca_file`, or the system's authorities; at most `limit` at once."""
    return aiohttp.TCPConnector(limit=limit, ssl=True if ca_file is None else tls_context(ca_file))


class Position:
    """A small JSON value in a file of the task's own, replaced atomically; in memory only without
    a folder."""

    def __init__(self, folder: str | Path | None, context: TopologyContext) -> None:
        self._path: Path | None = None
        self.value: dict[str, Any] = {}
        if folder is not None:
            make_dirs(Path(folder))
            name = f"{context.topology_name}-{context.this_component_id}.json"
            self._path = Path(folder) / name
            if self._path.exists():
                self.value = _read(self._path)

    def save(self, value: dict[str, Any]) -> None:
        """Raises OSError if the file cannot be written, and tries again at the next call."""
        if value != self.value:
            if self._path is not None:
                write_atomic(self._path, orjson.dumps(value))
            self.value = value


def _read(path: Path) -> dict[str, Any]:
    try:
        value = orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError:
        value = None
    if not isinstance(value, dict):
        raise ValueError(
            f"{path} has no position of a source: restore it, or delete it to begin without one"
        )
    return value
