"""Unit tests start no process and open no socket, and this holds them to it."""

from __future__ import annotations

import os
import socket
import subprocess
from typing import Any

import pytest
from tests.support.plain_tests import REFUSED, NotPlain, PlainTests

ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "socket.bind": (None, ("127.0.0.1", 80)),
    "socket.connect": (None, ("127.0.0.1", 80)),
    "subprocess.Popen": ("ls", ["ls"], None, None),
    "os.fork": (),
}


@pytest.mark.parametrize("event", sorted(REFUSED))
def test_actions_for_component_tests_are_refused_and_remembered(event: str) -> None:
    hook = PlainTests()
    hook.begin("test_x")
    with pytest.raises(NotPlain, match=r"test_x .*: tests that .* go to tests/component"):
        hook(event, ARGUMENTS.get(event, ("ls",)))
    (refused,) = hook.end()
    assert refused.startswith(f"test_x {REFUSED[event]}")


def test_between_tests_everything_is_allowed() -> None:
    hook = PlainTests()
    hook.begin("test_x")
    hook("open", ("file", "r", 0))
    assert hook.end() == []
    hook("subprocess.Popen", ("ls", ["ls"], None, None))


def test_it_watches_this_test(request: pytest.FixtureRequest) -> None:
    """Really, and what was refused is forgotten here, which fails any other test."""
    (hook,) = [
        plugin.HOOK
        for plugin in request.config.pluginmanager.get_plugins()
        if isinstance(getattr(plugin, "HOOK", None), PlainTests)
    ]
    try:
        with pytest.raises(NotPlain, match=r"starts a process \('true'\)"):
            subprocess.run(["true"], check=False)
        with socket.socket() as server, pytest.raises(NotPlain, match="binds a socket"):
            server.bind(("127.0.0.1", 0))
        with pytest.raises(NotPlain, match="forks"):
            os.fork()
        left, right = socket.socketpair()
        left.close()
        right.close()
    finally:
        assert len(hook.end()) == 3
