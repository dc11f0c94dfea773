"""Archives of the blob store: tar as well as zip, execute bits, links that stay inside."""

import bz2
import gzip
import io
import lzma
import os
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from squall_common.errors import PackageError
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import extract


def entry(name: str, kind: bytes = tarfile.REGTYPE, **more: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = 0o644
    for key, value in more.items():
        setattr(info, key, value)
    return info


def tar(path: Path, *members: tuple[tarfile.TarInfo, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, mode) as archive:
        for info, data in members:
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return path


def link(name: str, to: str) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, tarfile.SYMTYPE, linkname=to), b""


def file(name: str, data: bytes = b"x", mode: int = 0o644) -> tuple[tarfile.TarInfo, bytes]:
    return entry(name, mode=mode), data


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "inner" / "target"
    path.mkdir(parents=True)
    return path


@pytest.mark.parametrize("mode", ["w", "w:gz", "w:bz2", "w:xz"])
def test_an_interpreter_comes_out_as_it_went_in(tmp_path: Path, target: Path, mode: str) -> None:
    archive = tar(
        tmp_path / "python.tgz",
        (entry("./", tarfile.DIRTYPE), b""),
        (entry("./bin", tarfile.DIRTYPE), b""),
        file("./bin/python3.11", b"#!/bin/sh\necho ran\n", 0o6755),
        link("./bin/python", "python3.11"),
        link("./current", "bin/../bin/python"),
        link("./lib/dangling", "../nowhere"),
        (entry("./bin/python3", tarfile.LNKTYPE, linkname="./bin/python3.11"), b""),
        file("./lib/os.py", b"y" * 300_000),
        mode=mode,
    )
    extracted = extract(archive, target, blob=True)
    assert os.readlink(target / "bin/python") == "python3.11"
    assert (target / "current").resolve() == target.resolve() / "bin/python3.11"
    assert stat.S_IMODE((target / "bin/python").stat().st_mode) == 0o755  # never setuid
    assert stat.S_IMODE((target / "lib/os.py").stat().st_mode) == 0o644
    assert (target / "bin/python3").read_bytes() == (target / "bin/python3.11").read_bytes()
    assert (target / "lib/os.py").stat().st_size == 300_000
    assert extracted.files == 6


def test_zip_archives_keep_links(tmp_path: Path, target: Path) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w") as archive:
        info = zipfile.ZipInfo("bin/python")
        info.create_system, info.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, "python3")
        archive.writestr("bin/python3", "x")
    extract(path, target, blob=True)
    assert os.readlink(target / "bin/python") == "python3"


def test_packages_have_no_links_and_are_not_tar_archives(tmp_path: Path, target: Path) -> None:
    with pytest.raises(PackageError, match="is not an archive"):
        extract(tar(tmp_path / "a.tgz", file("a")), target)


OUT = "leads out"
BAD = {
    "parent": ([file("../a")], r"'\.\.'"),
    "absolute": ([file("/a")], "absolute"),
    "absolute link": ([link("a", "/etc/passwd")], "not relative"),
    "link out": ([link("a/b", "../../c")], OUT),
    "link out in steps": (
        # Word by word "../d/.." stays inside; through the link it does not.
        [file("z/f"), link("a/b/c/d", "../../../z"), link("a/b/c/e", "d/../..")],
        OUT,
    ),
    "link through a link out": ([link("a", "b/c"), link("b", "."), link("c", "b/..")], OUT),
    "file through a link": ([link("a", "b"), file("a/c")], "a file and a folder"),
    "file over a link": ([link("a", "b"), file("a")], "there twice"),
    "circle": ([link("a", "b"), link("b", "a")], "circles"),
    "self": ([link("a", "a/x")], "circles"),
    "empty link": ([link("a", "")], "not relative"),
    "hard link out": ([(entry("a", tarfile.LNKTYPE, linkname="../b"), b"")], r"'\.\.'"),
    "hard link to a link": (
        [link("a", "b"), (entry("c", tarfile.LNKTYPE, linkname="a"), b"")],
        "hard link to no earlier file",
    ),
    "hard link to nothing": (
        [(entry("a", tarfile.LNKTYPE, linkname="b"), b"")],
        "hard link to no earlier file",
    ),
    "device": ([(entry("a", tarfile.CHRTYPE), b"")], "neither a file"),
    "pipe": ([(entry("a", tarfile.FIFOTYPE), b"")], "neither a file"),
    "twice": ([file("a"), file("./a")], "there twice"),
    "case": ([file("a"), file("A")], "case only"),
    "control": ([file("a\x1b[2J")], "control characters"),
}


@pytest.mark.parametrize(("members", "why"), BAD.values(), ids=BAD)
def test_a_harmful_archive_is_refused_before_anything_is_written(
    tmp_path: Path, target: Path, members: list[tuple[tarfile.TarInfo, bytes]], why: str
) -> None:
    with pytest.raises(PackageError, match=why):
        extract(tar(tmp_path / "a.tgz", *members), target, blob=True)
    assert list(target.iterdir()) == []
    assert [path.name for path in (tmp_path / "inner").iterdir()] == ["target"]


def test_bombs_go_off_early(tmp_path: Path, target: Path) -> None:
    limits = Limits(entries_max=100, total_bytes_max=3_000_000, ratio_max=100)
    many = tar(tmp_path / "many.tgz", *[file(f"f{i}") for i in range(101)])
    with pytest.raises(PackageError, match="more than 100 entries"):
        extract(many, target, limits, blob=True)
    big = tar(tmp_path / "big.tgz", file("a", bytes(4_000_000)))
    with pytest.raises(PackageError, match=r"unpacks to more|goes beyond"):
        extract(big, target, limits, blob=True)
    for pack in (gzip.compress, bz2.compress, lzma.compress):
        path = tmp_path / "empty.tar"
        path.write_bytes(pack(bytes(50_000_000)))  # a tar archive of nothing but its end
        with pytest.raises(PackageError, match="unpacks to more"):
            extract(path, target, limits, blob=True)


def test_a_header_that_claims_a_long_name_is_damage(tmp_path: Path, target: Path) -> None:
    info = entry("././@LongLink", b"L")
    info.size = 500_000_000
    path = tmp_path / "long.tar"
    path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
    with pytest.raises(PackageError, match="damaged"):
        extract(path, target, blob=True)


def test_damaged_bz2_is_not_taken_for_a_disk_that_fails(tmp_path: Path, target: Path) -> None:
    """bz2 raises OSError, too."""
    path = tar(tmp_path / "a.tar.bz2", file("a", b"x" * 1000), mode="w:bz2")
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(PackageError, match="damaged"):
        extract(path, target, blob=True)


@pytest.mark.parametrize("cut", [1, 100, 600, 1500])
def test_a_cut_archive_is_damage(tmp_path: Path, target: Path, cut: int) -> None:
    whole = tar(tmp_path / "a.tgz", file("a", os.urandom(2000))).read_bytes()
    (tmp_path / "a.tgz").write_bytes(whole[:-cut])
    with pytest.raises(PackageError, match=r"damaged|not an archive"):
        extract(tmp_path / "a.tgz", target, blob=True)
