"""The server's side: who the peer of a connection is, by its certificate or its token."""

from __future__ import annotations

import math
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Protocol

from cryptography import x509

from squall_common.authentication import mechanisms
from squall_common.authentication.files import Trusted
from squall_common.authentication.groups import Groups
from squall_common.outside.provider import is_outside_token
from squall_common.security.acl import ClusterAcl
from squall_common.security.audit import AuditLog
from squall_common.security.authorize import Denied, may_impersonate
from squall_common.security.certificates import CertificateError, check_issued
from squall_common.security.identity import Channel, IdentityError, Principal, Role, check_name
from squall_common.security.signing import Trust
from squall_common.security.tokens import (
    Revocations,
    Token,
    TokenError,
    principal_of,
    verify_token,
)
from squall_common.security.worker_tokens import (
    WorkerToken,
    is_worker_token,
    verify_worker_token,
    worker_principal,
)
from squall_thrift.serving.authentication import Accepted, RefusedError

if TYPE_CHECKING:
    from squall_common.authentication.provider import Provider

# Daemons that call with the token of a user who has asked them.
CARRIERS: Final = frozenset({Role.UI, Role.LOGVIEWER, Role.DRPC})


@dataclass(frozen=True, slots=True)
class Proved:
    """A peer that proved who it is: the caller, and what it showed."""

    caller: Principal
    token: Token | None = None
    serial: int | None = None
    worker: WorkerToken | None = None
    issuers: tuple[x509.Certificate | None, ...] = ()  # the CAs behind what it showed
    groups: frozenset[str] = frozenset()  # that its token names
    # Of a user of the legacy port: what tells whether the user's secret is still the same.
    secret: bytes | None = None

    @property
    def principal(self) -> str:
        """The name that owns what it makes: a user's own, or `supervisor:NAME`."""
        return self.caller.user or str(self.caller)


class Revoked(Protocol):
    """What counts no longer. A daemon that does not know which tokens were revoked (None) accepts
    none."""

    def serials(self) -> Collection[int]: ...

    def tokens(self) -> Revocations | None: ...


# Why the token of a worker counts no longer, though its time has not come; or None.
WorkerEnded = Callable[[WorkerToken], str | None]


@dataclass(frozen=True, slots=True)
class _OneResponse:
    """A mechanism of one response. Implements `squall_thrift.serving.authentication.Mechanism`."""

    peers: PeerAuthenticator
    mechanism: str
    certificate: bytes | None
    peer: str

    async def step(self, response: bytes) -> Accepted:
        return Accepted(
            await self.peers.accept(self.mechanism, response, self.certificate, self.peer)
        )


