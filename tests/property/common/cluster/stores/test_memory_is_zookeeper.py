"""The memory store does what ZooKeeper does: random operations on both, everything compared.

Two clients on each side do the same steps: create, write, delete, read with and without watches,
transactions, closing and opening again, expiry. After each step the outcome must be equal (value,
version, owner, children, or the kind of error and the operation that failed), and so must be the
watches that have fired since. Transaction ids may differ but not in their order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.effort import examples
from tests.support.stores import Ensemble, MemoryServers, RealServers, States
from tests.support.zookeeper import fresh_root, zookeeper

from squall_cli.cluster.zookeeper import DevZooKeeper
from squall_common.cluster.store import (
    Check,
    ConnectionState,
    Create,
    Delete,
    Op,
    Set,
    Stat,
    Store,
    StoreError,
)

__all__ = ["zookeeper"]

# Few, so that steps meet.
PATHS = st.sampled_from(["/a", "/a", "/a/b", "/a/b", "/a/c", "/a/b/d"])
VALUES = st.sampled_from([b"", b"x", b"yy"])
VERSIONS = st.sampled_from([-1, -1, 0, 1, 2])
CLIENTS = st.integers(0, 1)
OPS = st.one_of(
    st.builds(Create, PATHS, VALUES, st.booleans()),
    st.builds(Set, PATHS, VALUES, VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)


class Side:
    """Two clients of one kind of store, and what their watches have seen."""

    def __init__(self, servers: Ensemble) -> None:
        self.servers = servers
        self.clients: list[Store] = []
        self.sessions: list[list[int]] = [[], []]
        self.fired: list[tuple[int, str, str]] = []
        self._watchers: dict[tuple[int, str], Any] = {}

    async def open(self) -> None:
        for number in (0, 1):
            self.clients.append(await self.servers.open(session_timeout_secs=4))
            self.sessions[number].append(self.clients[number].session_id)

    def watcher(self, client: int, kind: str) -> Any:
        """One watcher for each client and kind of watch, as a daemon would have."""

        def fired(path: str) -> None:
            self.fired.append((client, kind, path))

        return self._watchers.setdefault((client, kind), fired)

    async def reopen(self, client: int) -> None:
        await self.clients[client].close()
        for kind in ("get", "exists", "children"):
            self._watchers.pop((client, kind), None)
        self.clients[client] = await self.servers.open(session_timeout_secs=4)
        self.sessions[client].append(self.clients[client].session_id)

    async def expire(self, client: int) -> None:
        states = States(self.clients[client])
        await self.servers.expire(self.clients[client])
        await states.wait(ConnectionState.LOST, ConnectionState.CONNECTED)
        self.sessions[client].append(self.clients[client].session_id)

    async def do(self, client: int, name: str, *args: Any, **kwargs: Any) -> Any:
        """What an operation comes to: its result, or its kind of error."""
        try:
            result = await getattr(self.clients[client], name)(*args, **kwargs)
        except StoreError as error:
            return type(error).__name__, error.index
        return result

    async def settle(self) -> list[tuple[int, str, str]]:
        """Every event that is on its way, and what has fired since the last time. An answer comes
        after the events that came before it."""
        for client in self.clients:
            await client.exists("/")
        fired, self.fired = sorted(self.fired), []
        return fired

    def owner(self, session: int) -> str:
        """A session by client and number."""
        if session == 0:
            return ""
        for client, sessions in enumerate(self.sessions):
            if session in sessions:
                return f"client {client} session {sessions.index(session)}"
        return "?"


class Machine(RuleBasedStateMachine):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.memory = Side(MemoryServers())
        self.real = Side(RealServers(address, fresh_root()))
        self.reopened = self.expired = False
        self.zxids: dict[int, int] = {}  # the real one's to the memory's
        self.run(self.memory.open())
        self.run(self.real.open())

    def run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self.runner.run(coroutine)

    def teardown(self) -> None:
        self.run(self.memory.servers.close())
        self.run(self.real.servers.close())
        self.runner.close()

    def both(self, client: int, name: str, *args: Any, **kwargs: Any) -> None:
        watch = kwargs.pop("watch", None)
        outcomes = []
        for side in (self.memory, self.real):
            if watch is not None:
                kwargs["watch"] = side.watcher(client, watch)
            outcomes.append(self.run(side.do(client, name, *args, **kwargs)))
        memory, real = outcomes
        assert self.shown(self.memory, memory) == self.shown(self.real, real)
        self.note_zxids(memory, real)

    def shown(self, side: Side, outcome: Any) -> Any:
        if isinstance(outcome, Stat):
            equal = outcome.czxid == outcome.mzxid
            return outcome.version, side.owner(outcome.ephemeral_owner), outcome.children, equal
        if isinstance(outcome, tuple) and len(outcome) == 2 and isinstance(outcome[1], Stat):
            return outcome[0], self.shown(side, outcome[1])
        return outcome

    def note_zxids(self, memory: Any, real: Any) -> None:
        if isinstance(memory, tuple) and isinstance(memory[-1], Stat):
            memory, real = memory[-1], real[-1]
        if not isinstance(memory, Stat):
            return
        for mine, theirs in ((memory.czxid, real.czxid), (memory.mzxid, real.mzxid)):
            if mine:  # the roots differ: the real one's is below /
                assert self.zxids.setdefault(theirs, mine) == mine
        ordered = [self.zxids[theirs] for theirs in sorted(self.zxids)]
        assert ordered == sorted(set(ordered))

    @initialize()
    def begin(self) -> None:
        self.both(0, "create", "/a")

    @rule(client=CLIENTS, path=PATHS, value=VALUES, ephemeral=st.booleans())
    def create(self, client: int, path: str, value: bytes, ephemeral: bool) -> None:
        self.both(client, "create", path, value, ephemeral=ephemeral)

    @rule(client=CLIENTS, path=PATHS)
    def create_with_parents(self, client: int, path: str) -> None:
        self.both(client, "create", path, make_parents=True)

    @rule(client=CLIENTS, parent=PATHS, ephemeral=st.booleans())
    def create_in_sequence(self, client: int, parent: str, ephemeral: bool) -> None:
        self.both(client, "create", f"{parent}/n-", sequence=True, ephemeral=ephemeral)

    @rule(client=CLIENTS, ephemeral=st.booleans())
    def create_in_sequence_below_a(self, client: int, ephemeral: bool) -> None:
        self.both(client, "create", "/a/n-", sequence=True, ephemeral=ephemeral)

    @rule(client=CLIENTS, path=PATHS, value=VALUES, version=VERSIONS)
    def set(self, client: int, path: str, value: bytes, version: int) -> None:
        self.both(client, "set", path, value, version)

    @rule(client=CLIENTS, path=PATHS, version=VERSIONS)
    def delete(self, client: int, path: str, version: int) -> None:
        self.both(client, "delete", path, version)

    @rule(client=CLIENTS, path=PATHS)
    def delete_tree(self, client: int, path: str) -> None:
        self.both(client, "delete_tree", path)

    @rule(client=CLIENTS, path=PATHS, watch=st.booleans())
    def get(self, client: int, path: str, watch: bool) -> None:
        self.both(client, "get", path, watch="get" if watch else None)

    @rule(client=CLIENTS, path=PATHS, watch=st.booleans())
    def exists(self, client: int, path: str, watch: bool) -> None:
        self.both(client, "exists", path, watch="exists" if watch else None)

    @rule(client=CLIENTS, path=PATHS | st.just("/"), watch=st.booleans())
    def children(self, client: int, path: str, watch: bool) -> None:
        self.both(client, "children", path, watch="children" if watch else None)

    @rule(client=CLIENTS)
    def watch_everything(self, client: int) -> None:
        for path in ("/", "/a", "/a/b", "/a/c", "/a/b/d"):
            for kind in ("get", "exists", "children"):
                self.both(client, kind, path, watch=kind)

    @rule(client=CLIENTS, ops=st.lists(OPS, max_size=5))
    def transaction(self, client: int, ops: Sequence[Op]) -> None:
        self.both(client, "transaction", ops)

    # These two take a quarter of a second: once a run each is enough.
    @precondition(lambda self: not self.reopened)
    @rule(client=CLIENTS)
    def reopen(self, client: int) -> None:
        self.reopened = True
        for side in (self.memory, self.real):
            self.run(side.reopen(client))

    @precondition(lambda self: not self.expired)
    @rule(client=CLIENTS)
    def expire(self, client: int) -> None:
        self.expired = True
        for side in (self.memory, self.real):
            self.run(side.expire(client))

    @invariant()
    def the_same_watches_fired(self) -> None:
        assert self.run(self.memory.settle()) == self.run(self.real.settle())


@pytest.mark.integration
def test_the_memory_store_does_what_zookeeper_does(zookeeper: DevZooKeeper) -> None:
    run_state_machine_as_test(
        lambda: Machine(zookeeper.address),
        settings=settings(
            max_examples=examples(20),
            stateful_step_count=50,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
