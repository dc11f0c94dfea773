"""Finds free TCP ports on loopback."""

from __future__ import annotations

import errno
import random
import socket
from pathlib import Path

from squall_common.errors import SquallError

LOOPBACK = "127.0.0.1"
_LOWEST = 15_000
_EPHEMERAL_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")


def port_is_free(port: int) -> bool:
    """Whether a server could listen on this loopback port now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
            probe.listen(1)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                return False
            raise
    return True


def free_ports(count: int) -> list[int]:
    """`count` different ports on which nothing listens.

    They lie below the range from which the system takes the ports of outgoing connections, so that
    none of them is taken by a passing connection between now and the moment its server binds it.
    Raises SquallError when there are fewer.
    """
    chooser = random.SystemRandom()
    candidates = list(range(_LOWEST, _highest()))
    chooser.shuffle(candidates)
    chosen: list[int] = []
    for port in candidates:
        if port_is_free(port):
            chosen.append(port)
            if len(chosen) == count:
                return chosen
    raise SquallError(f"there are fewer than {count} free TCP ports on {LOOPBACK}")


def _highest() -> int:
    try:
        lowest_ephemeral = int(_EPHEMERAL_RANGE.read_text().split()[0])
    except (OSError, ValueError, IndexError):
        lowest_ephemeral = 32_768  # Linux's default
    return lowest_ephemeral if lowest_ephemeral > _LOWEST + 1_000 else 32_768
