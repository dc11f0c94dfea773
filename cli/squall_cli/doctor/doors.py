"""The doors of a node: by which of them does a stranger, or another user, get in?

Pure: `doors` decides from what `node` has found.
"""

from __future__ import annotations

import enum
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_DAY_SECS = 86_400
_ENDS_SOON_DAYS = 30
# All that a CA has issued is to be issued again: that takes longer.
_CA_ENDS_SOON_DAYS = 90
_ROTATION_DAYS = 7  # one that was begun earlier has probably been forgotten


class State(enum.Enum):
    """The state of a door."""

    OPEN = "open"
    CLOSED = "closed"
    UNKNOWN = "unknown"  # it could not be looked at


@dataclass(frozen=True, slots=True)
class Door:
    """One door. `what` says in a sentence what is the case, `remedy` what closes an open one."""

    id: str
    state: State
    what: str
    remedy: str = ""


class Answer(enum.Enum):
    """What a listener says to somebody without a proof."""

    NOTHING_LISTENS = "nothing listens"
    REFUSES = "refuses strangers"
    ANSWERS = "answers strangers"
    SILENT = "does not answer"


@dataclass(frozen=True, slots=True)
class Listener:
    """A port of a daemon of this node, and what it says."""

    name: str
    host: str
    port: int
    loopback: bool
    answer: Answer


@dataclass(frozen=True, slots=True)
class File:
    """A file or folder that others may not read (`secret`) or may not change."""

    path: str
    what: str
    mode: int
    uid: int
    secret: bool


@dataclass(frozen=True, slots=True)
class Certificate:
    """A certificate of the configuration. `ends` is in seconds since the epoch."""

    path: str
    what: str
    ends: float


@dataclass(frozen=True, slots=True)
class Trusted:
    """A CA that the configuration trusts. Times are in seconds since the epoch."""

    path: str
    generation: int
    begins: float
    ends: float


@dataclass(frozen=True, slots=True)
class Facts:
    """What was found on a node. `uid` is the user that looked; times are seconds since the epoch.

    `zookeeper` is what strangers may do with the cluster's state there ("read", "change"); None if
    it could not be asked.
    """

    now: float
    uid: int
    secured: bool
    insecure: bool
    runs_as_user: bool
    shares_user: bool
    admins: bool
    impersonators: Sequence[str]  # who may act for everybody, from everywhere
    listeners: Sequence[Listener] = ()
    files: Sequence[File] = ()
    certificates: Sequence[Certificate] = ()
    authorities: Sequence[Trusted] = ()
    revoked: bool = True  # a list of revoked certificates is configured
    zookeeper: Sequence[str] | None = None


def doors(facts: Facts) -> list[Door]:
    """All doors, the open ones first."""
    found = [
        *_cluster(facts),
        *(_listener(one, facts) for one in facts.listeners),
        *_users(facts),
        *(_file(one, facts) for one in facts.files),
        *(_certificate(one, facts.now) for one in facts.certificates),
        *_authorities(facts),
        _zookeeper(facts),
    ]
    order = (State.OPEN, State.UNKNOWN, State.CLOSED)
    return sorted(found, key=lambda door: order.index(door.state))


def _cluster(facts: Facts) -> Iterator[Door]:
    if facts.secured:
        yield Door("cluster", State.CLOSED, "The cluster is secured: callers prove who they are.")
    else:
        yield Door(
            "cluster",
            State.OPEN,
            "The cluster is open: whoever reaches Nimbus may do everything.",
            "make a CA with 'storm admin ca init', and set storm.security.ca (docs/security.md)",
        )
    if facts.insecure:
        yield Door(
            "insecure",
            State.OPEN,
            "storm.security.insecure is true: daemons may listen in the network and ask no one who "
            "calls.",
            "remove it",
        )
    if facts.secured and not facts.revoked:
        yield Door(
            "revoked",
            State.OPEN,
            "storm.security.revoked is not set: a certificate that was revoked still counts here.",
            "set it to a copy of the CA's revoked.jws",
        )


def _listener(one: Listener, facts: Facts) -> Door:
    where = f"{one.name} at {one.host}:{one.port}"
    id_ = one.name.lower().replace(" ", "-")
    if one.answer is Answer.ANSWERS:
        reach = "every user of this machine" if one.loopback else "the network"
        return Door(
            id_,
            State.OPEN,
            f"{where} answers {reach} without a proof.",
            "turn it off, or close its port" if facts.secured else "secure the cluster",
        )
    state = State.UNKNOWN if one.answer is Answer.SILENT else State.CLOSED
    return Door(id_, state, f"{where}: {one.answer.value}.")


