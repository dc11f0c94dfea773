"""The folder of a CA, when a disk is full in the middle."""

from __future__ import annotations

from pathlib import Path

import pytest

from squall_cli.secure import authority_folder
from squall_cli.secure.authority_folder import AuthorityFolder
from squall_common.daemon.files import write_atomic
from squall_common.errors import SquallError
from squall_common.security.identity import Role


@pytest.mark.parametrize("written", range(3))
def test_a_ca_that_was_not_finished_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: int
) -> None:
    calls = 0

    def filling_up(path: Path, data: bytes, *, mode: int) -> None:
        nonlocal calls
        calls += 1
        if calls > written:
            raise OSError(28, "No space left on device")
        write_atomic(path, data, mode=mode)

    folder = AuthorityFolder(tmp_path / "ca")
    with monkeypatch.context() as patch:
        patch.setattr(authority_folder, "write_atomic", filling_up)
        with pytest.raises(SquallError, match="No space left"):
            folder.create("prod")
    folder.create("prod")
    certificate, _ = folder.issue(Role.USER, "alice", [], tmp_path, days=1)
    assert folder.revoke(str(certificate))[1] == 1


def test_a_certificate_is_listed_before_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = AuthorityFolder(tmp_path / "ca")
    folder.create("prod")
    listed: list[bool] = []

    def look(path: Path, data: bytes, *, mode: int) -> None:
        listed.append("alice" in (folder.path / "issued.jsonl").read_text())
        write_atomic(path, data, mode=mode)

    monkeypatch.setattr(authority_folder, "write_atomic", look)
    folder.issue(Role.USER, "alice", [], tmp_path, days=1)
    assert listed == [True, True]
