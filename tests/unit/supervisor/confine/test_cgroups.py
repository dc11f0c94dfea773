"""Workers' cgroups: what is written where, on a made-up tree; and the kernel's own where it may be
used."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall_common.errors import ConfigError
from squall_supervisor.confine.cgroups import (
    Cgroups,
    Hierarchies,
    find_hierarchies,
    hierarchies_of_machine,
)
from squall_supervisor.confine.limits import WorkerLimits

V1 = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 / /sys/fs/cgroup/memory rw master:1 - cgroup cgroup rw,memory
34 31 0:31 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,name=systemd
"""
V2_LINE = "40 23 0:40 / /sys/fs/cgroup rw shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"
HYBRID = V1 + "41 31 0:41 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n"


def test_hierarchies_are_found_where_they_are_mounted() -> None:
    found = find_hierarchies(V1, {})
    assert found is not None
    assert found.version == 1
    assert found.folders["memory"] == Path("/sys/fs/cgroup/memory")
    assert found.folders["cpu"] == Path("/sys/fs/cgroup/cpu,cpuacct")
    root = Path("/sys/fs/cgroup")
    assert find_hierarchies(V2_LINE, {root: "cpuset cpu io memory\n"}) == Hierarchies(
        2, {"cpuset": root, "cpu": root, "io": root, "memory": root}
    )


def test_a_v2_mount_without_the_memory_controller_does_not_count() -> None:
    unified = Path("/sys/fs/cgroup/unified")
    found = find_hierarchies(HYBRID, {unified: "hugetlb"})
    assert found is not None
    assert found.version == 1
    assert find_hierarchies(V2_LINE, {Path("/sys/fs/cgroup"): ""}) is None
    assert find_hierarchies("", {}) is None
    assert find_hierarchies("nonsense - cgroup\n\n", {}) is None


class Tree(Cgroups):
    """On a folder that behaves like a cgroup file system as far as folders and files go."""

    FILES = (
        "cgroup.procs", "cgroup.subtree_control", "memory.max", "memory.oom.group",
        "memory.swap.max", "memory.limit_in_bytes", "cpu.max", "cpu.weight", "cpu.shares",
        "cpu.cfs_quota_us", "cpu.cfs_period_us",
    )  # fmt: skip

    def _mkdir(self, folder: Path) -> None:
        super()._mkdir(folder)
        for name in self.FILES:
            (folder / name).touch()

    def _try_to_enter(self, folders: tuple[Path, ...]) -> None:
        pass

    def remove(self, worker_id: str) -> None:
        for folder in self._folders(worker_id):
            for name in self.FILES:
                (folder / name).unlink(missing_ok=True)
        super().remove(worker_id)


@pytest.fixture
def v2(tmp_path: Path) -> Tree:
    (tmp_path / "cgroup.controllers").write_text("cpu memory pids\n")
    (tmp_path / "cgroup.subtree_control").touch()
    return tree(tmp_path)


def tree(folder: Path, controllers: tuple[str, ...] = ("cpu", "memory")) -> Tree:
    return Tree(
        hierarchies_of_machine(folder),
        rootdir="storm",
        local_dir=Path("/data"),
        controllers=controllers,
        margin_mb=100.0,
    )


def test_v2_takes_memory_without_swap_and_cpu_as_quota_and_weight(v2: Tree, tmp_path: Path) -> None:
    v2.prepare()
    (folder,) = v2.make("w1", WorkerLimits(400.0, "", 70.0))
    assert folder.parent.parent == tmp_path / "storm"
    read = {name: (folder / name).read_text() for name in Tree.FILES}
    assert read["memory.max"] == str(500 << 20)
    assert (read["memory.swap.max"], read["memory.oom.group"]) == ("0", "1")
    assert (read["cpu.max"], read["cpu.weight"]) == ("70000 100000", "70")
    # Enabled on the whole way down; each write replaces the last here, in the kernel it adds.
    for above in (tmp_path, tmp_path / "storm", folder.parent):
        assert (above / "cgroup.subtree_control").read_text().startswith("+")


def test_v1_takes_them_in_one_folder_per_controller(tmp_path: Path) -> None:
    for name in ("memory", "cpu"):
        (tmp_path / name).mkdir()
    cgroups = tree(tmp_path)
    cgroups.prepare()
    folders = cgroups.make("w1", WorkerLimits(400.0, "", 50.0))
    assert len(folders) == 2
    memory = next(one for one in folders if tmp_path / "memory" in one.parents)
    cpu = next(one for one in folders if tmp_path / "cpu" in one.parents)
    assert (memory / "memory.limit_in_bytes").read_text() == str(500 << 20)
    assert (cpu / "cpu.cfs_quota_us").read_text() == "50000"
    assert (cpu / "cpu.shares").read_text() == "512"


def test_undeclared_resources_are_not_limited(v2: Tree) -> None:
    v2.prepare()
    (folder,) = v2.make("w1", WorkerLimits())
    assert (folder / "memory.max").read_text() == (folder / "cpu.max").read_text() == ""


@pytest.mark.parametrize("huge", [1e13, 1e300])
def test_a_value_too_large_for_the_kernel_means_no_limit(v2: Tree, huge: float) -> None:
    v2.prepare()
    (folder,) = v2.make("w1", WorkerLimits(huge, "", huge))
    assert int((folder / "memory.max").read_text()) == 2**62
    assert (folder / "cpu.max").read_text() == ""
    assert (folder / "cpu.weight").read_text() == "10000"


def test_unused_cgroups_are_swept(v2: Tree) -> None:
    v2.prepare()
    for name in ("w1", "w2", "w3"):
        v2.make(name, WorkerLimits())
    assert v2.sweep({"w2", "unknown"}) == ["w1", "w3"]
    assert v2.sweep({"w2"}) == []
    assert v2.limits_memory("w2")
    assert not v2.limits_memory("w1")


def test_a_missing_controller_is_named(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").write_text("cpu pids\n")
    with pytest.raises(ConfigError, match=r"controller memory cannot be used here.*has cpu, pids"):
        tree(tmp_path)
    with pytest.raises(ConfigError, match="has no cgroups"):
        hierarchies_of_machine(tmp_path / "nothing")


def test_an_unwritable_cgroup_is_an_error_at_the_start(v2: Tree, tmp_path: Path) -> None:
    (tmp_path / "cgroup.subtree_control").unlink()
    with pytest.raises(ConfigError, match=r"cannot be given cgroups \(v2\).*subtree_control"):
        v2.prepare()
