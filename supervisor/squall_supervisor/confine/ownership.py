"""Who owns a file and who may read it, for workers that run as other users than the supervisor.

A folder that belongs to a worker's user cannot be trusted: anything in it may at any moment be a
link to somewhere else, a pipe, or another user's file. So everything here is done through
descriptors of folders, opened without following links, and never by path below such a folder
(CVE-2026-82429, CVE-2026-82430).
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from squall_common.daemon.files import make_dirs
from squall_common.daemon.logs import get_logger
from squall_supervisor.confine.confinement import WorkerUser

log = get_logger(__name__)

# Folders that others may walk through to their own files, but not list.
PASSAGE = 0o711

_ACL = "system.posix_acl_access"
_ACL_VERSION = 2
_NOBODY = 0xFFFFFFFF
_ENTRY = struct.Struct("<HHI")  # tag, permissions, id
_USER_OBJ, _USER, _GROUP_OBJ, _MASK, _OTHER = 0x01, 0x02, 0x04, 0x10, 0x20
_READ_AND_ENTER = 0o5
_granting = threading.Lock()


@contextmanager
def opened_folder(path: Path | str, *, dir_fd: int | None = None) -> Iterator[int]:
    """A descriptor of a folder. Raises OSError for anything else, including a link to one."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(path, flags, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def make_own(folder: Path, user: WorkerUser | None) -> None:
    """Make sure there is a folder, 0700, that belongs to a worker's user (None: to this process's).
    A folder of another user is put aside with everything in it. Its parents are ours. Raises
    OSError."""
    uid, gid = (os.geteuid(), os.getegid()) if user is None else (user.uid, user.gid)
    make_dirs(folder, mode=0o700)
    with opened_folder(folder) as fd:
        found = os.fstat(fd).st_uid
        if found == uid:
            os.fchmod(fd, 0o700)
            return
        if found == os.geteuid() and not os.listdir(fd):
            os.fchmod(fd, 0o700)
            os.fchown(fd, uid, gid)
            return
    number = 1
    while os.path.lexists(aside := folder.with_name(f"{folder.name}.of-user-{found}-{number}")):
        number += 1
    os.rename(folder, aside)
    log.warning("folder_of_another_user_put_aside", folder=folder, kept_as=aside)
    os.mkdir(folder, 0o700)
    with opened_folder(folder) as fd:
        os.fchown(fd, uid, gid)


def give_away(worker_dir: Path, user: WorkerUser, *, keep: frozenset[str]) -> None:
    """Give a new worker's folder, ours until now, and its content to the worker's user. The files
    in `keep` stay ours and become readable: the folder itself lets no other user in. Raises
    OSError."""
    with opened_folder(worker_dir) as fd:
        for name in os.listdir(fd):
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                with opened_folder(name, dir_fd=fd) as below:
                    os.fchown(below, user.uid, user.gid)
            elif stat.S_ISREG(mode):
                flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
                file = os.open(name, flags, dir_fd=fd)
                try:
                    if name in keep:
                        os.fchmod(file, 0o644)
                    else:
                        os.fchown(file, user.uid, user.gid)
                finally:
                    os.close(file)
        os.fchmod(fd, 0o700)
        os.fchown(fd, user.uid, user.gid)  # last: from here on it cannot be trusted


def grant(folder: Path, uid: int) -> None:
    """Let a user, besides us and those who were let in before, enter and list a folder of ours; its
    group and all others are kept out. Raises OSError; on a file system without access lists, one
    that says so."""
    with _granting, opened_folder(folder) as fd:
        users = {tag_id: bits for tag, bits, tag_id in _read_acl(fd) if tag == _USER}
        if users.get(uid) == _READ_AND_ENTER and os.fstat(fd).st_mode & 0o007 == 0:
            return
        users[uid] = _READ_AND_ENTER
        entries = [
            (_USER_OBJ, 0o7, _NOBODY),
            *((_USER, bits, one) for one, bits in sorted(users.items())),
            (_GROUP_OBJ, 0, _NOBODY),
            (_MASK, _READ_AND_ENTER, _NOBODY),
            (_OTHER, 0, _NOBODY),
        ]
        data = struct.pack("<I", _ACL_VERSION) + b"".join(_ENTRY.pack(*one) for one in entries)
        try:
            os.setxattr(fd, _ACL, data)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EPERM):
                raise
            raise OSError(
                error.errno,
                f"{folder} lies on a file system without access lists (mount it with acl), which "
                "workers of other users need",
            ) from error


def open_tree(path: Path) -> None:
    """Let every user read a file, or a folder and everything in it, whatever the umask was; what
    its owner may execute, they may execute. For content of a folder of ours that itself restricts
    access. Raises OSError."""
    os.chmod(path, _open_mode(path.stat().st_mode))
    for _, folders, files, fd in os.fwalk(path, follow_symlinks=False):
        for name in (*folders, *files):
            mode = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
            if not stat.S_ISLNK(mode):
                os.chmod(name, _open_mode(mode), dir_fd=fd)


def _open_mode(mode: int) -> int:
    return 0o755 if stat.S_ISDIR(mode) or mode & stat.S_IXUSR else 0o644


def let_in(stormdist: Path, uid: int) -> None:
    """Let a user read a topology and the environment that it depends on. Raises OSError."""
    grant(stormdist, uid)
    environment = stormdist / "environment"
    if environment.is_symlink():
        grant(Path(os.path.realpath(environment)), uid)


def readers(folder: Path) -> list[int]:
    """The users that were let in by `grant`."""
    with opened_folder(folder) as fd:
        return sorted(tag_id for tag, _, tag_id in _read_acl(fd) if tag == _USER)


def _read_acl(fd: int) -> list[tuple[int, int, int]]:
    try:
        data = os.getxattr(fd, _ACL)
    except OSError as error:
        if error.errno in (errno.ENODATA, errno.EOPNOTSUPP):
            return []
        raise
    return list(_ENTRY.iter_unpack(data[4:]))


def open_passage(folder: Path) -> None:
    """Let every user walk through a folder of ours. Raises OSError."""
    with opened_folder(folder) as fd:
        os.fchmod(fd, PASSAGE)


def owner_of(folder: Path) -> int | None:
    """The uid that a folder belongs to; None if the folder does not exist."""
    with contextlib.suppress(OSError), opened_folder(folder) as fd:
        return os.fstat(fd).st_uid
    return None


def read_own(path: Path, *, bytes_max: int = 64 * 1024 * 1024) -> bytes:
    """The content of a file that we wrote ourselves. Raises OSError (FileNotFoundError, or the
    error of opening a link), and ValueError for a file that another user has put there."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    # With an opener, the descriptor is closed when the path is a folder.
    with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise ValueError(f"{path} was not written by this supervisor")
        if found.st_size > bytes_max:
            raise ValueError(f"{path} has {found.st_size} bytes")
        return file.read(bytes_max)
