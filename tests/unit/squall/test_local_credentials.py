"""`context.credentials` and `credentials_updated`, in local mode."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from squall import Bolt, LocalCluster, Spout, SquallError, TopologyBuilder

SEEN: list[tuple[str, str, dict[str, str], bool]] = []


class Notes:
    context: Any
    fails = False

    def open(self, conf: Any, context: Any) -> None:
        self.thread = threading.get_ident()
        self.note("opened", context.credentials)

    prepare = open

    def credentials_updated(self, credentials: Any) -> None:
        assert credentials == self.context.credentials
        self.note("updated", credentials)
        if self.fails:
            raise ValueError("no such user")

    def note(self, what: str, credentials: Any) -> None:
        with pytest.raises(TypeError):
            credentials["user"] = "mallory"
        own = threading.get_ident() == self.thread
        SEEN.append((type(self).__name__, what, dict(credentials), own))


class Numbers(Notes, Spout):  # type: ignore[misc]
    outputs = ["n"]

    def next_tuple(self) -> None:
        pass


class Blocking(Notes, Bolt):  # type: ignore[misc]
    blocking = True

    def execute(self, tup: Any) -> None:
        pass


class Fails(Notes, Bolt):  # type: ignore[misc]
    fails = True

    def execute(self, tup: Any) -> None:
        pass


class Unaware(Bolt):
    def execute(self, tup: Any) -> None:
        pass


class Async(Bolt):
    async def execute(self, tup: Any) -> None:
        pass

    async def credentials_updated(self, credentials: Any) -> None:  # type: ignore[override]
        raise AssertionError


def wait(condition: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < ends, SEEN
        time.sleep(0.01)


def test_components_have_them_from_the_start_and_hear_of_others() -> None:
    SEEN.clear()
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    for name, bolt in {
        "blocking": Blocking(), "fails": Fails(), "unaware": Unaware(), "async": Async(),
    }.items():  # fmt: skip
        builder.bolt(name, bolt).shuffle("numbers")
    names = {"Numbers", "Blocking", "Fails"}
    first, second = {"user": "ann"}, {"user": "bob", "password": "x"}
    with LocalCluster() as cluster:
        cluster.submit_topology("words", {}, builder.build(), credentials=first)
        assert sorted(one[0] for one in SEEN) == sorted(names)
        assert all(one[1:] == ("opened", first, True) for one in SEEN)
        SEEN.clear()
        cluster.upload_credentials("words", second)
        wait(lambda: len(SEEN) == 3)
        assert {one[0] for one in SEEN} == names
        assert all(one[1:] == ("updated", second, True) for one in SEEN)
        wait(lambda: len(cluster.errors("words")) == 2)
        errors = {one.component: str(one.error) for one in cluster.errors("words")}
        assert errors["fails"] == "no such user"
        assert "may not be async" in errors["async"]
        with pytest.raises(SquallError, match="not a text"):
            cluster.upload_credentials("words", {"user": 7})  # type: ignore[dict-item]
