"""A real RabbitMQ server for tests, Debian's, with an epmd of its own."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from tests.support.certificates import Certificates
from tests.support.servers import Server, free_port
from tests.support.thirdparty import unavailable

# Debian's command of the same name changes the user, and the folder.
_PROGRAM = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")


class RabbitmqServer(Server):
    """A broker without plugins; the user is `guest`."""

    def __init__(self, folder: Path) -> None:
        epmd = shutil.which("epmd")
        if epmd is None or not _PROGRAM.exists():
            unavailable("there is no RabbitMQ server on this machine (Debian: rabbitmq-server)")
        self.port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self.port}"
        tls_port = free_port()
        self.secure_url = f"amqps://guest@127.0.0.1:{tls_port}"
        self.password = "guest"
        self.certificates = made = Certificates.make(folder)
        self._epmd, self._epmd_port = epmd, free_port()
        self._folder = folder
        (folder / "enabled_plugins").write_text("[].")
        (folder / "rabbitmq.conf").write_text(
            "loopback_users = none\nmax_message_size = 1000000\n"
            f"listeners.ssl.default = 127.0.0.1:{tls_port}\n"
            f"ssl_options.cacertfile = {made.ca}\nssl_options.certfile = {made.certificate}\n"
            f"ssl_options.keyfile = {made.key}\nssl_options.verify = verify_none\n"
        )
        (folder / "home").mkdir()
        super().__init__(folder / "rabbitmq.log")

    def command(self) -> list[str]:
        # One process group: they are killed, and stopped, together.
        epmd = shlex.join([self._epmd, "-port", str(self._epmd_port), "-address", "127.0.0.1"])
        return ["/bin/sh", "-c", f"{epmd} & exec {_PROGRAM}"]

    def options(self) -> dict[str, object]:
        folder = self._folder
        env = {
            **os.environ,
            "HOME": str(folder / "home"),
            "ERL_EPMD_PORT": str(self._epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{self.port}@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self.port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_LOGS": "-",
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none",
        }
        return {"env": env, "cwd": folder}

    def is_up(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as connection:
                connection.sendall(struct.pack("!4sBBBB", b"AMQP", 0, 0, 9, 1))
                return connection.recv(1) == b"\x01"  # a method: Connection.Start
        except OSError:
            return False

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path) -> Iterator[RabbitmqServer]:
        server = cls(folder)
        with server.running():
            yield server
