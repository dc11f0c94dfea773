"""A real ZooKeeper that dies, hangs, starts late, or answers nonsense."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from kazoo.protocol.states import KeeperState
from tests.support.stores import States, Watched, eventually, value_of
from tests.support.tcp_proxy import TcpProxy
from tests.support.zookeeper import START_SECS

from squall_cli.cluster.zookeeper import DevZooKeeper
from squall_common.cluster.connecting import connect
from squall_common.cluster.leader import LeaderElection, Leadership
from squall_common.cluster.store import ConnectionLostError, ConnectionState, Create
from squall_common.cluster.stores import kazoo_link
from squall_common.cluster.stores.zookeeper import ZooKeeperStore

pytestmark = pytest.mark.integration

CONNECTED, SUSPENDED, LOST = (
    ConnectionState.CONNECTED,
    ConnectionState.SUSPENDED,
    ConnectionState.LOST,
)

# Outlasts a restart of ZooKeeper: on a busy machine a Java program takes most of a minute to start.
SLOW_RESTART_SECS = 120

Open = Callable[..., ZooKeeperStore]


@pytest.fixture
async def open_store(own_zookeeper: DevZooKeeper) -> AsyncIterator[Open]:
    stores: list[ZooKeeperStore] = []

    def open_store(
        *, session_timeout_secs: float = 2.0, operation_timeout_secs: float = 30.0, hosts: str = ""
    ) -> ZooKeeperStore:
        store = ZooKeeperStore(
            hosts or own_zookeeper.address,
            session_timeout_secs=session_timeout_secs,
            operation_timeout_secs=operation_timeout_secs,
        )
        stores.append(store)
        return store

    yield open_store
    for store in stores:
        await store.close()
    assert zookeeper_threads() == []


async def grant_long_sessions(server: DevZooKeeper) -> None:
    """Start it again so that it grants a session SLOW_RESTART_SECS: the largest is 20 ticks."""
    await server.stop()
    server.tick_ms = SLOW_RESTART_SECS * 1000 // 20
    await server.start(START_SECS)


def zookeeper_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "zookeeper"]


async def test_a_killed_server_that_returns_finds_the_session_and_its_nodes(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    await grant_long_sessions(own_zookeeper)
    store = open_store(
        session_timeout_secs=SLOW_RESTART_SECS, operation_timeout_secs=SLOW_RESTART_SECS
    )
    await store.start()
    assert store.session_timeout_secs == SLOW_RESTART_SECS
    states, data, missing = States(store), Watched(), Watched()
    await store.create("/stays", b"x")
    await store.create("/mine", ephemeral=True)
    await store.get("/stays", data)
    await store.exists("/none", missing)
    session = store.session_id
    own_zookeeper.kill()
    await states.wait(SUSPENDED)
    read = asyncio.create_task(store.get("/stays"))
    write = asyncio.create_task(store.set("/mine", b"y"))
    await own_zookeeper.start(START_SECS)
    assert (await read)[0] == b"x"  # both waited for the connection
    await write
    await states.wait(SUSPENDED, CONNECTED)
    assert await data.wait() == "/stays"
    assert await missing.wait() == "/none"
    assert store.session_id == session
    stat = await store.exists("/mine")
    assert stat is not None
    assert stat.ephemeral_owner == session


async def test_without_a_server_every_operation_ends_before_its_timeout(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    store = open_store(session_timeout_secs=1)
    await store.start()
    states = States(store)
    await store.create("/mine", ephemeral=True)
    store._operation_timeout_secs = 1.0  # not before: an answer may take longer on a busy machine
    own_zookeeper.kill()
    started = time.monotonic()
    operations = [
        store.get("/mine"),
        store.exists("/mine"),
        store.children("/"),
        store.create("/new"),
        store.set("/mine", b""),
        store.delete("/mine"),
        store.transaction([Create("/new")]),
        store.delete_tree("/mine"),
    ]
    results = await asyncio.gather(*operations, return_exceptions=True)
    assert time.monotonic() - started < 30  # a second, the timeout of an operation
    assert [type(result) for result in results] == [ConnectionLostError] * len(operations)
    await states.wait(SUSPENDED, LOST)  # by our own clock: there is nobody to say so
    await own_zookeeper.start(START_SECS)
    await states.wait(LOST, CONNECTED)
    assert await store.exists("/new") is None  # nothing was sent late


async def test_a_request_that_kazoo_queues_for_later_is_withdrawn(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    """The connection's thread knows of the outage before the loop: what is asked for in between
    lies in kazoo's queue, and would be written when the server is back, long after we have said
    that it failed."""
    await grant_long_sessions(own_zookeeper)
    store = open_store(session_timeout_secs=SLOW_RESTART_SECS)
    await store.start()
    assert store.session_timeout_secs == SLOW_RESTART_SECS
    states = States(store)
    await store.create("/there")
    store._operation_timeout_secs = 1.0
    writes: list[Callable[[], Any]] = [
        lambda: store.create("/new"),
        lambda: store.set("/there", b"late"),
        lambda: store.transaction([Create("/new-too")]),
    ]
    tasks = [asyncio.create_task(write()) for write in writes]
    given_up = asyncio.create_task(store.create("/cancelled"))
    link = store._link
    assert link is not None
    emptied = threading.Event()
    empty_queues = link.client._notify_pending

    def notify_pending(state: KeeperState) -> None:
        empty_queues(state)
        emptied.set()

    # kazoo first says that it has lost the connection, and then fails all that is in its queues:
    # what we queue in between would not be there.
    link.client._notify_pending = notify_pending
    own_zookeeper.kill()
    assert emptied.wait(30)  # with the loop held up
    assert link.client._state != KeeperState.CONNECTED
    await asyncio.sleep(0)
    assert len(link.client._queue) == len(tasks) + 1
    given_up.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert [type(result) for result in results] == [ConnectionLostError] * len(tasks)
    store._operation_timeout_secs = SLOW_RESTART_SECS
    await own_zookeeper.start(START_SECS)
    await states.wait(SUSPENDED, CONNECTED)
    assert await store.children("/") == ["there"]
    assert await value_of(store, "/there") == b""


async def test_a_server_that_hangs_is_noticed_by_its_silence(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    store = open_store(session_timeout_secs=2)
    await store.start()
    states = States(store)
    await store.create("/a")
    own_zookeeper.send_signal(signal.SIGSTOP)
    store._operation_timeout_secs = 0.5
    with pytest.raises(ConnectionLostError, match=r"did not answer within 0.5 s"):
        await store.get("/a")
    store._operation_timeout_secs = 30.0
    await states.wait(SUSPENDED, LOST)
    own_zookeeper.send_signal(signal.SIGCONT)
    await states.wait(LOST, CONNECTED)
    await store.get("/a")


async def test_a_hung_server_is_noticed_even_if_requests_keep_coming(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    """kazoo pings only when it has nothing to send: heartbeats would hide the silence for good."""
    store = open_store(session_timeout_secs=2)
    await store.start()
    states = States(store)
    await store.create("/beats")
    store.put_nowait("/beats/w", b"0")
    stop = threading.Event()

    def beat() -> None:
        number = 0
        while not stop.wait(0.02):
            number += 1
            store.put_nowait(f"/beats/w{number % 500}", b"%d" % number)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        own_zookeeper.send_signal(signal.SIGSTOP)
        await states.wait(SUSPENDED, timeout_secs=60)
    finally:
        own_zookeeper.send_signal(signal.SIGCONT)
        stop.set()
        thread.join()
    await states.wait(CONNECTED)


async def test_the_last_heartbeat_of_an_outage_is_written_after_it(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    await grant_long_sessions(own_zookeeper)
    store = open_store(session_timeout_secs=SLOW_RESTART_SECS)
    await store.start()
    states = States(store)
    await store.create("/beats")
    store.put_nowait("/beats/w", b"before")

    async def first_is_there() -> bool:
        return await value_of(store, "/beats/w") == b"before"

    await eventually(first_is_there)
    stat = await store.exists("/beats/w")
    own_zookeeper.kill()
    await states.wait(SUSPENDED)
    for number in range(50):
        store.put_nowait("/beats/w", b"%d" % number)
    await own_zookeeper.start(START_SECS)
    await states.wait(CONNECTED)

    async def last_is_there() -> bool:
        return await value_of(store, "/beats/w") == b"49"

    await eventually(last_is_there)
    after = await store.exists("/beats/w")
    assert stat is not None
    assert after is not None
    assert after.version == stat.version + 1  # only the last, once


async def test_a_leader_stops_acting_before_its_session_can_end(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    store = open_store(session_timeout_secs=3)
    await store.start()
    terms: list[Leadership] = []
    lost: list[float] = []
    election = LeaderElection(
        store, "a:1", on_gained=terms.append, on_lost=lambda: lost.append(time.monotonic())
    )
    await election.start()
    await eventually(lambda: bool(terms))
    term = terms[0]
    assert term.active(time.monotonic())
    own_zookeeper.send_signal(signal.SIGSTOP)
    last = time.monotonic()  # when it was active

    def over() -> bool:
        nonlocal last
        now = time.monotonic()
        if term.active(now):
            last = now
            return False
        return True

    await eventually(over)
    # 2/3 of 3 s, and before the session's end. (This process itself may stand still in between.)
    assert last - store.last_answered_secs < 2.8
    assert time.monotonic() - store.last_answered_secs >= 2.0
    await eventually(lambda: bool(lost))  # LOST by our own clock
    assert lost[0] - store.last_answered_secs >= 2.9  # so it was still to come at `last`
    own_zookeeper.send_signal(signal.SIGCONT)
    await eventually(lambda: len(terms) == 2)
    assert terms[1].epoch > term.epoch
    assert terms[1].active(time.monotonic())
    assert not term.active(time.monotonic())
    await election.close()


async def test_a_leader_continues_after_a_short_outage(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    """An outage that is over within the session timeout changes nothing: the term continues. The
    connection is cut, and not the server restarted, which takes long on a busy machine."""
    await grant_long_sessions(own_zookeeper)
    proxy = TcpProxy(own_zookeeper.port)
    await proxy.start()
    store = open_store(
        session_timeout_secs=SLOW_RESTART_SECS, hosts=f"{own_zookeeper.host}:{proxy.port}"
    )
    await store.start()
    assert store.session_timeout_secs == SLOW_RESTART_SECS
    terms: list[Leadership] = []
    lost: list[bool] = []
    election = LeaderElection(
        store, "a:1", on_gained=terms.append, on_lost=lambda: lost.append(True)
    )
    await election.start()
    await eventually(lambda: bool(terms))
    states = States(store)
    proxy.refuse = True
    proxy.reset()
    await states.wait(SUSPENDED)
    proxy.refuse = False
    await states.wait(SUSPENDED, CONNECTED)
    await terms[0].transaction([Create("/after")])
    assert len(terms) == 1
    assert lost == []
    await election.close()
    await store.close()
    await proxy.close()


async def test_start_waits_for_a_server_that_comes_late(
    own_zookeeper: DevZooKeeper, open_store: Open, caplog: pytest.LogCaptureFixture
) -> None:
    await own_zookeeper.stop()
    store = open_store()
    caplog.set_level(logging.WARNING)
    starting = asyncio.create_task(store.start())
    await eventually(lambda: "zookeeper_awaited" in caplog.text)
    assert own_zookeeper.address in caplog.text
    assert not starting.done()
    await own_zookeeper.start(START_SECS)
    await starting
    assert store.state is CONNECTED


async def test_start_can_be_cancelled(own_zookeeper: DevZooKeeper) -> None:
    await own_zookeeper.stop()
    store = ZooKeeperStore(own_zookeeper.address)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(store.start(), 0.3)
    assert zookeeper_threads() == []
    conf = {
        "storm.zookeeper.servers": ["127.0.0.1"],
        "storm.zookeeper.port": own_zookeeper.port,
        "storm.zookeeper.root": "/storm",
        "storm.zookeeper.session.timeout": 2000,
        "storm.zookeeper.connection.timeout": 1500,
        "storm.zookeeper.operation.timeout.ms": 1000,
    }
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(connect(conf), 0.3)
    assert zookeeper_threads() == []
    await own_zookeeper.start(START_SECS)
    state = await connect(conf)
    assert await state.topology_ids() == []
    assert state.store.session_timeout_secs == 2.0
    await state.close()


@pytest.mark.parametrize("fault", ["hangs", "gone"])
async def test_close_does_not_need_a_server(
    own_zookeeper: DevZooKeeper, open_store: Open, fault: str
) -> None:
    store = open_store(session_timeout_secs=4, operation_timeout_secs=8)
    await store.start()
    waiting = asyncio.create_task(store.get("/"))
    await waiting
    if fault == "hangs":
        own_zookeeper.send_signal(signal.SIGSTOP)
    else:
        own_zookeeper.kill()
    waiting = asyncio.create_task(store.get("/"))
    started = time.monotonic()
    await asyncio.sleep(0)
    await store.close()
    assert time.monotonic() - started < 7  # an operation has 8 s
    with pytest.raises(ConnectionLostError):
        await waiting
    assert zookeeper_threads() == []
    if fault == "hangs":
        own_zookeeper.send_signal(signal.SIGCONT)


async def test_a_silent_server_does_not_use_up_the_time_of_the_others(
    own_zookeeper: DevZooKeeper, open_store: Open
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        hosts = f"127.0.0.1:{silent.getsockname()[1]},{own_zookeeper.address}"
        for _ in range(4):  # kazoo shuffles the servers
            store = open_store(hosts=hosts)
            started = time.monotonic()
            await store.start()
            assert time.monotonic() - started < 20


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_connection_thread_that_died_is_replaced(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store()
    await store.start()
    states, watched = States(store), Watched()
    await store.create("/a")
    await store.get("/a", watched)
    read = kazoo_link._Connection._read_socket

    def nonsense(self: Any, timeout: float) -> Any:
        raise ArithmeticError("an answer that cannot be read")

    monkeypatch.setattr(kazoo_link._Connection, "_read_socket", nonsense)
    with pytest.raises(ConnectionLostError):
        await store.set("/a", b"")
    monkeypatch.setattr(kazoo_link._Connection, "_read_socket", read)
    await states.wait(LOST, CONNECTED)
    assert await watched.wait() == "/a"
    await store.get("/a")


async def test_a_deleted_root_is_an_error_and_not_a_hang(open_store: Open) -> None:
    store = open_store()
    await store.start()
    above = open_store()
    above._root = ""
    await above.start()
    await above.delete_tree("/storm")
    assert await store.exists("/storms") is None


async def test_a_flood_of_answers_lets_the_loop_turn(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2,000 requests are answered while the loop is held up: after that no turn of it takes more
    than some of the answers."""
    store = open_store(session_timeout_secs=20, operation_timeout_secs=60)
    await store.start()
    await store.create("/a")
    taken: list[int] = []
    drain = store._drain

    def counted_drain() -> None:
        before = answered_to_loop
        drain()
        taken.append(answered_to_loop - before)

    resolve = store._resolve
    answered_to_loop = 0

    def counted_resolve(*arguments: Any) -> None:
        nonlocal answered_to_loop
        answered_to_loop += 1
        if answered_to_loop % 64 == 1:
            store._post(lambda: None)  # as the connection's thread does meanwhile
        resolve(*arguments)

    monkeypatch.setattr(store, "_drain", counted_drain)
    monkeypatch.setattr(store, "_resolve", counted_resolve)
    answered = 0
    most = 0

    async def write(number: int) -> int:
        nonlocal answered
        stat = await store.set("/a", b"%d" % number)
        answered += 1
        return stat.version

    async def turn() -> None:
        nonlocal most
        before = answered
        while True:
            await asyncio.sleep(0)
            most, before = max(most, answered - before), answered

    writes = [asyncio.create_task(write(number)) for number in range(2000)]
    turning = asyncio.create_task(turn())
    await asyncio.sleep(0)  # all are on their way
    deadline = time.monotonic() + 30
    while len(store._posts) < 2000 and time.monotonic() < deadline:
        time.sleep(0.005)  # noqa: ASYNC251 (the loop is to stand still)
    assert len(store._posts) >= 2000
    assert await asyncio.gather(*writes) == list(range(1, 2001))
    turning.cancel()
    assert sum(taken) >= 2000
    assert max(taken) == 64
    assert most <= 64
