"""MIT's library, with a key of our own: what it refuses. (With a KDC: tests/conformance.)"""

from __future__ import annotations

import ctypes
import os
import random
import struct
from pathlib import Path

import pytest
from tests.support.thirdparty import unavailable

from squall_nimbus.legacy import gss
from squall_nimbus.legacy.gss import Acceptor, GssError

REALM = "TEST.EXAMPLE"
PRINCIPAL = f"nimbus/host.example@{REALM}"
_AES256 = 18


@pytest.fixture(autouse=True)
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    try:
        ctypes.CDLL(gss.LIBRARY)
    except OSError:
        unavailable(f"there is no {gss.LIBRARY} on this machine (Debian: libgssapi-krb5-2)")
    conf = tmp_path / "krb5.conf"
    conf.write_text(
        f"[libdefaults]\n default_realm = {REALM}\n dns_canonicalize_hostname = false\n"
    )
    monkeypatch.setenv("KRB5_CONFIG", str(conf))
    monkeypatch.setenv("KRB5RCACHEDIR", str(tmp_path))


def keytab(path: Path) -> str:
    """A keytab with one key (MIT's keytab file format, version 5.2)."""

    def counted(data: bytes) -> bytes:
        return struct.pack(">H", len(data)) + data

    entry = struct.pack(">H", 2) + counted(REALM.encode())
    entry += counted(b"nimbus") + counted(b"host.example")
    entry += struct.pack(">IIBH", 1, 0, 1, _AES256) + counted(os.urandom(32))
    path.write_bytes(b"\x05\x02" + struct.pack(">i", len(entry)) + entry)
    return str(path)


def test_a_key_that_the_keytab_has_is_found_and_another_is_not(tmp_path: Path) -> None:
    path = keytab(tmp_path / "keytab")
    Acceptor(PRINCIPAL, path)
    with pytest.raises(GssError, match=r"other"):
        Acceptor(f"other/host.example@{REALM}", path)
    with pytest.raises(GssError):
        Acceptor(PRINCIPAL, str(tmp_path / "none"))


def test_whatever_a_stranger_sends_is_refused(tmp_path: Path) -> None:
    acceptor = Acceptor(PRINCIPAL, keytab(tmp_path / "keytab"))
    chance = random.Random(1)
    krb5 = bytes.fromhex("06092a864886f712010202")
    spnego = bytes.fromhex("06062b0601050502")
    tokens = [b"", b"\0", b"\x60", b"\x60\x84\xff\xff\xff\xff", b"A" * 16_384]
    tokens += [b"\x60" + bytes([len(oid) + 40]) + oid + bytes(40) for oid in (krb5, spnego)]
    tokens += [chance.randbytes(chance.randrange(1, 2_000)) for _ in range(200)]
    tokens += [b"\x60\x40" + krb5 + b"\x01\0" + chance.randbytes(51) for _ in range(200)]
    for token in tokens:
        context = acceptor.context()
        with pytest.raises(GssError):
            context.accept(token)
        assert context.peer == ""


def test_a_context_that_is_not_established_signs_nothing(tmp_path: Path) -> None:
    context = Acceptor(PRINCIPAL, keytab(tmp_path / "keytab")).context()
    for call in (context.wrap, context.unwrap):
        with pytest.raises(GssError):
            call(b"data")
