"""Which doors of a node are open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from squall_cli.doctor.doors import (
    Answer,
    Certificate,
    Facts,
    File,
    Listener,
    State,
    Trusted,
    doors,
)

NOW = 1_800_000_000.0
DAY = 86_400.0
NIMBUS = Listener("Nimbus", "0.0.0.0", 6627, False, Answer.REFUSES)
KEY = File("/etc/squall/nimbus.key", "the key", 0o100600, 990, True)
CLOSED = Facts(
    now=NOW,
    uid=990,
    secured=True,
    insecure=False,
    runs_as_user=True,
    shares_user=False,
    admins=True,
    impersonators=[],
    listeners=[NIMBUS],
    files=[KEY],
    certificates=[Certificate("/etc/squall/nimbus.pem", "The certificate", NOW + 200 * DAY)],
    authorities=[Trusted("/etc/squall/ca.pem", 1, NOW - 900 * DAY, NOW + 900 * DAY)],
    zookeeper=[],
)


def test_a_node_that_is_well_secured_has_no_open_door() -> None:
    assert {door.state for door in doors(CLOSED)} == {State.CLOSED}


@pytest.mark.parametrize(
    ("change", "id_", "words"),
    [
        ({"secured": False}, "cluster", "whoever reaches Nimbus"),
        ({"insecure": True}, "insecure", "storm.security.insecure"),
        ({"revoked": False}, "revoked", "still counts"),
        ({"runs_as_user": False, "shares_user": True}, "run-as-user", "the supervisor's user"),
        ({"impersonators": ["ci"]}, "impersonation", "lets ci act for everyone"),
        ({"zookeeper": ["read", "change"]}, "zookeeper", "can read and change"),
        ({"zookeeper": ["read"]}, "zookeeper", "can read the cluster's"),
        (
            {"listeners": [replace(NIMBUS, answer=Answer.ANSWERS)]},
            "nimbus",
            "0.0.0.0:6627 answers the network",
        ),
        (
            {"listeners": [replace(NIMBUS, answer=Answer.ANSWERS, loopback=True)]},
            "nimbus",
            "answers every user of this machine",
        ),
        ({"files": [replace(KEY, mode=0o100640)]}, f"file {KEY.path}", "can read the key"),
        ({"files": [replace(KEY, mode=0o100602)]}, f"file {KEY.path}", "can change the key"),
        ({"files": [replace(KEY, uid=1000)]}, f"file {KEY.path}", "the id 1000"),
        (
            {"files": [replace(KEY, secret=False, mode=0o40775)]},
            f"file {KEY.path}",
            "can change the key",
        ),
        (
            {"certificates": [Certificate("/c.pem", "The certificate", NOW + 29.5 * DAY)]},
            "certificate /c.pem",
            "ends in 29 days",
        ),
        (
            {"certificates": [Certificate("/c.pem", "The certificate", NOW - 1)]},
            "certificate /c.pem",
            "has ended",
        ),
        (
            {"authorities": [Trusted("/ca.pem", 1, NOW - 900 * DAY, NOW + 89.5 * DAY)]},
            "ca",
            "ends in 89 days, and all certificates with it",
        ),
        ({"authorities": [Trusted("/ca.pem", 1, NOW - 900 * DAY, NOW - 1)]}, "ca", "has ended"),
        (
            {
                "authorities": [
                    Trusted("/ca.pem", 2, NOW - 8.5 * DAY, NOW + 900 * DAY),
                    Trusted("/ca.pem", 1, NOW - 900 * DAY, NOW + 3 * DAY),
                ]
            },
            "rotation",
            "a rotation was begun 8 days ago, and the old key still counts",
        ),
    ],
)
def test_each_open_door_is_named_with_what_closes_it(
    change: dict[str, object], id_: str, words: str
) -> None:
    found = doors(replace(CLOSED, **change))  # type: ignore[arg-type]
    assert found[0].state is State.OPEN
    assert found[0].id == id_
    assert words in found[0].what
    assert found[0].remedy
    assert all(door.state is State.CLOSED for door in found[1:])


@pytest.mark.parametrize(
    "file",
    [
        replace(KEY, uid=0),
        replace(KEY, mode=0o100400),
        File("/etc/squall/ca.pem", "the CA's certificate", 0o100644, 0, False),
        File("/var/lib/squall", "the daemons' folder", 0o40755, 990, False),
    ],
)
def test_what_others_may_see_is_no_open_door(file: File) -> None:
    assert doors(replace(CLOSED, files=[file]))[0].state is State.CLOSED


def test_a_rotation_that_is_under_way_is_no_open_door() -> None:
    both = [
        Trusted("/ca.pem", 1, NOW - 900 * DAY, NOW + 3 * DAY),
        Trusted("/ca.pem", 2, NOW - DAY, NOW + 900 * DAY),
    ]
    found = doors(replace(CLOSED, authorities=both))
    assert {door.state for door in found} == {State.CLOSED}
    assert any("trusts two CAs" in door.what for door in found)


def test_what_could_not_be_looked_at_is_neither_open_nor_closed() -> None:
    silent = replace(NIMBUS, answer=Answer.SILENT)
    found = doors(replace(CLOSED, zookeeper=None, listeners=[silent], admins=False))
    unknown = [door.id for door in found if door.state is State.UNKNOWN]
    assert sorted(unknown) == ["admins", "nimbus", "zookeeper"]
