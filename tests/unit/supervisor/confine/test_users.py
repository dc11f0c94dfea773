"""Which user a worker runs as: never one that a topology could choose for itself."""

import os
import pwd
from pathlib import Path

import pytest
from tests.support.others import folder_for_others

from squall_common.config.options.typed import SupervisorOptions, TopologyOptions
from squall_common.errors import ConfigError
from squall_supervisor.confine import capabilities
from squall_supervisor.confine import users as module
from squall_supervisor.confine.users import (
    UserRefusedError,
    UserRules,
    check_possible,
    choose_user,
    environment_of,
    first_closed,
    resolve,
)

KEY = "supervisor.run.worker.as.user"
RULES = UserRules(default=None, choices=frozenset({"blue", "red"}), min_uid=1000)


def test_it_is_off_unless_it_is_set() -> None:
    assert UserRules.of(SupervisorOptions.read({})) is None
    assert UserRules.of(SupervisorOptions.read({KEY: False})) is None
    conf = {KEY: True, f"{KEY}.default": "d", f"{KEY}.choices": ["a"], f"{KEY}.min.uid": 500}
    assert UserRules.of(SupervisorOptions.read(conf)) == UserRules("d", frozenset({"a"}), 500)


@pytest.mark.parametrize(
    ("key", "value"),
    [(KEY, "yes"), (f"{KEY}.default", 1), (f"{KEY}.choices", "a"), (f"{KEY}.choices", [1]),
     (f"{KEY}.min.uid", 0), (f"{KEY}.min.uid", -1), (f"{KEY}.min.uid", "0"),
     (f"{KEY}.min.uid", True)],
)  # fmt: skip
def test_an_invalid_setting_is_refused(key: str, value: object) -> None:
    with pytest.raises(ConfigError, match=key.replace(".", r"\.")):
        UserRules.of(SupervisorOptions.read({KEY: True, key: value}))


def chosen(owner: str | None, asked: str | None = None, default: str | None = None) -> str:
    options = TopologyOptions(topology_run_as_user=asked)
    return choose_user(UserRules(default, RULES.choices, 1000), owner, options)


def test_a_topology_runs_as_its_submitter() -> None:
    assert chosen("alice") == "alice"
    assert chosen("alice", "alice") == "alice"
    assert chosen("alice", default="d") == "alice"


def test_naming_another_user_does_not_help_an_authenticated_submitter() -> None:
    for victim in ("root", "blue", "bob"):  # also not one that is free to choose otherwise
        with pytest.raises(UserRefusedError, match="submitted by alice"):
            chosen("alice", victim)


def test_without_authentication_the_operator_lists_the_users_to_choose_from() -> None:
    for nobody in (None, "anonymous"):
        assert chosen(nobody, "blue") == "blue"
    assert chosen(None, default="d") == "d"
    assert chosen("", default="d") == "d"
    with pytest.raises(UserRefusedError, match="default"):
        chosen(None)
    for wrong in ("root", "d", "", "bluex"):
        with pytest.raises(UserRefusedError, match="choices"):
            chosen(None, wrong, default="d")


def entry(name: str, uid: int, gid: int) -> pwd.struct_passwd:
    return pwd.struct_passwd((name, "x", uid, gid, "", f"/home/{name}", "/bin/sh"))


@pytest.fixture
def accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {
        "alice": entry("alice", 1500, 1500), "root": entry("root", 0, 0),
        "toor": entry("toor", 0, 1500), "wheel": entry("wheel", 1501, 0),
        "daemon": entry("daemon", 999, 999),
    }  # fmt: skip
    monkeypatch.setattr(pwd, "getpwnam", known.__getitem__)
    monkeypatch.setattr(os, "getgrouplist", lambda name, gid: [gid, 27, 0])


