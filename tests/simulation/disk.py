"""What a power failure leaves of files: only what was synced is sure.

The daemons write real files, on a memory file system. `os.fsync` is noted: of a file, that its
content is durable; of a folder, that its names are. When a machine loses power, its folder is
rebuilt: content that was not synced is old, torn, empty or whole, and folders that were not synced
have their old names or their new ones, as the seed says.

A process can also die in the middle of its writing: see `doom`.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.simulation.loop import Process, current_process

from squall_common.daemon import files


class Disk:
    """The disks of all machines: a folder each under `root`."""

    skip_fsync = False  # for the proof that a skipped fsync is found

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.rng = random.Random(f"disk {seed}")
        self.full: set[str] = set()  # hosts
        self.counts: dict[str, int] = {}
        self._content: dict[int, bytes] = {}  # by inode
        self._names: dict[int, dict[str, int]] = {}  # by a folder's inode
        self._is_dir: set[int] = set()
        self._links: dict[int, str] = {}  # symbolic links
        self._doomed: dict[str, tuple[Process, int]] = {}
        self._fsync = os.fsync

    def folder(self, host: str) -> Path:
        """A machine's disk."""
        path = self.root / host
        if not path.exists():
            path.mkdir(parents=True)
            self._sync_folder(path)
        return path

    @contextmanager
    def noting(self) -> Iterator[None]:
        """While this lasts, `os.fsync` and syncfs are ours."""
        real = files.sync_file_system
        os.fsync = self._synced  # type: ignore[assignment]
        files.sync_file_system = self._synced_file_system
        try:
            yield
        finally:
            os.fsync = self._fsync
            files.sync_file_system = real

    def _synced_file_system(self, fd: int) -> bool:
        """Everything of a machine's disk is durable."""
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        host = path.relative_to(self.root).parts[0]
        if host in self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not self.skip_fsync:
            self._sync_tree(self.root / host)
        self._maybe_die(host)
        return True

    def _synced(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        host = path.removeprefix(f"{self.root}/").partition("/")[0]
        if host in self.full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if not self.skip_fsync:
            if os.path.isdir(path):
                self._sync_folder(Path(path))
            else:
                with open(path, "rb") as file:
                    self._content[os.fstat(fd).st_ino] = file.read()
        self._maybe_die(host)

    def _sync_folder(self, path: Path) -> None:
        names = {}
        for entry in os.scandir(path):
            inode = entry.inode()
            names[entry.name] = inode
            if entry.is_symlink():
                self._links[inode] = os.readlink(entry.path)
            elif entry.is_dir():
                self._is_dir.add(inode)
        self._names[path.stat().st_ino] = names

    # A process that dies while it writes.

    def doom(self, process: Process, syncs: int) -> None:
        """Let a process die in its so-many-th fsync from now: what it does after that, in the same
        breath, is undone."""
        self._doomed[process.host] = (process, syncs)

    def _maybe_die(self, host: str) -> None:
        process, syncs = self._doomed.get(host, (None, 0))
        if process is None or current_process() is not process:
            return
        self._doomed[host] = (process, syncs - 1)
        if syncs > 1:
            return
        del self._doomed[host]
        folder, kept = self.root / host, self.root / f"{host}.kept"
        shutil.copytree(folder, kept, symlinks=True)

        def die() -> None:
            self._count("a process died while it wrote")
            process.end(-9)
            _restore(kept, folder)
            shutil.rmtree(kept)

        # Before anything else runs: the rest of this callback is what is undone.
        process.loop.now_next(die)

    def _sync_tree(self, folder: Path) -> None:
        self._sync_folder(folder)
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                self._sync_tree(Path(entry.path))
            elif entry.is_file(follow_symlinks=False):
                self._content[entry.inode()] = Path(entry.path).read_bytes()

    def _count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1

    # Power.

    def lose_power(self, host: str) -> None:
        """Rebuild a machine's folder from what was durable."""
        folder = self.root / host
        rebuilt = self.root / f"{host}.rebuilt"
        self.photograph(host, rebuilt)
        shutil.rmtree(folder)
        rebuilt.rename(folder)
        self._sync_tree(folder)

    def photograph(self, host: str, target: Path) -> None:
        """What a machine would find if it lost its power now, as a new folder."""
        folder = self.root / host
        target.mkdir()
        self._rebuild(folder.stat().st_ino, folder, target)

    def _rebuild(self, inode: int, present: Path | None, target: Path) -> None:
        now: dict[str, int] = {}
        if present is not None:
            now = {entry.name: entry.inode() for entry in os.scandir(present)}
        durable = self._names.get(inode, {})
        chosen = now if present is not None and self.rng.random() < 0.5 else durable
        for name in sorted(chosen):
            child = chosen[name]
            here = present / name if present is not None and now.get(name) == child else None
            if child in self._links or (here is not None and here.is_symlink()):
                aim = self._links.get(child) or os.readlink(str(here))
                (target / name).symlink_to(aim)
            elif child in self._is_dir or (here is not None and here.is_dir()):
                (target / name).mkdir()
                self._rebuild(child, here, target / name)
            else:
                data = self._survives(child, here)
                if data is not None:
                    (target / name).write_bytes(data)

    def _survives(self, inode: int, present: Path | None) -> bytes | None:
        """A file's content after the failure."""
        durable = self._content.get(inode)
        if present is None:
            return durable if durable is not None else b""
        data = present.read_bytes()
        if data == durable:
            return data
        self._count("a file was torn")
        choice = self.rng.randrange(4)
        if choice == 0:
            return durable if durable is not None else b""
        if choice == 1:
            return data[: self.rng.randrange(len(data) + 1)]
        if choice == 2:
            return bytes(len(data))
        return data


def _restore(kept: Path, folder: Path) -> None:
    """Make a folder what its copy is, in place: other processes have files of it open."""
    there = {entry.name: entry for entry in os.scandir(folder)}
    wanted = {entry.name: entry for entry in os.scandir(kept)}
    for name, entry in there.items():
        if name not in wanted:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)
    for name, entry in wanted.items():
        target = folder / name
        if entry.is_symlink():
            if not target.is_symlink():
                target.symlink_to(os.readlink(entry.path))
        elif entry.is_dir():
            target.mkdir(exist_ok=True)
            _restore(Path(entry.path), target)
        elif name != "heartbeat":
            data = Path(entry.path).read_bytes()
            if not target.exists() or target.read_bytes() != data:
                target.write_bytes(data)
