"""Kerberos on the legacy port: SASL's GSSAPI (RFC 4752), the server's side, without a security
layer, as Storm's Java clients ask for it.

    client   token                   the ticket for this Nimbus, and a proof that it is the client's
    server   token                   only if the client wants one, and answers it with nothing
    server   wrap(01 000000)         layers: none; the largest message that follows: 0
    client   wrap(01 000000 NAME)    its choice, and whom it acts for

Storm's client always sends a NAME: its own principal, unless it acts for somebody.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, Protocol

from squall_common.authentication.authenticator import Proved
from squall_common.security.identity import Channel, IdentityError, check_name
from squall_nimbus.legacy.authenticator import UserPrincipals
from squall_nimbus.legacy.gss import GssError
from squall_thrift.serving.authentication import Accepted, Challenge, RefusedError

MECHANISM: Final = "GSSAPI"
# The library waits for files (the keytab, the replay cache): strangers who make it wait keep no
# other work of Nimbus from its threads.
_THREADS = 4
_NO_LAYER = b"\x01\x00\x00\x00"
_PRINCIPAL = re.compile(r"([^/@\\]+)@([^/@\\]+)")


class SecurityContext(Protocol):
    """`gss.Context`."""

    peer: str
    lifetime_secs: int | None

    def accept(self, token: bytes) -> bytes: ...

    def wrap(self, data: bytes) -> bytes: ...

    def unwrap(self, data: bytes) -> bytes: ...


def user_of(principal: str, realm: str, *, short: bool) -> str:
    """The user that a principal is: NAME of NAME@REALM if `short` (KerberosPrincipalToLocal), else
    all of it (DefaultPrincipalToLocal). Raises IdentityError for other realms, and for
    NAME/INSTANCE, which is a service or another role of somebody.

    >>> user_of("alice@EXAMPLE.ORG", "EXAMPLE.ORG", short=True)
    'alice'
    """
    found = _PRINCIPAL.fullmatch(principal)
    if found is None:
        raise IdentityError(f"{principal!r} is not NAME@REALM")
    if found[2] != realm:
        raise IdentityError(f"{principal!r} is not of the realm {realm}")
    return check_name(found[1] if short else principal)


class KerberosLogin:
    """Proves peers with contexts of an acceptor, whose realm is `realm`. `now` is in seconds since
    the epoch."""

    mechanism: Final = MECHANISM

    def __init__(
        self,
        context: Callable[[], SecurityContext],
        principals: UserPrincipals,
        *,
        realm: str,
        short_names: bool,
        now: Callable[[], float],
    ) -> None:
        self.context = context
        self.principals = principals
        self.realm = realm
        self.short_names = short_names
        self.now = now
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="gss")
        self._free = asyncio.Semaphore(_THREADS)

    async def in_thread(self, call: Callable[[bytes], bytes], data: bytes) -> bytes:
        """Make a call of the library in one of the few threads that are for this alone. A peer that
        is given up while it waits for one (`AUTHENTICATION_SECS`) takes none, and leaves nothing
        behind: it waits here, not in the pool, which would keep what it sent."""
        loop = asyncio.get_running_loop()
        await self._free.acquire()
        work = self._threads.submit(call, data)
        # When the call has returned, also if the peer was given up meanwhile.
        work.add_done_callback(lambda _: _call_in(loop, self._free.release))
        return await asyncio.wrap_future(work)

    def begin(self, host: str) -> KerberosDialogue:
        return KerberosDialogue(self, host)

    def ended(self, proved: Proved) -> str | None:
        """None: what it has proved ends with its ticket, which its principal knows."""
        return None


class _Turn(enum.Enum):
    TOKEN = enum.auto()  # the peer sends its token
    READY = enum.auto()  # it has the context, and waits for the layers
    CHOICE = enum.auto()  # it chooses a layer
    OVER = enum.auto()


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
    """From another thread."""
    with contextlib.suppress(RuntimeError):  # the loop is closed: Nimbus has ended
        loop.call_soon_threadsafe(call)


class KerberosDialogue:
    """Of one connection. Implements `squall_thrift.serving.authentication.Mechanism`."""

    def __init__(self, login: KerberosLogin, host: str) -> None:
        self._login = login
        self._host = host
        self._context = login.context()
        self._turn = _Turn.TOKEN

    async def step(self, response: bytes) -> Challenge | Accepted:
        turn, self._turn = self._turn, _Turn.OVER
        try:
            match turn:
                case _Turn.TOKEN:
                    return await self._token(response)
                case _Turn.READY:
                    if response:
                        raise RefusedError("GSSAPI: there is nothing to answer")
                    return await self._layers()
                case _Turn.CHOICE:
                    return await self._choice(response)
                case _Turn.OVER:
                    raise RefusedError("GSSAPI: it is over")
        except GssError as error:
            raise RefusedError(f"GSSAPI: {error}") from error

    async def _token(self, token: bytes) -> Challenge:
        if not token:  # RFC 4752, section 3.2: a client without an initial response
            self._turn = _Turn.TOKEN
            return Challenge(b"")
        answer = await self._login.in_thread(self._context.accept, token)
        if not answer:
            return await self._layers()
        self._turn = _Turn.READY
        return Challenge(answer)

    async def _layers(self) -> Challenge:
        self._turn = _Turn.CHOICE
        return Challenge(await self._login.in_thread(self._context.wrap, _NO_LAYER))

    async def _choice(self, response: bytes) -> Accepted:
        login, principal = self._login, self._context.peer
        choice = await login.in_thread(self._context.unwrap, response)
        if choice[:4] != _NO_LAYER:
            raise RefusedError("GSSAPI: the peer asks for a security layer")
        try:
            user = user_of(principal, login.realm, short=login.short_names)
        except IdentityError as error:
            raise RefusedError(f"GSSAPI: {error}") from error
        name = choice[4:].decode("utf-8", "replace")
        if name not in ("", principal, user):
            raise RefusedError(f"GSSAPI: {principal} may not act for others by this port")
        secs = self._context.lifetime_secs
        ends = None if secs is None else login.now() + secs
        return Accepted(Proved(await login.principals.of(user, Channel.KERBEROS, self._host, ends)))
