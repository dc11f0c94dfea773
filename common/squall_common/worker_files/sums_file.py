"""The file in which a worker lays its sums by component, for its supervisor to pass on.

The worker replaces it, and the supervisor removes it when it has read it. Unlike a report
(`report_file`), one that is lost is not missed: the next one comes a moment later.

    magic "SQSU" | telemetry.sums.encode_sums
"""

import os
from pathlib import Path

from squall_common.daemon.files import open_untrusted
from squall_common.telemetry.sums import SUMS_BYTES_MAX

SUMS_FILE = "sums-report"
_MAGIC = b"SQSU"


def write_sums(folder: Path, sums: bytes) -> None:
    """Replace the sums in a worker's folder, without waiting for the disk. Raises OSError."""
    path = folder / SUMS_FILE
    new = path.with_name(SUMS_FILE + ".new")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(os.open(new, flags, 0o644), "wb") as file:
        file.write(_MAGIC + sums)
    os.replace(new, path)


def take_sums(folder: Path) -> bytes | None:
    """The sums in a worker's folder, which are removed; None if there are none. Raises ValueError
    for what no worker of ours writes, and OSError."""
    path = folder / SUMS_FILE
    try:
        with open_untrusted(path) as file:
            inode = os.fstat(file.fileno()).st_ino
            data = file.read(len(_MAGIC) + SUMS_BYTES_MAX + 1)
        if os.lstat(path).st_ino == inode:
            os.unlink(path)
    except FileNotFoundError:
        return None
    if len(data) > len(_MAGIC) + SUMS_BYTES_MAX:
        raise ValueError(f"sums of more than {SUMS_BYTES_MAX} bytes")
    if not data.startswith(_MAGIC):
        raise ValueError("it does not begin as a worker's sums")
    return data[len(_MAGIC) :]
