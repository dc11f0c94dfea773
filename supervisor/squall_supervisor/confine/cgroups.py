"""A cgroup for each worker: the kernel holds it, and everything it starts, to its limits.

    {hierarchy}/{storm.supervisor.cgroup.rootdir}/NODE/WORKER_ID

NODE stands for this node's `storm.local.dir`, which keeps the supervisors of one machine apart.
With cgroup v2 there is one hierarchy, with v1 one per controller. A worker enters its cgroup before
it is executed; when it has ended, its cgroup is removed with everything that still runs in it.
Nothing is kept in memory: the folders are the state, so after a kill at any moment the next
supervisor finds its workers' cgroups, and those no longer in use, by their names.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from squall_common.daemon.logs import get_logger
from squall_common.errors import ConfigError
from squall_supervisor.confine.confinement import Confinement, start_confined
from squall_supervisor.confine.limits import MIB, WorkerLimits

log = get_logger(__name__)

PERIOD_MICROS = 100_000
_QUOTA_MICROS_MIN = 1_000
_MEMORY_BYTES_MAX = 2**62
# Killed processes leave their cgroup at once, unless the kernel is still busy with them.
_REMOVE_SECS = 5.0


@dataclass(frozen=True, slots=True)
class CgroupSettings:
    """Where workers' cgroups are made, and by which controllers they are limited."""

    folder: Path | None  # None: where they are mounted
    rootdir: str
    controllers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Hierarchies:
    """Where the controllers are: `folders` by controller; with v2 all are the same."""

    version: int
    folders: Mapping[str, Path]


def find_hierarchies(mountinfo: str, v2_controllers: Mapping[Path, str]) -> Hierarchies | None:
    """The mounted hierarchies, from the text of /proc/self/mountinfo (proc(5)) and the text of each
    v2 mount's cgroup.controllers. v2 if it has the memory controller, else v1; None if neither is
    mounted."""
    v1: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        head, found, tail = line.partition(" - ")
        fields, after = head.split(), tail.split()
        if not found or len(fields) < 5 or len(after) < 3:
            continue
        mount = Path(fields[4].encode().decode("unicode_escape"))
        if after[0] == "cgroup2" and "memory" in v2_controllers.get(mount, "").split():
            return Hierarchies(2, dict.fromkeys(v2_controllers[mount].split(), mount))
        if after[0] == "cgroup":
            v1.update(dict.fromkeys(after[2].split(","), mount))
    return Hierarchies(1, v1) if "memory" in v1 else None


def hierarchies_of_machine(folder: Path | None) -> Hierarchies:
    """The hierarchies of this machine, or below `folder` (`storm.cgroup.hierarchy.dir`). Raises
    ConfigError."""
    if folder is not None:
        if (folder / "cgroup.controllers").exists():
            names = (folder / "cgroup.controllers").read_text().split()
            return Hierarchies(2, dict.fromkeys(names, folder))
        names = [name for name in ("memory", "cpu") if (folder / name).is_dir()]
        if not names:
            raise ConfigError(f"storm.cgroup.hierarchy.dir is {folder}, which has no cgroups")
        return Hierarchies(1, {name: folder / name for name in names})
    try:
        mountinfo = Path("/proc/self/mountinfo").read_text()
    except OSError as error:
        raise ConfigError(f"the mounted cgroups cannot be read: {error}") from error
    mounts = [Path(line.split()[4]) for line in mountinfo.splitlines() if " - cgroup2 " in line]
    controllers = {}
    for mount in mounts:
        with contextlib.suppress(OSError):
            controllers[mount] = (mount / "cgroup.controllers").read_text()
    found = find_hierarchies(mountinfo, controllers)
    if found is None:
        raise ConfigError(
            "storm.resource.isolation.plugin.enable is set, but no cgroup hierarchy with the "
            "memory controller is mounted",
            hint="Mount cgroup2 at /sys/fs/cgroup, or leave the option out: the supervisor then "
            "watches memory by itself.",
        )
    return found


