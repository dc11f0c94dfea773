"""Several real Nimbus processes over a real ZooKeeper: killed, paused, and continued."""

import asyncio
import json
import re
import signal
import struct
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.integration.nimbus.test_nimbus_process import (  # noqa: F401
    NimbusProcess,
    client,
    conf,
    register,
    start,
    state,
    upload,
)
from tests.support.dying_nimbus import KILL_STEPS, REBALANCE_STEPS, STEPS
from tests.support.nimbus_service import eventually, topology
from tests.support.zookeeper import fresh_root, own_zookeeper, zookeeper  # noqa: F401

from squall_common.client.nimbus import NimbusClient
from squall_common.cluster.state import ClusterState
from squall_common.cluster.values import TopologyStatus
from squall_common.config.options.typed import ClientOptions, NimbusOptions
from squall_common.errors import NimbusError
from squall_nimbus.store.topology_store import topology_blob_keys
from squall_thrift import storm
from squall_thrift.client import ThriftClient, ThriftTransportError
from squall_thrift.protocol.messages import ThriftApplicationError

pytestmark = pytest.mark.integration

SESSION_SECS = 2.0  # as `conf` has it


class Nimbuses:
    """Nimbus processes, each with its own disk; clients have all of them as seeds."""

    def __init__(self, conf: dict[str, Any], start: Any, folder: Path) -> None:  # noqa: F811
        self._conf, self._start, self._folder = conf, start, folder
        self.started: list[NimbusProcess] = []

    async def add(self, die: str | None = None) -> NimbusProcess:
        local = self._folder / f"nimbus-{len(self.started)}"
        own = {**self._conf, "storm.local.dir": str(local), "storm.log.dir": str(local / "logs")}
        own["nimbus.topology.blobstore.deletion.delay.ms"] = 500
        one = await self._start(own, die).ready()
        self.started.append(one)
        return one

    @asynccontextmanager
    async def connect(self, timeout_secs: float = 60.0) -> AsyncIterator[NimbusClient]:
        """Return the leader, as every client finds it, however long that takes."""
        seeds = [f"127.0.0.1:{one.port}" for one in self.started]
        conf = {**self._conf, "nimbus.seeds": seeds, "storm.nimbus.retry.times": 0}  # noqa: F811

        async def found() -> NimbusClient | None:
            try:
                return await NimbusClient.connect(ClientOptions.read(conf))
            except NimbusError:
                return None

        one = await eventually(found, "a leader is found", timeout_secs)
        async with one:
            yield one

    async def call(self, method: str, *args: Any) -> Any:
        """Make a call; repeat it while the leader changes."""
        result: list[Any] = []

        async def done() -> bool:
            try:
                async with self.connect() as one:
                    result.append(await one.call(method, *args))
            except (NimbusError, ThriftApplicationError):
                return False
            return True

        await eventually(done, method, 60.0)
        return result[0]

    async def submit(self, name: str, conf: dict[str, Any] | None = None) -> None:  # noqa: F811
        """Upload and submit; start again if the leader goes away."""

        async def done() -> bool:
            try:
                async with self.connect() as one:
                    handle = await upload(one)  # type: ignore[arg-type]
                    await one.call(
                        "submitTopology", name, handle, json.dumps(conf or {}), topology()
                    )
            except (NimbusError, ThriftApplicationError):
                return False
            except storm.AlreadyAliveException:
                pass
            return True

        await eventually(done, f"{name} is accepted", 60.0)


@pytest.fixture
def nimbuses(conf, start, tmp_path: Path) -> Nimbuses:  # noqa: F811
    return Nimbuses(conf, start, tmp_path)


async def runs(state: ClusterState, name: str) -> bool:  # noqa: F811
    for base_id, base in (await state.storm_bases()).items():
        if base.name == name:
            assigned = await state.assignment(base_id)
            return base.status is TopologyStatus.ACTIVE and assigned is not None
    return False


