"""The store under the cluster state: a tree of small nodes with ZooKeeper's semantics.

Two implementations pass the same test suite: `zookeeper.ZooKeeperStore` (a real ensemble, through
kazoo) and `memory.MemoryStore` (one process: local mode, tests, simulation).

The words: a *node* has a path, bytes and a version that counts its writes. An *ephemeral* node
goes with the session that created it. A *watch* fires once, at the next change. A *session* lives
while its client is heard of; the *connection state* says what the client knows of that:
CONNECTED; SUSPENDED (the connection is away, the session may live); LOST (the session is gone, and
its ephemerals with it).
"""

import enum
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from squall_common.cluster.access.digests import StoreAccess
from squall_common.cluster.access.lists import AccessList

# ZooKeeper closes the connection on a request of 1 MiB or more without saying why: a larger value
# is refused here with a clear error first (some room is left for the path and the request header).
NODE_BYTES_MAX = 1_000_000


class StoreError(Exception):
    """The store could not do what was asked; nothing changed, unless said otherwise.

    `index` is the place of the operation that failed when it was one of a transaction's.
    """

    index: int | None = None


class NoNodeError(StoreError):
    """The node (or, on create, its parent) does not exist."""


class NodeExistsError(StoreError):
    """The node to create is there already."""


class NotEmptyError(StoreError):
    """The node to delete has children."""


class BadVersionError(StoreError):
    """The node's version is not the expected one."""


class EphemeralParentError(StoreError):
    """The parent of the node to create is ephemeral: those have no children."""


class ValueTooLargeError(StoreError):
    """The value, or the values of a transaction together, have more than NODE_BYTES_MAX bytes."""


class AccessDeniedError(StoreError):
    """The node's access list does not allow it. With a digest that is not the cluster's, ZooKeeper
    accepts a session all the same, and answers this to what it asks for."""


class ConnectionLostError(StoreError):
    """No answer within the timeout, or the session ended. The change may have happened."""


class ConnectionState(enum.Enum):
    """The state of the session, as far as the client knows it.

    LOST is said as soon as the session *may* have ended by the client's own clock. When it turns
    out that it lives after all (the whole ensemble was away), CONNECTED follows with the same
    session id and the ephemerals still there: look before you create.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"


@dataclass(frozen=True, slots=True)
class Stat:
    """The metadata of a node: everything but its value."""

    version: int  # counts writes, from 0
    czxid: int  # transaction that created it
    mzxid: int  # transaction that last wrote it: ordered over the whole tree
    ephemeral_owner: int  # session id, 0 for a persistent node
    children: int
    acl_version: int = 0  # counts the lists that replaced the first one


@dataclass(frozen=True, slots=True)
class Create:
    """Create a node; its parent must exist."""

    path: str
    value: bytes = b""
    ephemeral: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """Write a node; `version` -1 matches any."""

    path: str
    value: bytes
    version: int = -1


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete a node without children; `version` -1 matches any."""

    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    """Require that a node exists with this version (-1: that it exists)."""

    path: str
    version: int = -1


Op = Create | Set | Delete | Check

_BAD_IN_PATH = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def check_path(path: str) -> None:
    """Raise ValueError for a path that ZooKeeper would refuse (its PathUtils.validatePath)."""
    if path == "/":
        return
    parts = path.split("/")
    if parts[0] or len(parts) < 2 or any(part in {"", ".", ".."} for part in parts[1:]):
        raise ValueError(f"{path!r} is not an absolute node path")
    if _BAD_IN_PATH.search(path):
        raise ValueError(f"node path {path!r} has a character that ZooKeeper refuses")


def check_size(path: str, value: bytes) -> None:
    """Raise ValueTooLargeError, before anything is sent, for a value that cannot be stored."""
    if len(value) > NODE_BYTES_MAX:
        raise ValueTooLargeError(
            f"the value for {path} has {len(value)} bytes; the limit is {NODE_BYTES_MAX}"
        )


def check_transaction(ops: Sequence[Op]) -> None:
    """Check every path, and the sum of the values: they travel as one request."""
    total = 0
    for op in ops:
        check_path(op.path)
        if isinstance(op, Create | Set):
            total += len(op.value)
    if total > NODE_BYTES_MAX:
        raise ValueTooLargeError(
            f"a transaction that begins at {ops[0].path} has values of {total} bytes together; "
            f"the limit is {NODE_BYTES_MAX}"
        )


