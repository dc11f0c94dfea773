"""Puts together what a Nimbus of a secured cluster has besides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from squall_common.authentication.authenticator import PeerAuthenticator, Proved, WorkerEnded
from squall_common.authentication.files import RevokedFile, Trusted
from squall_common.authentication.groups import Groups, groups_source
from squall_common.authentication.provider import provider_of
from squall_common.cluster.leader import Fence
from squall_common.cluster.state import ClusterState
from squall_common.config.options.typed import NimbusOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.files import make_private_dirs
from squall_common.outside.issuer import check_issuer
from squall_common.security.access import SecuredAccess
from squall_common.security.acl import ClusterAcl, Members, impersonation_of
from squall_common.security.audit import AuditFile, AuditLog
from squall_common.security.signing import Trust
from squall_nimbus.access.keys import SigningKeys
from squall_nimbus.access.ledger import Ledger
from squall_nimbus.access.outside_keys import OutsideKeys
from squall_nimbus.access.outside_tokens import FindDeclared, OutsideTokens
from squall_nimbus.access.signed_store import SignedStore
from squall_nimbus.access.tokens import Tokens
from squall_nimbus.legacy.authenticator import LegacyAuthenticator
from squall_nimbus.legacy.build import legacy_authenticator


@dataclass(frozen=True, slots=True)
class Secured:
    """The parts of a Nimbus of a secured cluster."""

    access: SecuredAccess
    tokens: Tokens
    authenticator: PeerAuthenticator
    legacy: LegacyAuthenticator | None  # None: there is no port for Storm's Java clients
    close: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Signing:
    """What signs, and the cluster state that believes only what is signed."""

    trusted: Trusted
    folder: Path
    revoked: RevokedFile
    keys: SigningKeys
    store: SignedStore


def sign_states(
    trusted: Trusted, options: NimbusOptions, state: ClusterState, clock: Clock
) -> Signing:
    """Put a store that signs in front of the one of `state`. Raises OSError."""
    folder = Path(options.storm_local_dir) / "nimbus" / "security"
    make_private_dirs(folder)
    revoked = RevokedFile(
        options.storm_security_revoked, trusted, folder / "revoked-certificates.jws"
    )
    ledger = Ledger(
        folder / "ledger",
        Trust(trusted.cluster, trusted.ca, revoked.serials),
        Trust(trusted.cluster, trusted.ca),
    )
    keys = SigningKeys(trusted, clock)
    store = SignedStore(state.store, ledger, keys, trusted, revoked=revoked.serials, clock=clock)
    return Signing(trusted, folder, revoked, keys, store)


def secure(
    signing: Signing,
    options: NimbusOptions,
    state: ClusterState,
    *,
    fence: Callable[[], Awaitable[Fence]],
    clock: Clock,
    worker_ended: WorkerEnded,
) -> Secured:
    """The parts that a Nimbus of a secured cluster has besides. Raises ConfigError, OSError."""
    local = Path(options.storm_local_dir)
    trusted, revoked = signing.trusted, signing.revoked
    tokens = Tokens(
        trusted,
        state,
        signing.folder,
        revoked=revoked,
        fence=fence,
        clock=clock,
        keys=signing.keys,
    )
    acls = cluster_acl(options)
    logs = Path(options.storm_log_dir) if options.storm_log_dir else local / "logs"
    file = AuditFile(logs / "nimbus-audit.log")
    audit = AuditLog(file, clock.time)
    groups = Groups(groups_source(options))
    authenticator = PeerAuthenticator(
        trusted,
        acls=acls,
        groups=groups,
        revoked=tokens,
        audit=audit,
        now=clock.time,
        worker_ended=worker_ended,
        provider=provider_of(options, options.storm_identity_issuer),
    )
    legacy = legacy_authenticator(options, trusted, acls, groups, audit, clock.time)

    def ended(proved: Proved) -> str | None:
        why = None if legacy is None else legacy.ended(proved)
        return why or authenticator.ended(proved)

    access = SecuredAccess(acls, audit, ended=ended, now=clock.time)
    return Secured(access, tokens, authenticator, legacy, file.close)


def issue_outside(
    signing: Signing,
    options: NimbusOptions,
    state: ClusterState,
    *,
    declared: FindDeclared,
    clock: Clock,
) -> OutsideTokens:
    """What issues identity tokens. Raises ConfigError."""
    issuer = check_issuer(options.storm_identity_issuer or "")
    trusted = signing.trusted
    keys = OutsideKeys(
        issuer,
        trusted,
        state,
        signing.folder,
        keys=signing.keys,
        trust=Trust(trusted.cluster, trusted.ca, signing.revoked.serials),
        clock=clock,
    )
    return OutsideTokens(
        keys,
        cluster=trusted.cluster,
        allowed=options.nimbus_identity_audiences,
        declared=declared,
        clock=clock,
    )


def cluster_acl(options: NimbusOptions) -> ClusterAcl:
    """The roles that the site's configuration gives."""
    return ClusterAcl(
        admins=Members.of(options.nimbus_admins, options.nimbus_admins_groups),
        users=Members.of(options.nimbus_users, options.nimbus_groups),
        supervisors=Members.of(options.nimbus_supervisor_users, ()),
        metrics=Members.of(options.metrics_users, options.metrics_groups),
        impersonation=impersonation_of(options.nimbus_impersonation_acl),
    )
