"""The keys of a Nimbus for identity tokens: made ahead, kept, turned, and published before they
sign."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.secured_nimbus import Certificates

from squall_common.authentication.files import Trusted
from squall_common.cluster.store import StoreError
from squall_common.daemon.clock import ManualClock
from squall_common.errors import SquallError
from squall_common.outside.published import AHEAD_SECS, SIGNS_SECS, Publication, PublicKey, served
from squall_common.security.identity import Role
from squall_common.security.signing import Trust
from squall_nimbus.access.keys import SigningKeys
from squall_nimbus.access.outside_keys import OutsideKey, OutsideKeys, kept, next_begins, signing

ISSUER = "https://id.example.org"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), days=300).create()


class State:
    """What is published in ZooKeeper."""

    def __init__(self) -> None:
        self.texts: dict[str, bytes] = {}
        self.away = False
        self.writes = 0

    async def outside_keys(self) -> dict[str, bytes]:
        if self.away:
            raise StoreError("away")
        return dict(self.texts)

    async def put_outside_keys(self, nimbus: str, text: bytes) -> None:
        if self.away:
            raise StoreError("away")
        self.texts[nimbus] = text
        self.writes += 1


class Cluster:
    """Nimbus nodes over one state and one clock."""

    def __init__(self, certificates: Certificates, folder: Path) -> None:
        self.certificates = certificates
        self.folder = folder
        self.state = State()
        self.clock = ManualClock(time=float(int(time.time())))
        self.revoked: set[int] = set()

    def trusted(self, name: str) -> Trusted:
        return self.certificates.trusted(Role.NIMBUS, name)

    def nimbus(self, name: str = "n1", issuer: str = ISSUER) -> OutsideKeys:
        trusted = self.trusted(name)
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        found = OutsideKeys(
            issuer,
            trusted,
            self.state,  # type: ignore[arg-type]
            folder,
            keys=SigningKeys(trusted, self.clock),
            trust=Trust(trusted.cluster, trusted.ca, lambda: self.revoked),
            clock=self.clock,
        )
        found.open()
        return found

    def served(self, nimbus: OutsideKeys) -> set[str]:
        return {one.kid for one in served(nimbus.publications(), ISSUER, self.clock.time())}


@pytest.fixture
def cluster(certificates: Certificates, tmp_path: Path) -> Cluster:
    return Cluster(certificates, tmp_path)


async def test_a_key_signs_only_after_it_was_published(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    cluster.state.away = True
    with pytest.raises(StoreError):
        await nimbus.refresh()
    with pytest.raises(SquallError, match="not published"):
        nimbus.signing_key()
    cluster.state.away = False
    await nimbus.refresh()
    assert nimbus.signing_key().public.kid in cluster.served(nimbus)
    # Nothing has changed: nothing is written.
    writes = cluster.state.writes
    await nimbus.refresh()
    assert cluster.state.writes == writes


async def test_a_restart_keeps_the_key_and_nobody_else_reads_it(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    await nimbus.refresh()
    key = nimbus.signing_key()
    assert "PRIVATE" not in repr(key)
    file = cluster.folder / "n1" / "outside-keys.json"
    assert file.stat().st_mode & 0o777 == 0o600
    again = cluster.nimbus()
    with pytest.raises(SquallError, match="not published"):
        again.signing_key()
    await again.refresh()
    assert again.signing_key().public == key.public


async def test_keys_turn_and_the_old_one_is_served_until_its_last_token_ends(
    cluster: Cluster,
) -> None:
    nimbus = cluster.nimbus()
    await nimbus.refresh()
    first = nimbus.signing_key().public
    seen: list[str] = []
    cluster.clock.advance(SIGNS_SECS - AHEAD_SECS - 60)
    for _ in range(40):  # 80 minutes, over the turn
        await nimbus.refresh()
        now = cluster.clock.time()
        kid = nimbus.signing_key().public.kid
        if kid not in seen:
            seen.append(kid)
        assert kid in cluster.served(nimbus)
        assert (first.kid in cluster.served(nimbus)) == (now < first.until)
        cluster.clock.advance(120)
    assert len(seen) == 2
    assert seen[0] == first.kid
    assert first.kid not in cluster.served(nimbus)
    text = (cluster.folder / "n1" / "outside-keys.json").read_text()
    assert [bool(one["private"]) for one in json.loads(text)["keys"]] == [True]


async def test_the_private_part_of_a_key_that_signs_no_more_is_gone(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    await nimbus.refresh()
    cluster.clock.advance(SIGNS_SECS - AHEAD_SECS)
    await nimbus.refresh()
    cluster.clock.advance(AHEAD_SECS + 1)
    await nimbus.refresh()
    text = (cluster.folder / "n1" / "outside-keys.json").read_text()
    assert [bool(one["private"]) for one in json.loads(text)["keys"]] == [False, True]


async def test_the_key_of_a_second_nimbus_signs_when_foreign_parties_have_read_it(
    cluster: Cluster,
) -> None:
    first, second = cluster.nimbus("n1"), cluster.nimbus("n2")
    await first.refresh()
    await second.refresh()
    with pytest.raises(SquallError, match="begins to sign in 600 s"):
        second.signing_key()
    await first.refresh()
    assert len(cluster.served(first)) == len(cluster.served(second)) == 2
    cluster.clock.advance(AHEAD_SECS)
    assert second.signing_key().public.kid in cluster.served(first)


@pytest.mark.parametrize("away", [False, True])
async def test_of_two_that_start_together_only_the_first_signs_at_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, away: bool
) -> None:
    """Both have found no keys. A foreign party that read the first one's keeps them for minutes,
    and would refuse what the second one signs."""
    first, second = cluster.nimbus("n1"), cluster.nimbus("n2")
    found, put = State.outside_keys, State.put_outside_keys
    looks = 0

    async def outside_keys(state: State) -> dict[str, bytes]:
        nonlocal looks
        looks += 1
        return {} if looks == 1 else await found(state)

    async def put_outside_keys(state: State, nimbus: str, text: bytes) -> None:
        if nimbus == "n2" and not state.texts:
            monkeypatch.setattr(State, "put_outside_keys", put)
            await first.refresh()
            if away:
                raise StoreError("away")
        await put(state, nimbus, text)

    monkeypatch.setattr(State, "outside_keys", outside_keys)
    monkeypatch.setattr(State, "put_outside_keys", put_outside_keys)
    if away:
        with pytest.raises(StoreError):
            await second.refresh()
    await second.refresh()
    await first.refresh()
    key = first.signing_key().public.kid
    with pytest.raises(SquallError, match="begins to sign in 600 s"):
        second.signing_key()
    assert len(cluster.served(first)) == len(cluster.served(second)) == 2
    cluster.clock.advance(AHEAD_SECS)
    assert second.signing_key().public.kid in cluster.served(first)
    assert first.signing_key().public.kid == key


async def test_the_first_key_signs_at_once_also_if_it_could_not_be_published_at_first(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    nimbus = cluster.nimbus()

    async def put_outside_keys(state: State, nimbus: str, text: bytes) -> None:
        raise StoreError("away")

    with monkeypatch.context() as patch:
        patch.setattr(State, "put_outside_keys", put_outside_keys)
        with pytest.raises(StoreError):
            await nimbus.refresh()
    with pytest.raises(SquallError, match="not published"):
        nimbus.signing_key()
    await nimbus.refresh()
    assert nimbus.signing_key().public.kid in cluster.served(nimbus)


async def test_a_disk_that_was_lost_takes_no_token_back(cluster: Cluster) -> None:
    nimbus = cluster.nimbus()
    await nimbus.refresh()
    lost = nimbus.signing_key().public.kid
    (cluster.folder / "n1" / "outside-keys.json").unlink()
    again = cluster.nimbus()
    await again.refresh()
    assert lost in cluster.served(again)
    with pytest.raises(SquallError, match="begins to sign"):
        again.signing_key()
    cluster.clock.advance(AHEAD_SECS)
    assert again.signing_key().public.kid != lost


def _emptied(state: State, before: dict[str, bytes]) -> None:
    state.texts.clear()


def _rolled_back(state: State, before: dict[str, bytes]) -> None:
    state.texts = dict(before)


def _forged(state: State, before: dict[str, bytes]) -> None:
    state.texts = dict.fromkeys(state.texts, b"forged")


def _swapped(state: State, before: dict[str, bytes]) -> None:
    state.texts = {"n1": state.texts["n2"], "n2": state.texts["n1"]}


@pytest.mark.parametrize("change", [_emptied, _rolled_back, _forged, _swapped])
async def test_whatever_zookeeper_shows_all_keys_are_served_and_no_others(
    cluster: Cluster, change: Callable[[State, dict[str, bytes]], None]
) -> None:
    first, second = cluster.nimbus("n1"), cluster.nimbus("n2")
    await first.refresh()
    await second.refresh()
    before = dict(cluster.state.texts)
    for secs in (SIGNS_SECS - AHEAD_SECS, AHEAD_SECS):  # each makes another one
        cluster.clock.advance(secs)
        for one in (first, second, first):
            await one.refresh()
    all_of_them = cluster.served(first)
    assert len(all_of_them) == 4
    change(cluster.state, before)
    await first.refresh()
    assert cluster.served(first) == all_of_them
    await second.refresh()
    await first.refresh()
    assert cluster.served(first) == cluster.served(second) == all_of_them
    assert len(first._own) == len(second._own) == 2  # neither took the other's for its own
    assert first.signing_key()


async def test_what_a_revoked_nimbus_has_published_is_not_served(cluster: Cluster) -> None:
    first, second = cluster.nimbus("n1"), cluster.nimbus("n2")
    await second.refresh()
    await first.refresh()
    assert len(cluster.served(first)) == 2
    own = cluster.trusted("n2").own
    assert own is not None
    cluster.revoked.add(own.certificate.serial_number)
    assert len(cluster.served(first)) == 1
    assert cluster.served(first) == {one.public.kid for one in first._own}


async def test_another_issuer_is_published_anew(cluster: Cluster) -> None:
    await cluster.nimbus().refresh()
    other = "https://other.example.org"
    again = cluster.nimbus(issuer=other)
    await again.refresh()
    assert [one.issuer for one in again.publications()] == [other]
    assert cluster.served(again) == set()


def test_a_file_that_cannot_be_read_is_an_error_that_does_not_quote_it(cluster: Cluster) -> None:
    (cluster.folder / "n1").mkdir()
    (cluster.folder / "n1" / "outside-keys.json").write_text('{"keys": [{"private": "secret"}]}')
    with pytest.raises(SquallError, match=r"outside-keys\.json, cannot be read") as refused:
        cluster.nimbus()
    assert "secret" not in str(refused.value)


def key(begins: float, ends: float, *, private: bool = True) -> OutsideKey:
    public = PublicKey(f"{begins}-{ends}", "n", "e", int(begins), int(ends))
    return OutsideKey(public, object() if private else None)  # type: ignore[arg-type]


def test_the_newest_key_that_has_begun_signs() -> None:
    keys = [key(0, 100), key(50, 200), key(150, 300), key(60, 190, private=False)]
    everything = {one.public.kid for one in keys}
    assert signing(keys, everything, 40) is keys[0]
    assert signing(keys, everything, 60) is keys[1]
    assert signing(keys, everything, 170) is keys[2]
    assert signing(keys, everything, 300) is None
    assert signing(keys, everything - {"50-200"}, 60) is keys[0]


def test_a_key_is_made_ahead_of_the_end_of_the_last_one() -> None:
    assert next_begins([], False, 1_000) == 1_000
    assert next_begins([], True, 1_000) == 1_000 + AHEAD_SECS
    assert next_begins([key(0, 9_000)], True, 1_000) is None
    assert next_begins([key(0, 1_000 + AHEAD_SECS)], True, 1_000) == 1_000 + AHEAD_SECS
    assert next_begins([key(0, 9_000, private=False)], False, 1_000) == 1_000 + AHEAD_SECS


def test_what_is_served_no_more_is_dropped() -> None:
    old = key(0, 100)
    assert kept([old], 99) == [old]
    assert kept([old], 100)[0].private is None
    assert kept([old], 3_760) == []


async def test_what_the_old_ca_stands_for_is_published_again(
    tmp_path: Path,
) -> None:
    own = Certificates(tmp_path / "certificates", days=300).create()
    cluster = Cluster(own, tmp_path)
    trusted = cluster.trusted("n1")
    nimbus = OutsideKeys(
        ISSUER,
        trusted,
        cluster.state,  # type: ignore[arg-type]
        tmp_path,
        keys=SigningKeys(trusted, cluster.clock),
        trust=Trust(trusted.cluster, trusted.ca),
        clock=cluster.clock,
    )
    await nimbus.refresh()
    key = nimbus.signing_key().public
    before = cluster.state.writes
    own.turn(tmp_path / "certificates" / "nimbus-n1.pem")
    assert trusted.refresh() is None
    await nimbus.refresh()
    newest = Trust(trusted.cluster, trusted.ca.newest)
    published = Publication.verify(cluster.state.texts["n1"].decode(), newest)
    assert published.keys == (key,)
    await nimbus.refresh()
    assert cluster.state.writes == before + 1
