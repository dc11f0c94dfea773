"""The digests by which daemons and workers prove to ZooKeeper who they are.

ZooKeeper's scheme "digest": a session shows `USER:PASSWORD`, and an access list names
`USER:BASE64(SHA1(USER:PASSWORD))`. All daemons show the same. The password of a topology's workers
is derived from it (HMAC-SHA256), so that whoever runs workers has it without asking anyone, and
nothing has to be stored; it does not lead back, and says nothing about another topology's.

A file may list several, one a line: the first counts for what is new, and all are accepted, so that
a cluster passes from one to the next (docs/security.md).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Collection
from dataclasses import dataclass, field

from squall_common.cluster import paths
from squall_common.cluster.access.lists import AccessLists, Identity
from squall_common.names import encode_znode


def new_payload() -> str:
    """A new digest for the daemons of a cluster."""
    return f"squall:{secrets.token_hex(32)}"


def identity_of(payload: str) -> Identity:
    """How an access list names who shows a payload.

    >>> identity_of("super:test").id  # DigestAuthenticationProvider.generateDigest
    'super:D/InIHSb7yEEbrWz8b9l71RjZJU='
    """
    user = payload.partition(":")[0]
    digest = base64.b64encode(hashlib.sha1(payload.encode()).digest()).decode()
    return Identity("digest", f"{user}:{digest}")


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """How a session proves who it is, and the lists of what it makes. Nodes get lists as soon as
    the one at `marker` has one: until then the cluster, or the topology, is open."""

    payloads: tuple[str, ...] = field(repr=False)
    lists: AccessLists
    marker: str = "/"


@dataclass(frozen=True, slots=True)
class Digests:
    """The digests of a cluster's daemons, the current one first; `others` have all rights, too."""

    payloads: tuple[str, ...] = field(repr=False)
    others: tuple[Identity, ...] = ()

    def daemons(self) -> tuple[Identity, ...]:
        """Who has all rights."""
        return (*map(identity_of, self.payloads), *self.others)

    def payloads_of(self, topology_id: str) -> tuple[str, ...]:
        """The payloads of a topology's workers, the current one first."""
        return tuple(_derive(payload, topology_id) for payload in self.payloads)

    def for_daemon(self) -> StoreAccess:
        """How a daemon opens its session."""

        def workers(topology_id: str) -> Collection[Identity]:
            return tuple(map(identity_of, self.payloads_of(topology_id)))

        return StoreAccess(self.payloads, AccessLists(self.daemons(), workers))


def worker_access(
    topology_id: str, payloads: tuple[str, ...], daemons: tuple[Identity, ...]
) -> StoreAccess:
    """How a worker opens its session: it knows its topology's payloads, and the names of the
    daemons."""
    own = tuple(map(identity_of, payloads))
    lists = AccessLists(daemons, lambda one: own if one == topology_id else ())
    return StoreAccess(payloads, lists, paths.workerbeats(topology_id))


def _derive(payload: str, topology_id: str) -> str:
    text = b"squall workers of " + topology_id.encode()
    key = hmac.new(payload.encode(), text, hashlib.sha256).hexdigest()
    return f"{encode_znode(topology_id)}:{key}"