def parent_of(path: str) -> str:
    """The parent's path; the root is its own."""
    return path.rpartition("/")[0] or "/"


# Called on the event loop, once, with the path, when a watched node or its child list changed.
# It is also called after every reconnection, which could have hidden a change: read again, whatever
# it is called for. Setting the same watcher on the same path again before it fired has no effect.
Watcher = Callable[[str], None]
StateListener = Callable[[ConnectionState], None]


class Store(Protocol):
    """One client's session with the tree. Paths are absolute within the store's root.

    `put_errors` counts the writes of `put_nowait` that the store refused. `observe`, if it is set,
    is called on the loop with the kind and the seconds of each request that has ended.

    Every coroutine raises `ConnectionLostError` when no answer came within the operation timeout;
    none blocks the event loop, and none waits for a reconnection longer than that.
    """

    put_errors: int
    observe: Callable[[str, float], None] | None

    async def start(self) -> None:
        """Connect. Waits until the first connection stands, and says now and then that it does;
        cancel it to give up. Fine when it was started before; a closed store stays closed."""
        ...

    async def close(self) -> None:
        """End the session at once: its ephemerals go."""
        ...

    @property
    def state(self) -> ConnectionState: ...

    @property
    def session_id(self) -> int:
        """The id that `Stat.ephemeral_owner` of this session's nodes carries; 0 when none."""
        ...

    @property
    def session_timeout_secs(self) -> float:
        """The session timeout that was negotiated with the server."""
        ...

    @property
    def last_answered_secs(self) -> float:
        """Monotonic time at which the last request that has been answered was *sent*: the session
        cannot have expired before this plus `session_timeout_secs`."""
        ...

    def add_listener(self, listener: StateListener) -> None:
        """Call `listener` on the event loop at each change of the connection state."""
        ...

    def remove_listener(self, listener: StateListener) -> None: ...

    async def get(self, path: str, watch: Watcher | None = None) -> tuple[bytes, Stat]:
        """Value and stat. Raises NoNodeError (and then sets no watch)."""
        ...

    async def exists(self, path: str, watch: Watcher | None = None) -> Stat | None:
        """The stat, or None; the watch also fires on creation."""
        ...

    async def children(self, path: str, watch: Watcher | None = None) -> list[str]:
        """Names of the children, sorted. Raises NoNodeError. The watch fires when a child comes or
        goes, or the node itself is deleted."""
        ...

    async def create(
        self,
        path: str,
        value: bytes = b"",
        *,
        ephemeral: bool = False,
        sequence: bool = False,
        make_parents: bool = False,
    ) -> str:
        """Create a node and return its path (with ten digits appended when `sequence`)."""
        ...

    async def set(self, path: str, value: bytes, version: int = -1) -> Stat: ...

    async def delete(self, path: str, version: int = -1) -> None: ...

    async def delete_tree(self, path: str) -> None:
        """Delete a node and all below it; not atomic; fine when it is not there."""
        ...

    async def transaction(self, ops: Sequence[Op]) -> None:
        """All of `ops`, or none: raises the error of the first that fails."""
        ...

    @property
    def makes_lists(self) -> bool:
        """Whether nodes that this session creates get access lists."""
        ...

    def begin_lists(self) -> None:
        """From now on they get them; without a StoreAccess nothing happens."""
        ...

    def authenticate(self, access: StoreAccess) -> None:
        """Prove who this is by `access` as well, in this session and those that follow."""
        ...

    async def access_list(self, path: str) -> AccessList:
        """A node's access list, which takes the right to read or to administer it; without the
        latter, ids of digests are masked."""
        ...

    async def set_access_list(self, path: str, acl: AccessList, version: int = -1) -> None:
        """Replace it, which takes the right to administer the node. `version` is that of the
        present list (`Stat.acl_version`), -1 matches any; another one raises BadVersionError."""
        ...

    def put_nowait(self, path: str, value: bytes) -> None:
        """Write a node, creating it if need be, without waiting; safe from any thread.

        For heartbeats, which must not depend on the event loop. Errors are counted, not raised;
        while one write is under way only the latest value for the same path is kept.
        """
        ...
