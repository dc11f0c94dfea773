"""A worker's side: how a worker of a secured cluster proves who it is, by the file that its
supervisor writes into its folder and replaces (decision 0114).

A process is one worker. `set_worker_identity` says where its file is, once, at its start; whatever
in it calls Nimbus or a DRPC server asks `worker_credentials`. In another process, and in a worker
of an open cluster, there is none.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from squall_common.authentication import mechanisms
from squall_common.security.identity import Role
from squall_thrift.serving.authentication import RefusedError

if TYPE_CHECKING:
    import ssl

_BYTES_MAX = 65_536
_READY_SECS = 15.0
_LOOK_SECS = 0.1

_file: Path | None = None


def identity_json(token: str, ca: str) -> bytes:
    """The content of the file: the worker's token, and the certificate of the cluster's CA
    (PEM; two while its key turns).

    >>> identity_json("TOKEN", "PEM")
    b'{"token": "TOKEN", "ca": "PEM"}'
    """
    return json.dumps({"token": token, "ca": ca}).encode()


def set_worker_identity(file: Path | None) -> None:
    """Where the identity of this process is; None outside workers of a secured cluster."""
    global _file
    _file = file


def worker_credentials(server: Role) -> WorkerCredentials | None:
    """How this worker proves itself to daemons of a role; None outside a worker of a secured
    cluster."""
    return None if _file is None else WorkerCredentials(_file, server)


class WorkerCredentials:
    """Implements `squall_thrift.serving.authentication.Credentials`. The file is read for each
    connection."""

    def __init__(self, file: Path, server: Role) -> None:
        self._file = file
        self._server = server
        self._context: tuple[str, ssl.SSLContext] | None = None  # with the CA that it goes by

    @property
    def context(self) -> ssl.SSLContext:
        ca = self._read()[1]
        if self._context is None or self._context[0] != ca:
            # Imported only where a cluster is secured: it takes some 40 ms.
            from squall_common.authentication.files import client_context

            try:
                self._context = (ca, client_context(ca))
            except ValueError as error:  # an SSLError is one, too
                raise RefusedError(f"{self._file} has no CA: {error}") from error
        return self._context[1]

    def check_server(self, certificate: bytes) -> None:
        from squall_common.authentication.credentials import check_holder
        from squall_common.security.certificates import Authorities, CertificateError, cluster_of

        try:
            ca = Authorities.read(self._read()[1].encode())
            cluster = cluster_of(ca.newest)
        except CertificateError as error:
            raise RefusedError(f"{self._file} has no CA: {error}") from error
        check_holder(certificate, ca, cluster, self._server, time.time())

    def initial(self) -> tuple[str, bytes]:
        return mechanisms.OAUTHBEARER, mechanisms.bearer(self._read()[0], None)

    async def wait_ready(self, secs: float = _READY_SECS) -> bool:
        """Wait until the supervisor has written the file: a new worker gets it a moment after its
        start. Returns False after `secs`."""
        ends = time.monotonic() + secs
        while not self._file.exists():
            if time.monotonic() >= ends:
                return False
            await asyncio.sleep(_LOOK_SECS)
        return True

    def _read(self) -> tuple[str, str]:
        try:
            with self._file.open("rb") as file:
                if os.fstat(file.fileno()).st_size > _BYTES_MAX:
                    raise RefusedError(f"{self._file} is too large")
                value = json.load(file)
            token, ca = value["token"], value["ca"]
        except FileNotFoundError:
            raise RefusedError(
                "this worker has no token yet: its supervisor gets it from Nimbus"
            ) from None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RefusedError(f"{self._file} cannot be read: {type(error).__name__}") from error
        if not isinstance(token, str) or not isinstance(ca, str):
            raise RefusedError(f"{self._file} has no token")
        return token, ca
