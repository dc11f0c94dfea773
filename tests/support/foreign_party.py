"""A foreign party that topologies log in to, and the proxy in front of the UI by which it reads the
cluster's keys. Neither knows anything of the cluster: the proxy has a certificate of its own, as
one of a public CA.
"""

from __future__ import annotations

import http.server
import json
import ssl
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.certificates import Certificates


class _Server:
    """A server of HTTP on loopback, in threads."""

    scheme = "http"

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer(*outer.get(self.path))

            def do_POST(self) -> None:
                length = int(self.headers["Content-Length"])
                outer.post(self.rfile.read(length))
                self._answer(200, b"")

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None: ...

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if context is not None:
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.scheme = "https"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://localhost:{self._server.server_address[1]}"

    def get(self, path: str) -> tuple[int, bytes]:
        return 404, b"{}"

    def post(self, body: bytes) -> None: ...

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Party(_Server):
    """Takes what topologies send, as JSON."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()
        self._got: list[dict[str, Any]] = []

    def post(self, body: bytes) -> None:
        with self._lock:
            self._got.append(json.loads(body))

    def got(self, key: str) -> list[dict[str, Any]]:
        """What had this key, in the order in which it came."""
        with self._lock:
            return [one for one in self._got if key in one]


class PublicProxy(_Server):
    """Serves two documents of the UI, found by `origin()`, under a name of its own."""

    def __init__(self, folder: Path, origin: Callable[[], tuple[str, ssl.SSLContext]]) -> None:
        folder.mkdir()
        made = Certificates.make(folder)
        super().__init__(made.for_server())
        self.ca = made.ca
        self._origin = origin
        self.documents: dict[str, Any] = {}  # of its own, by path, as JSON

    def get(self, path: str) -> tuple[int, bytes]:
        if path in self.documents:
            return 200, json.dumps(self.documents[path]).encode()
        if "/.well-known/" not in path:
            return 404, b"{}"
        url, context = self._origin()
        try:
            with urllib.request.urlopen(f"{url}{path}", context=context, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as error:
            return error.code, error.read()