def _users(facts: Facts) -> Iterator[Door]:
    if facts.runs_as_user:
        yield Door("run-as-user", State.CLOSED, "Workers run as their topologies' owners.")
    elif facts.shares_user or not facts.secured:
        yield Door(
            "run-as-user",
            State.OPEN,
            "The workers of all topologies run as the supervisor's user: they can read each "
            "other's files and keys, and the supervisor's.",
            "set supervisor.run.worker.as.user: true",
        )
    if facts.secured and not facts.admins:
        yield Door("admins", State.UNKNOWN, "nimbus.admins is empty here: no one administers.")
    for name in facts.impersonators:
        yield Door(
            "impersonation",
            State.OPEN,
            f"nimbus.impersonation.acl lets {name} act for everyone, from every host.",
            "list its hosts and groups",
        )


def _file(one: File, facts: Facts) -> Door:
    id_ = f"file {one.path}"
    if one.uid not in (0, facts.uid):
        return Door(
            id_,
            State.OPEN,
            f"{one.what}, {one.path}, belongs to the user with the id {one.uid}.",
            f"chown it to the user of the daemon ({facts.uid})",
        )
    bits = stat.S_IWGRP | stat.S_IWOTH
    if one.secret:
        bits |= stat.S_IRGRP | stat.S_IROTH
    if one.mode & bits:
        done = "read" if one.secret and not one.mode & (stat.S_IWGRP | stat.S_IWOTH) else "change"
        return Door(
            id_,
            State.OPEN,
            f"Other users can {done} {one.what}, {one.path} (mode {stat.S_IMODE(one.mode):03o}).",
            f"chmod {'go=' if one.secret else 'go-w'} {one.path}",
        )
    return Door(id_, State.CLOSED, f"{one.what}, {one.path}, is closed to other users.")


def _certificate(one: Certificate, now: float) -> Door:
    days = int((one.ends - now) // _DAY_SECS)
    id_ = f"certificate {one.path}"
    if days >= _ENDS_SOON_DAYS:
        return Door(id_, State.CLOSED, f"{one.what}, {one.path}, is valid for {days} days.")
    when = f"ends in {days} days" if days >= 0 else "has ended"
    return Door(
        id_,
        State.OPEN,
        f"{one.what}, {one.path}, {when}: then nothing here proves who it is.",
        "storm admin ca issue, replace the files, restart the daemon",
    )


def _authorities(facts: Facts) -> Iterator[Door]:
    """The CA that stays, and a rotation of its key that did not end."""
    if not facts.authorities:
        return
    newest = max(facts.authorities, key=lambda one: one.generation)
    days = int((newest.ends - facts.now) // _DAY_SECS)
    if days >= _CA_ENDS_SOON_DAYS:
        yield Door("ca", State.CLOSED, f"The CA, {newest.path}, is valid for {days} days.")
    else:
        when = f"ends in {days} days" if days >= 0 else "has ended"
        yield Door(
            "ca",
            State.OPEN,
            f"The CA, {newest.path}, {when}, and all certificates with it.",
            "storm admin ca rotate begin (docs/security.md)",
        )
    if len(facts.authorities) > 1:
        old = int((facts.now - newest.begins) // _DAY_SECS)
        late = old >= _ROTATION_DAYS
        yield Door(
            "rotation",
            State.OPEN if late else State.CLOSED,
            f"{newest.path} trusts two CAs: a rotation was begun {old} days ago"
            f"{', and the old key still counts' if late else ''}.",
            "storm admin ca rotate status --check, then storm admin ca rotate end" if late else "",
        )


def _zookeeper(facts: Facts) -> Door:
    if facts.zookeeper is None:
        return Door(
            "zookeeper", State.UNKNOWN, "ZooKeeper could not be asked for its access lists."
        )
    if facts.zookeeper:
        return Door(
            "zookeeper",
            State.OPEN,
            f"Whoever reaches ZooKeeper can {' and '.join(facts.zookeeper)} the cluster's state.",
            "set storm.zookeeper.auth.payload.file on every node (docs/security.md), and close its "
            "ports to everyone but them",
        )
    return Door("zookeeper", State.CLOSED, "ZooKeeper gives strangers nothing of the cluster.")
