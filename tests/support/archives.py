"""Zip archives as real tools write them, field by field.

Each was read once from an archive that the tool had made (Maven 3.8.7 with the jar plugin 2.4 and
3.4.2 and the shade plugin 3.6.0, OpenJDK 11's `jar`, Info-ZIP 3.0, Python 3.11, shiv, pex, git
2.39), or, for Gradle and sbt, Info-ZIP and .NET on Windows, put together
from what is known of their headers: those were not seen.
"""

import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass

DEFLATED, STORED = 8, 0
UTF8, DESCRIPTOR = 0x800, 0x8
FOLDER_BIT = 0x10  # MS-DOS' attribute
JAR_EXTRA = b"\xfe\xca\x00\x00"  # of a jar's first member
UNIX_TIMES = bytes.fromhex("5554050003b7e4026b75780b000104000000000400000000")


@dataclass(frozen=True)
class Entry:
    name: str | bytes
    data: bytes = b""
    mode: int = 0  # Unix', in the external attributes' high half
    system: int = 3
    version: int = 20
    flags: int = 0
    method: int = DEFLATED
    extra: bytes = b""
    zip64: bool = False  # sizes in an extra field

    @property
    def raw_name(self) -> bytes:
        return self.name.encode() if isinstance(self.name, str) else self.name

    @property
    def is_dir(self) -> bool:
        return self.raw_name.endswith((b"/", b"\\"))


def zip_bytes(
    entries: Sequence[Entry], *, prefix: bytes = b"", comment: bytes = b"", zip64: bool = False
) -> bytes:
    """An archive of these entries; with `zip64`, all sizes of its end stand in zip64's record."""
    out, directory = bytearray(prefix), bytearray()
    for entry in entries:
        offset = len(out)
        out += _local(entry)
        directory += _record(entry, offset)
    start, count = len(out), len(entries)
    out += directory
    sizes = (count, count, len(directory), start)
    if zip64:
        record_at = len(out)
        out += struct.pack("<4sQHHIIQQQQ", b"PK\6\6", 44, 45, 45, 0, 0, *sizes)
        out += struct.pack("<4sLQL", b"PK\6\7", 0, record_at, 1)
        sizes = (0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)
    out += struct.pack("<4sHHHHIIH", b"PK\5\6", 0, 0, *sizes, len(comment)) + comment
    return bytes(out)


def _packed(entry: Entry) -> bytes:
    if entry.method == STORED:
        return entry.data
    deflate = zlib.compressobj(wbits=-15)
    return deflate.compress(entry.data) + deflate.flush()


def _sizes(entry: Entry) -> tuple[int, int, int]:
    return zlib.crc32(entry.data), len(_packed(entry)), len(entry.data)


def _extra64(entry: Entry) -> bytes:
    _, packed, plain = _sizes(entry)
    return struct.pack("<HHQQ", 1, 16, plain, packed) if entry.zip64 else b""


def _local(entry: Entry) -> bytes:
    crc, packed, plain = _sizes(entry)
    later = bool(entry.flags & DESCRIPTOR)
    shown = (0, 0, 0) if later else (crc, *((0xFFFFFFFF,) * 2 if entry.zip64 else (packed, plain)))
    extra = entry.extra + (b"" if later else _extra64(entry))
    head = struct.pack(
        "<4sHHHHHIIIHH", b"PK\3\4", entry.version, entry.flags, entry.method, 0, 0x5D76, *shown,
        len(entry.raw_name), len(extra),
    )  # fmt: skip
    tail = struct.pack("<4sIII", b"PK\7\x08", crc, packed, plain) if later else b""
    return head + entry.raw_name + extra + _packed(entry) + tail


