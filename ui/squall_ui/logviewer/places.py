"""Which files the logviewer serves, and how one is opened.

    {artifacts}/TOPOLOGY_ID/PORT/FILE      logs and dumps of workers: asked for as
                                           TOPOLOGY_ID/PORT/FILE
    {storm.log.dir}/FILE                   logs of daemons

A folder of a worker may belong to a user who may put anything into it at any moment: a link to
/etc/shadow, a pipe, a device. So a file is reached part by part through descriptors of folders,
without following links; it is opened without waiting for a pipe's writer, and served only if it is
a plain file with no second name (a hard link may lead out, too). Parts like `..` and hidden names
are refused before that.

Everything here blocks; call it in a thread.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

# Of daemons only logs: other files of that folder are no business of readers'.
# Audit logs are for the daemon's own user.
_DAEMON_LOG = re.compile(r"(?!.*-audit\.log)[A-Za-z0-9][\w.-]*\.(log|out|err)(\.\d+)?(\.gz)?")
_PORT = re.compile(r"\d{1,5}")
_DUMP = re.compile(r"(flamegraph|stacks|heap)-\d+\.(svg|txt)|[\w.-]+\.(bin|txt|jfr|hprof|svg)")
_NAME_CHARS_MAX = 255
# A worker may create any number of files.
_FILES_MAX = 1_000


class NotServedError(Exception):
    """There is no such file for a reader: it does not exist, or it is no plain file of a worker."""


@dataclass(frozen=True, slots=True)
class LogFile:
    """A file as it is listed."""

    topology_id: str
    port: int
    name: str
    bytes: int
    modified_secs: float

    @property
    def path(self) -> str:
        """As it is asked for."""
        return f"{self.topology_id}/{self.port}/{self.name}"


@dataclass(frozen=True, slots=True)
class Places:
    """The folders that are served: `log_dirs` for daemons, `artifacts` for workers. There are
    several if several supervisors run here; of a file that is in two of them the first is served.
    """

    log_dirs: Sequence[Path]
    artifacts: Sequence[Path]

    @contextmanager
    def opened(self, file: str) -> Iterator[int]:
        """A descriptor of a worker's file, by `TOPOLOGY_ID/PORT/FILE`. Raises NotServedError."""
        with _first(self.artifacts, worker_parts(file), file) as fd:
            yield fd

    @contextmanager
    def opened_daemon_log(self, name: str) -> Iterator[int]:
        """A descriptor of a daemon's log. Raises NotServedError."""
        if not _DAEMON_LOG.fullmatch(name) or len(name) > _NAME_CHARS_MAX:
            raise NotServedError(f"{name!r} is not the name of a daemon's log")
        with _first(self.log_dirs, (name,), name) as fd:
            yield fd

    def daemon_logs(self) -> list[str]:
        """The names of the daemons' logs."""
        return sorted(
            {
                name
                for root in self.log_dirs
                for name in _listed(root, ())
                if _DAEMON_LOG.fullmatch(name)
            }
        )

    def topologies(self) -> list[str]:
        """The ids of topologies that have left logs here."""
        found: set[str] = set()
        for root in self.artifacts:
            found.update(name for name in _listed(root, ()) if _is_part(name))
        return sorted(found)

    def files(self, topology_id: str | None = None, port: int | None = None) -> list[LogFile]:
        """The files of workers, newest first: of one topology, of one port."""
        wanted = self.topologies() if topology_id is None else [topology_id]
        found: dict[str, LogFile] = {}
        for topology in wanted:
            if not _is_part(topology):
                continue
            for root in self.artifacts:
                for folder in _listed(root, (topology,)):
                    if _PORT.fullmatch(folder) and port in (None, int(folder)):
                        for one in _plain_files(root, topology, folder):
                            found.setdefault(one.path, one)
        return sorted(found.values(), key=lambda one: (-one.modified_secs, one.path))

    def dumps(self, topology_id: str, port: int) -> list[LogFile]:
        """The dumps and flame graphs of a worker, newest first."""
        return [one for one in self.files(topology_id, port) if is_dump(one.name)]


@contextmanager
def _first(roots: Sequence[Path], parts: Sequence[str], shown: str) -> Iterator[int]:
    """The file in the first folder that has it. Raises NotServedError."""
    for root in roots:
        try:
            fd = _open_below(root, parts)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise NotServedError(f"{shown} cannot be read: {error.strerror}") from error
        try:
            yield fd
        finally:
            os.close(fd)
        return
    raise NotServedError(f"there is no file {shown} here")


def worker_parts(file: str) -> tuple[str, str, str]:
    """The three parts of a worker's file. Raises NotServedError."""
    parts = tuple(file.split("/"))
    if len(parts) != 3 or not all(map(_is_part, parts)) or not _PORT.fullmatch(parts[1]):
        raise NotServedError(f"{file!r} is not TOPOLOGY_ID/PORT/FILE")
    return parts


def is_dump(name: str) -> bool:
    """Whether a file is a dump or a flame graph."""
    return _DUMP.fullmatch(name) is not None


def _is_part(name: str) -> bool:
    return bool(
        name
        and not name.startswith(".")
        and "/" not in name
        and "\x00" not in name
        and len(name.encode(errors="replace")) <= _NAME_CHARS_MAX
    )


def _open_below(root: Path, parts: Sequence[str]) -> int:
    """A descriptor of a plain file. Raises OSError."""
    fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in parts[:-1]:
            below = os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd
            )
            os.close(fd)
            fd = below
        # Opening a device can do things by itself: look first, and again at what was opened.
        _check_plain(os.stat(parts[-1], dir_fd=fd, follow_symlinks=False))
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        file = os.open(parts[-1], flags, dir_fd=fd)
    finally:
        os.close(fd)
    try:
        _check_plain(os.fstat(file))
    except OSError:
        os.close(file)
        raise
    return file


def _check_plain(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise OSError(0, "it is not a plain file")
    if found.st_nlink > 1:
        raise OSError(0, "it has another name, and may be a file from elsewhere")


def _listed(root: Path, parts: Sequence[str]) -> list[str]:
    """The names in a folder; none if it cannot be read."""
    try:
        fd = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return []
    try:
        for part in parts:
            below = os.open(
                part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd
            )
            os.close(fd)
            fd = below
        return os.listdir(fd)
    except OSError:
        return []
    finally:
        os.close(fd)


def _plain_files(root: Path, topology_id: str, port: str) -> Iterator[LogFile]:
    for name in sorted(_listed(root, (topology_id, port)))[:_FILES_MAX]:
        if not _is_part(name):
            continue
        try:
            # The folder is looked up again for each: it may change meanwhile, and this is rare.
            fd = _open_below(root, (topology_id, port, name))
        except OSError:
            continue
        try:
            found = os.fstat(fd)
        finally:
            os.close(fd)
        yield LogFile(topology_id, int(port), name, found.st_size, found.st_mtime)
