"""Who may call what: each handler method names a permission, one authorizer decides on every call.

    class Handler:
        @permission("killTopology")
        async def killTopology(self, call: Call, name: str | None) -> None: ...

The names of permissions are those of the operations that Storm's authorizers know. PUBLIC marks a
method that every peer may call; the authorizer sees those calls too.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar

PUBLIC: Final = "public"

_ATTRIBUTE = "__squall_permission__"

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Call:
    """One call as its handler sees it. `principal` is None if the peer is not authenticated."""

    operation: str
    peer: str  # HOST:PORT
    principal: str | None = None
    # All that its proof said (`authentication.Identity`); None if the peer is not authenticated.
    # The authorizer knows its type, which is why it is Any here.
    identity: Any = None

    @property
    def address(self) -> str:
        """The peer's HOST, with brackets if it is an IPv6 address. Unauthenticated peers with the
        same address share their limits."""
        return self.peer.rpartition(":")[0]


class Authorizer(Protocol):
    """Decides on every call, before its handler runs."""

    @property
    def authenticates(self) -> bool:
        """Whether peers must prove who they are. If not, a server listens on loopback only."""
        ...

    def authorize(self, call: Call, permission: str) -> None:
        """Return if the call is allowed, else raise `storm.AuthorizationException`."""
        ...


class OpenAuthorizer:
    """Everyone may do everything: for loopback and private networks."""

    authenticates = False

    def authorize(self, call: Call, permission: str) -> None:
        return None


def permission(name: str) -> Callable[[F], F]:
    """Declare the permission that a handler method needs."""

    def declare(method: F) -> F:
        setattr(method, _ATTRIBUTE, name)
        return method

    return declare


def permission_of(method: object) -> str | None:
    """Return the permission that a handler method declared, or None."""
    return getattr(method, _ATTRIBUTE, None)
