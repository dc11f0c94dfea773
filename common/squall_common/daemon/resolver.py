"""Numeric addresses of hosts that are known by name.

A look-up cannot be taken back: cancelling the wait for one leaves it in one of the few threads that
all look-ups of this process share. A name whose server is silent would, if it were looked up again
and again, soon block every other name, ZooKeeper's and Nimbus' among them. So each name is looked
up once at a time, however long that takes, and the answer is used when it comes.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Collection

from squall_common.daemon.logs import get_logger

log = get_logger(__name__)


class Resolver:
    """Looks names up and remembers the last answer, for when a name can no longer be looked up.

        resolver = Resolver()
        await resolver.resolve(["node-1", "10.0.0.9"], secs=5)
        # {"node-1": "10.0.0.4", "10.0.0.9": "10.0.0.9"}

    Belongs to one event loop; `close` it before that ends.
    """

    def __init__(self) -> None:
        self._known: dict[str, str] = {}
        self._under_way: dict[str, asyncio.Task[str | OSError | UnicodeError]] = {}
        self._failing: set[str] = set()  # names whose failure has been logged

    async def resolve(self, hosts: Collection[str], secs: float) -> dict[str, str]:
        """The numeric addresses of `hosts`, IPv4 where there is one. Returns within `secs` seconds,
        without the hosts that have no address yet; forgets all that are not among `hosts`."""
        wanted = set(hosts)
        for host in wanted - self._under_way.keys():
            self._under_way[host] = asyncio.create_task(_look_up(host), name=f"look up {host}")
        if waited := [self._under_way[host] for host in wanted]:
            await asyncio.wait(waited, timeout=secs)
        self._take_answers()
        for host in (wanted & self._under_way.keys()) - self._known.keys():
            self._warn(host, f"no answer within {secs:g} s")
        self._known = {host: found for host, found in self._known.items() if host in wanted}
        self._failing &= wanted
        return dict(self._known)

    def _take_answers(self) -> None:
        for host, task in list(self._under_way.items()):
            if task.done():
                del self._under_way[host]
                found = task.result()
                if isinstance(found, str):
                    self._known[host] = found
                    self._failing.discard(host)
                else:
                    self._warn(host, found)

    def _warn(self, host: str, error: object) -> None:
        """Log a failure when it begins, not at each reading while it lasts."""
        if host not in self._failing:
            self._failing.add(host)
            log.warning("host_not_resolved", host=host, error=error)

    def close(self) -> None:
        """Stop waiting for what is under way."""
        for task in self._under_way.values():
            task.cancel()
        self._under_way.clear()


async def _look_up(host: str) -> str | OSError | UnicodeError:
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:  # unknown, or not a name: others write these hosts
        return error
    # Daemons and workers listen on IPv4 where their host has it.
    found.sort(key=lambda entry: entry[0] != socket.AF_INET)
    return str(found[0][4][0])