class Cgroups:
    """The cgroups of one node's workers. Every method blocks on the kernel for a short time; call
    it in threads."""

    def __init__(
        self,
        hierarchies: Hierarchies,
        *,
        rootdir: str,
        local_dir: Path,
        controllers: Sequence[str],
        margin_mb: float,
    ) -> None:
        self._version = hierarchies.version
        self._margin_mb = margin_mb
        self._controllers = tuple(controllers)
        missing = [name for name in controllers if name not in hierarchies.folders]
        if missing:
            raise ConfigError(
                f"the cgroup controller{'s' * (len(missing) > 1)} {', '.join(missing)} "
                f"cannot be used here; cgroup v{self._version} has "
                f"{', '.join(sorted(hierarchies.folders)) or 'none'}",
                hint="Take them out of storm.cgroup.resources, or enable them in the kernel.",
            )
        own = f"{os.uname().nodename} {local_dir}".encode(errors="surrogateescape")
        name = f"supervisor-{hashlib.sha256(own).hexdigest()[:16]}"
        self._rootdir = rootdir
        self._mounts = {one: hierarchies.folders[one] for one in controllers}
        self._homes = {one: mount / rootdir / name for one, mount in self._mounts.items()}

    @property
    def version(self) -> int:
        return self._version

    def prepare(self) -> None:
        """Make the folders above the workers', and check that a worker could be confined. Raises
        ConfigError that says what is missing."""
        try:
            for controller in self._controllers:
                self._prepare(controller)
            trial = "trial"
            self.remove(trial)
            folders = self.make(trial, WorkerLimits(1024.0, "", 100.0))
            try:
                self._try_to_enter(folders)
            finally:
                self.remove(trial)
        except OSError as error:
            raise ConfigError(
                f"storm.resource.isolation.plugin.enable is set, but workers cannot be given "
                f"cgroups (v{self._version}): {error}",
                hint="The supervisor has to be root, or own the folder that "
                "storm.cgroup.hierarchy.dir names; in a container /sys/fs/cgroup has to be "
                "writable. With cgroup v2 that folder must hold no processes of its own.",
            ) from error

    def _prepare(self, controller: str) -> None:
        home = self._homes[controller]
        mount = self._mounts[controller]
        path = mount
        for part in (None, *home.relative_to(mount).parts):
            if part is not None:
                path = path / part
                self._mkdir(path)
            if self._version == 2:
                _write(path / "cgroup.subtree_control", f"+{controller}")

    def _try_to_enter(self, folders: tuple[Path, ...]) -> None:
        null = Path(os.devnull)
        child = start_confined(
            [sys.executable, "-I", "-S", "-c", ""],
            {},
            Confinement(cgroups=folders),
            cwd=Path("/"),
            out=null,
            err=null,
            launch_file=null,
            marks={},
        )
        child.wait(timeout=60.0)

    def make(self, worker_id: str, limits: WorkerLimits) -> tuple[Path, ...]:
        """Make the folders of a worker's cgroup, with its limits set. Raises OSError, and then
        leaves nothing behind."""
        folders = self._folders(worker_id)
        try:
            for folder in folders:
                self._mkdir(folder)
            if limits.memory_mb is not None and "memory" in self._homes:
                self._limit_memory(self._homes["memory"] / worker_id, limits.memory_mb)
            if limits.cpu_percent is not None and "cpu" in self._homes:
                self._limit_cpu(self._homes["cpu"] / worker_id, limits.cpu_percent)
        except OSError:
            self.remove(worker_id)
            raise
        return folders

    def _limit_memory(self, folder: Path, memory_mb: float) -> None:
        limit = str(min(int((memory_mb + self._margin_mb) * MIB), _MEMORY_BYTES_MAX))
        if self._version == 2:
            _write(folder / "memory.max", limit)
            _write_if_there(folder / "memory.swap.max", "0")
            _write_if_there(folder / "memory.oom.group", "1")
        else:
            _write(folder / "memory.limit_in_bytes", limit)
            _write_if_there(folder / "memory.memsw.limit_in_bytes", limit)

    def _limit_cpu(self, folder: Path, percent: float) -> None:
        quota = max(int(percent * PERIOD_MICROS / 100), _QUOTA_MICROS_MIN)
        unlimited = percent >= 100 * (os.cpu_count() or 1)  # the kernel refuses the very large
        if self._version == 2:
            _write_if_there(folder / "cpu.weight", str(int(min(max(percent, 1), 10_000))))
            if not unlimited:
                _write(folder / "cpu.max", f"{quota} {PERIOD_MICROS}")
        else:
            shares = int(min(max(percent * 1024 / 100, 2), 262_144))
            _write_if_there(folder / "cpu.shares", str(shares))
            if not unlimited:
                _write(folder / "cpu.cfs_period_us", str(PERIOD_MICROS))
                _write(folder / "cpu.cfs_quota_us", str(quota))

    def limits_memory(self, worker_id: str) -> bool:
        """Whether the kernel itself enforces a worker's memory limit."""
        return "memory" in self._homes and (self._homes["memory"] / worker_id).is_dir()

    def oom_kills(self, worker_id: str) -> int:
        """How many of a worker's processes the kernel has killed because the cgroup ran out of
        memory."""
        if "memory" not in self._homes:
            return 0
        name = "memory.events" if self._version == 2 else "memory.oom_control"
        try:
            text = (self._homes["memory"] / worker_id / name).read_text()
        except OSError:
            return 0
        found = dict(line.split(None, 1) for line in text.splitlines() if " " in line)
        return int(found.get("oom_kill", 0))

    def remove(self, worker_id: str) -> None:
        """End the processes left in a worker's cgroup, and remove it. If that fails, it is logged,
        and the next `sweep` removes the cgroup."""
        deadline = time.monotonic() + _REMOVE_SECS
        for folder in self._folders(worker_id):
            try:
                _remove_tree(folder, deadline)
            except OSError as error:
                log.warning("cgroup_not_removed", folder=folder, error=error)

    def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove the cgroups of workers that are not in `keep`; returns their ids."""
        found = set()
        for home in set(self._homes.values()):
            with contextlib.suppress(FileNotFoundError):
                found |= {path.name for path in home.iterdir() if path.is_dir()}
        doomed = sorted(found - set(keep))
        for worker_id in doomed:
            self.remove(worker_id)
        return doomed

    def _folders(self, worker_id: str) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(home / worker_id for home in self._homes.values()))

    def _mkdir(self, folder: Path) -> None:
        folder.mkdir(mode=0o755, exist_ok=True)


def cgroups_of(
    wanted: CgroupSettings | None, *, local_dir: Path, margin_mb: float
) -> Cgroups | None:
    """The cgroups that the configuration asks for, if any. Raises ConfigError if the machine has
    none."""
    if wanted is None:
        return None
    return Cgroups(
        hierarchies_of_machine(wanted.folder),
        rootdir=wanted.rootdir,
        local_dir=local_dir,
        controllers=wanted.controllers,
        margin_mb=margin_mb,
    )


def _remove_tree(folder: Path, deadline: float) -> None:
    """Raises OSError if it is not empty at the deadline."""
    while True:
        try:
            below = [path for path in folder.iterdir() if path.is_dir()]
        except FileNotFoundError:
            return
        for path in below:
            _remove_tree(path, deadline)
        _kill_all(folder)
        try:
            folder.rmdir()
            return
        except FileNotFoundError:
            return
        except OSError:
            if time.monotonic() >= deadline:
                raise
        time.sleep(0.02)


def _kill_all(folder: Path) -> None:
    """SIGKILL every process in a cgroup. A pid is looked up again once a pidfd holds it, so that
    the signal goes only to a process that is in the cgroup, whichever process had the number
    before."""
    for pid in _pids(folder):
        try:
            pidfd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if pid in _pids(folder):
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        finally:
            os.close(pidfd)


def _pids(folder: Path) -> Iterator[int]:
    try:
        text = (folder / "cgroup.procs").read_text()
    except OSError:
        return iter(())
    return (int(word) for word in text.split() if int(word) > 0)


def _write(path: Path, text: str) -> None:
    """Raises OSError that names the file."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    except OSError as error:
        raise OSError(error.errno, f"cannot write {text!r} to {path}: {error.strerror}") from error
    finally:
        os.close(fd)


def _write_if_there(path: Path, text: str) -> None:
    """For files that not every kernel has: swap accounting can be off."""
    with contextlib.suppress(FileNotFoundError):
        _write(path, text)
