"""Users' blobs on a supervisor: whole, updated by a rename, counted by the workers' folders."""

import hashlib
import io
import json
import os
import shutil
import tarfile
from pathlib import Path

import pytest

from squall_common.packaging.blob_map import BlobLink
from squall_supervisor.blobs import cache as blob_cache
from squall_supervisor.blobs.cache import BlobCache
from squall_supervisor.blobs.source import BlobError, LocalizeError

WORDS = BlobLink("words", "w.txt")
PYTHON = BlobLink("python", "newPython", uncompress=True)
MODEL = BlobLink("model", "model", worker_restart=True)


def archive(text: bytes) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo("bin/run")
        info.size, info.mode = len(text), 0o755
        tar.addfile(info, io.BytesIO(text))
        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, "run"
        tar.addfile(link)
    return buffer.getvalue()


class Blobs:
    """Nimbus: content and version by key."""

    def __init__(self) -> None:
        self.blobs = {"words": (1, b"one"), "python": (1, archive(b"v1")), "model": (1, b"m")}
        self.away = False
        self.fetched: list[str] = []

    def put(self, key: str, data: bytes) -> None:
        self.blobs[key] = (self.blobs.get(key, (0, b""))[0] + 1, data)

    async def fetch(self, keys: dict[str, Path]) -> dict[str, int]:
        if self.away:
            raise BlobError("Nimbus cannot be reached")
        for key, path in keys.items():
            self.fetched.append(key)
            path.write_bytes(self.blobs[key][1])
        return {key: self.blobs[key][0] for key in keys}

    async def versions(self, keys: list[str]) -> dict[str, int]:
        if self.away:
            raise BlobError("Nimbus cannot be reached")
        missing = [key for key in keys if key not in self.blobs]
        if missing:
            raise BlobError(f"Nimbus has no such blob: {missing[0]}")
        return {key: self.blobs[key][0] for key in keys}


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()


@pytest.fixture
def workers(tmp_path: Path) -> Path:
    path = tmp_path / "workers"
    path.mkdir()
    return path


@pytest.fixture
def cache(tmp_path: Path, workers: Path, blobs: Blobs) -> BlobCache:
    (tmp_path / "tmp").mkdir()
    made = BlobCache(tmp_path / "blobs", tmp_path / "tmp", workers, blobs, target_bytes=1_000_000)
    made.prepare()
    return made


def worker(cache: BlobCache, workers: Path, name: str, *links: BlobLink) -> Path:
    folder = workers / name
    folder.mkdir()
    cache.link(folder, links)
    return folder


def versions(cache: BlobCache, link: BlobLink) -> list[str]:
    home = cache._home(link)
    return sorted(path.name for path in home.iterdir() if path.is_dir())


async def test_a_worker_finds_its_files_and_folders(cache, workers) -> None:
    await cache.localize([WORDS, PYTHON])
    folder = worker(cache, workers, "a", WORDS, PYTHON)
    assert (folder / "w.txt").read_bytes() == b"one"
    assert (folder / "newPython/bin/python").read_bytes() == b"v1"
    assert os.access(folder / "newPython/bin/run", os.X_OK)


async def test_a_blob_on_disk_is_not_fetched_again_and_is_used_while_nimbus_is_away(
    cache, blobs
) -> None:
    await cache.localize([WORDS])
    await cache.localize([WORDS])
    blobs.away = True
    await cache.localize([WORDS])
    assert blobs.fetched == ["words"]
    with pytest.raises(LocalizeError, match="cannot be reached"):
        await cache.localize([WORDS, PYTHON])


async def test_an_update_renames_the_link_and_keeps_what_the_worker_has_open(
    cache, blobs, workers
) -> None:
    await cache.localize([WORDS, PYTHON])
    folder = worker(cache, workers, "a", WORDS, PYTHON)
    old = (folder / "newPython").resolve()
    with (folder / "w.txt").open("rb") as held:
        blobs.put("words", b"two")
        blobs.put("python", archive(b"v2"))
        assert await cache.update([WORDS, PYTHON], [folder]) == []
        cache.clean_up([WORDS, PYTHON])
        assert held.read() == b"one"
    assert (folder / "w.txt").read_bytes() == b"two"
    assert (folder / "newPython/bin/run").read_bytes() == b"v2"
    assert (old / "bin/run").read_bytes() == b"v1"  # an interpreter that runs loads more of itself
    given = json.loads((folder / "blobs.json").read_bytes())
    assert given["w.txt"]["versions"] == [1, 2]
    # The worker ends, and with it the count.
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    cache.clean_up([WORDS, PYTHON])
    assert versions(cache, WORDS) == versions(cache, PYTHON) == ["2"]


