"""Certificates over a real socket: who gets which, and that nobody else does."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import wait_for

from squall_cli.secure import enrolment
from squall_cli.secure.authority_folder import AuthorityFolder
from squall_cli.secure.enrolment import Accounts, EnrolmentServer, Folder, Request, obtain, uids
from squall_cli.secure.zookeeper_digest import replace_digest
from squall_common.errors import SquallError
from squall_common.security.certificates import hosts_of, read_certificate
from squall_common.security.identity import Role


def serve_and(tmp_path: Path, act: Any, *, uid: int | None = None) -> Any:
    """Run `act(folder)` in a thread while a CA serves its folder."""

    async def run() -> Any:
        authority = AuthorityFolder(tmp_path / "ca")
        if not authority.certificate.exists():
            authority.create("test")
        roles: dict[Role, str | None] = {Role.SUPERVISOR: None, Role.USER: None}
        folder = Folder(tmp_path / "shared", roles, os.getuid() if uid is None else uid)
        server = EnrolmentServer(authority, [folder], Accounts(tmp_path / "accounts", [], []))
        await server.start()
        running = asyncio.create_task(server.run())
        try:
            return await asyncio.to_thread(act, folder.path)
        finally:
            running.cancel()
            await server.close()

    return asyncio.run(run())


def test_a_certificate_is_kept_until_something_about_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def act(folder: Path) -> None:
        def get(*hosts: str) -> int:
            certificate, key = obtain(folder, Role.SUPERVISOR, "n1", hosts, tmp_path / "own")
            found = read_certificate(certificate.read_bytes())
            assert hosts_of(found) == set(hosts)
            assert key.stat().st_mode & 0o777 == 0o600
            assert key.parent.stat().st_mode & 0o077 == 0
            return found.serial_number

        first = get("n1", "127.0.0.1")
        assert get("127.0.0.1", "n1") == first
        second = get("n1")
        assert second != first
        monkeypatch.setattr(enrolment, "_RENEW_SECS", 400 * 86_400)
        assert get("n1") != second

    serve_and(tmp_path, act)
    assert [one.name for one in (tmp_path / "ca").iterdir() if "issued." in one.name] == [
        "issued.jsonl"
    ]  # no key stays with the CA


def test_daemons_that_use_zookeeper_get_the_same_digest_and_users_get_none(tmp_path: Path) -> None:
    def act(folder: Path) -> None:
        for name in ("n1", "n2"):
            obtain(folder, Role.SUPERVISOR, name, [name], tmp_path / name)
        obtain(folder, Role.USER, "alice", [], tmp_path / "alice")

    serve_and(tmp_path, act)
    digest = tmp_path / "n1" / "zookeeper.digest"
    assert digest.stat().st_mode & 0o777 == 0o600
    assert digest.read_text() == (tmp_path / "n2" / "zookeeper.digest").read_text()
    assert len(digest.read_text()) > 60
    assert not (tmp_path / "alice" / "zookeeper.digest").exists()
    assert {one.name for one in (tmp_path / "shared").iterdir()} >= {"ca.pem"}
    assert "zookeeper.digest" not in {one.name for one in (tmp_path / "shared").iterdir()}


def test_a_daemon_starts_with_the_digest_that_the_ca_has_now(tmp_path: Path) -> None:
    """Its certificate is kept; and without the CA it starts with what it has."""
    own, digest = tmp_path / "own", tmp_path / "own" / "zookeeper.digest"
    of_ca = tmp_path / "ca" / "zookeeper.digest"

    def get(folder: Path) -> bytes:
        certificate, _ = obtain(folder, Role.SUPERVISOR, "n1", ["n1"], own)
        return certificate.read_bytes()

    def act(folder: Path) -> None:
        first = get(folder)
        replace_digest(of_ca)
        assert get(folder) == first
        assert digest.read_text().splitlines() == of_ca.read_text().splitlines()
        assert len(digest.read_text().splitlines()) == 2
        assert digest.stat().st_mode & 0o777 == 0o600
        digest.unlink()  # as it was before there were any
        assert get(folder) == first
        assert digest.read_bytes() == of_ca.read_bytes()

    serve_and(tmp_path, act)
    before = digest.read_bytes()
    get(tmp_path / "shared")
    assert digest.read_bytes() == before


def test_a_digest_alone_is_for_those_who_show_one(tmp_path: Path) -> None:
    def act(folder: Path) -> None:
        asked = Request(Role.USER, "alice", (), digest_only=True)
        with pytest.raises(SquallError, match="a user shows ZooKeeper no digest"):
            enrolment._ask(folder / "ca.sock", asked, 0)

    serve_and(tmp_path, act)


def test_another_user_gets_nothing_and_the_reason(tmp_path: Path) -> None:
    def act(folder: Path) -> None:
        with pytest.raises(SquallError, match="gets no certificates here"):
            obtain(folder, Role.SUPERVISOR, "n1", ["n1"], tmp_path / "own")

    serve_and(tmp_path, act, uid=os.getuid() + 1)
    assert not (tmp_path / "own").exists()


def test_all_folders_have_the_newest_files(tmp_path: Path) -> None:
    def act(folder: Path) -> None:
        obtain(folder, Role.USER, "alice", [], tmp_path / "own")
        assert uids((folder / "accounts").read_text()) == {"alice": 20_000}
        authority = AuthorityFolder(tmp_path / "ca")
        authority.revoke(str(tmp_path / "own" / "user.pem"))
        copy = folder / "revoked.jws"
        wait_for("the copy", lambda: copy.read_bytes() == authority.revoked.read_bytes(), 30.0)

    serve_and(tmp_path, act)


def test_another_certificate_follows_a_revoked_one(tmp_path: Path) -> None:
    """It is the next start's: nobody has to find the files of a container."""

    def act(folder: Path) -> None:
        def get() -> int:
            file, _ = obtain(folder, Role.SUPERVISOR, "n1", ["n1"], tmp_path / "own")
            return read_certificate(file.read_bytes()).serial_number

        first = get()
        authority = AuthorityFolder(tmp_path / "ca")
        authority.revoke(f"{first:x}")
        newest = authority.revoked.read_bytes()
        wait_for("the copy", lambda: (folder / "revoked.jws").read_bytes() == newest, 30.0)
        second = get()
        assert second != first
        assert get() == second

    serve_and(tmp_path, act)


