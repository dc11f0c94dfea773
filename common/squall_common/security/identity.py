"""Who a caller is, once it has proved it.

A certificate of the cluster's CA names its holder in a URI of its subjectAltName:

    squall://CLUSTER/ROLE/NAME        squall://prod/user/alice, squall://prod/supervisor/node-7

A token names a user of the cluster that it was made for. What a caller *may* do does not follow
from its name alone: `authorize` decides that.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass, field

from squall_common.names import ANONYMOUS

SCHEME = "squall://"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,127}")

# Names that mean something else where owners and users are written down.
RESERVED_NAMES = frozenset({ANONYMOUS})


class IdentityError(ValueError):
    """A name or a certificate does not identify a caller of this cluster. The text is for the
    server's log, not for the caller."""


class Role(enum.StrEnum):
    """What kind of caller it is."""

    USER = "user"
    NIMBUS = "nimbus"
    SUPERVISOR = "supervisor"
    DRPC = "drpc"
    UI = "ui"
    LOGVIEWER = "logviewer"
    WORKER = "worker"  # proved by a token for one slot, never by a certificate


CERTIFIED_ROLES = frozenset(Role) - {Role.WORKER}


class Channel(enum.StrEnum):
    """How it proved who it is."""

    CERTIFICATE = "certificate"
    TOKEN = "token"
    DIGEST = "digest"  # a password, by DIGEST-MD5 on the legacy port
    KERBEROS = "kerberos"  # a ticket, by GSSAPI on the legacy port


# Of the port for Storm's Java clients, which has no TLS.
LEGACY_CHANNELS = frozenset({Channel.DIGEST, Channel.KERBEROS})


@dataclass(frozen=True, slots=True)
class Scope:
    """What a token is limited to: actions and topologies, by name. None: no limit."""

    actions: frozenset[str] | None = None
    topologies: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class Principal:
    """An authenticated caller. `host` is the address that it called from."""

    role: Role
    name: str
    channel: Channel
    groups: frozenset[str] = frozenset()
    host: str = ""
    scope: Scope = field(default_factory=Scope)
    expires: float | None = None  # when what it has proved ends; None: with the connection
    # Of a worker: its topology's id and owner, and the slot that it runs on.
    topology_id: str | None = None
    owner: str | None = None
    node: str | None = None
    port: int | None = None
    # Who really called, if the caller acts for somebody else (impersonation).
    real: Principal | None = None

    @property
    def user(self) -> str | None:
        """The user's name; None for a daemon or a worker."""
        return self.name if self.role is Role.USER else None

    def __str__(self) -> str:
        """For logs: `user:alice`, `supervisor:node-7`, `user:bob (by user:ci)`."""
        own = f"{self.role.value}:{self.name}"
        return own if self.real is None else f"{own} (by {self.real})"


def check_name(name: str) -> str:
    """Return a name that can identify a caller or a cluster. Raises IdentityError."""
    if _NAME.fullmatch(name) is None:
        raise IdentityError(
            f"{name!r} is not a name: letters, digits and . _ @ -, at most 128, "
            "the first a letter or a digit"
        )
    if name.lower() in RESERVED_NAMES:
        raise IdentityError(f"the name {name!r} is reserved")
    return name


def identity_uri(cluster: str, role: Role, name: str) -> str:
    """The URI that a certificate carries.

    >>> identity_uri("prod", Role.USER, "alice")
    'squall://prod/user/alice'
    """
    if role not in CERTIFIED_ROLES:
        raise IdentityError(f"a {role.value} has no certificate")
    return f"{SCHEME}{check_name(cluster)}/{role.value}/{check_name(name)}"


def parse_identity(uris: list[str] | tuple[str, ...], cluster: str) -> tuple[Role, str]:
    """The role and the name that a certificate's URIs give its holder in this cluster. Raises
    IdentityError unless exactly one URI does."""
    ours = [uri for uri in uris if uri.startswith(SCHEME)]
    if len(ours) != 1:
        raise IdentityError(f"the certificate has {len(ours)} URIs that begin with {SCHEME}, not 1")
    parts = ours[0].removeprefix(SCHEME).split("/")
    if len(parts) != 3:
        raise IdentityError(f"{ours[0]!r} is not squall://CLUSTER/ROLE/NAME")
    if parts[0] != cluster:
        raise IdentityError(f"the certificate is of cluster {parts[0]!r}, this is {cluster!r}")
    try:
        role = Role(parts[1])
    except ValueError:
        raise IdentityError(f"the certificate has an unknown role: {parts[1]!r}") from None
    if role not in CERTIFIED_ROLES:
        raise IdentityError(f"a {role.value} has no certificate")
    return role, check_name(parts[2])
