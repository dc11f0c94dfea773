"""A real Nimbus process, a real ZooKeeper, a real Thrift client."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.support.nimbus_service import eventually, package, topology
from tests.support.servers import free_port
from tests.support.zookeeper import fresh_root, own_zookeeper, zookeeper  # noqa: F401

from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import SupervisorInfo, TopologyStatus
from squall_common.config.load import default_conf
from squall_common.config.options.typed import NimbusOptions
from squall_thrift import storm
from squall_thrift.client import ThriftClient, ThriftTransportError
from squall_thrift.protocol.messages import ThriftApplicationError

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[3]


class NimbusProcess:
    """`python -m squall_nimbus`, as the command line starts it."""

    def __init__(self, conf: dict[str, Any], folder: Path, die: str | None = None) -> None:
        folder.mkdir(exist_ok=True)
        conf_file = folder / f"conf-{time.monotonic_ns()}.json"
        conf_file.write_text(json.dumps(conf))
        # `die`: a step of tests.support.dying_nimbus
        module = "squall_nimbus" if die is None else "tests.support.dying_nimbus"
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            env={
                **os.environ,
                "SQUALL_DAEMON_CONF": str(conf_file),
                **({} if die is None else {"SQUALL_TEST_DIE": die, "PYTHONPATH": path}),
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self.port = 0

    async def ready(self) -> "NimbusProcess":
        """Wait for its line on stdout."""
        assert self.process.stdout is not None
        line = await asyncio.wait_for(asyncio.to_thread(self.process.stdout.readline), 90)
        if not line:
            raise AssertionError(f"Nimbus ended: {self.ended()}")
        said = json.loads(line)["nimbus"]
        assert said["pid"] == self.process.pid
        self.port = said["port"]
        return self

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait(60)

    def ended(self, timeout_secs: float = 60) -> tuple[int, str]:
        """Return its exit status and its stderr."""
        _, err = self.process.communicate(timeout=timeout_secs)
        return self.process.returncode, err.decode()

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate(timeout=60)


@pytest.fixture
def conf(zookeeper, tmp_path: Path) -> dict[str, Any]:  # noqa: F811
    host, port = zookeeper.address.split(":")
    return {
        **default_conf(),
        "storm.local.dir": str(tmp_path / "local"),
        "storm.log.dir": str(tmp_path / "logs"),
        "storm.zookeeper.servers": [host],
        "storm.zookeeper.port": int(port),
        "storm.zookeeper.root": fresh_root(),
        "storm.zookeeper.session.timeout": 2000,
        "nimbus.thrift.port": 0,
        "nimbus.monitor.freq.secs": 1,
    }


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Any]:
    """Start Nimbus processes that end with the test."""
    running: list[NimbusProcess] = []

    def begin(conf: dict[str, Any], die: str | None = None) -> NimbusProcess:
        running.append(NimbusProcess(conf, tmp_path / "conf", die))
        return running[-1]

    yield begin
    for process in running:
        process.close()


@pytest.fixture
async def state(conf: dict[str, Any]) -> AsyncIterator[ClusterState]:
    state = ClusterState.of(NimbusOptions.read(conf))
    await state.start()
    yield state
    await state.close()


@asynccontextmanager
async def client(nimbus: NimbusProcess) -> AsyncIterator[ThriftClient]:
    async with ThriftClient(storm.Nimbus, "127.0.0.1", nimbus.port) as one:

        async def led() -> bool:
            try:
                return bool((await one.call("getLeader")).port == nimbus.port)
            except ThriftApplicationError:
                return False

        await eventually(led, "it leads")
        yield one


async def upload(one: ThriftClient) -> str:
    handle: str = await one.call("beginFileUpload")
    data = package()
    await one.call("uploadChunk", handle, data[:10])
    await one.call("uploadChunk", handle, data[10:])
    await one.call("finishFileUpload", handle)
    return handle


async def register(state: ClusterState, supervisor_id: str = "sup-a") -> None:
    info = SupervisorInfo(0, "127.0.0.1", supervisor_id, meta=(6700, 6701), version="1")
    await state.register_supervisor(supervisor_id, info)


async def test_submit_assign_kill_and_nothing_is_left(conf, start, state, tmp_path) -> None:
    nimbus = await start(conf).ready()
    await register(state)
    async with client(nimbus) as one:
        handle = await upload(one)
        began = time.monotonic()
        await one.call("submitTopology", "wordcount", handle, '{"topology.workers": 2}', topology())
        took = time.monotonic() - began
        # The assignment is there when the call ends: it waits for no timer.
        (topology_id,) = await state.topology_ids()
        assignment, _ = await state.assignment(topology_id)
        assert len(assignment.slots()) == 2
        assert (await state.storm_base(topology_id)).status is TopologyStatus.ACTIVE
        print(f"submit took {took * 1000:.0f} ms")
        info = await one.call("getClusterInfo")
        assert [(n.port, n.isLeader) for n in info.nimbuses] == [(nimbus.port, True)]
        assert info.supervisors[0].num_used_workers == 2
        compiled = await one.call("getTopology", topology_id)
        assert {"__acker", "count", "__system"} == set(compiled.bolts)
        await one.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=0))
        await eventually(partial(removed, state, one, tmp_path), "nothing is left of it")
    nimbus.process.terminate()
    assert nimbus.ended()[0] == 0
    assert "topology_removed" in (tmp_path / "logs" / "nimbus.log").read_text()


async def test_a_nimbus_killed_between_kill_and_remove_is_finished_by_the_next(
    conf, start, state, tmp_path
) -> None:
    nimbus = await start(conf).ready()
    await register(state)
    async with client(nimbus) as one:
        await one.call("submitTopology", "wordcount", await upload(one), "{}", topology())
        await one.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=2))
        (topology_id,) = await state.topology_ids()
        assert (await state.storm_base(topology_id)).status is TopologyStatus.KILLED
        nimbus.kill()
    second = await start(conf).ready()
    async with client(second) as one:
        await eventually(partial(removed, state, one, tmp_path), "the next Nimbus removes it")
        assert await one.call("isTopologyNameAllowed", "wordcount") is True
        assert (await one.call("getTopologyHistory", "me")).topo_ids == [topology_id]


async def removed(state: Any, one: Any, folder: Path) -> bool:
    """Whether nothing is left of any topology: in ZooKeeper, in the blob store, on the disk."""
    if await state.topologies_with_state() or (await one.call("listBlobs", "")).keys:
        return False
    return not os.listdir(folder / "local" / "nimbus" / "stormdist")


async def test_a_restarted_nimbus_leads_without_waiting_for_its_own_ghost(
    conf, start, state
) -> None:
    conf["storm.zookeeper.session.timeout"] = 4000
    conf["nimbus.thrift.port"] = free_port()
    first = await start(conf).ready()
    await register(state)
    async with client(first) as one:
        await one.call("submitTopology", "wordcount", await upload(one), "{}", topology())
        (topology_id,) = await state.topology_ids()
        first.kill()
    second = await start(conf).ready()
    async with client(second) as one:
        summary = await one.call("getTopologySummaryByName", "wordcount")
        assert (summary.id, summary.status, summary.num_workers) == (topology_id, "ACTIVE", 1)
        page = await one.call("getTopologyPageInfo", topology_id, ":all-time", False)
        assert set(page.id_to_bolt_agg_stats) == {"count"}


async def test_a_standby_takes_over_when_the_leader_dies(conf, start, state, tmp_path) -> None:
    first = await start(conf).ready()
    async with client(first):
        pass
    second = await start({**conf, "storm.local.dir": str(tmp_path / "other")}).ready()
    async with ThriftClient(storm.Nimbus, "127.0.0.1", second.port) as one:
        assert (await one.call("getLeader")).port == first.port
        with pytest.raises(ThriftApplicationError, match=f"the leader is 127.0.0.1:{first.port}"):
            await one.call("beginFileUpload")
        first.kill()

        async def leads() -> bool:
            try:
                return bool(await one.call("beginFileUpload"))
            except ThriftApplicationError:
                return False

        await eventually(leads, "the standby leads", timeout_secs=60)


async def test_a_dead_supervisors_executors_are_moved(conf, start, state) -> None:
    nimbus = await start(conf).ready()
    other = ClusterState.of(NimbusOptions.read(conf))
    await other.start()
    await register(other, "sup-lost")
    try:
        async with client(nimbus) as one:
            await one.call("submitTopology", "wordcount", await upload(one), "{}", topology())
            (topology_id,) = await state.topology_ids()
            assert {s.node for s in (await state.assignment(topology_id))[0].slots()} == {
                "sup-lost"
            }
            await register(state, "sup-new")
            await other.close()

            async def moved() -> bool:
                assignment, _ = await state.assignment(topology_id)
                return {s.node for s in assignment.slots()} == {"sup-new"}

            await eventually(moved, "they run on the other supervisor", timeout_secs=60)
    finally:
        await other.close()


async def test_a_port_in_use_gives_one_clear_message(conf, start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        conf["nimbus.thrift.port"] = taken.getsockname()[1]
        status, err = start(conf).ended()
    assert status == 1
    assert (
        err.splitlines()[0] == f"nimbus: port {conf['nimbus.thrift.port']} on 127.0.0.1 is in use"
    )
    assert "Traceback" not in err


async def test_a_public_listener_needs_authentication(conf, start) -> None:
    conf["storm.bind.host"] = "0.0.0.0"
    status, err = start(conf).ended()
    assert status == 1
    assert "storm.security.insecure" in err
    assert "Traceback" not in err


async def test_without_zookeeper_it_says_so_and_waits_until_it_is_available(
    conf,
    start,
    own_zookeeper,  # noqa: F811
) -> None:
    port = int(own_zookeeper.address.split(":")[1])
    await own_zookeeper.stop()
    conf["storm.zookeeper.port"] = port
    nimbus = start(conf)
    line = await asyncio.wait_for(asyncio.to_thread(nimbus.process.stderr.readline), 90)
    assert line.decode().startswith("nimbus: waiting for ZooKeeper at ")
    await own_zookeeper.start()
    await nimbus.ready()
    nimbus.process.send_signal(signal.SIGINT)
    assert nimbus.ended()[0] == 0


async def test_without_zookeeper_it_can_be_stopped(conf, start) -> None:
    conf["storm.zookeeper.port"] = free_port()
    nimbus = start(conf)
    assert await asyncio.wait_for(asyncio.to_thread(nimbus.process.stderr.readline), 90)
    nimbus.process.terminate()
    assert nimbus.ended()[0] == 0


async def test_it_can_be_stopped_after_zookeeper_has_gone(
    conf,
    start,
    own_zookeeper,  # noqa: F811
) -> None:
    conf["storm.zookeeper.port"] = int(own_zookeeper.address.split(":")[1])
    conf["storm.zookeeper.operation.timeout.ms"] = 500
    nimbus = await start(conf).ready()
    async with client(nimbus):
        pass
    await own_zookeeper.stop()
    nimbus.process.terminate()
    assert nimbus.ended()[0] == 0


async def test_calls_report_that_zookeeper_is_unavailable(conf, start, own_zookeeper) -> None:  # noqa: F811
    conf["storm.zookeeper.port"] = int(own_zookeeper.address.split(":")[1])
    conf["storm.zookeeper.operation.timeout.ms"] = 500
    nimbus = await start(conf).ready()
    async with client(nimbus) as one:
        await own_zookeeper.stop()

        async def refused() -> bool:
            try:
                await one.call("getClusterInfo")
            except ThriftApplicationError as error:
                return "ZooKeeper" in error.message
            except ThriftTransportError as error:
                raise AssertionError("the connection should stand") from error
            return False

        await eventually(refused, "a clear error", timeout_secs=60)
        await own_zookeeper.start()

        async def back() -> bool:
            try:
                return bool((await one.call("getLeader")).isLeader and await upload(one))
            except ThriftApplicationError:
                return False

        await eventually(back, "it leads again", timeout_secs=60)
