"""Packages and blobs: archives that a user uploads, and a supervisor unpacks.

An archive is refused with PackageError, or unpacked into its folder: nothing lies beside it, and it
is not larger than the limits allow.
"""

from __future__ import annotations

import gzip
import io
import re
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from squall_common.errors import PackageError
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.archive.unpack import check as check_archive
from squall_common.packaging.archive.unpack import extract

# Decompressors of xz and bz2 take what the format lets them.
GROWTH_BYTES_MAX = 32 * 1024 * 1024
_LIMITS = Limits()


def check(data: bytes) -> str:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        archive, target = Path(folder, "archive"), Path(folder, "target")
        archive.write_bytes(data)
        target.mkdir()
        words = []
        for blob in (False, True):
            try:
                if not blob:
                    check_archive(archive, content_secs=0.5)
                done = extract(archive, target, blob=blob, sync=False)
            except PackageError as error:
                words.append(re.sub(r"\S*fuzz-\S*|[\d']+|\S*[^\x20-\x7e]\S*", "", str(error))[:40])
            else:
                words.append(f"unpacked {min(done.files, 3)}")
            assert sorted(path.name for path in Path(folder).iterdir()) == ["archive", "target"]
            for path in target.rglob("*"):
                assert path.resolve().is_relative_to(target.resolve()) or path.is_symlink(), path
                mode = path.lstat().st_mode
                assert path.is_symlink() or not mode & 0o7000, f"{path}: mode {mode:o}"
            shutil.rmtree(target)
            target.mkdir()
        return " / ".join(words)


def seeds() -> Iterator[tuple[str, bytes]]:
    """Archives of each kind, plain and hostile."""
    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        yield (
            f"zip-{name}",
            _zip([("a/b.py", b"x = 1\n" * 20), ("a/", b""), ("c.txt", b"")], method),
        )
    yield "zip-up", _zip([("../up.py", b"x")])
    yield "zip-absolute", _zip([("/etc/x", b"x"), ("c:\\x", b"x")])
    yield "zip-twice", _zip([("a", b"1"), ("A", b"2")])
    yield "zip-bomb", _zip([("zeros", bytes(200_000))], zipfile.ZIP_DEFLATED)
    yield "zip-before", b"#!/usr/bin/env python3\n" + _zip([("__main__.py", b"")])
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "a.txt"
    out = tarfile.TarInfo("out")
    out.type, out.linkname = tarfile.SYMTYPE, "../../etc/passwd"
    hard = tarfile.TarInfo("hard")
    hard.type, hard.linkname = tarfile.LNKTYPE, "a.txt"
    device = tarfile.TarInfo("device")
    device.type = tarfile.CHRTYPE
    mode = tarfile.TarInfo("setuid")
    mode.mode, mode.size = 0o6755, 1
    for name, extra in (
        ("link", link),
        ("out", out),
        ("hard", hard),
        ("device", device),
        ("setuid", mode),
    ):
        yield f"tar-{name}", _tar("w", [extra])
    for kind in ("gz", "bz2", "xz"):
        yield f"tar-{kind}", _tar(f"w:{kind}", [link])
    yield "tar-pax", _tar("w", [], format=tarfile.PAX_FORMAT, name="ä" * 120)


def _zip(members: list[tuple[str, bytes]], method: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in members:
            archive.writestr(zipfile.ZipInfo(name), data, method)
    return made.getvalue()


def _tar(
    mode: str,
    members: list[tarfile.TarInfo],
    *,
    format: int = tarfile.GNU_FORMAT,
    name: str = "a.txt",
) -> bytes:
    made = io.BytesIO()
    plain = tarfile.TarInfo(name)
    plain.size = 5
    # (gzip notes the time, which would make another corpus of each run.)
    inner = "w" if mode == "w:gz" else mode
    with tarfile.open(fileobj=made, mode=inner, format=format) as archive:  # type: ignore[call-overload]
        archive.addfile(plain, io.BytesIO(b"hello"))
        for member in members:
            archive.addfile(member, io.BytesIO(b"x" * member.size))
    return gzip.compress(made.getvalue(), mtime=0) if mode == "w:gz" else made.getvalue()
