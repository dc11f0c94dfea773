"""A power failure or a full disk at every step of what the daemons write: the next start reads what
was promised, the state before or the one after, and never something else.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from tests.simulation.crash_points import CrashPoints
from tests.simulation.disk import Disk
from tests.support.nimbus_service import topology

from squall_common.cluster.values import Access
from squall_common.config.load import default_conf
from squall_common.daemon.clock import SystemClock
from squall_common.daemon.files import make_dirs
from squall_common.errors import SquallError
from squall_common.names import code_blob_key, conf_blob_key
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.blob_map import BlobLink
from squall_common.security.credentials import TopologyCredentials
from squall_common.topology.model import Executor
from squall_nimbus.blobs.store import BlobNotFoundError, BlobStore
from squall_nimbus.store.topology_store import TopologyStore, compile_topology
from squall_supervisor.blobs.cache import BlobCache
from squall_supervisor.blobs.environments import Environments
from squall_supervisor.blobs.localizer import Localizer
from squall_supervisor.blobs.source import LocalizeError
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.processes import ProcessIdentity
from squall_supervisor.records.state_file import LocalState, LocalStateFile
from squall_supervisor.records.worker_record import WorkerRecord
from squall_thrift.codec import to_bytes

pytestmark = pytest.mark.timeout(600)

POINTS_MIN = 2000  # R14
PHOTOS = 7
TOPOLOGY = "words-1-17"


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """On a memory file system, which gives no inode number twice."""
    base = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="squall-crash-", dir=base))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# Each piece of work is what a daemon does with real code, and a judge who reads as the next start
# does. `promised` maps what may be asked for to all that may be found.


class SupervisorState:
    """The local state, saved again and again, and the record of a worker at its launch."""

    @staticmethod
    def work(disk: Path, points: CrashPoints) -> None:
        points.promised = {"state": [None], "record": [None]}
        make_dirs(disk / "supervisor")
        file = LocalStateFile(disk / "supervisor" / "localstate")
        for number in range(6):
            ports = {6700 + n: assignment(number) for n in range(number)}
            state = LocalState("node", 100 * number, ports)
            points.promised["state"].append(state)
            file.save(state)
            points.promised["state"] = [state]
        worker_dir = disk / "workers" / "w1"
        make_dirs(worker_dir)
        record = WorkerRecord("w1", 6700, assignment(5), 7, 30.0)
        for next_record in (record, record.with_process(ProcessIdentity(5, 6, "boot"))):
            points.promised["record"].append(next_record)
            next_record.write(worker_dir)
            points.promised["record"] = [next_record]

    @staticmethod
    def judge(disk: Path, promised: Any) -> None:
        assert LocalStateFile(disk / "supervisor" / "localstate").load() in promised["state"]
        try:
            record = WorkerRecord.read(disk / "workers" / "w1")
        except FileNotFoundError:
            record = None
        assert record in promised["record"]


def assignment(number: int) -> PortAssignment:
    return PortAssignment(TOPOLOGY, (Executor(1, number + 1),), number, "me")


class NimbusBlobs:
    """Blobs made, changed, received from another Nimbus, put aside and deleted."""

    @staticmethod
    def work(disk: Path, points: CrashPoints) -> None:
        promised = points.promised = {key: [None] for key in ("a", "b", "c", "d")}
        store = BlobStore(disk / "nimbus" / "blobs")
        store.open()

        def change(key: str, to: bytes | None, change: Callable[[], object]) -> None:
            promised[key].append(to)
            change()
            promised[key] = [to]

        change("a", b"a1" * 500, lambda: store.put("a", b"a1" * 500, acl=(Access(2, "me", 7),)))
        change("b", b"b1", lambda: store.put("b", b"b1"))
        for number in range(3):
            data = f"{number} ".encode() * (number * 300 + 1)
            change("a", data, lambda data=data: store.put("a", data))  # type: ignore[misc]
        store.set_meta("a", replication=3)
        source = disk / "upload"
        source.write_bytes(b"package")
        change("c", b"package", lambda: store.put_file("c", source))
        received = BlobStore(disk / "other")
        received.open()
        meta = received.put("d", b"from there")

        def receive() -> None:
            writer = store.receive(meta)
            writer.write(b"from there")
            writer.commit_as(meta)

        change("d", b"from there", receive)
        change("b", None, lambda: store.delete("b"))
        change("c", None, lambda: store.put_aside("c"))
        change("b", b"b2", lambda: store.put("b", b"b2"))

    @staticmethod
    def judge(disk: Path, promised: Any) -> None:
        store = BlobStore(disk / "nimbus" / "blobs")
        store.open()
        for key, allowed in promised.items():
            found = store.read(key) if key in store else None
            assert found in allowed, f"{key}: {found!r}"
            if found is not None:
                assert store.meta(key).size == len(found)


class NimbusTopologies:
    """Topologies stored at a submit; the configuration of one changed by a rebalance."""

    @staticmethod
    def work(disk: Path, points: CrashPoints) -> None:
        promised = points.promised = {"words-1-17": [None], "words-2-18": [None]}
        topology_store = NimbusTopologies.open(disk)
        package = disk / "package"
        package.write_bytes(b"PK package")
        for topology_id in promised:
            conf = {**default_conf(), "topology.name": topology_id}
            stored = compile_topology(topology_id, topology(), conf)
            promised[topology_id].append(conf)
            asyncio.run(topology_store.store(stored, package, "me"))
            promised[topology_id] = [conf]
        changed = {**conf, "topology.workers": 4}
        promised[topology_id].append(changed)
        asyncio.run(topology_store.store_conf(topology_id, changed))
        promised[topology_id] = [changed]

    @staticmethod
    def open(disk: Path) -> TopologyStore:
        blobs = BlobStore(disk / "nimbus" / "blobs")
        blobs.open()
        topology_store = TopologyStore(blobs, disk / "nimbus" / "stormdist")
        topology_store.open()
        return topology_store

    @staticmethod
    def judge(disk: Path, promised: Any) -> None:
        topology_store = NimbusTopologies.open(disk)
        topology_store.ids()
        for topology_id, allowed in promised.items():
            try:
                found = topology_store.get(topology_id).conf
            except BlobNotFoundError:
                found = None
            assert found in allowed, topology_id


class Source:
    """Nimbus, as a supervisor asks it."""

    def __init__(self) -> None:
        self.version = 1

    async def versions(self, keys: list[str]) -> dict[str, int]:
        return dict.fromkeys(keys, self.version)

    async def fetch(self, keys: dict[str, Path]) -> dict[str, int]:
        for key, path in keys.items():
            path.write_bytes(self.content(key))
        return dict.fromkeys(keys, self.version)

    async def topology_credentials(
        self, topology_id: str, supervisor_id: str
    ) -> TopologyCredentials | None:
        return TopologyCredentials(topology_id, self.version, {"user": "ann"})

    def content(self, key: str) -> bytes:
        if key == code_blob_key(TOPOLOGY):
            return to_bytes(topology())
        if key == conf_blob_key(TOPOLOGY):
            return b'{"version": %d}' % self.version
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("words.py", f"VERSION = {self.version}\n")
            archive.writestr("resources/more.txt", "more")
        return buffer.getvalue()


class SupervisorTopologies:
    """A topology fetched, and its next version; a blob of a user's in two forms, in two versions,
    for a worker. What was fetched may be lost (it is fetched again); if it is there, it is whole.
    """

    LINKS = (BlobLink("words", "words.zip"), BlobLink("words", "words", uncompress=True))

    @staticmethod
    def work(disk: Path, points: CrashPoints) -> None:
        points.promised = {"versions": [None, 1, 2]}
        asyncio.run(SupervisorTopologies._work(disk))

    @staticmethod
    async def _work(disk: Path) -> None:
        source = Source()
        localizer = SupervisorTopologies.open(disk, source)
        cache = localizer.cache
        assert cache is not None
        await localizer.localize(TOPOLOGY)
        await cache.localize(SupervisorTopologies.LINKS)
        worker_dir = disk / "workers" / "w1"
        make_dirs(worker_dir)
        cache.link(worker_dir, SupervisorTopologies.LINKS)
        source.version = 2
        await localizer.update(TOPOLOGY)
        await cache.update(SupervisorTopologies.LINKS, [worker_dir])
        shutil.rmtree(worker_dir)
        cache.clean_up(SupervisorTopologies.LINKS)
        await localizer.remove(TOPOLOGY)

    @staticmethod
    def open(disk: Path, source: Source) -> Localizer:
        folder, temporary = disk / "supervisor", disk / "supervisor" / "tmp"
        workers = disk / "workers"
        cache = BlobCache(folder / "blobs", temporary, workers, source, target_bytes=10**6)
        localizer = Localizer(
            folder / "stormdist", temporary, source, SystemClock(), limits=Limits(),
            downloads_max=2, cache=cache,
            environments=Environments(folder / "environments", temporary, source, version="1"),
        )  # fmt: skip
        localizer.prepare()
        return localizer

    @staticmethod
    def judge(disk: Path, promised: Any) -> None:
        source = Source()
        source.version = 2
        localizer = SupervisorTopologies.open(disk, source)
        cache = localizer.cache
        assert cache is not None
        found = localizer.read(TOPOLOGY)
        if found is not None:
            assert localizer.intact(TOPOLOGY)
            assert found.conf["version"] in promised["versions"]
            text = (found.path / "code" / "words.py").read_text()
            assert text == f"VERSION = {found.conf['version']}\n"
        for link in SupervisorTopologies.LINKS:
            version = cache.current(link)
            if version is not None:
                assert version.number in promised["versions"]
        # All is whole afterwards, and nobody had to tidy up.
        asyncio.run(SupervisorTopologies._again(localizer, cache))

    @staticmethod
    async def _again(localizer: Localizer, cache: BlobCache) -> None:
        await localizer.update(TOPOLOGY)
        await cache.localize(SupervisorTopologies.LINKS)
        found = localizer.read(TOPOLOGY)
        assert found is not None
        assert found.conf["version"] == 2
        await localizer.update_credentials(TOPOLOGY)
        assert localizer.credentials(TOPOLOGY).number == 2
        for link in SupervisorTopologies.LINKS:
            version = cache.current(link)
            assert version is not None
            assert version.number == 2
            if link.uncompress:
                assert (version.data / "words.py").read_text() == "VERSION = 2\n"
            else:
                assert zipfile.ZipFile(version.data).testzip() is None


class LargeTopologies(SupervisorTopologies):
    """The same with packages so large that they are synced with their whole file system."""

    @staticmethod
    def work(disk: Path, points: CrashPoints) -> None:
        with mock.patch("squall_common.daemon.files._FSYNCS_MAX", 0):
            SupervisorTopologies.work(disk, points)


WORKS: tuple[Any, ...] = (
    SupervisorState, NimbusBlobs, NimbusTopologies, SupervisorTopologies, LargeTopologies,
)  # fmt: skip


def unreadable(work: Any, folder: Path, seed: int, photos: int = PHOTOS) -> tuple[int, list[str]]:
    """How many power failures there were, and what could not be read after them."""
    points = CrashPoints(folder, seed=seed, photos=photos)
    with points.watching():
        work.work(points.disk_folder, points)
    wrong = []
    for point in points.taken:
        try:
            work.judge(point.folder, point.promised)
        except Exception as error:
            what = f"{work.__name__}, before step {point.step}"
            wrong.append(f"{what}: {type(error).__name__} {error}")
    return len(points.taken), wrong


def test_no_power_failure_leaves_state_that_cannot_be_read() -> None:
    count, wrong = 0, []
    for seed, work in enumerate(WORKS):
        with scratch() as folder:
            points, found = unreadable(work, folder, seed)
        count += points
        wrong += found
    print(f"{count} crash points, {len(wrong)} unreadable")
    assert wrong == []
    assert count >= POINTS_MIN


@pytest.mark.parametrize("work", WORKS)
def test_a_missing_fsync_is_found(work: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Disk, "skip_fsync", True)
    with scratch() as folder:
        assert unreadable(work, folder, 1, photos=2)[1]


@pytest.mark.parametrize("work", WORKS)
def test_a_disk_that_is_full_from_any_step_on_spoils_nothing(work: Any) -> None:
    """The error is one that the daemons expect, and once there is room again all goes on."""
    with scratch() as folder:
        points = CrashPoints(folder)
        with points.watching():
            work.work(points.disk_folder, points)
    assert points.steps > 10
    for step in range(1, points.steps):
        with scratch() as folder:
            full = CrashPoints(folder)
            full.fill_disk_at(step)
            with full.watching(), contextlib.suppress(SquallError, LocalizeError, OSError):
                work.work(full.disk_folder, full)
            work.judge(full.disk_folder, full.promised)