@pytest.mark.parametrize("sent", [b"x" * 20_000, b"{}\n", b""])
def test_garbage_neither_stops_the_ca_nor_hangs(tmp_path: Path, sent: bytes) -> None:
    def act(folder: Path) -> None:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.settimeout(30)
            sock.connect(str(folder / "ca.sock"))
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            assert b"not a request" in sock.makefile("rb").readline()
        obtain(folder, Role.SUPERVISOR, "n1", ["n1"], tmp_path / "own")

    serve_and(tmp_path, act)


def test_one_who_says_nothing_has_asked_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(enrolment, "_ASK_SECS", 0.1)
    assert b"not a request" in serve_and(tmp_path, listen_only)


def test_another_user_is_refused_before_it_says_anything(tmp_path: Path) -> None:
    """A worker beside its supervisor could hold all of the CA's connections."""
    assert b"gets no certificates" in serve_and(tmp_path, listen_only, uid=os.getuid() + 1)


def listen_only(folder: Path) -> bytes:
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(30)
        sock.connect(str(folder / "ca.sock"))
        return sock.makefile("rb").readline()


def test_a_ca_that_is_away_is_said(tmp_path: Path) -> None:
    with pytest.raises(SquallError, match="does not answer") as error:
        obtain(tmp_path, Role.USER, "alice", [], tmp_path / "own", wait_secs=0)
    assert error.value.hint == "Does its container run?"
