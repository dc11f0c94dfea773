"""Resolutions that are kept: when they hold, and what damages them does not matter."""

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from tests.support.wheels import make_wheel

from squall_common.packaging import resolution_cache
from squall_common.packaging.dependencies import read_wheel
from squall_common.packaging.platforms import Platform
from squall_common.packaging.requirements_text import of_lines
from squall_common.packaging.resolution import all_pinned
from squall_common.packaging.resolution_cache import (
    ResolutionCache,
    resolution_key,
    user_cache_folder,
)

LINUX = Platform.parse("cp3.11 linux_x86_64 glibc2.31")
DAY = 24 * 3600.0
TEXT = of_lines(["one", "two==1.0"])
ENV = {"HOME": "/nowhere"}


class Clock:
    def __init__(self):
        self.now = time.time()  # as the times of files that are being written

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def cache(tmp_path, clock):
    return ResolutionCache(tmp_path / "cache", clock)


@pytest.fixture
def wheels(tmp_path):
    return [read_wheel(make_wheel(tmp_path / "found", name)) for name in ("one", "two")]


def keys(found):
    return [wheel.key for wheel in found.wheels]


def test_a_resolution_is_found_again_without_the_wheels_it_was_made_from(cache, clock, wheels):
    cache.keep("k", wheels, pinned=False)
    for wheel in wheels:
        wheel.path.unlink()
    clock.now += 90
    found = cache.find("k")
    assert keys(found) == [wheel.key for wheel in wheels]
    assert found.age_secs == 90
    assert cache.find("other") is None


def test_an_unpinned_resolution_holds_for_a_day_and_a_pinned_one_longer(cache, clock, wheels):
    cache.keep("open", wheels, pinned=False)
    cache.keep("pinned", wheels, pinned=True)
    clock.now += DAY - 1
    assert cache.find("open") is not None
    clock.now += 2
    assert cache.find("open") is None
    clock.now += 20 * DAY
    assert cache.find("pinned") is not None


def test_a_resolution_of_the_future_does_not_hold(cache, clock, wheels):
    cache.keep("k", wheels, pinned=True)
    clock.now -= 10
    assert cache.find("k") is None


def test_only_requirements_that_pin_every_wheel_are_pinned(wheels):
    assert all_pinned(wheels, of_lines(["one===1.0", "Two==1.0"]))
    assert not all_pinned(wheels, TEXT)
    assert not all_pinned(wheels, of_lines(["one==1.0"]))  # two is required by one


# ---- Damage ----


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", "null", '{"resolved_at": 1}', '{"resolved_at": "x", "wheels": []}',
     '{"resolved_at": NaN, "pinned": true, "wheels": []}',
     '{"resolved_at": 1, "pinned": true, "wheels": ["../../etc/passwd"]}',
     '{"resolved_at": 1, "pinned": true, "wheels": 7}', "x" * 2_000_000],
)  # fmt: skip
def test_a_damaged_entry_counts_as_absent_and_is_replaced(tmp_path, cache, wheels, content):
    cache.keep("k", wheels, pinned=True)
    (tmp_path / "cache" / "resolutions" / "k.json").write_text(content)
    assert cache.find("k") is None
    cache.keep("k", wheels, pinned=True)
    assert cache.find("k") is not None


@pytest.mark.parametrize("damage", ["other content", "missing", "folder"])
def test_a_damaged_wheel_counts_as_absent_and_is_replaced(tmp_path, cache, wheels, damage):
    cache.keep("k", wheels, pinned=True)
    path = tmp_path / "cache" / "wheels" / wheels[0].sha256 / wheels[0].path.name
    content = path.read_bytes()
    path.unlink()
    if damage == "other content":
        path.write_bytes(bytes(len(content)))
    elif damage == "folder":
        path.mkdir()
    assert cache.find("k") is None
    if damage == "folder":
        path.rmdir()
    cache.keep("k", wheels, pinned=True)
    assert keys(cache.find("k")) == [wheel.key for wheel in wheels]


def test_a_folder_that_cannot_be_used_keeps_nothing(tmp_path, clock, wheels):
    file = tmp_path / "file"
    file.write_text("")
    for folder in (file, file / "below", None):
        cache = ResolutionCache(folder, clock)
        cache.keep("k", wheels, pinned=True)
        assert cache.find("k") is None


