"""The access list of each node, by its path: one pure function, for every store.

Daemons have all rights on every node. Workers of a topology have what they need of their own one,
and nothing else:

    /storms/ID, /assignments/ID, /logconfigs/ID, /security/topologies/ID    read
    /workerbeats/ID            read, create        below it    read, write, create
    /errors/ID                 read, create        below it    read, write, create, delete
    /checkpoints/RECORD        read, write: the record of this topology's checkpoints

ZooKeeper looks at a node's own list only, never at those above it. To create or delete a node is a
right on its parent; to look whether it exists takes none before ZooKeeper 3.9, then that to read.

While workers of an earlier version run, which prove nothing, the nodes of their topologies stay
open (`AccessLists.opened`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from squall_common.cluster import paths

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16  # ZooDefs.Perms
ALL = READ | WRITE | CREATE | DELETE | ADMIN


@dataclass(frozen=True, slots=True)
class Identity:
    """Someone, as ZooKeeper names them: for the scheme "digest" by `USER:HASH`."""

    scheme: str
    id: str


@dataclass(frozen=True, slots=True)
class Entry:
    """What one identity may do with a node."""

    who: Identity
    rights: int


AccessList = frozenset[Entry]

ANYONE = Identity("world", "anyone")
OPEN: AccessList = frozenset({Entry(ANYONE, ALL)})

# What workers may do with the node of their topology just below a parent, and with all below that.
_OF_WORKERS: Mapping[str, tuple[int, int]] = {
    paths.STORMS: (READ, 0),
    paths.ASSIGNMENTS: (READ, 0),
    paths.LOGCONFIGS: (READ, 0),
    paths.SIGNED_STATES: (READ, 0),
    paths.WORKERBEATS: (READ | CREATE, READ | WRITE | CREATE),
    paths.ERRORS: (READ | CREATE, READ | WRITE | CREATE | DELETE),
}


def is_open(acl: AccessList) -> bool:
    """Whether a list gives strangers anything."""
    return any(entry.who.scheme == "world" for entry in acl)


def allows(acl: AccessList, who: Collection[Identity], right: int) -> bool:
    """Whether one of the identities of a session has a right. `who` need not name ANYONE.

    >>> allows(OPEN, (), DELETE)
    True
    """
    return any(entry.rights & right and (entry.who == ANYONE or entry.who in who) for entry in acl)


def rights_of_workers(path: str) -> tuple[str, int] | None:
    """The topology whose workers may do something with a node, and what; None: no one's. Records
    of checkpoints are not named for the topology's id: see `AccessLists`.

    >>> rights_of_workers("/storms/words-1-17"), rights_of_workers("/storms")
    (('words-1-17', 1), None)
    """
    for parent, (own, deeper) in _OF_WORKERS.items():
        if path.startswith(f"{parent}/"):
            topology_id, _, rest = path.removeprefix(f"{parent}/").partition("/")
            rights = deeper if rest else own
            return (topology_id, rights) if rights else None
    return None


class AccessLists:
    """The lists of a cluster. `daemons` have all rights; `workers(topology_id)` are the identities
    of a topology's workers.

    `opened` are the topologies whose nodes are still open, and `records` says which topology a
    record of checkpoints belongs to; both are replaced by whoever knows (the leading Nimbus).
    """

    def __init__(
        self,
        daemons: Collection[Identity],
        workers: Callable[[str], Collection[Identity]],
    ) -> None:
        self._daemons = frozenset(Entry(who, ALL) for who in daemons)
        self._workers = workers
        self.opened: Collection[str] = frozenset()
        self.records: Mapping[str, str] = {}

    def needs_topologies(self, path: str) -> bool:
        """Whether the list of a node depends on `opened` or `records`, and not on its path alone.

        >>> from squall_common.cluster.access.lists import AccessLists
        >>> lists = AccessLists((), lambda topology_id: ())
        >>> lists.needs_topologies("/storms/words-1-17"), lists.needs_topologies("/supervisors/one")
        (True, False)
        """
        below = paths.below(paths.CHECKPOINTS, path) is not None
        return below or path == paths.CHECKPOINTS or rights_of_workers(path) is not None

    def of(self, path: str) -> AccessList:
        """The list of the node at a path below the cluster's root."""
        if path == paths.CHECKPOINTS and self.opened:
            return OPEN  # workers of an earlier version make their records themselves
        if paths.below(paths.CHECKPOINTS, path) is not None:
            topology_id = self.records.get(path)
            found = None if topology_id is None else (topology_id, READ | WRITE)
        else:
            found = rights_of_workers(path)
        if found is None:
            return self._daemons
        if found[0] in self.opened:
            return OPEN
        return self._daemons | {Entry(who, found[1]) for who in self._workers(found[0])}
