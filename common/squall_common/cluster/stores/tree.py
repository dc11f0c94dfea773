"""The tree of nodes as ZooKeeper keeps it: pure, no sessions, no I/O.

`Tree.apply` carries out a transaction, or raises the error of its first operation that fails and
leaves everything as it was. It returns what happened as events, from which watches are fired.
ZooKeeper's less obvious rules are kept, since the differential test would find the difference:

- one transaction id (zxid) marks everything that one transaction created or wrote;
- a sequence number is the count of nodes ever created under the parent, sequential or not;
- an ephemeral node has no children;
- a transaction is checked against the tree as its earlier operations left it.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass, field

from squall_common.cluster.store import (
    BadVersionError,
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
    version: int = 0
    created_below: int = 0  # nodes ever created under this one
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        return Stat(self.version, self.czxid, self.mzxid, self.owner, len(self.children))


class Tree:
    """All nodes by path. Not thread-safe."""

    def __init__(self) -> None:
        self.zxid = 0
        self._nodes = {"/": _Node(b"", 0, 0, 0)}

    def get(self, path: str) -> tuple[bytes, Stat]:
        """Raises NoNodeError."""
        node = self._node(path)
        return node.value, node.stat()

    def exists(self, path: str) -> Stat | None:
        node = self._nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str) -> list[str]:
        """Sorted names; raises NoNodeError."""
        return sorted(self._node(path).children)

    def owned_by(self, session: int) -> list[str]:
        """Paths of the ephemeral nodes of a session, sorted."""
        return sorted(path for path, node in self._nodes.items() if node.owner == session)

    def next_sequence(self, parent: str) -> int:
        """The number that the next sequential node under `parent` gets; raises NoNodeError."""
        return self._node(parent).created_below

    def apply(self, ops: Sequence[Op], session: int) -> list[Event]:
        """Do all of `ops` for a session, or raise the first error and do none."""
        undo: list[tuple[str, _Node | None]] = []
        events: list[Event] = []
        self.zxid += 1  # a refused transaction uses one up too
        for index, op in enumerate(ops):
            try:
                self._apply(op, session, undo, events)
            except StoreError as error:
                error.index = index
                for path, old in reversed(undo):
                    if old is None:
                        del self._nodes[path]
                    else:
                        self._nodes[path] = old
                raise
        return events

    def _apply(
        self, op: Op, session: int, undo: list[tuple[str, _Node | None]], events: list[Event]
    ) -> None:
        path = op.path
        if isinstance(op, Create):
            if path in self._nodes:
                raise NodeExistsError(f"{path} exists already")
            parent = self._writable(parent_of(path), undo)
            if parent.owner:
                raise EphemeralParentError(f"{parent_of(path)} is ephemeral: no children")
            undo.append((path, None))
            owner = session if op.ephemeral else 0
            self._nodes[path] = _Node(op.value, owner, self.zxid, self.zxid)
            parent.created_below += 1
            parent.children.add(path.rpartition("/")[2])
            events += [
                Event(EventKind.CREATED, path),
                Event(EventKind.CHILDREN, parent_of(path)),
            ]
            return
        node = self._node(path)
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
            old.version,
            old.created_below,
            set(old.children),
        )
        self._nodes[path] = new
        return new
