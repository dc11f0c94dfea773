"""The extractor against archives of real tools, and attacks that their quirks could hide."""

import io
import os
import tarfile
from pathlib import Path

import pytest
from tests.support.archives import (
    BOLT,
    STORED,
    TOOLS,
    UTF8,
    Entry,
    zip_bytes,
)

from squall_common.errors import PackageError
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import check, extract


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "inner" / "target"
    path.mkdir(parents=True)
    return path


def write(folder: Path, data: bytes) -> Path:
    path = folder / "package.jar"
    path.write_bytes(data)
    return path


def unpacked(target: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("tool", TOOLS)
def test_an_archive_of_a_real_tool_comes_out_whole(tmp_path: Path, target: Path, tool: str) -> None:
    data, files = TOOLS[tool]
    archive = write(tmp_path, data)
    check(archive, content_secs=1.0)
    extract(archive, target)
    assert unpacked(target) == files
    executable = {name for name in files if os.access(target / name, os.X_OK)}
    assert executable <= {"run.sh", "p/run.sh", "__main__.py"}
    assert "run.sh" in executable or "run.sh" not in files


def test_a_folder_of_a_windows_tool_is_a_folder(tmp_path: Path, target: Path) -> None:
    extract(write(tmp_path, TOOLS[".NET before 4.6.1"][0]), target)
    assert (target / "pkg" / "empty").is_dir()


def test_git_archive_as_tar_comes_out_as_a_blob(tmp_path: Path, target: Path) -> None:
    """With the comment in front that holds the commit."""
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, pax_headers={"comment": "4fe65a25"}
    ) as tar:
        for name, kind in (("p", tarfile.DIRTYPE), ("p/a.py", tarfile.REGTYPE)):
            info = tarfile.TarInfo(name)
            info.type, info.mode, info.uname = kind, 0o775, "root"
            info.size = len(BOLT) if kind == tarfile.REGTYPE else 0
            tar.addfile(info, io.BytesIO(BOLT))
    extract(write(tmp_path, out.getvalue()), target, blob=True)
    assert unpacked(target) == {"p/a.py": BOLT}


@pytest.mark.parametrize(
    ("entry", "why"),
    [
        (Entry(b"a\\..\\..\\evil", system=0), "'..'"),
        (Entry(b"\\evil", system=0), "absolute"),
        (Entry(b"a\\b", system=3), "backslash"),
        (Entry(b"a/b\\c", system=0), "backslash"),
        (Entry("a/b\\c", system=0, flags=UTF8), "backslash"),
        (Entry(b"\xc3\xa9/../../evil"), "'..'"),
        (Entry("link", b"/etc/passwd", 0o120777, system=0), "symbolic link"),
        (Entry("patch", flags=0x20), "patch"),
        (Entry("secret", flags=0x40), "encrypted"),
        (Entry("masked", flags=0x2000), "encrypted"),
        (Entry("folder", mode=0o40755), "by its name or by its mode"),
        (Entry("file/", mode=0o100644, method=STORED), "by its name or by its mode"),
        (Entry("/".join("d" * 129)), "more than 127 folders"),
    ],
)  # fmt: skip
def test_the_quirks_hide_no_attack(tmp_path: Path, target: Path, entry: Entry, why: str) -> None:
    archive = write(tmp_path, zip_bytes([Entry("fine.py", BOLT), entry]))
    for attempt in (lambda: check(archive), lambda: extract(archive, target)):
        with pytest.raises(PackageError, match=why):
            attempt()
    assert list(target.iterdir()) == []
    assert not (target.parent / "evil").exists()


def test_a_unicode_path_of_another_name_does_not_count(tmp_path: Path, target: Path) -> None:
    """Its checksum ties it to the name that it replaces."""
    data, _ = TOOLS["zip on Windows"]
    archive = write(tmp_path, data.replace("größe".encode("cp437"), "grüße".encode("cp437")))
    extract(archive, target)
    assert "pkg/grüße.py" in unpacked(target)


def test_only_java_s_own_folder_may_differ_in_case(tmp_path: Path, target: Path) -> None:
    data = zip_bytes([Entry("META-INF/LICENSE"), Entry("meta-inf/license")])
    with pytest.raises(PackageError, match="in case only"):
        extract(write(tmp_path, data), target)
    twice = zip_bytes([Entry("META-INF/LICENSE"), Entry("META-INF/LICENSE", b"2")])
    with pytest.raises(PackageError, match="twice"):
        extract(write(tmp_path, twice), target)


def test_zip64_archives_have_the_same_limits(tmp_path: Path) -> None:
    entries = [Entry(f"f{n}", method=STORED) for n in range(11)]
    for zip64 in (False, True):
        archive = write(tmp_path, zip_bytes(entries, zip64=zip64))
        check(archive, Limits(entries_max=11))
        with pytest.raises(PackageError, match="more than 10 entries"):
            check(archive, Limits(entries_max=10))


def test_a_zip64_archive_may_be_large(tmp_path: Path, target: Path) -> None:
    """Its size says nothing about the number of its entries."""
    big = Entry("big", os.urandom(2_000_000), method=STORED)
    extract(write(tmp_path, zip_bytes([big], zip64=True)), target, Limits(entries_max=1))


def test_a_claim_beyond_the_limit_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    archive = write(tmp_path, zip_bytes([Entry("a", b"\0" * 6000), Entry("b", b"\0" * 6000)]))
    with pytest.raises(PackageError, match="member 'b' goes beyond the limit of 10000 bytes"):
        check(archive, Limits(total_bytes_max=10_000))


def test_a_check_finds_damage_and_lies_in_the_content(tmp_path: Path) -> None:
    data = bytearray(zip_bytes([Entry("a.py", os.urandom(1000), method=STORED)]))
    data[200] ^= 0xFF
    archive = write(tmp_path, bytes(data))
    check(archive)  # the directory alone says nothing of it
    with pytest.raises(PackageError, match="damaged"):
        check(archive, content_secs=5.0)
