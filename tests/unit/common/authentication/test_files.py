"""The file of revoked certificates, as a daemon follows it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest
from tests.support.secured_nimbus import Certificates
from tests.support.signers import Signers, make_signers

from squall_common.authentication import files
from squall_common.authentication.files import RevokedFile, Trusted
from squall_common.daemon.files import write_atomic
from squall_common.security.certificates import Authorities, Authority
from squall_common.security.identity import Role
from squall_common.security.revocation import RevokedCertificates


@pytest.fixture(scope="module")
def prod() -> Signers:
    return make_signers("prod")


def signed(signers: Signers, *serials: int) -> str:
    listed = RevokedCertificates()
    for serial in serials:
        listed = listed.with_serial(serial)
    return listed.sign("prod", signers.ca.key)


def followed(signers: Signers, folder: Path) -> RevokedFile:
    trusted = Trusted("prod", "ca.pem", Authorities(signers.ca.certificate), None)
    return RevokedFile(str(folder / "revoked.jws"), trusted, folder / "kept.jws")


def test_a_file_that_could_not_be_read_is_read_once_it_can(
    prod: Signers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner and mode change neither its time nor its inode."""
    path = tmp_path / "revoked.jws"
    path.write_text(signed(prod))
    found = followed(prod, tmp_path)
    found.open()
    path.write_text(signed(prod, 7))
    os.utime(path, (1, 1))

    def denied(self: Path, *_args: object) -> str:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", denied)
        assert "Permission denied" in str(found.refresh())
        assert found.serials() == frozenset()
    assert found.refresh() is None
    assert found.serials() == {7}


def test_a_list_counts_though_its_copy_cannot_be_written_yet(
    prod: Signers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "revoked.jws"
    path.write_text(signed(prod))
    found = followed(prod, tmp_path)
    found.open()
    path.write_text(signed(prod, 7))
    os.utime(path, (1, 1))

    def full(*_args: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_atomic", full)
        assert "No space left" in str(found.refresh())
        assert found.serials() == {7}
    assert found.refresh() is None
    path.write_text(signed(prod))
    again = followed(prod, tmp_path)
    with pytest.raises(files.ConfigError, match="number 1 was read before"):
        again.open()


def test_of_two_lists_with_one_number_both_count(prod: Signers, tmp_path: Path) -> None:
    """Two copies of the CA's folder have each revoked another certificate."""
    path = tmp_path / "revoked.jws"
    path.write_text(signed(prod, 7))
    found = followed(prod, tmp_path)
    found.open()
    path.write_text(signed(prod, 8))
    os.utime(path, (1, 1))
    assert "both count" in str(found.refresh())
    assert found.serials() == {7, 8}
    assert found.refresh() is None, "it is reported once"
    again = followed(prod, tmp_path)
    again.open()
    assert again.serials() == {7, 8}
    path.write_text(signed(prod, 8, 7))
    os.utime(path, (2, 2))
    assert found.refresh() is None
    path.write_text(signed(prod, 7))
    os.utime(path, (3, 3))
    assert "number 2 was read before" in str(found.refresh())


def replace_ca(certificates: Certificates, *generations: Authority) -> None:
    text = b"".join(one.to_pem()[0] for one in generations)
    write_atomic(certificates.authority.certificate, text, mode=0o644)


def test_a_list_by_a_ca_that_went_is_reported_though_it_did_not_change(tmp_path: Path) -> None:
    """Only the copy of ca.pem was replaced: the daemon runs on, and would not start again."""
    certificates = Certificates(tmp_path).create()
    authority = certificates.authority
    authority.revoke("7")
    trusted = certificates.trusted(Role.NIMBUS, "n1")
    found = RevokedFile(str(authority.revoked), trusted, tmp_path / "kept.jws")
    found.open()
    assert found.refresh() is None
    new = Authority.create("test", time.time(), days=40, generation=2)
    replace_ca(certificates, authority.load(), new)
    assert found.refresh() is None
    issued = new.issue(Role.NIMBUS, "n1", ["127.0.0.1"], time.time(), days=3)
    write_atomic(tmp_path / "nimbus-n1.key", issued.key, mode=0o600)
    write_atomic(tmp_path / "nimbus-n1.pem", issued.certificate, mode=0o644)
    replace_ca(certificates, new)
    assert "its signature is wrong" in (found.refresh() or "")
    assert found.serials() == {7}
    assert found.refresh() is None, "it is reported once"
    # At the next start the kept one is named, and not the site's, which may be right.
    text = RevokedCertificates(2).sign("test", new.key)
    write_atomic(authority.revoked, text.encode(), mode=0o644)
    assert found.refresh() is None
    (tmp_path / "kept.jws").write_text(signed(make_signers("test"), 7))
    with pytest.raises(files.ConfigError, match=r"kept\.jws, cannot be used: its signature") as no:
        RevokedFile(str(authority.revoked), trusted, tmp_path / "kept.jws").open()
    assert "remove the file" in (no.value.hint or "")


def test_a_running_process_follows_its_ca_and_its_certificate(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path).create()
    trusted = certificates.trusted(Role.NIMBUS, "n1")
    old = certificates.authority.load()
    new = Authority.create("test", time.time(), days=30, generation=2)
    first, client = trusted.server_context(), trusted.client_context()
    assert trusted.refresh() is None
    assert trusted.server_context() is first
    replace_ca(certificates, old, new)
    assert trusted.refresh() is None
    assert (trusted.is_turning, trusted.is_of_newest) == (True, False)
    assert trusted.server_context() is not first
    assert trusted.client_context() is not client
    # Its own certificate would count no longer: the old CA stays.
    replace_ca(certificates, new)
    assert "has not issued" in (trusted.refresh() or "")
    assert trusted.is_turning
    issued = new.issue(Role.NIMBUS, "n1", ["127.0.0.1"], time.time(), days=3)
    write_atomic(tmp_path / "nimbus-n1.key", issued.key, mode=0o600)
    assert trusted.refresh() is not None  # of another certificate
    write_atomic(tmp_path / "nimbus-n1.pem", issued.certificate, mode=0o644)
    assert trusted.refresh() is None
    assert (trusted.is_turning, trusted.is_of_newest) == (False, True)
    assert trusted.own is not None
    assert trusted.own.holder.serial == issued.serial


def test_a_ca_that_is_replaced_while_a_process_starts_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificates = Certificates(tmp_path).create()
    old = certificates.authority.load()
    new = Authority.create("test", time.time(), days=30, generation=2)
    read = files._read_own

    def replaced(*given: Any) -> Any:
        replace_ca(certificates, old, new)  # the CA has been read by now
        return read(*given)

    with monkeypatch.context() as patch:
        patch.setattr(files, "_read_own", replaced)
        trusted = certificates.trusted(Role.NIMBUS, "n1")
    assert not trusted.is_turning
    assert trusted.refresh() is None
    assert trusted.is_turning


def test_a_process_does_not_become_another_one(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path).create()
    trusted = certificates.trusted(Role.NIMBUS, "n1")
    other = certificates.issue(Role.NIMBUS, "n2")
    for suffix in (".key", ".pem"):
        target = (tmp_path / "nimbus-n1").with_suffix(suffix)
        write_atomic(target, other.with_suffix(suffix).read_bytes(), mode=0o600)
    assert "that of nimbus:n2 now" in (trusted.refresh() or "")
    assert trusted.own is not None
    assert trusted.own.holder.name == "n1"
