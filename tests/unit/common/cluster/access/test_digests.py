"""What daemons and workers show to ZooKeeper."""

from __future__ import annotations

from squall_common.cluster.access.digests import Digests, identity_of, new_payload, worker_access
from squall_common.cluster.access.lists import ALL, Entry, Identity


def test_a_topologys_password_is_its_own_and_shows_nothing_of_the_daemons() -> None:
    payload = new_payload()
    one, other = Digests((payload,)), Digests((new_payload(),))
    [a], [b] = one.payloads_of("a-1-1"), one.payloads_of("b-1-1")
    assert a.partition(":")[2] != b.partition(":")[2]
    assert one.payloads_of("a-1-1") == (a,)
    assert other.payloads_of("a-1-1") != (a,)
    secret = payload.partition(":")[2]
    assert secret not in a
    assert len(secret) == 64


def test_each_digest_that_is_accepted_counts_for_daemons_and_for_workers() -> None:
    old, new = new_payload(), new_payload()
    admin = Identity("digest", "admin:hash")
    digests = Digests((new, old), (admin,))
    lists = digests.for_daemon().lists
    assert lists.of("/") == {Entry(who, ALL) for who in (identity_of(new), identity_of(old), admin)}
    for_a = {entry.who for entry in lists.of("/storms/a-1-1")}
    assert {identity_of(one) for one in digests.payloads_of("a-1-1")} <= for_a
    assert set(map(identity_of, Digests((old,)).payloads_of("a-1-1"))) <= for_a


def test_workers_make_nodes_as_daemons_do() -> None:
    digests = Digests((new_payload(),))
    mine = worker_access("a-1-1", digests.payloads_of("a-1-1"), digests.daemons())
    for path in ("/workerbeats/a-1-1/n-1", "/errors/a-1-1/x", "/workerbeats/a-1-1/questions"):
        assert mine.lists.of(path) == digests.for_daemon().lists.of(path)


def test_no_secret_is_in_a_representation() -> None:
    payload = new_payload()
    digests = Digests((payload,))
    shown = repr(digests) + repr(digests.for_daemon())
    assert payload.partition(":")[2] not in shown
