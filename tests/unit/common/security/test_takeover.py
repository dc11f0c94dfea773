"""What the CA confirms of an open cluster."""

from __future__ import annotations

import time

import pytest

from squall_common.cluster import codec
from squall_common.cluster.store import NODE_BYTES_MAX
from squall_common.cluster.values import Assignment
from squall_common.security import jws
from squall_common.security.certificates import Authority
from squall_common.security.jws import SignatureError
from squall_common.security.takeover import TAKEOVER_SECS, Taken, Takeover
from squall_common.topology.model import Executor, WorkerSlot

NOW = time.time()
CA = Authority.create("prod", NOW, days=30)
TAKEOVER = Takeover(
    {"a-1-1": Taken("alice", b"base", b"place"), "b-2-1": Taken("bob", b"base")},
    {"key": "0" * 64},
    int(NOW),
)


def test_it_is_read_as_it_was_signed() -> None:
    text = TAKEOVER.sign("prod", CA.key)
    assert Takeover.verify(text + "\n", "prod", CA.certificate, NOW) == TAKEOVER


def test_hundreds_of_topologies_fit_into_a_node_of_zookeeper() -> None:
    slots = {Executor(n, n): WorkerSlot(f"supervisor-{n % 5}", 6700 + n % 4) for n in range(1, 201)}
    hosts = {f"supervisor-{n}": f"host-{n}.example.com" for n in range(5)}
    starts = dict.fromkeys(slots, 1_700_000_000)
    place = codec.encode_assignment(Assignment("", hosts, slots, starts))
    taken = {f"words-{n}-1700000000": Taken("alice", b"base", place) for n in range(300)}
    blobs = {f"{name}-{end}": "0" * 64 for name in taken for end in ("stormcode", "stormconf")}
    text = Takeover(taken, blobs, int(NOW)).sign("prod", CA.key)
    assert len(text) < NODE_BYTES_MAX


@pytest.mark.parametrize("later", [TAKEOVER_SECS + 5, -3600])
def test_its_time_ends_and_has_not_begun_yet(later: int) -> None:
    with pytest.raises(SignatureError, match="within the last day"):
        Takeover.verify(TAKEOVER.sign("prod", CA.key), "prod", CA.certificate, NOW + later)


def test_that_of_another_cluster_or_another_ca_is_refused() -> None:
    other = Authority.create("prod", NOW, days=30)
    with pytest.raises(SignatureError, match="of cluster 'prod'"):
        Takeover.verify(TAKEOVER.sign("prod", CA.key), "test", CA.certificate, NOW)
    with pytest.raises(SignatureError, match="signature is wrong"):
        Takeover.verify(TAKEOVER.sign("prod", other.key), "prod", CA.certificate, NOW)


@pytest.mark.parametrize("owner", ["anonymous", "", "a b"])
def test_an_owner_who_cannot_be_is_refused(owner: str) -> None:
    bad = Takeover({"a-1-1": Taken(owner, b"base")}, {}, int(NOW))
    with pytest.raises(SignatureError, match="name"):
        Takeover.verify(bad.sign("prod", CA.key), "prod", CA.certificate, NOW)


@pytest.mark.parametrize(
    "payload",
    [
        {},
        {"topologies": {}, "blobs": {}, "confirmed": "now"},
        {"topologies": [], "blobs": {}},
        {"topologies": {"a": {}}, "blobs": {}},
        {"topologies": {"a": 1}, "blobs": {}},
    ],
)
def test_garbage_that_the_ca_has_signed_is_refused(payload: dict[str, object]) -> None:
    signed = {"cluster": "prod", "confirmed": int(NOW), **payload}
    text = jws.sign(signed, {"typ": "squall-takeover"}, CA.key)
    with pytest.raises(SignatureError, match=r".+"):
        Takeover.verify(text, "prod", CA.certificate, NOW)
