"""The promises of both stores: each test runs on the memory store and on a real ZooKeeper."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.support.stores import (
    Ensemble,
    States,
    Watched,
    eventually,
    value_of,
)

from squall_common.cluster.store import (
    NODE_BYTES_MAX,
    BadVersionError,
    Check,
    ConnectionLostError,
    ConnectionState,
    Create,
    Delete,
    EphemeralParentError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Set,
    Store,
    StoreError,
    ValueTooLargeError,
)

# Nodes


async def test_a_new_node_has_its_value_and_version_0(servers: Ensemble) -> None:
    store = await servers.open()
    assert await store.create("/a", b"one") == "/a"
    value, stat = await store.get("/a")
    assert value == b"one"
    assert (stat.version, stat.ephemeral_owner, stat.children) == (0, 0, 0)
    assert stat.czxid == stat.mzxid > 0


async def test_a_write_raises_the_version_and_the_zxid(servers: Ensemble) -> None:
    store = await servers.open()
    await store.create("/a", b"one")
    before = await store.exists("/a")
    after = await store.set("/a", b"two")
    assert before is not None
    assert after.version == 1
    assert after.czxid == before.czxid < after.mzxid
    assert (await store.get("/a")) == (b"two", after)


async def test_mzxid_orders_writes_over_the_whole_tree(servers: Ensemble) -> None:
    store = await servers.open()
    for path in ("/a", "/b"):
        await store.create(path)
    zxids = [(await store.set(path, b"")).mzxid for path in ("/a", "/b", "/a", "/b")]
    assert zxids == sorted(set(zxids))


async def test_operations_on_missing_nodes(servers: Ensemble) -> None:
    store = await servers.open()
    assert await store.exists("/none") is None
    with pytest.raises(NoNodeError):
        await store.get("/none")
    with pytest.raises(NoNodeError):
        await store.children("/none")
    with pytest.raises(NoNodeError):
        await store.set("/none", b"")
    with pytest.raises(NoNodeError):
        await store.delete("/none")
    with pytest.raises(NoNodeError):
        await store.create("/none/child")
    await store.delete_tree("/none")


async def test_versions_guard_writes_and_deletions(servers: Ensemble) -> None:
    store = await servers.open()
    await store.create("/a")
    await store.set("/a", b"x", version=0)
    with pytest.raises(BadVersionError):
        await store.set("/a", b"y", version=0)
    with pytest.raises(BadVersionError):
        await store.delete("/a", version=0)
    assert (await store.get("/a"))[0] == b"x"
    await store.delete("/a", version=1)
    assert await store.exists("/a") is None


async def test_a_node_is_created_once(servers: Ensemble) -> None:
    store = await servers.open()
    await store.create("/a", b"first")
    with pytest.raises(NodeExistsError):
        await store.create("/a", b"second")
    assert (await store.get("/a"))[0] == b"first"


async def test_children_are_sorted_names(servers: Ensemble) -> None:
    store = await servers.open()
    for name in ("b", "a", "c"):
        await store.create(f"/p/{name}", make_parents=True)
    assert await store.children("/p") == ["a", "b", "c"]
    stat = await store.exists("/p")
    assert stat is not None
    assert stat.children == 3
    assert "p" in await store.children("/")


async def test_a_node_with_children_is_not_deleted(servers: Ensemble) -> None:
    store = await servers.open()
    await store.create("/p/child", make_parents=True)
    with pytest.raises(NotEmptyError):
        await store.delete("/p")


async def test_a_tree_is_deleted_whole(servers: Ensemble) -> None:
    store = await servers.open()
    for path in ("/p/a/1", "/p/a/2", "/p/b"):
        await store.create(path, make_parents=True)
    await store.delete_tree("/p")
    assert await store.exists("/p") is None


async def test_sequence_numbers_count_every_node_that_the_parent_ever_had(
    servers: Ensemble,
) -> None:
    store = await servers.open()
    await store.create("/p")
    assert await store.create("/p/n-", sequence=True) == "/p/n-0000000000"
    await store.create("/p/other")
    assert await store.create("/p/n-", sequence=True) == "/p/n-0000000002"
    await store.delete("/p/n-0000000002")
    await store.delete("/p/other")
    assert await store.create("/p/m-", sequence=True) == "/p/m-0000000003"


async def test_a_value_of_the_largest_size_is_stored_and_read(servers: Ensemble) -> None:
    store = await servers.open()
    value = bytes(NODE_BYTES_MAX)
    await store.create("/big", value)
    assert (await store.get("/big"))[0] == value
    await store.set("/big", b"\1" * NODE_BYTES_MAX)


async def test_a_larger_value_is_refused_before_it_is_sent(servers: Ensemble) -> None:
    store = await servers.open()
    states = States(store)
    await store.create("/big")
    value = bytes(NODE_BYTES_MAX + 1)
    with pytest.raises(ValueTooLargeError, match=r"/big has 1000001 bytes; the limit is 1000000"):
        await store.set("/big", value)
    with pytest.raises(ValueTooLargeError):
        await store.create("/bigger", value)
    with pytest.raises(ValueTooLargeError):
        store.put_nowait("/big", value)
    with pytest.raises(ValueTooLargeError):
        await store.transaction([Set("/big", bytes(600_000)), Create("/b", bytes(600_000))])
    assert (await store.get("/big"))[0] == b""
    assert states.seen == []  # the connection never broke


@pytest.mark.parametrize(
    "path", ["", "a", "/a/", "//a", "/a//b", "/a/../b", "/.", "/a\0b", "/\x07"]
)
async def test_a_path_that_zookeeper_refuses_is_a_mistake_of_the_caller(
    servers: Ensemble, path: str
) -> None:
    store = await servers.open()
    with pytest.raises(ValueError, match="node path"):
        await store.create(path)
    with pytest.raises(ValueError, match="node path"):
        await store.exists(path)


@pytest.mark.parametrize("name", ["a b", "ü", "%2F", "a:b", "...", "a.b-c_d", "日本"])
async def test_unusual_names_are_kept(servers: Ensemble, name: str) -> None:
    store = await servers.open()
    await store.create(f"/p/{name}", name.encode(), make_parents=True)
    assert await store.children("/p") == [name]
    assert (await store.get(f"/p/{name}"))[0] == name.encode()


# Transactions


async def test_a_transaction_does_all_its_operations(servers: Ensemble) -> None:
    store = await servers.open()
    await store.create("/a")
    await store.create("/old")
    await store.transaction(
        [Check("/a", 0), Set("/a", b"x"), Create("/new", b"y"), Delete("/old"), Set("/new", b"z")]
    )
    value, a = await store.get("/a")
    assert value == b"x"
    value, new = await store.get("/new")
    assert value == b"z"
    assert new.version == 1
    assert new.czxid == a.mzxid  # one transaction, one zxid
    assert await store.exists("/old") is None


@pytest.mark.parametrize(
    ("failing", "error"),
    [
        (Check("/a", 7), BadVersionError),
        (Check("/none"), NoNodeError),
        (Set("/a", b"", 7), BadVersionError),
        (Set("/none", b""), NoNodeError),
        (Create("/a"), NodeExistsError),
        (Create("/none/b"), NoNodeError),
        (Delete("/p"), NotEmptyError),
        (Delete("/a", 7), BadVersionError),
    ],
    ids=str,
)
async def test_a_transaction_does_nothing_when_one_operation_fails(
    servers: Ensemble, failing: Create | Set | Delete | Check, error: type[StoreError]
) -> None:
    store = await servers.open()
    await store.create("/a", b"before")
    await store.create("/p/child", make_parents=True)
    with pytest.raises(error) as caught:
        await store.transaction([Create("/new"), Set("/p", b"after"), failing, Delete("/a")])
    assert caught.value.index == 2
    assert (await store.get("/a"))[0] == b"before"
    assert (await store.get("/p"))[0] == b""
    assert await store.exists("/new") is None


async def test_an_empty_transaction_does_nothing(servers: Ensemble) -> None:
    store = await servers.open()
    await store.transaction([])


async def test_a_refused_transaction_fires_no_watch(servers: Ensemble) -> None:
    store = await servers.open()
    watched = Watched()
    await store.create("/a")
    await store.get("/a", watched)
    with pytest.raises(NoNodeError):
        await store.transaction([Set("/a", b"x"), Check("/none")])
    assert watched.paths == []
    await store.set("/a", b"y")
    await watched.wait()
    assert watched.paths == ["/a"]


# Ephemeral nodes


async def test_an_ephemeral_node_goes_with_its_session(servers: Ensemble) -> None:
    mine, other = await servers.open(), await servers.open()
    await mine.create("/e", ephemeral=True)
    await mine.transaction([Create("/e2", ephemeral=True)])
    stat = await other.exists("/e")
    assert stat is not None
    assert stat.ephemeral_owner == mine.session_id != 0
    gone = Watched()
    await other.exists("/e", gone)
    await mine.close()
    assert await gone.wait() == "/e"

    async def second_is_gone() -> bool:
        return await other.exists("/e2") is None

    await eventually(second_is_gone)


async def test_an_ephemeral_node_has_no_children(servers: Ensemble) -> None:
    store = await servers.open()
    await store.create("/e", ephemeral=True)
    with pytest.raises(EphemeralParentError):
        await store.create("/e/child")


async def test_expiry_takes_the_ephemeral_nodes_and_gives_a_new_session(servers: Ensemble) -> None:
    store, other = await servers.open(), await servers.open()
    states = States(store)
    await store.create("/e", ephemeral=True)
    await store.create("/stays")
    gone = Watched()
    await other.exists("/e", gone)
    old = store.session_id
    await servers.expire(store)
    await gone.wait()
    await states.wait(ConnectionState.LOST, ConnectionState.CONNECTED)
    assert store.session_id not in {0, old}
    assert await store.exists("/e") is None
    assert await store.exists("/stays") is not None


# Watches


async def test_a_watch_fires_once_on_the_next_change(servers: Ensemble) -> None:
    store, other = await servers.open(), await servers.open()
    watched = Watched()
    await store.create("/a")
    await store.get("/a", watched)
    await other.set("/a", b"1")
    assert await watched.wait() == "/a"
    await other.set("/a", b"2")
    assert (await store.get("/a"))[0] in {b"1", b"2"}
    again = Watched()
    await store.get("/a", again)
    await other.set("/a", b"3")
    await again.wait()
    assert watched.paths == ["/a"]


async def test_an_exists_watch_waits_for_creation(servers: Ensemble) -> None:
    store, other = await servers.open(), await servers.open()
    watched = Watched()
    assert await store.exists("/a", watched) is None
    await other.create("/a")
    assert await watched.wait() == "/a"


async def test_a_get_that_finds_nothing_sets_no_watch(servers: Ensemble) -> None:
    store = await servers.open()
    watched, marker = Watched(), Watched()
    with pytest.raises(NoNodeError):
        await store.get("/a", watched)
    await store.exists("/a", marker)
    await store.create("/a")
    await marker.wait()
    assert watched.paths == []


async def test_a_deletion_fires_both_kinds_of_watch(servers: Ensemble) -> None:
    store = await servers.open()
    data, children, parent = Watched(), Watched(), Watched()
    await store.create("/p/a", make_parents=True)
    await store.get("/p/a", data)
    await store.children("/p/a", children)
    await store.children("/p", parent)
    await store.delete("/p/a")
    assert await data.wait() == await children.wait() == "/p/a"
    assert await parent.wait() == "/p"


async def test_a_child_watch_is_for_children_only(servers: Ensemble) -> None:
    store = await servers.open()
    children, data = Watched(), Watched()
    await store.create("/p/a", make_parents=True)
    await store.children("/p", children)
    await store.get("/p/a", data)
    await store.set("/p", b"x")
    await store.set("/p/a", b"x")
    await data.wait()
    assert children.paths == []
    await store.create("/p/b")
    assert await children.wait() == "/p"


async def test_the_same_watcher_set_twice_fires_once(servers: Ensemble) -> None:
    store = await servers.open()
    watched, marker = Watched(), Watched()
    await store.create("/a")
    for _ in range(3):
        await store.get("/a", watched)
    await store.set("/a", b"1")
    await watched.wait()
    await store.get("/a", marker)
    await store.set("/a", b"2")
    await marker.wait()
    assert watched.paths == ["/a"]


async def test_one_watcher_on_two_nodes_fires_for_each(servers: Ensemble) -> None:
    store = await servers.open()
    watched = Watched()
    for path in ("/a", "/b"):
        await store.create(path)
        await store.get(path, watched)
    await store.transaction([Set("/a", b""), Set("/b", b"")])
    await eventually(lambda: sorted(watched.paths) == ["/a", "/b"])


async def test_a_watch_fires_before_the_new_value_can_be_read(servers: Ensemble) -> None:
    """ZooKeeper's ordering guarantee: a client that reads the new value has had the event."""
    store, other = await servers.open(), await servers.open()
    await store.create("/a", b"0")
    for round_ in range(1, 30):
        watched = Watched()
        await store.get("/a", watched)
        write = asyncio.create_task(other.set("/a", b"%d" % round_))
        while (await store.get("/a"))[0] != b"%d" % round_:
            assert not write.done() or write.exception() is None
        assert watched.paths == ["/a"]
        await write