async def test_a_crash_between_list_and_link_is_repaired(
    cache, blobs, workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor dies, or the disk is full, just before the link is renamed."""
    await cache.localize([WORDS])
    folder = worker(cache, workers, "a", WORDS)
    blobs.put("words", b"two")
    replace = os.replace

    def fails(source: object, target: Path) -> None:
        if Path(target) == folder / "w.txt":
            raise OSError(28, "No space left on device")
        replace(source, target)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "replace", fails)
    await cache.update([WORDS], [folder])
    monkeypatch.setattr(os, "replace", replace)
    assert (folder / "w.txt").read_bytes() == b"one"
    assert sorted(path.name for path in folder.iterdir()) == ["blobs.json", "w.txt"]
    await cache.update([WORDS], [folder])
    assert (folder / "w.txt").read_bytes() == b"two"
    assert json.loads((folder / "blobs.json").read_bytes())["w.txt"]["versions"] == [1, 2]


async def test_a_blob_that_asks_for_a_restart_is_left_alone(cache, blobs, workers) -> None:
    await cache.localize([MODEL])
    folder = worker(cache, workers, "a", MODEL)
    assert await cache.update([MODEL], [folder]) == []
    blobs.put("model", b"m2")
    assert await cache.update([MODEL], [folder]) == [MODEL]
    assert (folder / "model").read_bytes() == b"m"
    await cache.localize([MODEL])  # between the end of the worker and its next start
    assert (worker(cache, workers, "b", MODEL) / "model").read_bytes() == b"m2"


async def test_a_deleted_blob_changes_nothing_for_running_workers(cache, blobs, workers) -> None:
    await cache.localize([WORDS])
    folder = worker(cache, workers, "a", WORDS)
    del blobs.blobs["words"]
    assert await cache.update([WORDS], [folder]) == []
    assert (folder / "w.txt").read_bytes() == b"one"


@pytest.mark.parametrize("spoil", ["bytes", "mode", "gone", "manifest"])
async def test_a_spoiled_blob_is_fetched_again(cache, blobs, workers, spoil: str) -> None:
    await cache.localize([PYTHON])
    here = cache.current(PYTHON)
    run = here.data / "bin/run"
    if spoil == "bytes":
        run.write_bytes(b"v0")
    elif spoil == "mode":
        run.chmod(0o644)
    elif spoil == "gone":
        run.unlink()
    else:
        (here.folder / "manifest.json").write_bytes(b"[[[")
    (here.data / "__pycache__").mkdir()  # what came later does not matter
    await cache.localize([PYTHON])
    assert blobs.fetched == ["python", "python"]
    folder = worker(cache, workers, "a", PYTHON)
    assert (folder / "newPython/bin/python").read_bytes() == b"v1"
    assert os.access(folder / "newPython/bin/run", os.X_OK)


async def test_an_archive_that_cannot_be_unpacked_is_reported(cache, blobs) -> None:
    blobs.put("python", b"no archive at all")
    with pytest.raises(LocalizeError, match=r"python cannot be unpacked: .*is not an archive"):
        await cache.localize([PYTHON])
    assert cache.current(PYTHON) is None


async def test_unused_blobs_stay_up_to_the_target_and_used_ones_always_stay(
    cache, blobs, workers
) -> None:
    links = [BlobLink(f"blob-{i}", "x") for i in range(4)]
    for link in links:
        blobs.put(link.key, bytes(400_000))
    await cache.localize(links)
    for age, link in enumerate(links):
        os.utime(cache._home(link), (1_000 + age, 1_000 + age))
    worker(cache, workers, "a", links[0])
    cache.clean_up([links[1]])  # named by a topology on this disk
    assert [cache.current(link) is not None for link in links] == [True, True, False, False]
    cache.clean_up([])
    assert [cache.current(link) is not None for link in links[:2]] == [True, True]


async def test_a_clean_up_reads_a_version_once_and_does_not_delay_launches(
    cache, blobs, workers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An interpreter has tens of thousands of files."""
    measured: list[Path] = []
    measure, remove = blob_cache._bytes_under, shutil.rmtree
    monkeypatch.setattr(
        blob_cache, "_bytes_under", lambda folder: measured.append(folder) or measure(folder)
    )
    removed: list[object] = []

    def counted(folder: object, **options: object) -> None:
        assert not cache._choosing.locked()
        removed.append(folder)
        remove(folder, **options)  # type: ignore[arg-type]

    await cache.localize([WORDS, PYTHON])
    for _ in range(3):
        cache.clean_up([WORDS, PYTHON])
    assert len(measured) == 2
    blobs.put("words", b"two")
    await cache.localize([WORDS])
    monkeypatch.setattr(shutil, "rmtree", counted)
    cache.clean_up([WORDS, PYTHON])
    assert len(measured) == 3
    assert len(removed) == 1
    assert versions(cache, WORDS) == ["2"]
    assert list(cache._temporary.iterdir()) == []


async def test_a_crash_leaves_a_whole_version_or_none(cache, blobs, tmp_path) -> None:
    await cache.localize([WORDS])
    blobs.put("words", b"two")

    def dies(*args: object) -> None:
        raise OSError("the machine stops")

    cache._complete = dies
    with pytest.raises(LocalizeError):
        await cache.localize([WORDS])
    assert cache.current(WORDS).data.read_bytes() == b"one"
    assert list((tmp_path / "tmp").iterdir()) == []


def test_a_damaged_list_of_links_is_ignored(cache, workers) -> None:
    folder = workers / "a"
    folder.mkdir()
    for damage in (b"", b"[]", b'{"x": 1}', b'{"x": {"key": "k"}}', b"[" * 100_000):
        (folder / "blobs.json").write_bytes(damage)
        cache.clean_up([])


async def test_bytes_that_no_topology_here_may_have_are_not_given_to_workers(
    tmp_path: Path, workers: Path, blobs: Blobs
) -> None:
    (tmp_path / "tmp").mkdir()
    signed = {("words", hashlib.sha256(b"one").hexdigest())}
    cache = BlobCache(
        tmp_path / "blobs",
        tmp_path / "tmp",
        workers,
        blobs,
        target_bytes=1_000_000,
        is_signed=lambda key, digest: (key, digest) in signed,
    )
    cache.prepare()
    await cache.localize([WORDS])
    folder = worker(cache, workers, "w1", WORDS)
    blobs.put("words", b"two")
    with pytest.raises(LocalizeError, match="not those that Nimbus has signed"):
        await cache.update([WORDS], [folder])
    assert (folder / "w.txt").read_bytes() == b"one"
    signed.add(("words", hashlib.sha256(b"two").hexdigest()))
    await cache.update([WORDS], [folder])
    assert (folder / "w.txt").read_bytes() == b"two"