@pytest.mark.usefixtures("accounts")
def test_only_ordinary_users_of_the_machine_are_accepted() -> None:
    alice = resolve("alice", RULES)
    assert (alice.uid, alice.gid, alice.groups) == (1500, 1500, (27, 1500))  # never root's group
    for name, why in [
        ("mallory", "no user 'mallory'"), ("root", "root"), ("toor", "root"), ("wheel", "root"),
        ("daemon", "999, below supervisor.run.worker.as.user.min.uid"), ("1500", "no user"),
    ]:  # fmt: skip
        with pytest.raises(UserRefusedError, match=why):
            resolve(name, RULES)
    environment = environment_of(alice, {"HOME": "/root", "PATH": "/bin", "USER": "root"})
    assert environment["PATH"] == "/bin"
    assert (environment["HOME"], environment["USER"]) == ("/home/alice", "alice")


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5000, "../root", "-1"])
def test_impossible_user_names_are_refused(name: str) -> None:
    with pytest.raises(UserRefusedError, match="no user"):
        resolve(name, RULES)


@pytest.fixture
def as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(module, "held", lambda: frozenset(capabilities.Capability))


@pytest.mark.usefixtures("as_root")
def test_without_the_needed_capabilities_the_supervisor_does_not_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    rules = UserRules(None, frozenset(), 1)
    some = frozenset(capabilities.Capability) - {capabilities.Capability.SETUID}
    monkeypatch.setattr(module, "held", lambda: some)
    with pytest.raises(ConfigError, match="lacks CAP_SETUID"):
        check_possible(rules, tmp_path, [])
    # Capabilities alone are not enough: workers would inherit them.
    monkeypatch.setattr(module, "held", lambda: frozenset(capabilities.Capability))
    monkeypatch.setattr(os, "geteuid", lambda: 1500)
    with pytest.raises(ConfigError, match="not root"):
        check_possible(rules, tmp_path, [])


@pytest.mark.usefixtures("as_root")
def test_a_folder_that_others_cannot_reach_is_named() -> None:
    with folder_for_others() as folder:
        closed = folder / "closed"
        (closed / "local").mkdir(parents=True)
        closed.chmod(0o750)
        (closed / "local").chmod(0o755)
        assert first_closed(closed / "local") == closed
        assert first_closed(closed / "not" / "there") == closed
        with pytest.raises(ConfigError, match=f"may not enter {closed}"):
            check_possible(UserRules(None, frozenset(), 1), closed / "local", [])
        # As an interpreter of a virtual environment: what it leads to is open, it is not.
        (closed / "python").symlink_to(python := folder / "python")
        python.touch()
        assert first_closed(closed / "python") == closed
        closed.chmod(0o711)
        assert first_closed(closed / "local") is None
        assert first_closed(closed / "python") is None


def test_every_link_on_the_path_is_followed() -> None:
    """As to the Python of an environment, which is a link: the folder that the link is in counts,
    and so does that which it leads to."""
    with folder_for_others() as folder:
        for name in ("target", "links", "env"):
            (folder / name).mkdir()
        python = folder / "target" / "python"
        python.touch()
        (folder / "links" / "python3").symlink_to("../target/python")
        (folder / "env" / "python").symlink_to(folder / "links" / "python3")
        (folder / "short").symlink_to("env")
        way = folder / "short" / "python"
        assert first_closed(way) is None
        for name in ("target", "links", "env"):
            (folder / name).chmod(0o700)
            assert first_closed(way) == folder / name
            (folder / name).chmod(0o755)
        assert first_closed(way) is None
        assert first_closed(Path(os.path.relpath(way))) is None
        (folder / "again").symlink_to("again")
        with pytest.raises(OSError, match="symbolic links"):
            first_closed(folder / "again" / "python")


def test_a_folder_of_these_tests_is_open_whatever_the_umask() -> None:
    before = os.umask(0o077)
    try:
        with folder_for_others() as folder:
            (folder / "a").mkdir()
            assert first_closed(folder / "a" / "b") is None
        assert os.umask(0o077) == 0o077
    finally:
        os.umask(before)


@pytest.mark.usefixtures("as_root")
def test_users_that_the_operator_names_are_looked_up_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no user 'no-such-user'"):
        check_possible(UserRules("no-such-user", frozenset(), 1), tmp_path, [])