async def test_every_watch_fires_after_a_reconnection(servers: Ensemble) -> None:
    store = await servers.open()
    states = States(store)
    data, missing, children = Watched(), Watched(), Watched()
    await store.create("/a")
    await store.get("/a", data)
    await store.exists("/none", missing)
    await store.children("/", children)
    await servers.expire(store)
    await states.wait(ConnectionState.LOST, ConnectionState.CONNECTED)
    assert await data.wait() == "/a"
    assert await missing.wait() == "/none"
    assert await children.wait() == "/"


# Heartbeats


async def test_put_nowait_writes_and_creates(servers: Ensemble) -> None:
    store = await servers.open()
    await store.create("/beats")
    store.put_nowait("/beats/w", b"1")
    await eventually_value(store, "/beats/w", b"1")
    store.put_nowait("/beats/w", b"2")
    await eventually_value(store, "/beats/w", b"2")


async def eventually_value(store: Store, path: str, value: bytes) -> None:
    async def holds() -> bool:
        return await value_of(store, path) == value

    await eventually(holds)


async def test_put_nowait_does_not_make_parents(servers: Ensemble) -> None:
    store = await servers.open()
    store.put_nowait("/gone/w", b"1")
    await eventually(lambda: store.put_errors == 1)
    assert await store.exists("/gone") is None


async def test_put_nowait_does_not_need_the_loop(servers: Ensemble) -> None:
    """A heartbeat gets through while the event loop is stuck in a user's execute()."""
    store, other = await servers.open(), await servers.open()
    await store.create("/beats")
    done = threading.Event()

    def beat() -> None:
        for number in range(1, 101):
            store.put_nowait("/beats/w", b"%d" % number)
        done.set()

    thread = threading.Thread(target=beat)
    thread.start()
    assert done.wait(10)  # the loop stands still meanwhile
    thread.join()
    await eventually_value(other, "/beats/w", b"100")


# Closing


async def test_a_closed_store_answers_with_an_error(servers: Ensemble) -> None:
    store = await servers.open()
    await store.close()
    await store.close()
    assert store.state is ConnectionState.LOST
    assert store.session_id == 0
    with pytest.raises(ConnectionLostError):
        await store.get("/")
    store.put_nowait("/a", b"")


async def test_last_answered_is_recent(servers: Ensemble) -> None:
    store = await servers.open()
    before = store.last_answered_secs
    await asyncio.sleep(0.05)
    await store.exists("/a")
    assert store.last_answered_secs > before
