"""Files that a crash at any byte leaves either old or new, never torn; and files of others, which
may be anything."""

import ctypes
import errno
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

# Files and folders that are synced one by one; more are synced with all of their file system.
_FSYNCS_MAX = 256


def write_atomic(path: Path, data: bytes, *, mode: int = 0o600) -> None:
    """Replace `path` by `data`: temporary file in the same folder, fsync, rename, fsync of the
    folder. Raises OSError (a full disk among them) with the old content untouched."""
    fd, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(fd, "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
    sync_dir(path.parent)


def open_untrusted(path: Path) -> BinaryIO:
    """Open a file for reading in a folder in which anybody's code may write: a link is not
    followed, and a pipe not waited for. Raises OSError, and ValueError for what is not a file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            raise ValueError("it is not a file") from None
        raise
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise ValueError("it is not a file")
    return open(fd, "rb")


def make_dirs(path: Path, *, mode: int = 0o777) -> None:
    """Make a folder that may exist, and its parents (those as the umask has it), so that a power
    failure takes none of them away: a file is not safe in a folder whose own name is not."""
    missing = [path]
    while not missing[-1].parent.exists():
        missing.append(missing[-1].parent)
    for folder in reversed(missing):
        folder.mkdir(mode=mode if folder == path else 0o777, exist_ok=True)
        sync_dir(folder.parent)


def make_private_dirs(path: Path) -> None:
    """The same for a folder that only we may enter, also if it is there and open to others."""
    make_dirs(path, mode=0o700)
    os.chmod(path, 0o700)


def sync_file(path: Path) -> None:
    """Make the content of a file durable."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_dir(path: Path) -> None:
    """Make the names inside a folder durable."""
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_tree(folder: int, entries: int) -> None:
    """Make durable everything below the open folder, which holds about so many files and folders,
    after all of it was written: the disk then gets it in one go.

    An fsync each costs a disk's turn each: 9,000 folders took 85 s. So a large tree is synced with
    its whole file system, which waits for what others have written there as well, but once.
    """
    if entries > _FSYNCS_MAX and sync_file_system(folder):
        return
    for _, _, names, fd in os.fwalk(".", dir_fd=folder, follow_symlinks=False):
        for name in names:
            if stat.S_ISLNK(os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode):
                continue
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
            try:
                os.fsync(file)
            finally:
                os.close(file)
        os.fsync(fd)


def sync_file_system(fd: int) -> bool:
    """syncfs(2) of the file system of an open file; False where there is none. Raises OSError when
    something could not be written (Linux 5.8 and later say so)."""
    syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if syncfs is None:
        return False
    if syncfs(fd) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return True
