"""A supervisor with real processes, on a cluster state in memory."""

import asyncio
import json
import os
import signal
import stat
import threading
import time
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import pytest
from tests.integration.supervisor.standin import CODE, TestNode, package, wait_until
from tests.support.live_files import found

from squall_common.cluster.state import ClusterState
from squall_common.cluster.stores.memory import MemoryStore
from squall_common.cluster.values import UNHEALTHY_KEY, SupervisorInfo
from squall_common.config.for_workers import worker_conf
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_supervisor.launch.worker_process import WorkerProcess
from squall_supervisor.node.kill import kill_workers
from squall_supervisor.records import processes
from squall_supervisor.slots.table import State

pytestmark = pytest.mark.integration

WORDS = "words-1-100"
OTHER = "other-2-200"


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[TestNode]:
    node = TestNode(tmp_path)
    node.blobs.put(WORDS)
    node.blobs.put(OTHER)
    yield node
    await node.close()


async def test_an_assignment_becomes_a_running_worker(node: TestNode) -> None:
    supervisor = await node.start()
    await node.assign(WORDS, {6700: [1, 2]})
    pid = await node.wait_running()
    process = processes.read_stat(pid)
    assert process is not None
    assert process.session == pid
    assert process.session != os.getsid(0)
    worker_id = node.runner().slot.worker_id
    assert worker_id is not None
    worker_dir = supervisor.settings.workers_dir / worker_id
    spec = LaunchSpec.read(worker_dir / "launch.json")
    assert (spec.topology_id, spec.port, spec.supervisor_id) == (WORDS, 6700, "node")
    assert spec.hostname == "127.0.0.1"
    assert spec.daemon_conf == worker_conf(node.conf)
    assert (spec.stormdist / "code" / "app.py").read_bytes() == b"x = 1\n"
    assert (spec.stormdist / "resources" / "run.sh").exists()
    assert (spec.stormdist / "stormcode.ser").read_bytes() == CODE
    assert stat.S_IMODE(worker_dir.stat().st_mode) == 0o700
    assert stat.S_IMODE((worker_dir / "launch.json").stat().st_mode) == 0o600
    assert os.readlink(f"/proc/{pid}/cwd") == str(worker_dir)
    assert os.readlink(f"/proc/{pid}/fd/0") == "/dev/null"
    out = spec.artifacts_dir / "worker.log.out"
    assert os.readlink(f"/proc/{pid}/fd/1") == str(out)
    assert (worker_dir / "artifacts" / "worker.log.err").exists()


async def test_the_nodes_limits_apply_to_workers_and_not_to_the_supervisor(
    tmp_path: Path,
) -> None:
    node = TestNode(
        tmp_path,
        **{"supervisor.worker.limit.open.files": 300, "supervisor.worker.limit.file.mb": 7},
    )
    node.blobs.put(WORDS)
    try:
        await node.start()
        await node.assign(WORDS, {6700: 1})
        pid = await node.wait_running()
        for name, limit in (
            ("Max open files", 300),
            ("Max file size", 7 << 20),
            ("Max core file size", 0),  # unless it is set otherwise
        ):
            assert limits_of(pid)[name] == (str(limit), str(limit))
            assert limits_of(os.getpid())[name] != (str(limit), str(limit))
        # The next one, too, that takes the place of one that died.
        os.kill(pid, signal.SIGKILL)
        await wait_until("another worker runs", lambda: node.living_workers() not in ([], [pid]))
        another = await node.wait_running()
        assert another != pid
        assert limits_of(another)["Max open files"] == ("300", "300")
    finally:
        await node.close()


def limits_of(pid: int) -> dict[str, tuple[str, str]]:
    """The soft and the hard limits of a process, as the kernel has them."""
    found = {}
    for line in Path(f"/proc/{pid}/limits").read_text().splitlines()[1:]:
        soft, hard = line[26:].split()[:2]
        found[line[:26].strip()] = (soft, hard)
    return found


