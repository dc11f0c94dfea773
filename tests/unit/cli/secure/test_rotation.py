"""The CA's own key turns, also when a step is killed."""

from __future__ import annotations

import itertools
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall_cli.secure import authority_folder, rotation
from squall_cli.secure.authority_folder import AuthorityFolder
from squall_cli.secure.rotation import Rotation, Stage, left_of, stage_of
from squall_common.errors import SquallError
from squall_common.security.certificates import (
    Authority,
    CertificateError,
    check_issued,
    generation_of,
    issuer_of,
    read_certificate,
    read_key,
)
from squall_common.security.identity import Role


class Killed(BaseException):
    """As SIGKILL: nothing that runs later is to see it."""


def kill_at(patch: pytest.MonkeyPatch, number: int, *, after: bool) -> None:
    """End at the write of this number, before it or after it."""
    count = itertools.count()

    def deadly(write: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            now = next(count)
            if now == number and not after:
                raise Killed
            found = write(*arguments, **options)
            if now == number:
                raise Killed
            return found

        return call

    for module in (authority_folder, rotation):
        patch.setattr(module, "write_atomic", deadly(module.write_atomic))
    patch.setattr(os, "rename", deadly(os.rename))
    patch.setattr(shutil, "rmtree", deadly(shutil.rmtree))


def new_folder(path: Path) -> tuple[AuthorityFolder, Path]:
    folder = AuthorityFolder(path / "ca")
    folder.create("prod")
    return folder, folder.issue(Role.NIMBUS, "n1", ["host"], path, days=30)[0]


def steps(folder: AuthorityFolder, certificate: Path) -> list[Callable[[], object]]:
    def issue() -> None:
        Rotation(folder).turn()
        folder.certify(certificate, days=30)

    return [lambda: Rotation(folder).begin(), issue, lambda: Rotation(folder).end()]


def check(folder: AuthorityFolder, certificate: Path) -> None:
    """What holds at any moment: the CA issues, and all that counts has its key and its CA."""
    authority = folder.load()
    assert authority.key.public_key() == authority.certificate.public_key()
    assert authority.certificate in folder.authorities().certificates
    found = read_certificate(certificate.read_bytes())
    check_issued(found, folder.authorities(), "prod", time.time())
    key = read_key(certificate.with_suffix(".key").read_bytes())
    assert key.public_key() == found.public_key()
    assert folder.listed(authority).serials == {7}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("killed", range(3), ids=["begin", "issue", "end"])
def test_each_step_goes_on_after_a_kill_at_each_of_its_writes(
    tmp_path: Path, killed: int, after: bool
) -> None:
    for number in range(10):
        path = tmp_path / str(number)
        folder, certificate = new_folder(path)
        folder.revoke("7")
        old = folder.load().certificate
        ended = False
        for at, step in enumerate(steps(folder, certificate)):
            if at == killed:
                with pytest.MonkeyPatch.context() as patch:
                    kill_at(patch, number, after=after)
                    try:
                        step()
                        ended = True
                    except Killed:
                        pass
                check(folder, certificate)
            if at != killed or not (ended or (Rotation(folder).stage is Stage.NONE and at == 2)):
                step()
            check(folder, certificate)
        assert Rotation(folder).stage is Stage.NONE
        (new,) = folder.authorities().certificates
        assert generation_of(new) == 2
        assert issuer_of(read_certificate(certificate.read_bytes()), old) is None
        assert read_key((folder.path / "ca.key").read_bytes()).public_key() == new.public_key()
        assert not folder.next_key.exists()
        # The next rotation finds nothing in its way.
        assert Rotation(folder).begin().generation == 3
        if ended:
            return
    raise AssertionError("a step has more writes than were tried")


def test_end_after_a_killed_issue_keeps_what_was_revoked(tmp_path: Path) -> None:
    """Of the two files of `issue` one was written; its certificates came of 'ca issue'."""
    folder, _ = new_folder(tmp_path)
    folder.revoke("7")
    Rotation(folder).begin()
    with pytest.MonkeyPatch.context() as patch:
        kill_at(patch, 0, after=True)
        with pytest.raises(Killed):
            Rotation(folder).turn()
    assert Rotation(folder).stage is Stage.TURNED
    Rotation(folder).end()
    assert folder.listed(folder.load()).serials == {7}
    folder.revoke("8")


def test_a_clock_that_is_behind_does_not_bring_the_old_ca_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = new_folder(tmp_path)
    old = folder.load().certificate
    real = time.time()
    monkeypatch.setattr(time, "time", lambda: real - 5 * 86_400)
    new = Rotation(folder).begin().certificate
    assert new.not_valid_before_utc < old.not_valid_before_utc
    assert folder.authorities().newest == new
    Rotation(folder).turn()
    assert folder.load().certificate == new
    Rotation(folder).end()
    assert folder.authorities().certificates == (new,)


def test_a_step_out_of_turn_changes_nothing(tmp_path: Path) -> None:
    folder, _ = new_folder(tmp_path)
    one = Rotation(folder)
    before = folder.certificate.read_bytes()
    for step in (one.turn, one.end):
        with pytest.raises(SquallError, match="not possible now: no rotation is under way"):
            step()
    assert folder.certificate.read_bytes() == before
    one.begin()
    with pytest.raises(SquallError, match="and the old one issues"):
        one.end()
    one.turn()
    with pytest.raises(SquallError, match="and the new one issues"):
        one.begin()


def test_what_only_the_old_ca_stands_for_is_listed(tmp_path: Path) -> None:
    folder, certificate = new_folder(tmp_path)
    folder.issue(Role.USER, "alice", [], tmp_path, days=1)
    gone = folder.issue(Role.USER, "gone", [], tmp_path, days=1)[0]
    folder.revoke(str(gone))
    one = Rotation(folder)
    one.begin()
    one.turn()
    with pytest.raises(SquallError, match="the certificate was revoked"):
        folder.certify(gone, days=1)
    assert [line["name"] for line in one.left()] == ["n1", "alice"]
    assert folder.certify(certificate, days=1)
    assert not folder.certify(certificate, days=1)
    assert [line["name"] for line in one.left()] == ["alice"]
    assert left_of(folder.issued(), set(), 2, time.time() + 3 * 86_400) == []


def test_a_certificate_of_another_cluster_is_not_replaced(tmp_path: Path) -> None:
    folder, _ = new_folder(tmp_path)
    foreign = AuthorityFolder(tmp_path / "other")
    foreign.create("prod")
    other = foreign.issue(Role.USER, "eve", [], tmp_path, days=1)[0]
    Rotation(folder).begin()
    Rotation(folder).turn()
    with pytest.raises(SquallError, match="has not issued"):
        folder.certify(other, days=1)


def test_a_damaged_folder_is_refused() -> None:
    with pytest.raises(SquallError, match="not as any step"):
        stage_of(False, 2, False)


def test_two_cas_of_one_generation_are_refused(tmp_path: Path) -> None:
    texts = [Authority.create("prod", time.time(), days=1).to_pem()[0] for _ in range(2)]
    file = tmp_path / "ca.pem"
    file.write_bytes(b"".join(texts))
    from squall_common.security.certificates import Authorities

    with pytest.raises(CertificateError, match="one generation"):
        Authorities.read(file.read_bytes())