def test_a_folder_that_others_can_write_is_not_trusted(tmp_path, cache, wheels):
    cache.keep("k", wheels, pinned=True)
    os.chmod(tmp_path / "cache", 0o777)
    assert cache.find("k") is None


def test_many_submits_share_the_folder(tmp_path, clock, wheels):
    def submit(number):
        cache = ResolutionCache(tmp_path / "cache", clock)
        for turn in range(5):
            cache.keep(f"k{(number + turn) % 3}", wheels, pinned=True)
            found = cache.find(f"k{(number + turn) % 3}")
            assert keys(found) == [wheel.key for wheel in wheels]

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(submit, range(4)))
    left = list((tmp_path / "cache").rglob(".*"))
    assert left == []


# ---- Room ----


def test_what_was_not_used_for_a_month_is_removed(tmp_path, cache, clock, wheels):
    cache.keep("old", wheels[:1], pinned=True)
    cache.keep("used", wheels[1:], pinned=True)
    for _ in range(2):
        clock.now += 20 * DAY
        assert cache.find("used") is not None
    cache.keep("new", wheels[1:], pinned=True)
    assert sorted(path.name for path in (tmp_path / "cache" / "resolutions").iterdir()) == [
        "new.json", "used.json",
    ]  # fmt: skip
    assert [path.name for path in (tmp_path / "cache" / "wheels").iterdir()] == [wheels[1].sha256]


def test_the_least_recently_used_wheels_make_room(cache, clock, wheels, monkeypatch):
    monkeypatch.setattr(resolution_cache, "_WHEELS_BYTES_MAX", wheels[1].path.stat().st_size)
    cache.keep("old", wheels[:1], pinned=True)
    clock.now += 600
    cache.keep("new", wheels[1:], pinned=True)
    assert cache.find("old") is not None  # it may be under upload
    clock.now += 2 * 3600
    cache.keep("new", wheels[1:], pinned=True)
    assert cache.find("old") is None
    assert cache.find("new") is not None


# ---- Keys ----


def test_a_key_covers_all_that_the_answer_follows_from(tmp_path):
    def key(text=TEXT, shelf=None, platform=LINUX, own=("orjson>=3",), **env):
        return resolution_key(text, shelf, platform, own, ENV | env)

    shelf = tmp_path / "shelf"
    make_wheel(shelf, "one")
    keys = [
        key(), key(shelf=shelf), key(text=of_lines(["one"])), key(own=["orjson>=4"]),
        key(platform=replace(LINUX, python=(3, 12))), key(PIP_INDEX_URL="https://example.org"),
    ]  # fmt: skip
    make_wheel(shelf, "two")
    keys.append(key(shelf=shelf))
    conf = tmp_path / ".config" / "pip" / "pip.conf"
    conf.parent.mkdir(parents=True)
    conf.write_text("[global]\nindex-url = https://example.org\n")
    keys.append(key(HOME=str(tmp_path)))
    assert len(set(keys)) == len(keys) == 8
    assert key() == keys[0]


def test_a_key_covers_the_folders_of_wheels_that_pips_settings_name(tmp_path):
    shelf, conf = tmp_path / "shelf", tmp_path / "pip.conf"
    conf.write_text(f"[install]\nfind_links =\n    https://example.org/wheels\n    {shelf}\n")
    for setting in (
        {"PIP_FIND_LINKS": f"https://example.org/wheels file://{shelf}"},
        {"PIP_CONFIG_FILE": str(conf)},
    ):
        env = ENV | setting
        make_wheel(shelf, "one")
        before = resolution_key(TEXT, None, LINUX, [], env)
        assert before == resolution_key(TEXT, None, LINUX, [], env) is not None
        make_wheel(shelf, "two")
        assert resolution_key(TEXT, None, LINUX, [], env) not in {before, None}
        shutil.rmtree(shelf)
        assert resolution_key(TEXT, None, LINUX, [], env) is None  # pip will explain


def test_the_cache_is_where_the_users_other_caches_are(tmp_path):
    assert user_cache_folder({"XDG_CACHE_HOME": str(tmp_path)}) == tmp_path / "squall"
    found = user_cache_folder({"XDG_CACHE_HOME": "relative"})
    assert found is None or found.parts[-2:] == (".cache", "squall")
