"""Which of root's powers this process has (capabilities(7)). Root in a container often has few."""

from __future__ import annotations

import enum
from pathlib import Path


class Capability(enum.IntEnum):
    """The capabilities that confining workers needs, by their numbers in the kernel's interface."""

    CHOWN = 0
    DAC_OVERRIDE = 1
    FOWNER = 3
    KILL = 5
    SETGID = 6
    SETUID = 7
    SYS_PTRACE = 19
    SYS_RESOURCE = 24


def held(status: str | None = None) -> frozenset[Capability]:
    """The effective capabilities. `status` is the text of /proc/PID/status; by default, that of
    this process."""
    text = Path("/proc/self/status").read_text() if status is None else status
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            bits = int(value, 16)
            return frozenset(one for one in Capability if bits >> one & 1)
    return frozenset()
