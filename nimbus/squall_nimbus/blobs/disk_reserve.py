"""The part of Nimbus' disk that uploads leave free.

A full disk stops Nimbus for everyone, and ZooKeeper too where it shares the disk. So an upload is
refused before that happens: when it begins, or at the chunk that would use up the reserve.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from squall_common.errors import SquallError

_MB = 1024 * 1024
_DISK_SHARE_MAX = 10  # on a small disk the reserve is at most a tenth


class _Disk(Protocol):
    """The part of `os.statvfs`'s result that is used here."""

    @property
    def f_frsize(self) -> int: ...
    @property
    def f_blocks(self) -> int: ...
    @property
    def f_bavail(self) -> int: ...


class DiskReserve:
    """Keeps `reserve_mb` megabytes of the file system of `folder` free, or a tenth of it if that
    is less; 0 turns the reserve off."""

    def __init__(
        self, folder: Path, reserve_mb: float, statvfs: Callable[[Path], _Disk] = os.statvfs
    ) -> None:
        self._folder = folder
        self._reserve_bytes = reserve_mb * _MB
        self._statvfs = statvfs

    def check(self, what: str, size_bytes: int = 0) -> None:
        """Raise SquallError if `size_bytes` more would use some of the reserve. Reads the file
        system's figures, not the disk."""
        if not self._reserve_bytes:
            return
        try:
            disk = self._statvfs(self._folder)
        except OSError:
            return  # the write that follows reports the problem
        reserve = min(self._reserve_bytes, disk.f_blocks * disk.f_frsize / _DISK_SHARE_MAX)
        free = disk.f_bavail * disk.f_frsize
        if free - size_bytes < reserve:
            raise SquallError(
                f"cannot store {what}: the disk of Nimbus has {free // _MB} MB left, "
                f"and {reserve / _MB:.0f} MB must stay free",
                hint=f"Free space on the file system of {self._folder} on Nimbus' host, "
                "or lower nimbus.disk.reserve.mb there.",
            )
