"""The file that says who may call and serve which function."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall_common.errors import ConfigError
from squall_common.security.acl import Function, Members
from squall_drpc.server.functions import FunctionLists

GOOD = """
drpc.authorizer.acl:
  f:
    client.users: [alice, bob]
    invocation.user: carol
  idle: {}
"""


def test_the_format_is_storms(tmp_path: Path) -> None:
    file = tmp_path / "drpc-auth-acl.yaml"
    file.write_text(GOOD)
    lists = FunctionLists(str(file), strict=True)
    lists.open()
    callers, servers = frozenset({"alice", "bob"}), frozenset({"carol"})
    assert lists.of("f") == Function("f", Members(callers), Members(servers))
    assert lists.of("idle") == Function("idle")
    assert lists.of("none") == Function("none")


def test_what_is_not_listed_is_everybodys_only_if_that_is_wanted(tmp_path: Path) -> None:
    file = tmp_path / "lists.yaml"
    file.write_text(GOOD)
    lists = FunctionLists(str(file), strict=False)
    lists.open()
    assert lists.of("none").unlisted
    assert not lists.of("idle").unlisted
    nothing = FunctionLists(None, strict=False)
    nothing.open()
    assert nothing.of("f").unlisted
    assert nothing.refresh() is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "f: {}",
        "drpc.authorizer.acl: [f]",
        "drpc.authorizer.acl: {f: [alice]}",
        "drpc.authorizer.acl: {1: {}}",
        "drpc.authorizer.acl: {f: {client.users: alice}}",
        "drpc.authorizer.acl: {f: {client.users: [1]}}",
        "drpc.authorizer.acl: {f: {invocation.user: [carol]}}",
        "drpc.authorizer.acl: {f: {invocation.users: carol}}",
        "drpc.authorizer.acl: {f: {}}\nmore: 1",
        "drpc.authorizer.acl: {",
        "a: &a [*a]",
        "!!python/object/apply:os.system ['true']",
    ],
)
def test_a_mistake_is_an_error_that_names_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "lists.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=r"drpc.authorizer.acl.filename: .*lists.yaml"):
        FunctionLists(str(file), strict=True).open()


def test_a_file_that_changes_is_read_again_and_one_that_goes_changes_nothing(
    tmp_path: Path,
) -> None:
    file = tmp_path / "lists.yaml"
    file.write_text(GOOD)
    lists = FunctionLists(str(file), strict=True)
    lists.open()
    fresh = tmp_path / "fresh"
    fresh.write_text(GOOD.replace("carol", "dora"))
    os.replace(fresh, file)
    assert lists.refresh() is None
    assert lists.of("f").servers.users == {"dora"}
    file.unlink()
    assert "No such file" in (lists.refresh() or "")
    assert lists.of("f").servers.users == {"dora"}
