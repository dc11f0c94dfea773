"""SASL's GSSAPI step by step, with a context that is not Kerberos'."""

from __future__ import annotations

import asyncio
import gc
import itertools
import threading
import weakref
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from squall_common.authentication.authenticator import Proved
from squall_common.authentication.groups import Groups, fixed_groups
from squall_common.security.acl import ClusterAcl, Members
from squall_common.security.identity import Channel, IdentityError
from squall_nimbus.legacy.authenticator import UserPrincipals
from squall_nimbus.legacy.gss import GssError
from squall_nimbus.legacy.kerberos import KerberosDialogue, KerberosLogin, user_of
from squall_thrift.serving.authentication import Accepted, Challenge, RefusedError

NOW = 1_000.0


@dataclass
class FakeContext:
    """Signs with a leading S."""

    peer: str = "alice@PROD"
    answer: bytes = b""
    lifetime_secs: int | None = 600

    def accept(self, token: bytes) -> bytes:
        if token == b"wrong":
            raise GssError("Request is a replay")
        return self.answer

    def wrap(self, data: bytes) -> bytes:
        return b"S" + data

    def unwrap(self, data: bytes) -> bytes:
        if data[:1] != b"S":
            raise GssError("A token had an invalid signature")
        return data[1:]


def dialogue(context: FakeContext, *, short: bool = True) -> KerberosDialogue:
    return login_with(lambda: context, short=short).begin("10.0.0.7")


def login_with(context: Callable[[], FakeContext], *, short: bool = True) -> KerberosLogin:
    acls = ClusterAcl(admins=Members(frozenset({"root"}), frozenset({"admins"})))
    principals = UserPrincipals(acls, Groups(fixed_groups({"ops": ["admins"], "alice": ["dev"]})))
    return KerberosLogin(context, principals, realm="PROD", short_names=short, now=lambda: NOW)


async def finished(talk: KerberosDialogue, choice: bytes) -> Proved:
    assert await talk.step(b"token") == Challenge(b"S\x01\x00\x00\x00")
    found = await talk.step(choice)
    assert isinstance(found, Accepted)
    assert isinstance(found.identity, Proved)
    return found.identity


@pytest.mark.parametrize("name", [b"", b"alice@PROD", b"alice"])
async def test_a_principal_becomes_a_user_until_its_ticket_ends(name: bytes) -> None:
    caller = (await finished(dialogue(FakeContext()), b"S\x01\x00\x00\x00" + name)).caller
    assert (str(caller), caller.channel) == ("user:alice", Channel.KERBEROS)
    assert (caller.groups, caller.host) == (frozenset({"dev"}), "10.0.0.7")
    assert caller.expires == NOW + 600


async def test_logins_that_hang_in_the_library_keep_no_other_threads() -> None:
    """The replay cache is on a disk that does not answer, and strangers go on to log in."""
    let_go = threading.Event()
    begun = itertools.count()
    contexts = weakref.WeakSet[FakeContext]()

    class Hangs(FakeContext):
        __hash__ = object.__hash__

        def accept(self, token: bytes) -> bytes:
            next(begun)
            let_go.wait(60)
            return b""

    def context() -> FakeContext:
        made = Hangs()
        contexts.add(made)
        return made

    login = login_with(context)
    talks = [asyncio.create_task(login.begin("10.0.0.7").step(b"token")) for _ in range(50)]
    try:
        async with asyncio.timeout(10):
            assert await asyncio.to_thread(int, "1") == 1
        while talks:  # as after ten seconds
            talks[-1].cancel()
            await asyncio.wait([talks.pop()])
        gc.collect()
        assert len(contexts) <= 4  # those in the library: who is given up leaves nothing behind
    finally:
        let_go.set()
    async with asyncio.timeout(10):
        assert await login.in_thread(bytes, b"free again") == b"free again"
    assert next(begun) <= 4


async def test_a_client_that_begins_late_and_wants_a_proof_of_the_server() -> None:
    talk = dialogue(FakeContext(answer=b"mine"))
    assert await talk.step(b"") == Challenge(b"")  # a client without an initial response
    assert await talk.step(b"token") == Challenge(b"mine")
    assert await talk.step(b"") == Challenge(b"S\x01\x00\x00\x00")
    assert isinstance(await talk.step(b"S\x01\x00\x00\x00"), Accepted)
    with pytest.raises(RefusedError, match="it is over"):
        await talk.step(b"S\x01\x00\x00\x00")


@pytest.mark.parametrize(
    ("peer", "choice", "why"),
    [
        ("alice@PROD", b"S\x01\x00\x00\x00bob", "may not act for others"),
        ("alice@PROD", b"S\x01\x00\x00\x00root", "may not act for others"),
        ("alice@PROD", b"S\x04\x00\x10\x00", "asks for a security layer"),
        ("alice@PROD", b"S\x01\x00\x00", "asks for a security layer"),
        ("alice@PROD", b"S", "asks for a security layer"),
        ("alice@PROD", b"\x01\x00\x00\x00", "invalid signature"),
        ("root@PROD", b"S\x01\x00\x00\x00", "is an administrator"),
        ("ops@PROD", b"S\x01\x00\x00\x00", "is an administrator"),
        ("alice@ELSEWHERE", b"S\x01\x00\x00\x00", "not of the realm PROD"),
        ("alice/admin@PROD", b"S\x01\x00\x00\x00", "is not NAME@REALM"),
        ("WELLKNOWN/ANONYMOUS@PROD", b"S\x01\x00\x00\x00", "is not NAME@REALM"),
        ("anonymous@PROD", b"S\x01\x00\x00\x00", "reserved"),
    ],
)
async def test_others_are_refused(peer: str, choice: bytes, why: str) -> None:
    talk = dialogue(FakeContext(peer=peer))
    await talk.step(b"token")
    with pytest.raises(RefusedError, match=why):
        await talk.step(choice)
    with pytest.raises(RefusedError, match="it is over"):
        await talk.step(b"S\x01\x00\x00\x00")


async def test_what_the_library_refuses_ends_it() -> None:
    talk = dialogue(FakeContext())
    with pytest.raises(RefusedError, match="GSSAPI: Request is a replay"):
        await talk.step(b"wrong")
    with pytest.raises(RefusedError, match="it is over"):
        await talk.step(b"token")


async def test_an_answer_where_there_was_no_question_is_refused() -> None:
    talk = dialogue(FakeContext(answer=b"mine"))
    await talk.step(b"token")
    with pytest.raises(RefusedError, match="nothing to answer"):
        await talk.step(b"S\x01\x00\x00\x00")


def test_storms_two_ways_of_naming_users() -> None:
    assert user_of("alice@PROD", "PROD", short=True) == "alice"
    assert user_of("alice@PROD", "PROD", short=False) == "alice@PROD"
    for wrong in ("alice", "a@b@PROD", "@PROD", "alice@", r"al\/ice@PROD", "-@PROD", ""):
        for short in (True, False):
            with pytest.raises(IdentityError):
                user_of(wrong, "PROD", short=short)