class PeerAuthenticator:
    """Implements `squall_thrift.serving.authentication.Authenticator`. `now` is the time in
    seconds since the epoch. Tokens of workers count only with `worker_ended`, those of an identity
    provider only with `provider`."""

    def __init__(
        self,
        trusted: Trusted,
        *,
        acls: ClusterAcl,
        groups: Groups,
        revoked: Revoked,
        audit: AuditLog,
        now: Callable[[], float],
        worker_ended: WorkerEnded | None = None,
        provider: Provider | None = None,
    ) -> None:
        self._provider = provider
        self._worker_ended = worker_ended
        self._trusted = trusted
        trusted.server_context()  # fails now, not with the first connection
        self._acls = acls
        self._groups = groups
        self._revoked = revoked
        self._audit = audit
        self._now = now
        self._trust = Trust(trusted.cluster, trusted.ca, revoked.serials)

    @property
    def context(self) -> ssl.SSLContext:
        return self._trusted.server_context()

    def begin(self, mechanism: str, certificate: bytes | None, peer: str) -> _OneResponse:
        return _OneResponse(self, mechanism, certificate, peer)

    async def accept(
        self, mechanism: str, response: bytes, certificate: bytes | None, peer: str
    ) -> Proved:
        """Who the peer is, by the only response of its mechanism. `certificate` is the one that it
        showed (DER), which TLS has verified. Raises RefusedError."""
        host = peer.rpartition(":")[0].strip("[]")
        try:
            if mechanism == mechanisms.EXTERNAL:
                act_for = mechanisms.parse_external(response)
                proved = self._by_certificate(certificate, host)
            elif mechanism == mechanisms.OAUTHBEARER:
                text, act_for = mechanisms.parse_bearer(response)
                proved = await self._by_text(text, certificate, host)
            else:
                raise RefusedError(f"unknown mechanism {mechanism!r}")
        except (mechanisms.ResponseError, TokenError, CertificateError, IdentityError) as error:
            raise RefusedError(str(error)) from error
        proved = await self.with_groups(proved)
        if act_for is not None and act_for != proved.caller.user:
            proved = replace(proved, caller=await self._acting(proved.caller, act_for))
        return proved

    async def with_groups(self, proved: Proved) -> Proved:
        """With the groups that its user is in now."""
        user = proved.caller.user
        if user is None:
            return proved
        groups = await self._groups.of(user)
        return replace(proved, caller=replace(proved.caller, groups=groups | proved.groups))

    def refused(self, peer: str, reason: str) -> None:
        self._audit.stranger(peer, reason)

    def ended(self, proved: Proved) -> str | None:
        """Why what a peer has proved counts no longer, though its connection stays; or None."""
        trusted = self._trusted.ca.certificates
        for issuer in proved.issuers:
            if issuer not in trusted:
                return f"the CA behind the proof of {proved.caller} is trusted no longer"
        if proved.serial is not None and proved.serial in self._revoked.serials():
            return f"the certificate of {proved.caller} was revoked"
        revocations = self._revoked.tokens()
        if (
            proved.token is not None
            and revocations is not None
            and revocations.token_revoked(proved.token)
        ):
            return f"token {proved.token.id} of {proved.token.user} was revoked"
        if proved.worker is not None and self._worker_ended is not None:
            return self._worker_ended(proved.worker)
        return None

    def _by_certificate(self, certificate: bytes | None, host: str) -> Proved:
        if certificate is None:
            raise RefusedError("EXTERNAL: the peer showed no certificate")
        try:
            found = x509.load_der_x509_certificate(certificate)
        except ValueError as error:
            raise RefusedError("the certificate cannot be read") from error
        trusted = self._trusted
        holder = check_issued(found, trusted.ca, trusted.cluster, self._now())
        if holder.serial in self._revoked.serials():
            raise RefusedError(f"the certificate of {holder.role.value}:{holder.name} was revoked")
        ends = found.not_valid_after_utc.timestamp()
        caller = Principal(holder.role, holder.name, Channel.CERTIFICATE, host=host, expires=ends)
        return Proved(caller, serial=holder.serial, issuers=(holder.issuer,))

    async def _by_text(self, text: str, certificate: bytes | None, host: str) -> Proved:
        """A token, of a user or of a worker."""
        if self._worker_ended is not None and is_worker_token(text):
            worker = verify_worker_token(text, self._trust, self._now())
            if (why := self._worker_ended(worker)) is not None:
                raise RefusedError(why)
            caller = worker_principal(worker, host)
            return Proved(caller, worker=worker, issuers=(worker.issuer,))
        revocations = self._revoked.tokens()
        if revocations is None:
            raise RefusedError("this daemon accepts certificates only")
        if self._provider is not None and is_outside_token(text):
            user = await self._provider.verify(text, self._now())
            if revocations.token_revoked(user.token):
                raise RefusedError(f"the tokens of {user.token.user} were revoked")
            return replace(self._by_token(user.token, certificate, host), groups=user.groups)
        token = verify_token(text, self._trust, revocations, self._now())
        proved = self._by_token(token, certificate, host)
        return replace(proved, issuers=(token.issuer, *proved.issuers))

    def _by_token(self, token: Token, certificate: bytes | None, host: str) -> Proved:
        """A token that a daemon shows for its user, beside its own certificate: the call is the
        user's, within the token's limits, and ends with either proof."""
        user = principal_of(token, host)
        carrier = None if certificate is None else self._by_certificate(certificate, host)
        if carrier is None or carrier.caller.role not in CARRIERS:
            return Proved(user, token=token)
        ends = min(user.expires or math.inf, carrier.caller.expires or math.inf)
        caller = replace(user, real=carrier.caller, expires=ends)
        return Proved(caller, token=token, serial=carrier.serial, issuers=carrier.issuers)

    async def _acting(self, caller: Principal, name: str) -> Principal:
        """The user `name`, whom the caller may act for. Raises RefusedError."""
        try:
            check_name(name)
        except IdentityError as error:
            raise RefusedError(str(error)) from error
        groups = await self._groups.of(name)
        decision = may_impersonate(caller, name, groups, self._acls)
        if isinstance(decision, Denied):
            raise RefusedError(decision.reason)
        return Principal(
            Role.USER,
            name,
            caller.channel,
            groups,
            caller.host,
            expires=caller.expires,
            real=caller,
        )