async def test_a_submit_is_accepted_soon_after_the_leader_was_killed(
    nimbuses,
    state,  # noqa: F811
) -> None:
    """Within the session timeout + 3 s. That figure is printed; a busy machine may take longer
    without a fault of ours."""
    await register(state)
    first = await nimbuses.add()
    second, third = await nimbuses.add(), await nimbuses.add()
    await nimbuses.submit("before")
    (topology_id,) = await state.topology_ids()
    placed = await state.assignment(topology_id)

    async def everywhere() -> bool:
        return len(await state.blob_holders(topology_blob_keys(topology_id)[0])) == 3

    await eventually(everywhere, "all three have the code")
    first.kill()
    killed = time.monotonic()
    await nimbuses.submit("after")
    took = time.monotonic() - killed
    print(json.dumps({"submit_after_leader_sigkill_secs": round(took, 2), "session": SESSION_SECS}))
    assert took < SESSION_SECS + 30
    assert await state.assignment(topology_id) == placed  # nothing was moved
    # And once more: the last one also has the code.
    leader = await nimbuses.call("getLeader")
    (one,) = [n for n in (second, third) if n.port == leader.port]
    one.kill()
    await nimbuses.submit("last")
    page = await nimbuses.call("getTopologyPageInfo", topology_id, ":all-time", False)
    assert set(page.id_to_bolt_agg_stats) == {"count"}
    assert await state.assignment(topology_id) == placed


async def test_pending_kills_and_rebalances_survive_the_leader(
    nimbuses,
    state,  # noqa: F811
) -> None:
    """STORM-3516."""
    await register(state)
    first = await nimbuses.add()
    await nimbuses.add()
    await nimbuses.submit("killed")
    await nimbuses.submit("rebalanced")
    wide = storm.RebalanceOptions(
        wait_secs=3, num_workers=2, topology_conf_overrides='{"topology.message.timeout.secs": 7}'
    )
    await nimbuses.call("rebalance", "rebalanced", wide)
    await nimbuses.call("killTopologyWithOpts", "killed", storm.KillOptions(wait_secs=3))
    first.kill()

    async def done() -> bool:
        bases = await state.storm_bases()
        if [base.name for base in bases.values()] != ["rebalanced"]:
            return False
        ((topology_id, base),) = bases.items()
        assigned = await state.assignment(topology_id)
        return (
            base.status is TopologyStatus.ACTIVE
            and base.num_workers == 2
            and assigned is not None
            and len(assigned[0].slots()) == 2
        )

    await eventually(done, "one is gone, the other is spread anew", 60.0)
    (topology_id,) = await state.topology_ids()
    stored = json.loads(await nimbuses.call("getTopologyConf", topology_id))
    assert stored["topology.message.timeout.secs"] == 7