async def test_a_worker_finds_its_topologys_key_in_its_folder(node: TestNode) -> None:
    """And nowhere else; each launch anew, also by a supervisor that has adopted."""
    node.blobs.put(WORDS, {"storm.messaging.curve": "auto"})
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    key = await node.blobs.topology_key(WORDS, "node")

    def key_file() -> Path:
        assert node.supervisor is not None
        worker_id = node.runner().slot.worker_id
        assert worker_id is not None
        return node.supervisor.settings.workers_dir / worker_id / "curve.key"

    first = key_file()
    assert first.read_bytes() == key
    assert stat.S_IMODE(first.stat().st_mode) == 0o600
    holders = {
        path.name
        for folder in (supervisor.settings.local_dir, supervisor.settings.log_dir)
        for path in found(folder)
        if path.is_file() and b"s" * 40 in path.read_bytes()
    }
    assert holders == {"curve.key"}
    await node.stop()
    await node.start()
    assert await node.wait_running() == pid
    assert key_file() == first
    os.kill(pid, signal.SIGKILL)
    await wait_until("another worker runs", lambda: node.living_workers() not in ([], [pid]))
    await node.wait_running()
    assert key_file() != first
    assert key_file().read_bytes() == key
    await wait_until("the old folder is gone", lambda: not first.exists())


async def test_the_environment_is_scrubbed_and_the_topology_adds_its_own(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "hunter2")
    monkeypatch.setenv("LC_TIME", "C")
    node.blobs.put(WORDS, {"topology.environment": {"GREETING": "hello", "PYTHONPATH": "/extra"}})
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    await node.wait_running()
    out = supervisor.settings.artifacts_dir / WORDS / "6700" / "worker.log.out"
    environment = json.loads(out.read_text().partition(" ")[2])
    assert "SECRET_TOKEN" not in environment
    assert environment["LC_TIME"] == "C"
    assert environment["GREETING"] == "hello"
    assert environment["PYTHONPATH"].endswith(":/extra")
    assert environment["SQUALL_WORKER_ID"] == node.runner().slot.worker_id
    assert environment["TMPDIR"].endswith(f"{node.runner().slot.worker_id}/tmp")


async def test_a_killed_worker_is_noticed_and_launched_again_at_once(node: TestNode) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1})
    delays = []
    for _ in range(2):
        pid = await node.wait_running()
        runner = node.runner()
        runner.slot.running_since = time.monotonic() - 60  # as if it had run for a minute
        launches = len(node.launches)
        os.kill(pid, signal.SIGKILL)
        killed = time.monotonic()
        await wait_until("launched again", lambda n=launches: len(node.launches) > n)
        delays.append(node.launches[-1] - killed)
        assert await node.wait_running() != pid
    assert min(delays) < 0.5, delays


async def test_incarnations_rise_with_every_launch(node: TestNode) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1})
    seen = []
    for _ in range(3):
        pid = await node.wait_running()
        seen.append(node.runner().incarnation)
        node.runner().slot.running_since = time.monotonic() - 60
        os.kill(pid, signal.SIGKILL)
        await wait_until("gone", lambda p=pid: processes.identify(p) is None)
        await wait_until(
            "next", lambda p=pid: node.runner().process and node.runner().process.pid != p
        )
    assert all(one is not None for one in seen)
    assert seen == sorted(set(seen))
    assert len({one.assignment_zxid for one in seen if one is not None}) == 1


async def test_a_stopped_worker_is_killed_and_replaced_after_its_timeout(
    node: TestNode,
) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    os.kill(pid, signal.SIGSTOP)
    stopped = time.monotonic()
    await wait_until("the hung worker is gone", lambda: processes.identify(pid) is None)
    assert 0.8 <= time.monotonic() - stopped < 20  # the timeout is 1 s, the default 30 s
    assert await node.wait_running() != pid


