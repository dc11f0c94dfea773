"""Who a peer of the legacy port is."""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Collection
from typing import Final, Protocol

from squall_common.authentication.authenticator import Proved
from squall_common.authentication.groups import Groups
from squall_common.security.acl import ClusterAcl
from squall_common.security.audit import AuditLog
from squall_common.security.identity import LEGACY_CHANNELS, Channel, Principal, Role
from squall_nimbus.legacy import digest_md5
from squall_nimbus.legacy.digest_md5 import DigestChallenge, DigestError
from squall_nimbus.legacy.users import Users
from squall_thrift.serving.authentication import (
    Accepted,
    Challenge,
    Mechanism,
    RefusedError,
)

_NONCE_BYTES = 24


class Login(Protocol):
    """Begins to prove peers by the one mechanism that a port has."""

    @property
    def mechanism(self) -> str: ...

    def begin(self, host: str) -> Mechanism:
        """Of a peer that calls from `host`."""
        ...

    def ended(self, proved: Proved) -> str | None:
        """Why what a peer has proved counts no longer, or None."""
        ...


class LegacyAuthenticator:
    """Implements `squall_thrift.serving.authentication.Authenticator`, without TLS."""

    context: Final = None

    def __init__(self, login: Login, audit: AuditLog) -> None:
        self._login = login
        self._audit = audit

    def begin(self, mechanism: str, certificate: bytes | None, peer: str) -> Mechanism:
        if mechanism != self._login.mechanism:
            raise RefusedError(
                f"the mechanism {mechanism!r} is not that of this port, {self._login.mechanism}"
            )
        return self._login.begin(peer.rpartition(":")[0].strip("[]"))

    def refused(self, peer: str, reason: str) -> None:
        self._audit.stranger(peer, reason)

    def ended(self, proved: Proved) -> str | None:
        """Why what a peer of this port has proved counts no longer, or None."""
        if proved.caller.channel not in LEGACY_CHANNELS:
            return None
        return self._login.ended(proved)


class UserPrincipals:
    """Makes callers of users who have proved their names. Administrators do not come in here: a
    password or a ticket on an open wire is not enough to do everything."""

    def __init__(self, acls: ClusterAcl, groups: Groups) -> None:
        self._acls = acls
        self._groups = groups

    async def of(
        self, user: str, channel: Channel, host: str, expires: float | None = None
    ) -> Principal:
        """The caller. Raises RefusedError."""
        groups = await self._groups.of(user)
        caller = Principal(Role.USER, user, channel, groups, host, expires=expires)
        if self._acls.admins.has(caller):
            raise RefusedError(f"{user} is an administrator, who does not come in by this port")
        return caller


class DigestLogin:
    """DIGEST-MD5 with the secrets of a file. `hosts` returns the names by which clients reach this
    Nimbus now, in lower case; `realm` is the cluster's name."""

    mechanism: Final = digest_md5.MECHANISM

    def __init__(
        self,
        users: Users,
        principals: UserPrincipals,
        *,
        realm: str,
        hosts: Callable[[], Collection[str]],
        nonce: Callable[[], str] = lambda: secrets.token_urlsafe(_NONCE_BYTES),
    ) -> None:
        self.users = users
        self.principals = principals
        self.realm = realm
        self.hosts = hosts
        self.nonce = nonce

    def begin(self, host: str) -> DigestDialogue:
        return DigestDialogue(self, host)

    def ended(self, proved: Proved) -> str | None:
        mark = self.users.mark(proved.caller.name)
        if mark is None:
            return f"the secret of {proved.caller} was taken away"
        if proved.secret is None or not hmac.compare_digest(mark, proved.secret):
            return f"the secret of {proved.caller} was changed"
        return None


class DigestDialogue:
    """Of one connection: an empty response, a challenge, its response. Implements
    `squall_thrift.serving.authentication.Mechanism`."""

    def __init__(self, login: DigestLogin, host: str) -> None:
        self._login = login
        self._host = host
        self._challenge: DigestChallenge | None = None

    async def step(self, response: bytes) -> Challenge | Accepted:
        if self._challenge is None:
            if response:
                # RFC 2831, section 2.2, "subsequent authentication": there is none here.
                raise RefusedError("DIGEST-MD5: it begins with a response to an old challenge")
            self._challenge = DigestChallenge(self._login.realm, self._login.nonce())
            return Challenge(self._challenge.serialize())
        try:
            found = digest_md5.parse_response(response)
            digest_md5.check_response(found, self._challenge, self._login.hosts())
        except DigestError as error:
            raise RefusedError(f"DIGEST-MD5: {error}") from error
        user = found.username
        secret, known = self._login.users.secret(user)
        right = hmac.compare_digest(digest_md5.proof(found, secret), found.response)
        if not (right and known):
            why = f"the password of {user!r} is wrong" if known else f"there is no user {user!r}"
            raise RefusedError(f"DIGEST-MD5: {why}")
        if found.authzid is not None and found.authzid != found.user_bytes:
            raise RefusedError(f"DIGEST-MD5: {user} may not act for others by this port")
        caller = await self._login.principals.of(user, Channel.DIGEST, self._host)
        proved = Proved(caller, secret=self._login.users.mark(user))
        return Accepted(proved, b"rspauth=" + digest_md5.proof(found, secret, of_server=True))
