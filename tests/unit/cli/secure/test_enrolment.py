"""Who gets which certificate in which folder, and which user which id."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from squall_cli.secure.enrolment import (
    Accounts,
    EnrolmentRefusedError,
    Folder,
    decide,
    uids,
)
from squall_common.security.identity import Role

FOLDER = Folder(Path("/x"), {Role.SUPERVISOR: None, Role.USER: "prometheus"}, 7)


def asked(**fields: Any) -> bytes:
    return json.dumps({"role": "supervisor", "name": "n1", "hosts": ["n1"], **fields}).encode()


def test_a_folder_gives_its_roles_to_its_user() -> None:
    request = decide(FOLDER, 7, asked())
    assert (request.role, request.name, request.hosts) == (Role.SUPERVISOR, "n1", ("n1",))
    assert decide(FOLDER, 7, asked(role="user", name="prometheus")).name == "prometheus"


@pytest.mark.parametrize(
    ("uid", "line", "why"),
    [
        (8, asked(), "the user with the id 8 gets no certificates"),
        (0, asked(), "the user with the id 0"),
        (7, asked(role="nimbus"), "not of nimbus"),
        (7, asked(role="user", name="storm"), "a user here is prometheus"),
        (7, asked(role="worker"), "not of worker"),
        (7, asked(role="king"), "not a request"),
        (7, asked(name=3), "not a request"),
        (7, asked(hosts="n1"), "not a request"),
        (7, asked(hosts=[1]), "not a request"),
        (7, asked(hosts=["x"] * 33), "not a request"),
        (7, b"", "not a request"),
        (7, b"[" * 8000, "not a request"),
    ],
)
def test_all_else_is_refused(uid: int, line: bytes, why: str) -> None:
    with pytest.raises(EnrolmentRefusedError, match=why):
        decide(FOLDER, uid, line)


@pytest.mark.parametrize("text", ["/x:ui", "x:ui:1", "/x:worker:1", "/x:king:1", "/x:ui:me"])
def test_a_folder_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        Folder.parse(text)


def test_a_user_has_one_id_forever(tmp_path: Path) -> None:
    def accounts() -> Accounts:
        return Accounts(tmp_path / "accounts", ["storm"], ["root", "storm", "games"])

    for name in ("alice", "bob", "alice", "storm"):
        accounts().add(name)
    assert uids(accounts().text()) == {"alice": 20_000, "bob": 20_001}
    for name, why in (("games", "of the system"), ("root", "of the system"), ("A b", "letter")):
        with pytest.raises(EnrolmentRefusedError, match=why):
            accounts().add(name)
    assert uids("alice 20000\nroot 0\nx\nbob 20001 0\n") == {"alice": 20_000}