def _record(entry: Entry, offset: int) -> bytes:
    crc, packed, plain = _sizes(entry)
    extra = entry.extra + _extra64(entry)
    shown = (0xFFFFFFFF,) * 2 if entry.zip64 else (packed, plain)
    attributes = entry.mode << 16 | (FOLDER_BIT if entry.is_dir else 0)
    return (
        struct.pack(
            "<4sHHHHHHIIIHHHHHII", b"PK\1\2", entry.system << 8 | entry.version, entry.version,
            entry.flags, entry.method, 0, 0x5D76, crc, *shown, len(entry.raw_name), len(extra), 0,
            0, 0, attributes, offset,
        )
        + entry.raw_name
        + extra
    )  # fmt: skip


def _folder(name: str | bytes, mode: int = 0o40755, **more: int) -> Entry:
    return Entry(name, mode=mode, method=STORED, **more)  # type: ignore[arg-type]


BOLT, MANIFEST = b"print('bolt')\n", b"Manifest-Version: 1.0\r\n\r\n"
_JAVA = {"system": 0, "flags": UTF8 | DESCRIPTOR}

# By tool: the archive, and the files that come out of it.
TOOLS: dict[str, tuple[bytes, dict[str, bytes]]] = {
    # The jar plugin that Maven 3 binds by default: folders that it made up have the mode -1.
    "maven-jar 2.4": (
        zip_bytes(
            [
                _folder("META-INF/", version=10),
                Entry("META-INF/MANIFEST.MF", MANIFEST, 0o100644),
                _folder("resources/", version=10),
                Entry("resources/bolt.py", BOLT, 0o100644),
                _folder("META-INF/maven/", 0o177777, version=10),
                _folder("META-INF/maven/g/", 0o177777, version=10),
                Entry("META-INF/maven/g/pom.xml", b"<project/>", 0o100644),
            ]
        ),
        {"META-INF/MANIFEST.MF": MANIFEST, "resources/bolt.py": BOLT,
         "META-INF/maven/g/pom.xml": b"<project/>"},
    ),
    "maven-jar 3.4": (
        zip_bytes(
            [
                _folder("META-INF/", version=10, flags=UTF8),
                Entry("META-INF/MANIFEST.MF", MANIFEST, 0o100644, flags=UTF8),
                Entry("resources/bolt.py", BOLT, 0o100644, flags=UTF8),
            ]
        ),
        {"META-INF/MANIFEST.MF": MANIFEST, "resources/bolt.py": BOLT},
    ),
    "maven-shade": (
        zip_bytes(
            [
                Entry("META-INF/", extra=JAR_EXTRA, **_JAVA),
                Entry("META-INF/MANIFEST.MF", MANIFEST, **_JAVA),
                Entry("META-INF/LICENSE", b"ours", **_JAVA),
                Entry("META-INF/license/", **_JAVA),
                Entry("META-INF/license/theirs.txt", b"theirs", **_JAVA),
                Entry("resources/", **_JAVA),
                Entry("resources/bolt.py", BOLT, **_JAVA),
            ]
        ),
        {"META-INF/MANIFEST.MF": MANIFEST, "META-INF/LICENSE": b"ours",
         "META-INF/license/theirs.txt": b"theirs", "resources/bolt.py": BOLT},
    ),
    "gradle": (
        zip_bytes(
            [
                _folder("META-INF/", flags=UTF8, version=10),
                Entry("META-INF/MANIFEST.MF", MANIFEST, 0o100644, flags=UTF8),
                Entry("resources/bolt.py", BOLT, 0o100644, flags=UTF8, zip64=True, version=45),
            ]
        ),
        {"META-INF/MANIFEST.MF": MANIFEST, "resources/bolt.py": BOLT},
    ),
    "sbt": (
        zip_bytes(
            [
                Entry("META-INF/MANIFEST.MF", MANIFEST, extra=JAR_EXTRA, **_JAVA),
                _folder("resources/", 0, system=0, version=10, flags=UTF8),
                Entry("resources/bolt.py", BOLT, **_JAVA),
            ]
        ),
        {"META-INF/MANIFEST.MF": MANIFEST, "resources/bolt.py": BOLT},
    ),
    "jar": (
        zip_bytes(
            [
                Entry("META-INF/", extra=JAR_EXTRA, **_JAVA),
                Entry("META-INF/MANIFEST.MF", MANIFEST, **_JAVA),
                _folder("pkg/", 0, system=0, version=10, flags=UTF8),
                Entry("pkg/größe.py", BOLT, **_JAVA),
            ]
        ),
        {"META-INF/MANIFEST.MF": MANIFEST, "pkg/größe.py": BOLT},
    ),
    "zip": (  # names in UTF-8, and no flag that says so
        zip_bytes(
            [
                _folder("pkg/", version=10, extra=UNIX_TIMES),  # type: ignore[arg-type]
                Entry("pkg/größe.py", BOLT, 0o100644, extra=UNIX_TIMES),
                Entry("run.sh", b"#!/bin/sh\n", 0o100755, extra=UNIX_TIMES),
            ]
        ),
        {"pkg/größe.py": BOLT, "run.sh": b"#!/bin/sh\n"},
    ),
    "zip to a pipe": (
        zip_bytes([Entry("pkg/a.py", BOLT, 0o100644, flags=DESCRIPTOR)], zip64=True),
        {"pkg/a.py": BOLT},
    ),
    "zip on Windows": (
        zip_bytes(
            [
                _folder("pkg/", 0o40777, system=11, version=10),
                Entry(
                    "pkg/größe.py".encode("cp437"), BOLT, 0o100666, system=11,
                    extra=struct.pack(
                        "<HHBI", 0x7075, 5 + len("pkg/größe.py".encode()), 1,
                        zlib.crc32("pkg/größe.py".encode("cp437")),
                    ) + "pkg/größe.py".encode(),
                ),
            ]
        ),
        {"pkg/größe.py": BOLT},
    ),
    ".NET before 4.6.1": (
        zip_bytes(
            [
                _folder(b"pkg\\empty\\", 0, system=0),
                Entry(b"pkg\\a.py", BOLT, system=0),
            ]
        ),
        {"pkg/a.py": BOLT},
    ),
    "zipfile": (
        zip_bytes(
            [
                _folder("pkg/"),
                Entry("pkg/__init__.py", BOLT, 0o100644),
                Entry("pkg/größe.py", BOLT, 0o100644, flags=UTF8),
                Entry("written.py", BOLT, 0o600),  # writestr: no type
            ]
        ),
        {"pkg/__init__.py": BOLT, "pkg/größe.py": BOLT, "written.py": BOLT},
    ),
    "shiv": (
        zip_bytes(
            [
                Entry("site-packages/demo/__init__.py", BOLT, 0o100644),
                Entry("environment.json", b"{}", 0o600),
            ],
            prefix=b"#!/usr/bin/env python3\n",
        ),
        {"site-packages/demo/__init__.py": BOLT, "environment.json": b"{}"},
    ),
    "pex": (
        zip_bytes(
            [
                _folder(".deps/"),
                _folder(".deps/demo-1-py3-none-any.whl/"),
                Entry(".deps/demo-1-py3-none-any.whl/demo.py", BOLT, 0o100644, method=STORED),
                Entry("__main__.py", BOLT, 0o100755, method=STORED),
            ],
            prefix=b"#!/usr/bin/env python3.11\n",
        ),
        {".deps/demo-1-py3-none-any.whl/demo.py": BOLT, "__main__.py": BOLT},
    ),
    "git archive": (
        zip_bytes(
            [
                _folder("p/", 0, system=0, version=10),
                Entry("p/a.py", BOLT, system=0, method=STORED, version=10),
                Entry("p/größe.py", BOLT, system=0, flags=UTF8, method=STORED, version=10),
                Entry("p/run.sh", BOLT, 0o100755, method=STORED, version=10),
            ],
            comment=b"4fe65a25ff631df4e16d158fc0e2e49908fd0452",
        ),
        {"p/a.py": BOLT, "p/größe.py": BOLT, "p/run.sh": BOLT},
    ),
}  # fmt: skip