async def test_a_worker_that_never_beats_is_killed_after_the_start_timeout(
    tmp_path: Path,
) -> None:
    node = TestNode(tmp_path, **{"supervisor.worker.start.timeout.secs": 1.5})
    node.blobs.put(WORDS)
    node.behave(silent=True)
    try:
        await node.start()
        await node.assign(WORDS, {6700: 1})
        await wait_until("a second launch", lambda: len(node.launches) >= 2)
        assert node.launches[1] - node.launches[0] >= 1.4
    finally:
        await node.close()


async def test_a_crash_loop_backs_off(node: TestNode) -> None:
    node.behave(crash=0)
    await node.start()
    await node.assign(WORDS, {6700: 1})
    await wait_until("three launches", lambda: len(node.launches) >= 3)
    # (How soon the second one comes, says test_slot: here a worker's life counts, too.)
    assert node.launches[2] - node.launches[1] >= 1.0


async def test_a_worker_crash_is_an_error_of_its_topology_and_a_requested_end_is_not(
    node: TestNode,
) -> None:
    node.behave(crash=0)
    await node.start()
    cluster = await node.cluster()
    await cluster.setup_heartbeats(WORDS)
    await node.assign(WORDS, {6700: 1})
    errors: list[str] = []
    for _ in range(6000):
        errors = [e.error for e in await cluster.errors(WORDS, "__system")]
        if errors:
            break
        await asyncio.sleep(0.01)
    text = errors[-1]
    assert "worker 127.0.0.1:6700 ended unexpectedly: exited with status 3 (pid " in text
    assert "peak memory" in text
    assert text.count("about to crash \\x1b[31m") == 1  # its own line, not those before it
    node.behave()
    await node.wait_running()
    before = await cluster.errors(WORDS, "__system")
    assert node.runner().restart()
    await wait_until("it was ended", lambda: node.runner().slot.state is not State.RUNNING)
    await node.wait_running()
    assert await cluster.errors(WORDS, "__system") == before


async def test_removing_a_topology_ends_its_worker_and_leaves_nothing(node: TestNode) -> None:
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    await node.unassign(WORDS)
    await node.wait_empty()
    assert processes.identify(pid) is None
    workers_dir = supervisor.settings.workers_dir
    await wait_until("its folder is gone", lambda: not list(workers_dir.iterdir()))
    stormdist = supervisor.settings.stormdist_dir
    await wait_until("its code is gone", lambda: not list(stormdist.iterdir()))
    temporary = supervisor.settings.temporary_dir
    await wait_until("nothing is left", lambda: not list(temporary.iterdir()))
    assert (supervisor.settings.artifacts_dir / WORDS / "6700" / "worker.log.out").exists()


async def test_logs_of_an_ended_worker_are_deleted_after_the_maximum_age(tmp_path: Path) -> None:
    node = TestNode(
        tmp_path,
        **{"logviewer.cleanup.interval.secs": 0.1, "logviewer.cleanup.age.mins": 0.01},
    )
    node.blobs.put(WORDS)
    node.blobs.put(OTHER)
    try:
        supervisor = await node.start()
        await node.assign(WORDS, {6700: 1})
        await node.assign(OTHER, {6701: 1})
        await node.wait_running(6700)
        await node.wait_running(6701)
        await node.unassign(WORDS)
        artifacts = supervisor.settings.artifacts_dir
        await wait_until("its logs are gone", lambda: os.listdir(artifacts) == [OTHER])
        assert (artifacts / OTHER / "6701" / "worker.log.out").exists()
    finally:
        await node.close()


async def test_a_change_of_executors_restarts_the_worker_and_a_move_of_peers_does_not(
    node: TestNode,
) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1, 6701: [2, 3]})
    first = await node.wait_running(6700)
    second = await node.wait_running(6701)
    await node.assign(WORDS, {6700: 1, 6701: 2})
    await wait_until("6701 restarts", lambda: processes.identify(second) is None)
    assert await node.wait_running(6701) != second
    assert await node.wait_running(6700) == first


