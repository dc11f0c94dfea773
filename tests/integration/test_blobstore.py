"""The blob store as users have it: `storm blobstore`, and files that workers find in their folder.

The topology is the one of Storm's documentation: a Python interpreter shipped as an archive, and
run as `./newPython/bin/python` by a shell bolt with `changeChildCWD(false)`.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import sysconfig
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import ROOT, DevCluster, wait_for

pytestmark = pytest.mark.integration

SHIPPED = ROOT / "tests" / "topologies" / "shipped"
FAST = {
    "supervisor.localizer.update.blob.interval.secs": 0.3,
    "supervisor.localizer.cleanup.interval.ms": 300,
    "supervisor.localizer.cache.target.size.mb": 0,
    "supervisor.worker.shutdown.sleep.secs": 1,
}


def interpreter(path: Path) -> Path:
    """This Python, without what a small script does not need, as an archive with links."""
    base, version = Path(sys.base_prefix), f"python{sysconfig.get_python_version()}"
    library = Path(sysconfig.get_path("stdlib"))
    needed = {"encodings", "json", "re", "collections", "importlib", "lib-dynload"}

    def kept(info: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return None if "__pycache__" in info.name or "/test" in info.name else info

    with tarfile.open(path, "w:gz", compresslevel=1) as tar:
        binary = (base / "bin" / version).resolve()
        tar.add(binary, f"bin/{version}")
        link = tarfile.TarInfo("bin/python")
        link.type, link.linkname = tarfile.SYMTYPE, version
        tar.addfile(link)
        for entry in sorted(library.iterdir()):
            if entry.suffix == ".py" or entry.name in needed:
                tar.add(entry, f"lib/{version}/{entry.name}", filter=kept)
        again = tarfile.TarInfo("lib/library")
        again.type, again.linkname = tarfile.SYMTYPE, version
        tar.addfile(again)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    overrides = [f"{key}={value}" for key, value in FAST.items()]
    folder = tmp_path_factory.mktemp("blobstore")
    with DevCluster.start(folder, slots=1, overrides=overrides) as cluster:
        yield cluster


@pytest.fixture(autouse=True)
def _nothing_stays(cluster: DevCluster) -> Iterator[None]:
    yield
    cluster.kill_all()
    for blob in json.loads(cluster.storm("blobstore", "list", "--all", "--json").stdout):
        cluster.storm("blobstore", "set-acl", blob["key"], "-s", "u::rwa")
        cluster.storm("blobstore", "delete", blob["key"])


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    folder.mkdir()
    shutil.copy(SHIPPED / "shipped.py", folder)
    return folder


def now(output: Path, key: str, value: Any) -> dict[str, Any] | None:
    """What it told last, once that has `value` under `key`."""
    found = last(output)
    return found if found is not None and found[key] == value else None


def reported(output: Path) -> list[dict[str, Any]]:
    """What the bolt wrote down, whole lines only."""
    if not output.exists():
        return []
    lines = output.read_text().split("\n")[:-1]
    return [json.loads(line) for line in lines]


def last(output: Path) -> dict[str, Any] | None:
    found = reported(output)
    return found[-1] if found else None


def test_a_shipped_interpreter_runs_and_its_files_are_updated_while_it_does(
    cluster: DevCluster, package: Path, tmp_path: Path
) -> None:
    output = tmp_path / "output.jsonl"
    words = tmp_path / "words.txt"
    words.write_text("one")
    script = SHIPPED / "blobs" / "tell.py"
    cluster.storm("blobstore", "create", "python-3.tgz", "-f", interpreter(tmp_path / "p.tgz"))
    cluster.storm("blobstore", "create", "tell.py", "--file", script, "-a", "u::rwa,o::r")
    cluster.storm("blobstore", "create", "words", "-f", words)
    blobs = {
        "python-3.tgz": {"localname": "newPython", "uncompress": True},
        "tell.py": {"localname": "tell.py", "workerRestart": True},
        "words": {"localname": "words.txt", "uncompress": False, "workerRestart": False},
    }
    cluster.storm("jar", package, "shipped.py", "shipped", output, json.dumps(blobs))

    first = wait_for("the bolt to tell something", lambda: last(output), 60)
    worker_dir = Path(first["cwd"])
    assert worker_dir.parent == cluster.data_dir / "supervisor-1" / "workers"
    # It is the shipped one: its library is where the archive was unpacked.
    unpacked = (worker_dir / "newPython").resolve()
    assert Path(first["prefix"]).resolve() == unpacked
    assert unpacked.is_relative_to(cluster.data_dir / "supervisor-1" / "supervisor" / "blobs")
    assert first["words"] == "one"
    assert first["argv"] == ["./tell.py"]

    # A file that needs no restart is another one while everything runs.
    words.write_text("two")
    cluster.storm("blobstore", "update", "words", "-f", words)
    second = wait_for("the new words", lambda: now(output, "words", "two"), 60)
    assert (second["pid"], second["worker"]) == (first["pid"], first["worker"])

    # One that asks for it restarts the worker.
    script_now = tmp_path / "tell.py"
    script_now.write_text(script.read_text().replace('"argv": sys.argv', '"argv": ["new"]'))
    cluster.storm("blobstore", "update", "tell.py", "-f", script_now)
    third = wait_for("the new script", lambda: now(output, "argv", ["new"]), 60)
    assert third["worker"] != first["worker"]
    assert third["words"] == "two"

    # What a topology uses is not deleted; what nobody uses leaves the disk of the supervisor.
    refused = cluster.storm("blobstore", "delete", "words", check=False)
    assert refused.returncode == 1
    assert "used by shipped-" in refused.stderr
    cluster.storm("kill", "shipped", "-w", "0")
    cluster.wait_gone("shipped")
    cache = cluster.data_dir / "supervisor-1" / "supervisor" / "blobs"
    wait_for("the cache to be empty", lambda: not list(cache.iterdir()), 60)
    for key in ("words", "tell.py", "python-3.tgz"):
        cluster.storm("blobstore", "delete", key)
    assert json.loads(cluster.storm("blobstore", "list", "--all", "--json").stdout) == []


def test_the_command_does_what_storms_does(cluster: DevCluster, tmp_path: Path) -> None:
    source = tmp_path / "source.bin"
    data = os.urandom(700_000)
    source.write_bytes(data)
    storm = cluster.storm
    assert "There are no blobs" in storm("blobstore", "list").stderr
    storm("blobstore", "create", "some key", "-f", source, "-a", "u:bob:r--,o::rw-", "-r", "2")
    (listed,) = json.loads(storm("blobstore", "list", "--json", "some key").stdout)
    assert listed["replication"] == 1
    assert listed["acl"] == "u:bob:r--,o::rw-,u:anonymous:rwa"
    target = tmp_path / "target.bin"
    storm("blobstore", "cat", "some key", "-f", target)
    assert target.read_bytes() == data
    source.write_bytes(b"short")
    storm("blobstore", "update", "some key", "--FILE", source)
    assert storm("blobstore", "cat", "some key").stdout == "short"
    storm("blobstore", "set-acl", "some key", "-s", "o::r")
    (changed,) = json.loads(storm("blobstore", "list", "--json").stdout)
    assert changed["acl"] == "o::r--,u:anonymous:r-a"
    assert changed["version"] > listed["version"]
    shown = storm("blobstore", "replication", "some key", "--read").stdout
    assert shown == "some key current replication factor 1\n"
    # WRITE was given away.
    for words in (("update", "some key", "-f", source), ("delete", "some key")):
        refused = storm("blobstore", *words, check=False)
        assert refused.returncode == 1
        assert "anonymous does not have WRITE" in refused.stderr
    storm("blobstore", "set-acl", "some key", "-s", "u::rwa")
    for words, message in (
        (("create", "some key", "-f", source), "exists already"),
        (("create", "a/b", "-f", source), "may not contain"),
        (("cat", "nothing"), "there is no blob nothing"),
        (("delete", "nothing"), "there is no blob nothing"),
        (("update", "some key", "-f", tmp_path / "missing"), "cannot read"),
        (("list", "nothing"), "there is no blob nothing"),
    ):
        refused = storm("blobstore", *words, check=False)
        assert refused.returncode == 1, words
        assert message in refused.stderr
        assert "Traceback" not in refused.stderr
    for words in (("set-acl", "some key", "-s", "x:y:z"), ("replication", "some key"),
                  ("replication", "some key", "--update"), ("create", "k", "-r", "0")):  # fmt: skip
        assert storm("blobstore", *words, check=False).returncode == 2, words
    storm("blobstore", "delete", "some key")
    assert storm("blobstore", "list").stdout == ""