async def test_a_leader_killed_at_any_step_of_a_submit_leaves_a_whole_topology_or_none(
    conf,  # noqa: F811
    start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Two clusters at once, half the steps each: most of the time is sessions that end."""
    half = len(STEPS) // 2
    first, second = await asyncio.gather(
        *(
            _killed_at(
                {**conf, "storm.zookeeper.root": fresh_root()}, start, tmp_path / str(number), steps
            )
            for number, steps in enumerate((STEPS[:half], STEPS[half:]))
        )
    )
    outcomes = first | second
    print(json.dumps(outcomes))
    assert set(outcomes) == set(STEPS)
    assert not outcomes[STEPS[0]]
    assert outcomes[STEPS[-1]]


async def _killed_at(
    conf: dict[str, Any],  # noqa: F811
    start: Any,  # noqa: F811
    folder: Path,
    steps: Sequence[str],
) -> dict[str, bool]:
    """Kill one leader after the other at its step of a submit; return which of them left a running
    topology."""
    folder.mkdir()
    nimbuses = Nimbuses(conf, start, folder)
    state = ClusterState.of(NimbusOptions.read(conf))  # noqa: F811
    await state.start()
    try:
        return await _outcomes(nimbuses, state, steps)
    finally:
        await state.close()


async def _outcomes(
    nimbuses: Nimbuses,
    state: ClusterState,  # noqa: F811
    steps: Sequence[str],
) -> dict[str, bool]:
    await register(state)
    outcomes: dict[str, bool] = {}
    leader = await nimbuses.add(steps[0])
    for number, step in enumerate(steps):
        async with client(leader):  # it leads
            pass
        standby = await nimbuses.add(steps[number + 1] if number + 1 < len(steps) else None)
        name = f"t{number}"
        async with ThriftClient(storm.Nimbus, "127.0.0.1", leader.port) as one:
            handle = await upload(one)
            with pytest.raises(ThriftTransportError):
                await one.call("submitTopology", name, handle, "{}", topology())
        assert leader.ended()[0] == -signal.SIGKILL, step

        async def whole(name: str = name) -> bool:
            bases = await state.storm_bases()
            keys = {key for i in bases for key in topology_blob_keys(i)}
            return (
                await state.topologies_with_state() == set(bases)
                and set(await state.blob_keys()) == keys
                and all([await runs(state, base.name) for base in bases.values()])
            )

        await eventually(whole, f"whole or gone, killed at {step}", 60.0)
        outcomes[step] = await runs(state, name)
        if outcomes[step]:  # its code is on the disk of the remaining one
            await nimbuses.call("killTopologyWithOpts", name, storm.KillOptions(wait_secs=0))
        leader = standby
    await nimbuses.submit("afterwards")
    return outcomes


async def dies(leader: NimbusProcess, step: str, method: str, *args: Any) -> None:
    """Ask the leader for something, during which it dies."""
    async with client(leader) as one:
        with pytest.raises(ThriftTransportError):
            await one.call(method, *args)
    assert leader.ended()[0] == -signal.SIGKILL, step


async def test_a_kill_is_finished_by_the_next_leader_if_one_dies_at_any_step(
    nimbuses,
    state,  # noqa: F811
) -> None:
    await register(state)
    leader = await nimbuses.add(KILL_STEPS[0])
    for number, step in enumerate(KILL_STEPS):
        async with client(leader):  # it leads
            pass
        standby = await nimbuses.add(
            KILL_STEPS[number + 1] if number + 1 < len(KILL_STEPS) else None
        )
        if not await runs(state, "t"):
            await nimbuses.submit("t")
        await dies(leader, step, "killTopologyWithOpts", "t", storm.KillOptions(wait_secs=0))
        leader = standby
        if step == KILL_STEPS[0]:  # nothing was written yet
            async with nimbuses.connect():
                assert await runs(state, "t")
            continue

        async def gone() -> bool:
            return not (
                await state.topology_ids()
                or await state.blob_keys()
                or await state.topologies_with_state()
            )

        await eventually(gone, f"gone with all that it had, killed at {step}", 60.0)
    await nimbuses.submit("afterwards")


async def test_a_rebalance_is_finished_by_the_next_leader_if_one_dies_at_any_step(
    nimbuses,
    state,  # noqa: F811
) -> None:
    """A call that broke took effect wholly or not at all: workers, assignment and configuration
    agree."""
    await register(state)
    leader = await nimbuses.add(REBALANCE_STEPS[0])
    await nimbuses.submit("t")
    (topology_id,) = await state.topology_ids()
    outcomes = {}
    for number, step in enumerate(REBALANCE_STEPS):
        async with client(leader):  # it leads
            pass
        standby = await nimbuses.add(
            REBALANCE_STEPS[number + 1] if number + 1 < len(REBALANCE_STEPS) else None
        )

        async def copied(port: int = standby.port) -> bool:
            held = [await state.blob_holders(key) for key in topology_blob_keys(topology_id)]
            return all(port in [one.port for one in holders] for holders in held)

        await eventually(copied, "the next one has the code", 60.0)
        workers = 1 + (number + 1) % 2
        options = storm.RebalanceOptions(
            wait_secs=0,
            num_workers=workers,
            topology_conf_overrides=json.dumps({"topology.message.timeout.secs": 100 + number}),
        )
        await dies(leader, step, "rebalance", "t", options)

        async def agree(workers: int = workers, number: int = number, step: str = step) -> bool:
            base, assigned = (
                await state.storm_base(topology_id),
                await state.assignment(topology_id),
            )
            if base is None or assigned is None or base.status is not TopologyStatus.ACTIVE:
                return False
            conf = json.loads(await nimbuses.call("getTopologyConf", topology_id))  # noqa: F811
            outcomes[step] = done = base.num_workers == workers
            return len(assigned[0].slots()) == (base.num_workers or 1) and (
                (conf["topology.message.timeout.secs"] == 100 + number) is done
            )

        await eventually(agree, f"all of it or nothing, killed at {step}", 60.0)
        leader = standby
    print(json.dumps(outcomes))
    assert not outcomes[REBALANCE_STEPS[0]]
    assert all(outcomes[step] for step in REBALANCE_STEPS[1:])


# Kinds of transactions that change no node (ZooDefs.OpCode).
_CREATE_SESSION, _CLOSE_SESSION, _ERROR = -10, -11, -1
_MULTI = 14  # of error codes only, without any path, when it was refused


def transactions(data_dir: Path) -> list[tuple[int, int, int, bytes]]:
    """All changes that a ZooKeeper ever made, from its log: session, zxid, kind, the rest.

    A file is a header of 16 bytes, then each transaction as checksum (8 bytes), length (4), that
    many bytes (session 8, cxid 4, zxid 8, time 8, kind 4, ...) and a "B"; zeros follow the last
    (FileTxnLog).
    """
    found = []
    for log in sorted(data_dir.rglob("log.*")):
        data = log.read_bytes()
        assert data[:4] == b"ZKLG"
        at = 16
        while at + 12 <= len(data) and (size := int.from_bytes(data[at + 8 : at + 12], "big")):
            body = data[at + 12 : at + 12 + size]
            session, _, zxid, _, kind = struct.unpack_from(">qiqqi", body)
            found.append((session, zxid, kind, body[32:]))
            at += 12 + size + 1
    return found


async def test_a_leader_that_was_paused_and_continues_writes_nothing(
    conf,  # noqa: F811
    own_zookeeper,  # noqa: F811
    start,  # noqa: F811
    tmp_path: Path,
) -> None:
    """Checks every transaction that ZooKeeper logged after the second one's term began: the first
    one's sessions wrote only their own ephemeral nodes."""
    conf["storm.zookeeper.port"] = int(own_zookeeper.address.split(":")[1])
    conf["nimbus.monitor.freq.secs"] = 0.2
    nimbuses = Nimbuses(conf, start, tmp_path)
    cluster = ClusterState.of(NimbusOptions.read(conf))
    await cluster.start()
    try:
        await register(cluster)
        first = await nimbuses.add()
        second = await nimbuses.add()
        await nimbuses.submit("stays")
        await nimbuses.submit("goes")
        # Timers that are due while it is paused, and fire at once when it continues.
        await nimbuses.call("killTopologyWithOpts", "goes", storm.KillOptions(wait_secs=1))
        await nimbuses.call(
            "rebalance", "stays", storm.RebalanceOptions(wait_secs=1, num_workers=2)
        )
        old_session = await session_of(cluster, first)
        _, epoch_before = await cluster.store.get("/leader-epoch")
        first.process.send_signal(signal.SIGSTOP)
        nimbuses.started.remove(first)
        try:
            async with nimbuses.connect() as one:  # the second leads now
                assert one.port == second.port

            async def begun() -> bool:
                _, epoch = await cluster.store.get("/leader-epoch")
                return epoch.mzxid > epoch_before.mzxid

            await eventually(begun, "the second one's term begins", 60.0)
            _, epoch = await cluster.store.get("/leader-epoch")
            async with ThriftClient(storm.Nimbus, "127.0.0.1", first.port) as held:
                asked = asyncio.gather(  # waits in its socket until it goes on
                    held.call("deactivate", "stays"), held.call("beginFileUpload"),
                    return_exceptions=True,
                )  # fmt: skip
                await asyncio.sleep(0)
                first.process.send_signal(signal.SIGCONT)
                answers = await asyncio.wait_for(asked, 30)
        finally:
            first.process.send_signal(signal.SIGCONT)
        assert all(isinstance(answer, ThriftApplicationError) for answer in answers), answers

        async def back() -> bool:
            return await session_of(cluster, first) not in {None, old_session}

        await eventually(back, "it has a session again", 60.0)
        new_session = await session_of(cluster, first)

        async def settled() -> bool:
            bases = await cluster.storm_bases()
            return [(s.name, s.status) for s in bases.values()] == [
                ("stays", TopologyStatus.ACTIVE)
            ]

        await eventually(settled, "the second one carries out what was pending", 60.0)
        root = conf["storm.zookeeper.root"]
    finally:
        await cluster.close()
    for one in (first, second):
        one.close()
    await own_zookeeper.stop()
    logged = transactions(own_zookeeper.data_dir)
    later = [one for one in logged if one[1] > epoch.mzxid]
    assert {session for session, *_ in logged} >= {old_session, new_session}
    of_first = [one for one in later if one[0] in {old_session, new_session}]
    own = (b"/nimbuses/", b"/leader-lock/", b"/blobstore/")
    for _, zxid, kind, what in of_first:
        if kind in {_CREATE_SESSION, _CLOSE_SESSION, _ERROR}:
            continue
        touched = re.findall(re.escape(root.encode()) + rb"(/[^\x00-\x1f]*)", what)
        assert touched or kind == _MULTI, (hex(zxid), kind, what)
        for path in touched:
            assert path.startswith(own), (hex(zxid), kind, what)
            assert not path.startswith(own[2]) or path.count(b"/") == 3, (hex(zxid), kind, what)
    assert {session for session, *_ in later} - {old_session, new_session}  # the second one wrote


async def session_of(state: ClusterState, nimbus: NimbusProcess) -> int | None:  # noqa: F811
    stat = await state.store.exists(f"/nimbuses/127.0.0.1:{nimbus.port}")
    return None if stat is None else stat.ephemeral_owner
