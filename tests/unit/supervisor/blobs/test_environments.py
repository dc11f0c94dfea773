"""Environments are whole or not there, built once, and removed when nothing uses them."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from tests.support.wheels import make_wheel

from squall_common.errors import PackageError
from squall_common.packaging.dependencies import read_wheel
from squall_supervisor.blobs.environments import Environments
from squall_supervisor.blobs.source import BlobError


class Shelf:
    """Nimbus' wheels. `gate` holds fetches back."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def put(self, path: Path) -> str:
        key = read_wheel(path).key
        self.blobs[key] = path.read_bytes()
        return key

    async def fetch(self, keys: dict[str, Path]) -> dict[str, int]:
        for key, path in keys.items():
            self.fetched.append(key)
            if key not in self.blobs:
                raise BlobError(f"no blob {key}")
            path.write_bytes(self.blobs[key])
        await self.gate.wait()
        return dict.fromkeys(keys, 1)

    async def versions(self, keys: list[str]) -> dict[str, int]:
        return dict.fromkeys(keys, 1)


class Node:
    def __init__(self, tmp_path: Path) -> None:
        self.tmp_path = tmp_path
        self.shelf = Shelf()
        self.used: set[str] = set()
        self.environments = self.open()

    def open(self, version: str = "1") -> Environments:
        (self.tmp_path / "tmp").mkdir(exist_ok=True)
        made = Environments(
            self.tmp_path / "environments", self.tmp_path / "tmp", self.shelf, version=version
        )
        made.prepare(lambda: self.used)
        return made

    def there(self) -> list[str]:
        return sorted(os.listdir(self.tmp_path / "environments"))

    def wheel(self, name: str, version: str = "1.0", **options) -> str:
        return self.shelf.put(make_wheel(self.tmp_path / "wheels", name, version, **options))


@pytest.fixture
async def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


async def test_an_environment_is_built_once_and_shared(node):
    keys = [node.wheel("one"), node.wheel("two")]
    leases = await asyncio.gather(*(node.environments.obtain(k) for k in (keys, keys[::-1])))
    assert {lease.key for lease in leases} == {node.environments.key_of(keys)}
    assert sorted(node.shelf.fetched) == sorted(keys)
    assert (leases[0].path / "site" / "one.py").is_file()
    assert (leases[0].path / "site" / "two.py").is_file()
    assert os.listdir(node.tmp_path / "tmp") == []


async def test_two_versions_of_a_project_live_side_by_side(node):
    old = await node.environments.obtain([node.wheel("one", "1.0")])
    new = await node.environments.obtain([node.wheel("one", "2.0")])
    assert "1.0" in (old.path / "site" / "one.py").read_text()
    assert "2.0" in (new.path / "site" / "one.py").read_text()


async def test_unused_environments_are_removed_and_leased_ones_stay(node):
    one = await node.environments.obtain([node.wheel("one")])
    two = await node.environments.obtain([node.wheel("two")])
    node.used = {one.key}
    one.release()
    node.environments.remove_unused()
    assert node.there() == sorted([one.key, two.key])
    two.release()
    node.environments.remove_unused()
    assert node.there() == [one.key]
    node.used = set()
    node.open()
    assert node.there() == []


async def test_a_wheel_with_another_content_than_its_name_is_refused(node):
    key = node.wheel("one")
    node.shelf.blobs[key] = make_wheel(node.tmp_path / "x", "one", spoil="one.py").read_bytes()
    with pytest.raises(BlobError, match="with the wrong hash"):
        await node.environments.obtain([key])
    assert node.there() == []


async def test_a_damaged_wheel_leaves_nothing(node):
    with pytest.raises(PackageError, match=r"one-1\.0"):
        await node.environments.obtain([node.wheel("one", spoil="one.py"), node.wheel("two")])
    with pytest.raises(BlobError):
        await node.environments.obtain([f"dep-{'0' * 64}-gone-1-py3-none-any.whl"])
    for key in ("../../etc/passwd", "wc-1-1-stormjar.jar"):
        with pytest.raises(PackageError, match="not a wheel"):
            await node.environments.obtain([key])
    assert node.there() == []
    assert os.listdir(node.tmp_path / "tmp") == []
    node.environments.remove_unused()


async def test_wheels_for_another_python_are_refused_before_they_are_fetched(node):
    fit = node.wheel("one")
    unfit = [node.wheel(name, tag="cp39-cp39-manylinux_2_17_x86_64") for name in ("two", "three")]
    with pytest.raises(PackageError, match=r"^two-1\.0-cp39-.* does not run on this node, which"):
        await node.environments.obtain([fit, unfit[0]])
    with pytest.raises(PackageError, match=r"^three.* cp3\.\d+ .*, nor do 1 more of its wheels"):
        await node.environments.obtain([*unfit, fit])
    key = f"dep-{'0' * 64}-no-1-wheel.whl"
    with pytest.raises(PackageError, match="not a wheel"):
        await node.environments.obtain([key])
    assert node.shelf.fetched == []
    assert node.there() == []


async def test_a_caller_that_stops_waiting_leaves_nothing_and_blocks_no_other(node):
    key = node.wheel("one")
    node.shelf.gate.clear()
    first = asyncio.create_task(node.environments.obtain([key]))
    await asyncio.sleep(0)
    second = asyncio.create_task(node.environments.obtain([key]))
    await asyncio.sleep(0.01)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    node.shelf.gate.set()
    assert (await second).path.is_dir()


async def test_another_version_of_squall_has_another_environment(node):
    key = node.wheel("one")
    before = await node.environments.obtain([key])
    assert node.open("2").key_of([key]) != before.key