async def test_a_stubborn_worker_and_its_children_are_killed(node: TestNode) -> None:
    node.behave(stubborn=True, child=True)
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    pid_dir = supervisor.settings.workers_dir / str(node.runner().slot.worker_id) / "pids"
    children = [int(name) for name in os.listdir(pid_dir)]
    assert len(children) == 1
    asked = time.monotonic()
    await node.unassign(WORDS)
    await node.wait_empty()
    assert time.monotonic() - asked >= 0.9
    await wait_until("the child is gone", lambda: processes.identify(children[0]) is None)
    assert processes.identify(pid) is None


async def test_a_killed_workers_detached_child_is_killed(node: TestNode) -> None:
    """A child with a session of its own is found by its note in pids/ and its environment."""
    node.behave(child="detached")
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    worker_dir = supervisor.settings.workers_dir / str(node.runner().slot.worker_id)
    (child,) = (int(name) for name in os.listdir(worker_dir / "pids"))
    # A number in pids/ that belongs to another process by now: this very process.
    (worker_dir / "pids" / str(os.getpid())).touch()
    (worker_dir / "pids" / "1").touch()
    os.kill(pid, signal.SIGKILL)
    await wait_until("the child is gone", lambda: processes.identify(child) is None)


async def test_a_restarted_supervisor_adopts_its_workers(node: TestNode) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1, 6701: 2})
    pids = [await node.wait_running(6700), await node.wait_running(6701)]
    incarnations = [node.runner(p).incarnation for p in (6700, 6701)]
    await node.stop()
    assert sorted(node.living_workers()) == sorted(pids)
    await node.start()
    assert [await node.wait_running(p) for p in (6700, 6701)] == pids
    assert [node.runner(p).incarnation for p in (6700, 6701)] == incarnations
    assert len(node.launches) == 2
    os.kill(pids[0], signal.SIGKILL)
    await wait_until("the adopted worker's exit is seen", lambda: len(node.launches) == 3)
    assert await node.wait_running(6700) not in pids
    assert node.runner(6700).incarnation > incarnations[0]  # type: ignore[operator]


