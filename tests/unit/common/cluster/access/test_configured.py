"""Digests in a configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from squall_common.cluster.access.configured import daemon_access, read_digests
from squall_common.cluster.access.digests import new_payload
from squall_common.cluster.access.lists import Identity
from squall_common.config.load import default_conf
from squall_common.config.options.typed import NimbusOptions
from squall_common.errors import ConfigError

PAYLOAD = "storm.zookeeper.auth.payload"
GOOD = "squall:" + "CANARY" * 4


def options(**keys: Any) -> NimbusOptions:
    given = {f"storm.zookeeper.{key.replace('_', '.')}": value for key, value in keys.items()}
    return NimbusOptions.read({**default_conf(), **given})


def file_of(tmp_path: Path, text: str, mode: int = 0o600) -> str:
    file = tmp_path / "digest"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_without_one_nothing_is_shown() -> None:
    assert read_digests(options()) is None
    assert daemon_access(options()) is None


def test_a_file_may_have_several_of_which_the_first_is_the_current_one(tmp_path: Path) -> None:
    lines = (new_payload(), new_payload())
    found = read_digests(options(auth_payload_file=file_of(tmp_path, "\n".join(lines) + "\n\n")))
    assert found is not None
    assert found.payloads == lines


def test_another_identity_may_have_all_rights() -> None:
    found = read_digests(options(auth_payload=GOOD, superACL="digest:admin:abc="))
    assert found is not None
    assert found.others == (Identity("digest", "admin:abc="),)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"auth_payload": "squall"}, "must be USER:PASSWORD"),
        ({"auth_payload": ":" + "CANARY" * 9}, "must be USER:PASSWORD"),
        ({"auth_payload": "squall:CANARY CANARY CANARY CANARY"}, "must be USER:PASSWORD"),
        ({"auth_payload": "squall:CANARY"}, "20 are the least"),
        ({"auth_payload": GOOD, "superACL": "world:anyone"}, "must be SCHEME:ID"),
        ({"superACL": "digest:admin:abc="}, "the daemons have no digest"),
        ({"auth_payload": GOOD, "auth_payload_file": "/x"}, "are both set"),
        ({"auth_payload_file": "/nowhere/digest"}, "cannot be read"),
    ],
)
def test_what_cannot_count_is_an_error_that_shows_no_secret(
    keys: dict[str, str], says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read_digests(options(**keys))
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "mode", "says"),
    [
        (GOOD, 0o640, "others can read"),
        (GOOD, 0o604, "others can read"),
        ("", 0o600, "must have one line"),
        ("\n".join([GOOD] * 5), 0o600, "must have one line, or up to 4"),
        ("x" * 5000, 0o600, "too long"),
    ],
)
def test_a_file_that_others_can_read_or_that_is_none_is_refused(
    tmp_path: Path, text: str, mode: int, says: str
) -> None:
    with pytest.raises(ConfigError, match=says) as caught:
        read_digests(options(auth_payload_file=file_of(tmp_path, text, mode)))
    assert "CANARY" not in str(caught.value)
