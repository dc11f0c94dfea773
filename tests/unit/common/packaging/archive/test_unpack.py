"""The extractor against archives made to hurt."""

import os
import stat
import struct
import zipfile
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from pathlib import Path

import pytest

from squall_common.errors import PackageError
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import Extracted, extract, list_files

Members = Iterable[tuple[str | zipfile.ZipInfo, bytes]]


@pytest.fixture
def make(tmp_path: Path) -> Callable[[Members], Path]:
    def make_zip(members: Members) -> Path:
        path = tmp_path / "package.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as zip_file:
            for name, data in members:
                zip_file.writestr(name, data)
        return path

    return make_zip


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "inner" / "target"
    path.mkdir(parents=True)
    return path


def member(name: str, mode: int, system: int = 3) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.create_system = system
    info.external_attr = mode << 16
    return info


def unpacked(target: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file()
    }


def test_files_and_folders_come_out(make: Callable[[Members], Path], target: Path) -> None:
    members = {"a.py": b"1", "p/__init__.py": b"", "p/q/r.txt": b"x" * 70000}
    archive = make([*members.items(), ("e/", b"")])
    assert extract(archive, target) == Extracted(files=3, total_bytes=70001)
    assert unpacked(target) == members
    assert (target / "e").is_dir()
    assert list_files(archive) == ["a.py", "p/__init__.py", "p/q/r.txt"]


def test_a_program_in_front_of_the_archive_is_skipped(
    make: Callable[[Members], Path], target: Path
) -> None:
    """.pyz and .pex files begin with a line for the shell."""
    archive = make([("a.py", b"1")])
    archive.write_bytes(b"#!/usr/bin/env python3\n" + archive.read_bytes())
    extract(archive, target)
    assert unpacked(target) == {"a.py": b"1"}


def test_execute_bits_stay_and_setuid_goes(make: Callable[[Members], Path], target: Path) -> None:
    archive = make(
        [
            (member("run.sh", stat.S_IFREG | 0o755), b"#!/bin/sh\n"),
            (member("root.sh", stat.S_IFREG | 0o6777), b"#!/bin/sh\n"),
            (member("plain", stat.S_IFREG | 0o600), b""),
        ]
    )
    old = os.umask(0)
    try:
        extract(archive, target)
    finally:
        os.umask(old)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in target.iterdir()}
    assert modes == {"run.sh": 0o755, "root.sh": 0o755, "plain": 0o644}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("../evil", "'..'"),
        ("a/../../evil", "'..'"),
        ("a/..", "'..'"),
        ("/etc/evil", "absolute"),
        ("a\\..\\evil", "backslash"),
        ("a\nb", "control characters"),
        ("a\x1b[31m", "control characters"),
        ("x" * 256, "too long"),
        ("/".join(["d" * 200] * 20), "too long"),
    ],
)
def test_names_that_lead_out_or_deceive_are_refused(
    make: Callable[[Members], Path], target: Path, name: str, why: str
) -> None:
    archive = make([("fine.py", b"1"), (name, b"evil")])
    with pytest.raises(PackageError, match=r"package\.zip: member") as error:
        extract(archive, target)
    assert why in str(error.value)
    assert unpacked(target) == {}
    assert not (target.parent / "evil").exists()
    with pytest.raises(PackageError):
        list_files(archive)


def test_a_name_with_a_nul_is_refused(make: Callable[[Members], Path], target: Path) -> None:
    archive = make([("a.pyX.txt", b"1")])
    archive.write_bytes(archive.read_bytes().replace(b"a.pyX.txt", b"a.py\0.txt"))
    with pytest.raises(PackageError, match="control characters"):
        extract(archive, target)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        (stat.S_IFLNK | 0o777, "symbolic link"),
        (stat.S_IFCHR | 0o666, "device"),
        (stat.S_IFBLK | 0o666, "device"),
        (stat.S_IFIFO | 0o666, "pipe"),
        (stat.S_IFSOCK | 0o666, "socket"),
        (stat.S_IFDIR | 0o755, "by its name or by its mode"),
    ],
)
@pytest.mark.parametrize("system", [0, 3])
def test_links_devices_and_pipes_are_refused(
    make: Callable[[Members], Path], target: Path, mode: int, why: str, system: int
) -> None:
    archive = make([(member("link", mode, system), b"/etc/passwd")])
    with pytest.raises(PackageError, match=why):
        extract(archive, target)
    assert list(target.iterdir()) == []


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["a.py", "A.py"], "in case only"),
        (["Dir/a", "dir/b"], "in case only"),
        (["stra\u00dfe", "STRASSE"], "in case only"),
        (["caf\u00e9", "cafe\u0301"], "in case only"),
        (["a", "a/b"], "a file and a folder"),
        (["a/b", "a"], "a file and a folder"),
        (["a/", "a"], "a file and a folder"),
        (["a", "./a"], "twice"),
        (["./"], None),
        (["d/", "d/"], None),
    ],
)
def test_members_that_would_collide_are_refused(
    make: Callable[[Members], Path], target: Path, names: list[str], why: str | None
) -> None:
    twice = len(set(names)) < len(names)
    with pytest.warns(UserWarning, match="Duplicate") if twice else nullcontext():
        archive = make([(name, b"") for name in names])
    if why is None:
        extract(archive, target)
        return
    with pytest.raises(PackageError, match=why):
        extract(archive, target)


