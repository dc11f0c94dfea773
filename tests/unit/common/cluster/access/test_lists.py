"""Which rights whom a node gives, by its path."""

from __future__ import annotations

import pytest

from squall_common.cluster import paths
from squall_common.cluster.access.lists import (
    ALL,
    CREATE,
    DELETE,
    OPEN,
    READ,
    WRITE,
    AccessLists,
    Entry,
    Identity,
    allows,
    is_open,
)

DAEMON = Identity("digest", "squall:h")
A, B = "a-1-17", "b-2-17"
RECORD = paths.checkpoints("a", "s3://x")


def worker(topology_id: str) -> Identity:
    return Identity("digest", topology_id)


def lists() -> AccessLists:
    return AccessLists([DAEMON], lambda topology_id: [worker(topology_id)])


def rights(path: str, who: Identity, of: AccessLists | None = None) -> int:
    found = [one.rights for one in (of or lists()).of(path) if one.who == who]
    assert len(found) <= 1
    return found[0] if found else 0


PATHS = [
    "/",
    *paths.LAYOUT,
    paths.SECURITY,
    paths.TOKEN_REGISTER,
    paths.CATALOG,
    paths.TAKEOVER,
    paths.SIGNED_STATES,
    paths.OUTSIDE_KEYS,
    paths.MANIFESTS,
    paths.manifest("node"),
    paths.supervisor("node"),
    paths.nimbus("host", 1),
    f"{paths.LEADER_LOCK}/x",
    paths.blob("key"),
    paths.credentials(A),
    paths.profilerconfigs(A),
    paths.profilerconfig(A, "node", 1, "X"),
    RECORD,
    *(f"{parent}/{B}" for parent in paths.OF_TOPOLOGY),
    f"{paths.errors(B)}/x/e0",
    f"{paths.workerbeats(B)}/x",
    paths.signed_state(B),
    f"{paths.STORMS}/{A}x",
    f"{paths.STORMS}/{A}/below",
]


@pytest.mark.parametrize("path", PATHS)
def test_a_worker_may_do_nothing_with_what_is_not_its_topologys(path: str) -> None:
    assert rights(path, worker(A)) == 0
    assert rights(path, DAEMON) == ALL
    assert not is_open(lists().of(path))


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (paths.storm(A), READ),
        (paths.assignment(A), READ),
        (paths.signed_state(A), READ),
        (paths.logconfig(A), READ),
        (paths.workerbeats(A), READ | CREATE),
        (f"{paths.workerbeats(A)}/node-1", READ | WRITE | CREATE),
        (paths.question(A, 1), READ | WRITE | CREATE),
        (paths.errors(A), READ | CREATE),
        (paths.last_error(A, "bolt"), READ | WRITE | CREATE | DELETE),
        (f"{paths.component_errors(A, 'bolt')}/e0", READ | WRITE | CREATE | DELETE),
    ],
)
def test_a_worker_has_these_rights_on_its_own_topology(path: str, expected: int) -> None:
    assert rights(path, worker(A)) == expected
    assert rights(path, DAEMON) == ALL
    assert len(lists().of(path)) == 2


def test_a_record_of_checkpoints_is_its_topologys_while_it_lives() -> None:
    one = lists()
    one.records = {RECORD: A}
    assert rights(RECORD, worker(A), one) == READ | WRITE
    assert rights(RECORD, worker(B), one) == 0
    assert rights(paths.CHECKPOINTS, worker(A), one) == 0


def test_the_nodes_of_an_open_topology_are_open_and_no_others() -> None:
    one = lists()
    one.opened, one.records = {A}, {RECORD: A}
    opened = {path for path in (*PATHS, paths.storm(A)) if one.of(path) == OPEN}
    # Workers of earlier versions make their records of checkpoints themselves.
    assert opened == {paths.CHECKPOINTS, RECORD, paths.storm(A)}


def test_a_right_is_that_of_one_identity_of_a_session() -> None:
    acl = frozenset({Entry(DAEMON, READ)})
    assert allows(acl, [worker(A), DAEMON], READ)
    assert not allows(acl, [DAEMON], WRITE)
    assert not allows(acl, [worker(A)], READ)
    assert not allows(acl, (), READ)
