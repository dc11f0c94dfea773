"""Network namespaces for tests: nodes with an address each, on one bridge, whose cables are pulled
and put back. Needs root. Names are unique to the run, and `close` removes everything.

The bridge lies in a namespace of its own: a firewall of the machine's does not see its frames. The
test itself is on the network too (`Network.own_address`).
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import subprocess
from collections.abc import Sequence


def unavailable() -> str | None:
    """Why there are no network namespaces here; None when there are."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    for tool in ("ip", "nsenter"):
        if shutil.which(tool) is None:
            return f"there is no `{tool}` (apt-get install iproute2 util-linux)"
    name = f"sqtry{os.getpid()}"
    made = _ip("netns", "add", name, check=False)
    if made.returncode != 0:
        return f"this machine allows no network namespace: {made.stderr.strip()}"
    _ip("netns", "del", name)
    return None


class Network:
    """`node(NAME)` makes a node; `run_in(NAME, argv)` is the command line that runs there."""

    def __init__(self) -> None:
        self._tag = f"sq{os.getpid():x}{random.SystemRandom().randrange(4096):03x}"
        self._hub = f"{self._tag}-hub"
        self._subnet = _free_subnet()
        self._addresses: dict[str, str] = {}
        self._cables = 0
        try:
            _ip("netns", "add", self._hub)
            self._in(self._hub, "link", "add", "hub", "type", "bridge")
            self._in(self._hub, "link", "set", "hub", "up")
            self.own_address = f"{self._subnet}.254"
            self._own_cable = f"{self._tag}o"
            self._plug(self._own_cable, "own")
            _ip("addr", "add", f"{self.own_address}/24", "dev", self._own_cable)
            _ip("link", "set", self._own_cable, "up")
        except BaseException:
            self.close()
            raise

    def node(self, name: str) -> str:
        """Make a node; its address."""
        space = f"{self._tag}-{name}"
        address = f"{self._subnet}.{len(self._addresses) + 1}"
        self._addresses[name] = address
        _ip("netns", "add", space)
        cable = f"{self._tag}n{len(self._addresses)}"
        self._plug(cable, name)
        _ip("link", "set", cable, "netns", space)
        self._in(space, "link", "set", "lo", "up")
        self._in(space, "link", "set", cable, "name", "eth0")
        self._in(space, "addr", "add", f"{address}/24", "dev", "eth0")
        self._in(space, "link", "set", "eth0", "up")
        return address

    def _plug(self, cable: str, name: str) -> None:
        """A cable whose other end, called `name`, is in the bridge."""
        _ip("link", "add", cable, "type", "veth", "peer", "name", name, "netns", self._hub)
        self._in(self._hub, "link", "set", name, "master", "hub", "up")

    def address(self, name: str) -> str:
        return self._addresses[name]

    def run_in(self, name: str, argv: Sequence[str]) -> list[str]:
        """The process keeps the id of the one that is started so."""
        return ["nsenter", f"--net=/run/netns/{self._tag}-{name}", "--", *argv]

    def pull(self, name: str) -> None:
        """Nothing reaches the node or leaves it, and nobody is told."""
        self._in(self._hub, "link", "set", name, "down")

    def put_back(self, name: str) -> None:
        self._in(self._hub, "link", "set", name, "up")

    def close(self) -> None:
        """Remove everything; to be called when no process runs there any more."""
        with contextlib.suppress(AttributeError):
            _ip("link", "del", self._own_cable, check=False)
        for name in (*self._addresses, "hub"):
            _ip("netns", "del", f"{self._tag}-{name}", check=False)

    @staticmethod
    def _in(space: str, *arguments: str) -> None:
        _ip("-n", space, *arguments)


def _ip(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    result = subprocess.run(
        ["ip", *arguments], capture_output=True, text=True, timeout=30, check=False
    )
    if check and result.returncode != 0:
        raise AssertionError(f"ip {' '.join(arguments)}: {result.stderr.strip()}")
    return result


def _free_subnet() -> str:
    """The first three numbers of a /24 to which no route leads yet."""
    routes = _ip("-4", "route").stdout
    draw = random.SystemRandom()
    while (subnet := f"10.{draw.randrange(210, 250)}.{draw.randrange(256)}") in routes:
        pass
    return subnet
