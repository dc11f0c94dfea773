"""How much memory this process has, from the kernel: a read of one small file."""

from __future__ import annotations

import os

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def memory_bytes() -> tuple[int, int]:
    """This process' virtual and resident memory, in bytes (`/proc/self/statm`, proc(5))."""
    with open("/proc/self/statm", "rb") as file:
        virtual, resident = file.read().split()[:2]
    return int(virtual) * _PAGE_BYTES, int(resident) * _PAGE_BYTES
