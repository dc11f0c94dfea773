"""The tokens of a Nimbus, with a disk and a key that change under it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.secured_nimbus import Certificates

from squall_cli.secure.rotation import Rotation
from squall_common.authentication.files import RevokedFile, read_trusted
from squall_common.daemon.clock import ManualClock
from squall_common.security.identity import Role
from squall_common.security.jws import parse
from squall_common.security.revocation import TokenRegister
from squall_common.security.signing import Trust
from squall_common.security.tokens import verify_token
from squall_nimbus.access import tokens
from squall_nimbus.access.keys import SigningKeys
from squall_nimbus.access.tokens import Tokens


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates")).create()


class State:
    """The register in ZooKeeper."""

    def __init__(self) -> None:
        self.text: bytes | None = None

    async def token_register(self) -> bytes | None:
        return self.text

    async def put_token_register(self, text: bytes, *, guard: object = None) -> None:
        self.text = text


def tokens_of(certificates: Certificates, folder: Path, state: State) -> Tokens:
    folder.mkdir(exist_ok=True)
    conf = certificates.conf(Role.NIMBUS, "n1")
    trusted = read_trusted(
        SimpleNamespace(**{key.replace(".", "_"): value for key, value in conf.items()})  # type: ignore[arg-type]
    )
    assert trusted is not None

    async def fence() -> Any:
        return None

    clock = ManualClock(time=time.time())
    found = Tokens(
        trusted,
        state,  # type: ignore[arg-type]
        folder,
        revoked=RevokedFile(None, trusted, folder / "revoked-certificates.jws"),
        fence=fence,
        clock=clock,
        keys=SigningKeys(trusted, clock),
    )
    found.open()
    return found


async def test_a_revocation_counts_though_the_disk_is_full(
    certificates: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the leader, and on a Nimbus that reads of it; both write it once they can."""
    state = State()
    leader = tokens_of(certificates, tmp_path / "a", state)
    other = tokens_of(certificates, tmp_path / "b", state)
    await leader.create("alice", 3600, "", None, None)
    await other.refresh()
    [token] = other.issued("alice")

    def full(*_args: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(tokens, "write_atomic", full)
        await leader.revoke(token.id)
        await other.refresh()
        assert leader.tokens().token_revoked(token)
        assert other.tokens().token_revoked(token)
    for one, name in ((leader, "a"), (other, "b")):
        await one.refresh()
        again = tokens_of(certificates, tmp_path / name, State())
        assert again.tokens().token_revoked(token)


async def test_another_certificate_of_nimbus_signs_without_a_restart(tmp_path: Path) -> None:
    """With a key of its own: before it is read, the old one signs on."""
    certificates = Certificates(tmp_path / "certificates").create()
    state = State()
    nimbus = tokens_of(certificates, tmp_path / "a", state)
    certificates.issue(Role.NIMBUS, "n1")
    before = await nimbus.create("alice", 3600, "", None, None)
    await nimbus.refresh()
    after = await nimbus.create("alice", 3600, "", None, None)
    signers = [parse(text).header["kid"] for text in (before, after)]
    assert signers[0] != signers[1]
    trusted = certificates.trusted(Role.NIMBUS, "n1")
    for text in (before, after):
        trust = Trust("test", trusted.ca)
        assert verify_token(text, trust, nimbus.tokens(), time.time()).user == "alice"


async def test_the_register_is_signed_again_under_the_ca_that_stays(tmp_path: Path) -> None:
    """And says which tokens do not outlive the old one."""
    certificates = Certificates(tmp_path / "certificates").create()
    state = State()
    nimbus = tokens_of(certificates, tmp_path / "a", state)
    await nimbus.create("alice", 3600, "before", None, None)
    number = nimbus.tokens().number
    certificates.turn(tmp_path / "certificates" / "nimbus-n1.pem")
    await nimbus.refresh()
    ca = certificates.authority.authorities()
    assert state.text is not None
    found = TokenRegister.verify(state.text.decode(), Trust("test", ca.newest))
    assert found.number == number + 1
    await nimbus.create("alice", 3600, "after", None, None)
    found = TokenRegister.verify(state.text.decode(), Trust("test", ca.newest))
    assert {one.label: one.authority for one in found.issued.values()} == {"before": 1, "after": 2}
    await nimbus.refresh()
    assert nimbus.tokens().number == number + 2
    Rotation(certificates.authority).end()
    await nimbus.refresh()
    # A start after the end: the disk has nothing that stands on the old CA.
    assert tokens_of(certificates, tmp_path / "a", state).tokens() == found
