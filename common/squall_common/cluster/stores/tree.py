"""The tree of nodes as ZooKeeper keeps it: pure, no sessions, no I/O.

`Tree.apply` carries out a transaction, or raises the error of its first operation that fails and
leaves everything as it was. It returns what happened as events, from which watches are fired.
ZooKeeper's less obvious rules are kept, since the differential test would find the difference:

- one transaction id (zxid) marks everything that one transaction created or wrote;
- a sequence number is the count of nodes ever created under the parent, sequential or not;
- an ephemeral node has no children;
- a transaction is checked against the tree as its earlier operations left it;
- a right is asked for before the version is compared; since ZooKeeper 3.9, to look whether a node
  exists takes the right to read it, if it does.
"""

import enum
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from squall_common.cluster.access.lists import (
    ADMIN,
    CREATE,
    DELETE,
    OPEN,
    READ,
    WRITE,
    AccessList,
    Entry,
    Identity,
    allows,
)
from squall_common.cluster.store import (
    AccessDeniedError,
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    Set,
    Stat,
    StoreError,
    parent_of,
)


class EventKind(enum.Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"
    CHILDREN = "children"  # of the node at the event's path


@dataclass(frozen=True, slots=True)
class Event:
    kind: EventKind
    path: str


@dataclass(slots=True)
class _Node:
    value: bytes
    owner: int  # session of an ephemeral node, else 0
    czxid: int
    mzxid: int
    acl: AccessList = OPEN
    acl_version: int = 0
    version: int = 0
    created_below: int = 0  # nodes ever created under this one
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(
            self.version,
            self.czxid,
            self.mzxid,
            self.owner,
            len(self.children),
            self.acl_version,
        )


@dataclass(frozen=True, slots=True)
class Client:
    """Who asks: a session, the identities that it has proved, and the lists of what it makes."""

    session: int = 0
    who: Collection[Identity] = ()
    acl_of: Callable[[str], AccessList] = lambda path: OPEN


NOBODY = Client()


class Tree:
    """All nodes by path. Not thread-safe."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {"/": _Node(b"", 0, 0, 0)}

    def get(self, path: str, client: Client = NOBODY) -> tuple[bytes, Stat]:
        """Raises NoNodeError and AccessDeniedError."""
        node = self._node(path)
        _require(path, node, client, READ)
        return node.value, node.stat()

    def exists(self, path: str, client: Client = NOBODY) -> Stat | None:
        """Raises AccessDeniedError."""
        node = self._nodes.get(path)
        if node is None:
            return None
        _require(path, node, client, READ)
        return node.stat()

    def stat_of(self, path: str) -> Stat | None:
        """The same, as the servers themselves see it."""
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str, client: Client = NOBODY) -> list[str]:
        """Sorted names; raises NoNodeError and AccessDeniedError."""
        node = self._node(path)
        _require(path, node, client, READ)
        return sorted(node.children)

    def access_list(self, path: str, client: Client = NOBODY) -> AccessList:
        """Ids of digests are masked for who may not change the list. Raises NoNodeError and
        AccessDeniedError."""
        node = self._node(path)
        _require(path, node, client, READ | ADMIN)
        if allows(node.acl, client.who, ADMIN):
            return node.acl
        return frozenset(Entry(_masked(entry.who), entry.rights) for entry in node.acl)

    def set_access_list(
        self, path: str, acl: AccessList, version: int = -1, client: Client = NOBODY
    ) -> None:
        """Raises NoNodeError, AccessDeniedError and BadVersionError, in this order."""
        node = self._node(path)
        _require(path, node, client, ADMIN)
        if version not in (-1, node.acl_version):
            raise BadVersionError(
                f"the access list of {path} has version {node.acl_version}, not {version}"
            )
        node.acl = acl
        node.acl_version += 1

    def owned_by(self, session: int) -> list[str]:
        """Paths of the ephemeral nodes of a session, sorted."""
        return sorted(path for path, node in self._nodes.items() if node.owner == session)

    def next_sequence(self, parent: str) -> int:
        """The number that the next sequential node under `parent` gets; raises NoNodeError."""
        return self._node(parent).created_below

    def apply(self, ops: Sequence[Op], client: Client) -> list[Event]:
        """Do all of `ops` for a client, or raise the first error and do none."""
        undo: list[tuple[str, _Node | None]] = []
        events: list[Event] = []
        self.zxid += 1  # a refused transaction uses one up too
        for index, op in enumerate(ops):
            try:
                self._apply(op, client, undo, events)
            except StoreError as error:
                error.index = index
                for path, old in reversed(undo):
                    if old is None:
                        del self._nodes[path]
                    else:
                        self._nodes[path] = old
                raise
        return events

    def end(self, path: str) -> list[Event]:
        """Delete an ephemeral node whose session has ended: the servers do it, whatever the lists
        say."""
        del self._nodes[path]
        parent = parent_of(path)
        self._nodes[parent].children.discard(path.rpartition("/")[2])
        self.zxid += 1
        return [Event(EventKind.DELETED, path), Event(EventKind.CHILDREN, parent)]

    def _apply(
        self, op: Op, client: Client, undo: list[tuple[str, _Node | None]], events: list[Event]
    ) -> None:
        path = op.path
        if isinstance(op, Create):
            _require(parent_of(path), self._node(parent_of(path)), client, CREATE)
            if path in self._nodes:
                raise NodeExistsError(f"{path} exists already")
            parent = self._writable(parent_of(path), undo)
            if parent.owner:
                raise EphemeralParentError(f"{parent_of(path)} is ephemeral: no children")
            undo.append((path, None))
            owner = client.session if op.ephemeral else 0
            self._nodes[path] = _Node(op.value, owner, self.zxid, self.zxid, client.acl_of(path))
            parent.created_below += 1
            parent.children.add(path.rpartition("/")[2])
            events += [
                Event(EventKind.CREATED, path),
                Event(EventKind.CHILDREN, parent_of(path)),
            ]
            return
        node = self._node(path)
        if isinstance(op, Delete):
            _require(parent_of(path), self._node(parent_of(path)), client, DELETE)
        else:
            _require(path, node, client, READ if isinstance(op, Check) else WRITE)
        if op.version not in {-1, node.version}:
            raise BadVersionError(
                f"{path} has version {node.version}, not the expected {op.version}"
            )
        if isinstance(op, Set):
            node = self._writable(path, undo)
            node.value = op.value
            node.version += 1
            node.mzxid = self.zxid
            events.append(Event(EventKind.CHANGED, path))
        elif isinstance(op, Delete):
            if node.children:
                raise NotEmptyError(f"{path} has {len(node.children)} children")
            parent = self._writable(parent_of(path), undo)
            undo.append((path, node))
            del self._nodes[path]
            parent.children.discard(path.rpartition("/")[2])
            events += [
                Event(EventKind.DELETED, path),
                Event(EventKind.CHILDREN, parent_of(path)),
            ]

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(f"there is no node {path}")
        return node

    def _writable(self, path: str, undo: list[tuple[str, _Node | None]]) -> _Node:
        """A copy of a node, in the tree in its place, that may be changed."""
        old = self._node(path)
        undo.append((path, old))
        new = _Node(
            old.value,
            old.owner,
            old.czxid,
            old.mzxid,
            old.acl,
            old.acl_version,
            old.version,
            old.created_below,
            set(old.children),
        )
        self._nodes[path] = new
        return new


def _require(path: str, node: _Node, client: Client, right: int) -> None:
    if not allows(node.acl, client.who, right):
        raise AccessDeniedError(f"the access list of {path} does not allow it")


def _masked(who: Identity) -> Identity:
    if who.scheme != "digest":
        return who
    return Identity("digest", who.id.partition(":")[0] + ":x")
