"""Which user of this machine is at the other end of a connection over loopback.

Linux says whose each socket is, in `/proc/net/tcp` and `tcp6` (proc(5)): one line a socket, with
addresses in hexadecimal, each word of four bytes in the machine's byte order. The peer's socket is
the one whose own address is our peer's, and whose peer's is ours. A socket that nobody holds any
more, because its program has closed it, is shown as root's: only one that is connected, and held,
counts.
"""

from __future__ import annotations

import ipaddress
import os
import struct
from pathlib import Path

_ESTABLISHED = "01"
Address = tuple[str, int]


def is_own(peer: Address, local: Address, proc: Path = Path("/proc/net")) -> bool:
    """Whether the program at the other end of a connection is of this process' user. `peer` and
    `local` are the connection's addresses as this end sees them."""
    return owner_of(peer, local, proc) == os.geteuid()


def owner_of(peer: Address, local: Address, proc: Path = Path("/proc/net")) -> int | None:
    """The user that holds the other end; None if it is on another machine or has closed it.

    A line: `0: 0100007F:1F90 0100007F:C350 01 00000000:00000000 00:00000000 00000000 1000 0 4711`
    has the own address, the peer's, the state, and at the 8th and 10th place user and inode.
    """
    wanted = _hexadecimal(peer), _hexadecimal(local)
    try:
        text = (proc / ("tcp6" if ":" in peer[0] else "tcp")).read_text()
    except OSError:
        return None
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) < 10 or (words[1], words[2]) != wanted or words[3] != _ESTABLISHED:
            continue
        return int(words[7]) if words[9] != "0" else None
    return None


def _hexadecimal(address: Address) -> str:
    """
    >>> _hexadecimal(("127.0.0.1", 8080)) in ("0100007F:1F90", "7F000001:1F90")
    True
    """
    packed = ipaddress.ip_address(address[0].partition("%")[0]).packed
    words = struct.unpack(f"={len(packed) // 4}I", packed)
    return "".join(f"{word:08X}" for word in words) + f":{address[1]:04X}"