async def test_a_supervisor_ends_after_it_has_cleaned_up_after_its_workers(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Given up, the process would not be collected, and its pidfd would stay open."""
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    begun, go_on = threading.Event(), threading.Event()
    clean_up = WorkerProcess.clean_up

    def held(process: WorkerProcess) -> None:
        begun.set()
        go_on.wait(60)
        clean_up(process)

    monkeypatch.setattr(WorkerProcess, "clean_up", held)
    node.behave(silent=True)
    os.kill(pid, signal.SIGKILL)
    await wait_until("its exit was seen", begun.is_set)
    stopping = asyncio.create_task(node.stop())
    done, _ = await asyncio.wait({stopping}, timeout=0.5)
    go_on.set()
    await stopping
    assert not done
    state = processes.read_stat(pid)
    assert state is None, "it is a zombie"
    left = [path.name for path in supervisor.settings.workers_dir.iterdir()]
    assert len(left) <= 1, "of the next worker, if it was launched"


async def test_a_supervisor_also_cleans_up_after_a_worker_that_ends_while_it_ends(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1})
    first = await node.wait_running()
    begun = [threading.Event(), threading.Event()]
    go_on = [threading.Event(), threading.Event()]
    held: list[WorkerProcess] = []
    clean_up = WorkerProcess.clean_up

    def hold(process: WorkerProcess) -> None:
        held.append(process)
        at = len(held) - 1
        begun[at].set()
        go_on[at].wait(60)
        clean_up(process)

    monkeypatch.setattr(WorkerProcess, "clean_up", hold)
    os.kill(first, signal.SIGKILL)
    await wait_until("the first exit was seen", begun[0].is_set)
    second = await node.wait_running()
    assert second != first
    stopping = asyncio.create_task(node.stop())
    await wait_until("it closes", lambda: node.runner(6700)._closed)
    os.kill(second, signal.SIGKILL)
    await wait_until("the second exit was seen", begun[1].is_set)
    go_on[0].set()
    done, _ = await asyncio.wait({stopping}, timeout=0.5)
    go_on[1].set()
    await stopping
    assert not done
    assert processes.read_stat(second) is None, "it is a zombie"


async def test_an_adopted_worker_that_hangs_is_replaced(node: TestNode) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    await node.stop()
    os.kill(pid, signal.SIGSTOP)
    await node.start()
    await wait_until("the hung worker is gone", lambda: processes.identify(pid) is None)
    assert await node.wait_running() != pid


async def test_a_topology_that_ended_meanwhile_loses_its_adopted_worker(node: TestNode) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    await node.stop()
    await node.unassign(WORDS)
    await node.start()
    await wait_until("the worker is gone", lambda: processes.identify(pid) is None)
    await node.wait_empty()
    assert len(node.launches) == 1


async def test_a_worker_that_died_meanwhile_is_launched_again(node: TestNode) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    await node.stop()
    os.kill(pid, signal.SIGKILL)
    await wait_until("it is gone", lambda: processes.identify(pid) is None)
    await node.start()
    assert await node.wait_running() != pid
    supervisor = node.supervisor
    assert supervisor is not None
    workers_dir = supervisor.settings.workers_dir
    await wait_until(
        "the folder of the dead one is gone", lambda: len(os.listdir(workers_dir)) == 1
    )


@pytest.mark.parametrize("by_hand", [False, True])
@pytest.mark.parametrize("child", [True, "detached"])
async def test_leftovers_of_a_worker_that_died_meanwhile_are_killed(
    node: TestNode, child: object, by_hand: bool
) -> None:
    """By the next supervisor, or by `storm kill_workers`."""
    node.behave(child=child)
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    pid_dir = supervisor.settings.workers_dir / str(node.runner().slot.worker_id) / "pids"
    (left,) = (int(name) for name in os.listdir(pid_dir))
    await node.stop()
    os.kill(pid, signal.SIGKILL)
    await wait_until("it is gone", lambda: processes.identify(pid) is None)
    assert processes.identify(left) is not None
    node.behave()
    try:
        if by_hand:
            assert await asyncio.to_thread(kill_workers, node.conf) == []
            assert list(supervisor.settings.workers_dir.iterdir()) == []
        else:
            await node.start()
        await wait_until("the child is gone", lambda: processes.identify(left) is None)
    finally:
        if processes.identify(left) is not None:
            os.kill(left, signal.SIGKILL)


class RecordedCgroups:
    """Stands for the cgroups of the kernel: records the calls, in order."""

    version = 2

    def __init__(self) -> None:
        self.asked: list[tuple[str, object]] = []

    def prepare(self) -> None:
        self.asked.clear()

    def sweep(self, keep: Collection[str]) -> list[str]:
        self.asked.append(("sweep but", sorted(keep)))
        return []

    def make(self, worker_id: str, limits: object) -> tuple[Path, ...]:
        self.asked.append(("make", worker_id))
        return ()

    def remove(self, worker_id: str) -> None:
        self.asked.append(("remove", worker_id))

    def oom_kills(self, worker_id: str) -> int:
        return 0

    def limits_memory(self, worker_id: str) -> bool:
        return True


async def test_no_worker_is_started_before_the_cgroups_of_old_ones_are_swept(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the sweep would end a worker that has just been started, as an unknown one."""
    cgroups = RecordedCgroups()
    monkeypatch.setattr("squall_supervisor.composition.cgroups_of", lambda *_, **__: cgroups)
    await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    dead = node.runner().slot.worker_id
    await node.stop()
    os.kill(pid, signal.SIGKILL)
    await wait_until("it is gone", lambda: processes.identify(pid) is None)
    await node.start()
    await node.wait_running()
    new = node.runner().slot.worker_id
    assert cgroups.asked == [("sweep but", [dead]), ("remove", dead), ("make", new)]


async def test_a_recycled_pid_is_never_signalled(node: TestNode) -> None:
    """The record names a pid that belongs to another process by now."""
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    worker_dir = supervisor.settings.workers_dir / str(node.runner().slot.worker_id)
    await node.stop()
    os.kill(pid, signal.SIGKILL)
    await wait_until("it is gone", lambda: processes.identify(pid) is None)
    stranger = await asyncio.create_subprocess_exec("sleep", "60", start_new_session=True)
    record = json.loads((worker_dir / "worker.json").read_text())
    record["process"][0] = stranger.pid
    (worker_dir / "worker.json").write_text(json.dumps(record))
    try:
        await node.start()
        await node.wait_running()
        await node.unassign(WORDS)
        await node.wait_empty()
        assert processes.identify(stranger.pid) is not None
    finally:
        stranger.kill()
        await stranger.wait()


async def test_a_worker_whose_supervisor_died_before_noting_its_pid_is_adopted(
    node: TestNode,
) -> None:
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    record_file = (
        supervisor.settings.workers_dir / str(node.runner().slot.worker_id) / "worker.json"
    )
    await node.stop()
    record = json.loads(record_file.read_text())
    record["process"] = None
    record_file.write_text(json.dumps(record))
    await node.start()
    assert await node.wait_running() == pid
    assert json.loads(record_file.read_text())["process"][0] == pid


async def test_a_worker_with_a_spoiled_record_is_ended_and_replaced(node: TestNode) -> None:
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    worker_dir = supervisor.settings.workers_dir / str(node.runner().slot.worker_id)
    await node.stop()
    (worker_dir / "worker.json").write_bytes(b"\0" * 100)
    await node.start()
    await wait_until("the old worker is gone", lambda: processes.identify(pid) is None)
    assert await node.wait_running() != pid
    await wait_until("its folder is gone", lambda: not worker_dir.exists())


@pytest.mark.parametrize("spoil", [b"", b"{}", b"\0" * 200])
async def test_a_spoiled_local_state_disturbs_no_worker(node: TestNode, spoil: bytes) -> None:
    del node.conf["storm.id"]
    node.conf["storm.id"] = None
    supervisor = await node.start()
    node.conf["storm.id"] = supervisor.id
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    before = node.runner().incarnation
    assert before is not None
    await node.stop()
    node.conf["storm.id"] = None
    state_file = supervisor.settings.state_file
    state_file.write_bytes(spoil)
    again = await node.start()
    assert again.id == supervisor.id
    assert await node.wait_running() == pid
    aside = state_file.with_name("localstate.unreadable-1")
    assert aside.read_bytes() == spoil
    os.kill(pid, signal.SIGKILL)
    await wait_until("launched again", lambda: len(node.launches) == 2)
    await node.wait_running()
    assert node.runner().incarnation > before  # type: ignore[operator]


async def test_the_supervisors_id_stays(node: TestNode) -> None:
    node.conf["storm.id"] = None
    first = (await node.start()).id
    await node.stop()
    assert (await node.start()).id == first


async def test_a_zookeeper_outage_stops_nothing_and_dead_workers_are_relaunched(
    node: TestNode,
) -> None:
    store = MemoryStore(node.ensemble)
    supervisor = await node.start(store=store)
    await node.assign(WORDS, {6700: 1, 6701: 2})
    first, second = await node.wait_running(6700), await node.wait_running(6701)
    node.ensemble.suspend(store)
    supervisor._sync.request()
    os.kill(second, signal.SIGKILL)
    await wait_until("it was launched again", lambda: len(node.launches) == 3)
    assert await node.wait_running(6701) != second
    assert await node.wait_running(6700) == first
    node.ensemble.resume(store)
    await node.unassign(WORDS)
    await node.wait_empty(6700)
    await node.wait_empty(6701)


async def test_a_lost_session_is_followed_by_a_new_registration(node: TestNode) -> None:
    store = MemoryStore(node.ensemble)
    supervisor = await node.start(store=store)
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    cluster = await node.cluster()
    assert set(await cluster.supervisors()) == {"node"}
    node.ensemble.expire(store)

    async def registered() -> bool:
        return "node" in await cluster.supervisors()

    for _ in range(6000):
        if await registered():
            break
        await asyncio.sleep(0.01)
    info = (await cluster.supervisors())["node"]
    assert info.meta == (6700, 6701)
    assert info.used_ports == (6700,)
    assert info.server_port == supervisor.port
    assert await node.wait_running() == pid


async def test_a_start_without_zookeeper_uses_the_last_known_assignments(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    from squall_supervisor import supervisor as module

    monkeypatch.setattr(module, "_WITHOUT_ZOOKEEPER_SECS", 0.2)
    await node.start()
    await node.assign(WORDS, {6700: 1, 6701: 2})
    first, second = await node.wait_running(6700), await node.wait_running(6701)
    await node.stop()
    os.kill(second, signal.SIGKILL)
    await wait_until("it is gone", lambda: processes.identify(second) is None)
    node.ensemble.running = False
    await node.start(ready=False)
    assert await node.wait_running(6700) == first
    await node.wait_running(6701)


async def test_an_unreadable_assignment_does_not_stop_a_worker(node: TestNode) -> None:
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    cluster = await node.cluster()
    await cluster.store.set(f"/assignments/{WORDS}", b"\xff not thrift")
    await wait_until(
        "it was read", lambda: any("cannot be read" in p for p in supervisor._problems)
    )
    assert await node.wait_running() == pid
    await node.assign(WORDS, {6700: 1})
    await wait_until("it was read", lambda: not supervisor._problems)
    assert await node.wait_running() == pid


async def test_a_failed_download_is_tried_again(node: TestNode) -> None:
    node.blobs.error = "no leader"
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    await wait_until("two tries", lambda: node.blobs.fetches >= 2)
    assert list(supervisor.settings.stormdist_dir.iterdir()) == []
    node.blobs.error = None
    await node.wait_running()


async def test_a_bad_package_is_reported_where_errors_are_shown(node: TestNode) -> None:
    node.blobs.put(WORDS, jar=package({"../evil": b"x"}))
    supervisor = await node.start()
    cluster = await node.cluster()
    await cluster.setup_heartbeats(WORDS)
    await node.assign(WORDS, {6700: 1})
    errors: list[str] = []
    for _ in range(6000):
        errors = [e.error for e in await cluster.errors(WORDS, "__system")]
        if errors:
            break
        await asyncio.sleep(0.01)
    assert "'../evil' leads out of the archive" in errors[0]
    assert list(supervisor.settings.stormdist_dir.iterdir()) == []
    await wait_until("retries", lambda: node.runner().slot.localize_failures >= 3)
    assert node.blobs.fetches == 1  # not fetched again so soon
    await node.unassign(WORDS)
    await node.wait_empty()


async def test_two_slots_of_a_topology_share_one_download(node: TestNode) -> None:
    await node.start()
    await node.assign(WORDS, {6700: 1, 6701: 2})
    await node.wait_running(6700)
    await node.wait_running(6701)
    assert node.blobs.fetches == 1


async def test_a_changed_configuration_restarts_the_workers_with_it(tmp_path: Path) -> None:
    node = TestNode(tmp_path, **{"supervisor.localizer.update.blob.interval.secs": 0.1})
    node.blobs.put(WORDS, {"a": 1})
    try:
        supervisor = await node.start()
        await node.assign(WORDS, {6700: 1, 6701: 2})
        pids = {await node.wait_running(6700), await node.wait_running(6701)}
        node.blobs.put(WORDS, {"a": 2}, version=2)
        await wait_until(
            "both restart", lambda: len(node.launches) == 4 and node.runner(6700).process
        )
        assert not pids & {await node.wait_running(6700), await node.wait_running(6701)}
        conf = supervisor.settings.stormdist_dir / WORDS / "stormconf.ser"
        assert json.loads(conf.read_bytes()) == {"a": 2}
    finally:
        await node.close()


async def test_a_full_disk_gives_errors_and_heals(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No launch file can be written; when there is room again the worker starts."""
    full = True
    write = LaunchSpec.write

    def write_or_fail(spec: LaunchSpec, path: Path) -> None:
        if full:
            raise OSError(28, "No space left on device", str(path))
        write(spec, path)

    monkeypatch.setattr(LaunchSpec, "write", write_or_fail)
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    await wait_until("it backs off", lambda: node.runner().slot.state is State.KILL_AND_RELAUNCH)
    workers_dir = supervisor.settings.workers_dir
    await wait_until("no folder is left", lambda: not os.listdir(workers_dir))
    full = False
    await node.wait_running()


async def test_two_supervisors_share_a_machine(tmp_path: Path) -> None:
    one = TestNode(tmp_path, "one")
    two = TestNode(tmp_path, "two", **{"supervisor.slots.ports": [6710]})
    two.ensemble = one.ensemble
    for node in (one, two):
        node.blobs.put(WORDS)
    try:
        await one.start()
        await two.start()
        await one.assign(WORDS, {6700: 1})
        await two.assign(OTHER, {6710: 1})
        two.blobs.put(OTHER)
        await one.wait_running(6700)
        await two.wait_running(6710)
        cluster: ClusterState = await one.cluster()
        infos = await cluster.supervisors()
        assert {i: info.meta for i, info in infos.items()} == {"one": (6700, 6701), "two": (6710,)}
    finally:
        await one.close()
        await two.close()


async def test_a_node_that_is_unhealthy_at_its_start_never_offers_a_port(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    offered = []
    register = ClusterState.register_supervisor

    async def registered(state: ClusterState, supervisor_id: str, info: SupervisorInfo) -> None:
        offered.append((info.meta, info.scheduler_meta.get(UNHEALTHY_KEY)))
        await register(state, supervisor_id, info)

    monkeypatch.setattr(ClusterState, "register_supervisor", registered)
    check = node.dir / "local" / "healthchecks" / "disk"
    check.parent.mkdir(parents=True)
    check.write_text("#!/bin/sh\nsleep 0.5; echo ERROR full\n")
    check.chmod(0o755)
    await node.start()
    await wait_until("two registrations", lambda: len(offered) > 1)
    assert set(offered) == {((), "disk: ERROR full")}


async def test_a_crash_in_the_middle_of_a_download_leaves_nothing_that_looks_whole(
    node: TestNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every step up to the rename the folder has no name under stormdist."""
    from squall_supervisor.blobs import localizer as module

    supervisor = await node.start()
    seen: list[list[str]] = []
    stormdist = supervisor.settings.stormdist_dir

    def watched(path: Path) -> None:
        seen.append(os.listdir(stormdist))
        if len(seen) == 3:
            raise OSError(5, "Input/output error")

    monkeypatch.setattr(module, "_sync_file", watched)
    await node.assign(WORDS, {6700: 1})
    await wait_until("the disk failed", lambda: node.runner().slot.localize_failures == 1)
    assert seen == [[], [], []]
    assert os.listdir(stormdist) == []
    await wait_until("no rest", lambda: os.listdir(supervisor.settings.temporary_dir) == [])
    await node.wait_running()
    # What a killed supervisor leaves in tmp goes at the next start.
    await node.stop()
    half = supervisor.settings.temporary_dir / "half"
    half.mkdir()
    (half / "stormcode.ser").write_bytes(b"")
    await node.start()
    await wait_until("what was left is gone", lambda: not half.exists())
    assert os.listdir(stormdist) == [WORDS]


async def test_a_topology_that_lost_files_is_fetched_again_before_a_launch(node: TestNode) -> None:
    supervisor = await node.start()
    await node.assign(WORDS, {6700: 1})
    pid = await node.wait_running()
    (supervisor.settings.stormdist_dir / WORDS / "stormcode.ser").unlink()
    os.kill(pid, signal.SIGKILL)
    await wait_until("fetched again", lambda: node.blobs.fetches == 2)
    assert await node.wait_running() != pid
