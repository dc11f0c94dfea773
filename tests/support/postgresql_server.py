"""A real PostgreSQL server for tests, Debian's. As root it runs as the user `postgres`."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.support.certificates import Certificates
from tests.support.servers import Server, free_port
from tests.support.thirdparty import unavailable


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda p: p.parts[-3])
    if not found:
        unavailable("there is no PostgreSQL server on this machine (Debian: postgresql)")
    return found[-1].parent


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").iterdir()
        for child in (task / "children").read_text().split()
    ]


class PostgresqlServer(Server):
    """A server with one database, `postgres`."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.dsn = f"postgresql://postgres@127.0.0.1:{self.port}/postgres"
        self._programs = _programs()
        self._data = folder / "data"
        self._user: dict[str, object] = {"cwd": "/"}
        if os.geteuid() == 0:  # the server refuses to run as root
            self._user |= {"user": "postgres", "group": "postgres", "extra_groups": []}
            self._data.mkdir(parents=True)
            shutil.chown(self._data, "postgres", "postgres")
        subprocess.run(
            [self._programs / "initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-N"],
            check=True,
            capture_output=True,
            **self._user,  # type: ignore[call-overload]
        )
        # For the user `app`: TLS and a password.
        self.password = secrets.token_hex()
        self.certificates = Certificates.make(folder, owner="postgres")
        self.secure_dsn = (
            f"postgresql://app@127.0.0.1:{self.port}/postgres"
            f"?sslmode=verify-full&sslrootcert={self.certificates.ca}"
        )
        hba = self._data / "pg_hba.conf"
        hba.write_text(f"hostssl all app 127.0.0.1/32 scram-sha-256\n{hba.read_text()}")
        super().__init__(folder / "postgresql.log")

    def command(self) -> list[str]:
        settings = (
            f"port={self.port}",
            "listen_addresses=127.0.0.1",
            "unix_socket_directories=",
            "shared_buffers=16MB",
            "max_connections=50",
            "wal_level=logical",
            "max_replication_slots=100",
            "ssl=on",
            f"ssl_cert_file={self.certificates.certificate}",
            f"ssl_key_file={self.certificates.key}",
        )
        options = [word for setting in settings for word in ("-c", setting)]
        return [str(self._programs / "postgres"), "-D", str(self._data), *options]

    def options(self) -> dict[str, object]:
        return self._user

    def kill(self) -> None:
        # Each of its children leads a process group of its own.
        children = [] if self._process is None else _children(self._process.pid)
        super().kill()
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Also those that serve a connection, each of which leads a process group of its own."""
        super().stop()
        self._signal_children(signal.SIGSTOP)

    def resume(self) -> None:
        self._signal_children(signal.SIGCONT)
        super().resume()

    def _signal_children(self, number: signal.Signals) -> None:
        assert self._process is not None
        for pid in _children(self._process.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def restart(self) -> None:
        # The file names a process that was killed.
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        super().restart()

    def is_up(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.dsn, connect_timeout=2).close()
        except psycopg.OperationalError:
            return False
        return True

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path) -> Iterator[PostgresqlServer]:
        server = cls(folder)
        with server.running():
            yield server
