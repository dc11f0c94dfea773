"""The file with users and their secrets."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.legacy import jaas_file

from squall_common.errors import ConfigError
from squall_nimbus.legacy.users import Users


def written(path: Path, **users: str) -> str:
    options = {f"user_{name}": secret for name, secret in users.items()}
    return jaas_file(path, "StormServer", {"debug": "true", **options})


def test_users_have_their_secrets_and_others_one_that_nobody_knows(tmp_path: Path) -> None:
    users = Users(written(tmp_path / "jaas", alice="a", bob="b"))
    assert users.secret("alice") == ("a", True)
    unknown, known = users.secret("mallory")
    assert not known
    assert len(unknown) > 30
    assert users.secret("eve") == (unknown, False)
    assert users.mark("mallory") is None
    assert users.mark("alice") not in (None, users.mark("bob"), b"a")


def test_a_changed_file_counts_at_once(tmp_path: Path) -> None:
    path = tmp_path / "jaas"
    users = Users(written(path, alice="a", bob="b"))
    before = users.mark("alice"), users.mark("bob")
    written(path, alice="another", bob="b")
    assert users.secret("alice") == ("another", True)
    assert users.mark("alice") != before[0]
    assert users.mark("bob") == before[1]


def test_a_file_that_breaks_or_opens_lets_no_one_in(tmp_path: Path) -> None:
    path = tmp_path / "jaas"
    users = Users(written(path, alice="a"))
    path.write_text("StormServer {")
    assert users.secret("alice")[1] is False
    written(path, alice="a")
    assert users.secret("alice")[1] is True
    path.chmod(0o640)
    assert users.mark("alice") is None
    path.unlink()
    assert users.mark("alice") is None
    written(path, alice="a")
    path.chmod(0o600)
    assert users.secret("alice")[1] is True


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602])
def test_a_file_that_others_may_open_is_refused(tmp_path: Path, mode: int) -> None:
    path = written(tmp_path / "jaas", alice="a")
    os.chmod(path, mode)
    with pytest.raises(ConfigError, match="may be read by others"):
        Users(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no entry StormServer"),
        ("StormClient { m required user_a=b; };", "has no entry StormServer"),
        ("StormServer { m required; };", "StormServer has no user"),
        ("StormServer { m required; user_a=b; };", "line 1"),
        ('StormServer { m required user_a=""; };', "its secret is empty"),
        ("StormServer { m required user_=CANARY; };", "is not a name"),
        ('StormServer { m required "user_a b"=CANARY; };', "is not a name"),
        ("StormServer { m required user_anonymous=CANARY; };", "reserved"),
        ("StormServer { m required user_a=b; m optional user_a=CANARY; };", "it is there twice"),
    ],
)
def test_a_wrong_file_is_refused_without_its_secrets(tmp_path: Path, text: str, why: str) -> None:
    path = tmp_path / "jaas"
    path.touch(mode=0o600)
    path.write_text(text)
    with pytest.raises(ConfigError, match=why) as caught:
        Users(str(path))
    assert "CANARY" not in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*none"):
        Users(str(tmp_path / "none"))