def test_a_bomb_is_stopped_by_its_ratio(make: Callable[[Members], Path], target: Path) -> None:
    archive = make([("zeros", b"\0" * 30_000_000)])
    with pytest.raises(PackageError, match="more than 100 times the archive"):
        extract(archive, target)
    assert (target / "zeros").stat().st_size < 8_000_000


def test_a_bomb_that_lies_about_its_size_is_stopped(
    make: Callable[[Members], Path], target: Path
) -> None:
    archive = make([("zeros", b"\0" * 5_000_000)])
    data = bytearray(archive.read_bytes())
    for signature, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        struct.pack_into("<I", data, data.index(signature) + offset, 10)
    archive.write_bytes(data)
    with pytest.raises(PackageError):
        extract(archive, target)
    assert (target / "zeros").stat().st_size <= 10


def test_the_total_is_capped(make: Callable[[Members], Path], target: Path) -> None:
    archive = make([("a", os.urandom(3000)), ("b", os.urandom(3000))])
    with pytest.raises(PackageError, match="member 'b' goes beyond the limit of 5000 bytes"):
        extract(archive, target, Limits(total_bytes_max=5000))


def test_the_number_of_entries_is_capped(make: Callable[[Members], Path], target: Path) -> None:
    archive = make([(f"f{n}", b"") for n in range(11)])
    with pytest.raises(PackageError, match="more than 10 entries"):
        extract(archive, target, Limits(entries_max=10))
    extract(archive, target, Limits(entries_max=11))


def test_folders_that_are_only_implied_are_capped(
    make: Callable[[Members], Path], target: Path
) -> None:
    archive = make([("/".join(f"d{n}" for n in range(50)) + "/f", b"")])
    with pytest.raises(PackageError, match="more than 10 entries"):
        extract(archive, target, Limits(entries_max=10))


def test_encrypted_and_odd_methods_are_refused(
    make: Callable[[Members], Path], target: Path, tmp_path: Path
) -> None:
    archive = make([("a", b"secret")])
    data = bytearray(archive.read_bytes())
    data[data.index(b"PK\1\2") + 8] |= 1
    archive.write_bytes(data)
    with pytest.raises(PackageError, match="encrypted"):
        extract(archive, target)
    odd = tmp_path / "odd.zip"
    with zipfile.ZipFile(odd, "w", zipfile.ZIP_BZIP2) as zip_file:
        zip_file.writestr("a", b"x" * 100)
    with pytest.raises(PackageError, match="method 12"):
        extract(odd, target)


@pytest.mark.parametrize("data", [b"", b"hello", b"PK\3\4", b"PK\5\6", os.urandom(4096)])
def test_a_file_that_is_not_an_archive_is_refused(
    tmp_path: Path, target: Path, data: bytes
) -> None:
    path = tmp_path / "package.jar"
    path.write_bytes(data)
    with pytest.raises(PackageError, match=r"package\.jar is not an archive"):
        extract(path, target)


def test_a_damaged_member_is_refused(make: Callable[[Members], Path], target: Path) -> None:
    archive = make([("a.py", os.urandom(1000))])
    data = bytearray(archive.read_bytes())
    data[200] ^= 0xFF
    archive.write_bytes(data)
    with pytest.raises(PackageError, match="damaged"):
        extract(archive, target)


def test_a_link_planted_in_the_target_is_not_followed(
    make: Callable[[Members], Path], target: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (target / "d").symlink_to(outside)
    archive = make([("d/evil", b"evil")])
    with pytest.raises(OSError, match="d"):
        extract(archive, target)
    (target / "d").unlink()
    (target / "evil").symlink_to(outside / "evil")
    with pytest.raises(FileExistsError):
        extract(make([("evil", b"evil")]), target)
    assert list(outside.iterdir()) == []
