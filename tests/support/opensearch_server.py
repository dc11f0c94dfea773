"""A real OpenSearch node for tests, put together from its jars in Maven Central: the server, and
the module with its network. As root it runs as the user `nobody`, since it refuses to run as root.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.support import maven
from tests.support.servers import Server, free_port

VERSION = "2.11.1"
_ARTIFACTS = (
    f"org.opensearch:opensearch:{VERSION}",
    f"org.opensearch:opensearch-plugin-classloader:{VERSION}",
    f"org.opensearch.plugin:transport-netty4-client:{VERSION}",
    "org.apache.logging.log4j:log4j-core:2.20.0",
)
_MODULE = f"""description=network
version={VERSION}
name=transport-netty4
classname=org.opensearch.transport.Netty4Plugin
java.version=11
opensearch.version={VERSION}
has.native.controller=false
extended.plugins=
"""
_POLICY = """grant {
  permission java.net.SocketPermission "*", "accept,connect,resolve";
  permission java.lang.RuntimePermission "*";
};
"""
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

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._home = home = folder / "home"
        module = home / "modules" / "transport-netty4"
        for made in (home / "lib", module, home / "config", home / "data", home / "plugins"):
            made.mkdir(parents=True)
        for jar in maven.jars("opensearch", VERSION, _ARTIFACTS).glob("*.jar"):
            of_module = jar.name.startswith(("netty-", "transport-netty4-"))
            shutil.copy(jar, module if of_module else home / "lib")
        (module / "plugin-descriptor.properties").write_text(_MODULE)
        (module / "plugin-security.policy").write_text(_POLICY)
        (home / "config" / "log4j2.properties").write_text(_LOGGING)
        (home / "config" / "opensearch.yml").write_text(
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
        super().__init__(folder / "opensearch.log")

    def command(self) -> list[str]:
        settings = {
            "java.security.manager": "allow",
            "java.io.tmpdir": str(self._home / "data"),
            "opensearch.path.home": str(self._home),
            "opensearch.path.conf": str(self._home / "config"),
            "opensearch.distribution.type": "tar",
            "log4j2.disable.jmx": "true",
        }
        return [
            *("java", "-Xms256m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-D{name}={value}" for name, value in settings.items()),
            *("-cp", f"{self._home}/lib/*", "org.opensearch.bootstrap.OpenSearch"),
        ]

    def options(self) -> dict[str, object]:
        return {**self._user, "cwd": self._home, "env": {**os.environ, "HOME": str(self._home)}}

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
    def start(cls, folder: Path) -> Iterator[OpensearchServer]:
        server = cls(folder)
        with server.running():
            yield server
