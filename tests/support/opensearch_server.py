"""Real nodes of OpenSearch and Elasticsearch for tests, put together from their jars in Maven
Central: the server, and the module with its network. As root they run as the user `nobody`, since
they refuse to run as root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support import maven
from tests.support.servers import Server, free_port


@dataclass(frozen=True, slots=True)
class _Flavour:
    """What the two, one of which was forked from the other, call their parts."""

    name: str
    version: str
    artifacts: tuple[str, ...]
    main: str
    plugin: str
    prefix: str  # of their own properties
    policy: str

    def descriptor(self) -> str:
        return (
            f"description=network\nversion={self.version}\nname=transport-netty4\n"
            f"classname={self.plugin}\njava.version=1.8\n{self.name}.version={self.version}\n"
            "has.native.controller=false\nextended.plugins=\n"
        )


_SOCKETS = 'permission java.net.SocketPermission "*", "accept,connect,resolve";'
OPENSEARCH = _Flavour(
    "opensearch",
    "2.11.1",
    (
        "org.opensearch:opensearch:2.11.1",
        "org.opensearch:opensearch-plugin-classloader:2.11.1",
        "org.opensearch.plugin:transport-netty4-client:2.11.1",
        "org.apache.logging.log4j:log4j-core:2.20.0",
    ),
    "org.opensearch.bootstrap.OpenSearch",
    "org.opensearch.transport.Netty4Plugin",
    "opensearch",
    f'grant {{ {_SOCKETS} permission java.lang.RuntimePermission "*"; }};\n',
)
# The last version whose network is a module in Maven Central; later ones also need a launcher.
ELASTICSEARCH = _Flavour(
    "elasticsearch",
    "7.17.28",
    (
        "org.elasticsearch:elasticsearch:7.17.28",
        "org.elasticsearch.plugin:transport-netty4-client:7.17.28",
    ),
    "org.elasticsearch.bootstrap.Elasticsearch",
    "org.elasticsearch.transport.Netty4Plugin",
    "es",
    f"grant {{ {_SOCKETS} }};\n",
)
_LOGGING = """status = error
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c %m%n
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
"""


class OpensearchServer(Server):
    """A cluster of one node. `folder` must be open to other users."""

    def __init__(self, folder: Path, flavour: _Flavour = OPENSEARCH) -> None:
        self._flavour = flavour
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._home = home = folder / "home"
        module = home / "modules" / "transport-netty4"
        for made in (home / "lib", module, home / "config", home / "data", home / "plugins"):
            made.mkdir(parents=True)
        for jar in maven.jars(flavour.name, flavour.version, flavour.artifacts).glob("*.jar"):
            of_module = jar.name.startswith(("netty-", "transport-netty4-"))
            shutil.copy(jar, module if of_module else home / "lib")
        (module / "plugin-descriptor.properties").write_text(flavour.descriptor())
        (module / "plugin-security.policy").write_text(flavour.policy)
        (home / "config" / "log4j2.properties").write_text(_LOGGING)
        (home / "config" / f"{flavour.name}.yml").write_text(
            f"discovery.type: single-node\nhttp.port: {self.port}\n"
            f"transport.port: {free_port()}\nnetwork.host: 127.0.0.1\n"
            "node.store.allow_mmap: false\nhttp.max_content_length: 1mb\n"
            "cluster.routing.allocation.disk.threshold_enabled: false\n"
        )
        self._user: dict[str, object] = {}
        if os.geteuid() == 0:
            self._user = {"user": "nobody", "group": "nogroup", "extra_groups": []}
            for path in (home, *home.rglob("*")):
                shutil.chown(path, "nobody", "nogroup")
        super().__init__(folder / f"{flavour.name}.log")

    def command(self) -> list[str]:
        prefix = self._flavour.prefix
        settings = {
            "java.security.manager": "allow",
            "java.io.tmpdir": str(self._home / "data"),
            f"{prefix}.path.home": str(self._home),
            f"{prefix}.path.conf": str(self._home / "config"),
            f"{prefix}.distribution.type": "tar",
            "log4j2.disable.jmx": "true",
        }
        return [
            *("java", "-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-D{name}={value}" for name, value in settings.items()),
            *("-cp", f"{self._home}/lib/*", self._flavour.main),
        ]

    def options(self) -> dict[str, object]:
        env = {**os.environ, "HOME": str(self._home), "LIBFFI_TMPDIR": str(self._home / "data")}
        return {**self._user, "cwd": self._home, "env": env}

    def is_up(self) -> bool:
        try:
            health = self.ask("GET", "/_cluster/health", secs=2)
        except OSError:
            return False
        # No primary shard is missing.
        return bool(health["status"] != "red")

    def ask(self, method: str, path: str, body: Any = None, *, secs: float = 30) -> Any:
        """What the server answers, as JSON."""
        request = urllib.request.Request(
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=secs) as response:
            return json.load(response)

    @classmethod
    @contextlib.contextmanager
    def start(cls, folder: Path, flavour: _Flavour = OPENSEARCH) -> Iterator[OpensearchServer]:
        server = cls(folder, flavour)
        with server.running():
            yield server
