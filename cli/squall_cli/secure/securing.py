"""The procedure by which an open cluster becomes a secured one: its states, and what each step
needs. Pure; `secure_commands` reads ZooKeeper and writes files.

    what was done so far is in secure.json in the CA's folder, so that each step can be repeated
    after a kill, and gives the same
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from squall_common.errors import SquallError
from squall_common.names import ANONYMOUS, topology_name_of
from squall_common.security.identity import IdentityError, check_name


class State(enum.Enum):
    """How far it has come."""

    NONE = "none"  # nothing was begun
    LISTED = "listed"  # the open cluster was read, and its daemons have certificates
    CONFIRMED = "confirmed"  # what is to be taken over is signed, and in ZooKeeper
    DONE = "done"  # a leader of the secured cluster has signed it


class Event(enum.Enum):
    """What happened."""

    BEGUN = "begin"
    CONFIRMED = "confirm"
    TAKEN_OVER = "taken over"
    CANCELLED = "cancel"


TABLE: Mapping[tuple[State, Event], State] = {
    (State.NONE, Event.BEGUN): State.LISTED,
    (State.LISTED, Event.BEGUN): State.LISTED,  # owners were named, topologies have come and gone
    (State.LISTED, Event.CONFIRMED): State.CONFIRMED,
    (State.LISTED, Event.CANCELLED): State.NONE,
    (State.CONFIRMED, Event.BEGUN): State.LISTED,  # something was changed after it was confirmed
    (State.CONFIRMED, Event.CONFIRMED): State.CONFIRMED,  # its time was over, or it was killed
    (State.CONFIRMED, Event.TAKEN_OVER): State.DONE,
    (State.CONFIRMED, Event.CANCELLED): State.NONE,
    (State.DONE, Event.TAKEN_OVER): State.DONE,
}


def next_state(state: State, event: Event) -> State:
    """Raises SquallError for a step that cannot be taken now; nothing has changed then."""
    found = TABLE.get((state, event))
    if found is None:
        raise SquallError(_REFUSED[state].format(event=event.value))
    return found


_REFUSED = {
    State.NONE: "'{event}' comes after 'storm admin secure begin'",
    State.LISTED: "'{event}' comes after 'storm admin secure confirm'",
    State.CONFIRMED: "'{event}' comes later",
    State.DONE: "this cluster is secured: there is no '{event}' any more",
}


@dataclass(frozen=True, slots=True)
class Found:
    """A topology of the open cluster. `hashes` are those of its own blobs, for people; `digest` is
    that of all that is known of it."""

    id: str
    owner: str
    hashes: Mapping[str, str]
    digest: str

    @classmethod
    def of(cls, topology_id: str, owner: str, hashes: Mapping[str, str], base: bytes) -> Found:
        """`base` are the bytes at /storms/ID."""
        said = json.dumps([topology_id, sorted(hashes.items())]).encode() + base
        return cls(topology_id, owner, hashes, hashlib.sha256(said).hexdigest())


@dataclass(frozen=True, slots=True)
class Node:
    """A supervisor of the open cluster: its id becomes the name in its certificate."""

    id: str
    host: str


@dataclass(frozen=True, slots=True)
class Procedure:
    """What secure.json holds. `owners` are those that a person has named, by topology id."""

    state: State = State.NONE
    topologies: tuple[Found, ...] = ()
    nodes: tuple[Node, ...] = ()
    nimbuses: tuple[str, ...] = ()  # hosts
    owners: Mapping[str, str] = field(default_factory=dict)

    def validate(self) -> None:
        """Raises AssertionError for what cannot be."""
        ids = {one.id for one in self.topologies}
        assert self.owners.keys() <= ids
        assert self.state is not State.NONE or not (ids or self.nodes)
        if self.state in (State.CONFIRMED, State.DONE):
            assert not self.without_owner()

    def owner(self, topology: Found) -> str | None:
        """Its owner in the secured cluster; None: a person still has to name one."""
        named = self.owners.get(topology.id, topology.owner)
        return None if named == ANONYMOUS else named

    def without_owner(self) -> list[str]:
        """Ids of topologies whose owners are still to be named."""
        return [one.id for one in self.topologies if self.owner(one) is None]

    def begun(
        self,
        topologies: tuple[Found, ...],
        nodes: tuple[Node, ...],
        nimbuses: tuple[str, ...],
        named: Mapping[str, str],
    ) -> Procedure:
        """The cluster as it is now; `named` are owners by a topology's name or id. What was named
        before counts on. Raises SquallError."""
        state = next_state(self.state, Event.BEGUN)
        owners = dict(self.owners)
        for key, user in named.items():
            ids = [one.id for one in topologies if key in (one.id, _name(one.id))]
            if not ids:
                raise SquallError(f"no topology {key!r} was found")
            try:
                check_name(user)
            except IdentityError as error:
                raise SquallError(f"the owner of {key}: {error}") from error
            owners |= dict.fromkeys(ids, user)
        there = {one.id for one in topologies}
        owners = {key: value for key, value in owners.items() if key in there}
        return Procedure(state, topologies, nodes, nimbuses, owners)

    def confirmed(self, now: tuple[Found, ...], running: tuple[str, ...]) -> Procedure:
        """`now` are the topologies as they are at this moment, `running` the Nimbus nodes that run.
        Raises SquallError, if the operator has to do something first."""
        state = next_state(self.state, Event.CONFIRMED)
        if running:
            raise SquallError(
                f"Nimbus still runs at {', '.join(running)}, and could change what is confirmed",
                hint="Stop every Nimbus; workers run on. Then confirm.",
            )
        if missing := self.without_owner():
            raise SquallError(
                f"who owns {', '.join(missing)}?",
                hint="Repeat 'storm admin secure begin' with --owner TOPOLOGY=USER.",
            )
        before = {one.id: one.digest for one in self.topologies}
        after = {one.id: one.digest for one in now}
        ids = before.keys() | after.keys()
        if changed := sorted(one for one in ids if before.get(one) != after.get(one)):
            raise SquallError(
                f"{', '.join(changed)} is not as 'begin' has shown it",
                hint="Look at it again with 'storm admin secure begin'.",
            )
        return replace(self, state=state)

    def to_json(self) -> str:
        """The file's text."""
        value = {
            "state": self.state.value,
            "topologies": [
                {"id": t.id, "owner": t.owner, "hashes": dict(t.hashes), "digest": t.digest}
                for t in self.topologies
            ],
            "nodes": [{"id": one.id, "host": one.host} for one in self.nodes],
            "nimbuses": list(self.nimbuses),
            "owners": dict(self.owners),
        }
        return json.dumps(value, indent=1) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Procedure:
        """Raises ValueError."""
        try:
            value: Any = json.loads(text)
            return cls(
                State(value["state"]),
                tuple(Found(**one) for one in value["topologies"]),
                tuple(Node(**one) for one in value["nodes"]),
                tuple(value["nimbuses"]),
                dict(value["owners"]),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"it is not such a file: {error}") from error


def _name(topology_id: str) -> str:
    try:
        return topology_name_of(topology_id)
    except ValueError:
        return topology_id
