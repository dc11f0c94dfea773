"""Submit, kill, activate, rebalance: the whole of Nimbus over a state in memory."""

import asyncio
import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from tests.support.archives import TOOLS, Entry, zip_bytes
from tests.support.nimbus_service import LocalNimbus, eventually, topology

from squall import Bolt, Spout, TopologyBuilder
from squall_common.cluster.values import TopologyStatus, WorkerDrained, WorkerHeartbeat
from squall_common.topology.model import WorkerSlot
from squall_common.topology.thrift import to_thrift
from squall_nimbus.blobs.store import BlobNotFoundError
from squall_nimbus.topologies import submit
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_thrift.serving.authorization import Call


@pytest.fixture
async def nimbus(tmp_path: Path):
    async with LocalNimbus(tmp_path) as nimbus:
        await nimbus.leads()
        supervisor = await nimbus.supervisor("sup-a", host="host-a")
        yield nimbus
        await supervisor.close()


async def base(nimbus: LocalNimbus, topology_id: str):
    return await nimbus.state.storm_base(topology_id)


async def test_a_submitted_topology_is_assigned_and_active_when_the_call_returns(nimbus) -> None:
    topology_id = await nimbus.submit(conf={"topology.workers": 2})
    stored = await base(nimbus, topology_id)
    assert stored.status is TopologyStatus.ACTIVE
    assert stored.prev_status is None
    assignment, _ = await nimbus.state.assignment(topology_id)
    assert set(assignment.slots()) == {WorkerSlot("sup-a", 6700), WorkerSlot("sup-a", 6701)}
    assert assignment.node_host == {"sup-a": "host-a"}
    # 2 ackers (one a worker), 1 words, 2 count
    assert [e.task_start for e in sorted(assignment.executor_slot)] == [1, 2, 3, 4, 5]
    assert set(assignment.executor_start_time_secs) == set(assignment.executor_slot)


async def test_code_and_conf_lie_in_blobs_and_in_stormdist(nimbus, tmp_path) -> None:
    topology_id = await nimbus.submit(conf={"my.own": [1, None, {"a": "b"}]})
    folder = tmp_path / "nimbus" / "stormdist" / topology_id
    for name in ("stormjar.jar", "stormcode.ser", "stormconf.ser"):
        session = await nimbus.call("beginBlobDownload", f"{topology_id}-{name}")
        data = b""
        while chunk := await nimbus.call("downloadBlobChunk", session.session):
            data += chunk
        assert data == (folder / name).read_bytes()
        assert len(data) == session.data_size
    assert json.loads((folder / "stormconf.ser").read_bytes())["my.own"] == [1, None, {"a": "b"}]


async def test_a_topology_can_be_submitted_inactive(nimbus) -> None:
    options = storm.SubmitOptions(
        initial_status=storm.TopologyInitialStatus.INACTIVE,
        creds=storm.Credentials(creds={"user": "secret"}),
    )
    topology_id = await nimbus.submit(options=options)
    assert (await base(nimbus, topology_id)).status is TopologyStatus.INACTIVE
    assert nimbus.nimbus.credentials.read(topology_id).values == {"user": "secret"}
    assert await nimbus.state.credentials(topology_id) is None
    await nimbus.call("activate", "wordcount")
    assert (await base(nimbus, topology_id)).status is TopologyStatus.ACTIVE
    await nimbus.call("deactivate", "wordcount")
    assert (await base(nimbus, topology_id)).status is TopologyStatus.INACTIVE


async def test_of_two_submits_of_one_name_at_once_one_is_refused(nimbus) -> None:
    handle = await nimbus.upload()
    results = await asyncio.gather(
        *(nimbus.submit("twice", handle=handle) for _ in range(3)), return_exceptions=True
    )
    refused = [r for r in results if isinstance(r, storm.AlreadyAliveException)]
    assert len(refused) == 2
    assert refused[0].msg == "twice already exists on cluster"
    assert len(await nimbus.state.topology_ids()) == 1


async def test_a_topology_without_slots_starts_when_slots_come(tmp_path) -> None:
    async with LocalNimbus(tmp_path) as nimbus:
        await nimbus.leads()
        topology_id = await nimbus.submit()
        assert (await base(nimbus, topology_id)).status is TopologyStatus.ACTIVE
        assert not (await nimbus.state.assignment(topology_id))[0].executor_slot
        supervisor = await nimbus.supervisor("sup-b")

        async def assigned() -> bool:
            return bool((await nimbus.state.assignment(topology_id))[0].executor_slot)

        await eventually(assigned, "a supervisor that came is used without waiting for a timer")
        await supervisor.close()


@pytest.mark.parametrize(
    ("name", "location", "conf", "says"),
    [
        ("no/slash", None, "{}", "may not contain '/'"),
        ("", None, "{}", "may not be empty"),
        ("wc", "/etc/passwd", "{}", "upload '/etc/passwd' was not found"),
        ("wc", "stormjar-../../x.jar", "{}", "was not found, or is not finished"),
        ("wc", "", "{}", "was not found, or is not finished"),
        ("wc", None, "[1]", "is not a JSON object"),
        ("wc", None, "{", "is not JSON"),
        (
            "wc",
            None,
            '{"my.text": ["a\\ud800b"]}',
            "half a surrogate pair (U+D800) in 'my.text'",
        ),
        ("wc", None, '{"my\\udfff": 1}', "half a surrogate pair (U+DFFF)"),
        ("w\u202ec", None, "{}", "U+202E"),
        ("w\x7fc", None, "{}", "U+007F"),
        ("wc", None, "[" * 200_000, "is not JSON"),
        ("wc", None, '{"topology.workers": "many"}', "topology.workers is 'many'"),
        ("wc", None, '{"topology.workers": 2147483648}', "expected a whole number from 1 to 65536"),
        ("wc", None, '{"topology.workers": 1e308}', "expected a whole number from 1 to 65536"),
        ("wc", None, '{"topology.workers": NaN}', "expected a whole number from 1 to 65536"),
        ("wc", None, '{"topology.workers": 1' + 4_000 * "0" + "}", "topology.workers is 1000"),
        ("wc", None, '{"topology.acker.executors": 65534}', "and 65534 of the system"),
        ("wc", None, '{"topology.eventlogger.executors": 65534}', "and 65535 of the system"),
        # One acker for each worker: they count as well.
        ("wc", None, '{"topology.workers": 65536}', "and 65536 of the system"),
        ("wc", None, '{"topology.workers": 60000}', "this cluster allows 11000"),
        (
            "wc",
            None,
            '{"topology.blobstore.map": {"words": {}}}',
            "blob 'words', which does not exist",
        ),
        (
            "wc",
            None,
            '{"topology.blobstore.map": {"w": {"localname": "../../x"}}}',
            "localname '../../x' is not a plain name",
        ),
        ("wc", None, '{"topology.users": ["me"]}', "topology.users is refused: "),
    ],
)
async def test_an_invalid_submit_is_refused_and_leaves_nothing(
    nimbus, tmp_path, name, location, conf, says
) -> None:
    handle = await nimbus.upload()
    with pytest.raises(storm.InvalidTopologyException) as caught:
        await nimbus.call(
            "submitTopology", name, handle if location is None else location, conf, topology()
        )
    assert says in caught.value.msg
    assert await nimbus.state.topology_ids() == []
    assert (await nimbus.call("listBlobs", "")).keys == []
    assert list((tmp_path / "nimbus" / "stormdist").iterdir()) == []


async def test_the_password_that_storms_java_client_generates_is_dropped(nimbus, caplog) -> None:
    payload = "storm.zookeeper.topology.auth.payload"
    topology_id = await nimbus.submit(conf={payload: "-1:CANARY", "mine": 1})
    stored = json.loads(await nimbus.call("getTopologyConf", topology_id))
    assert payload not in stored
    assert "mine" in stored
    (line,) = [r.getMessage() for r in caplog.records if "config_keys_ignored" in r.getMessage()]
    assert f"keys={payload} " in line
    assert line.endswith(f"topology_id={topology_id}")
    assert "CANARY" not in caplog.text


async def test_a_rebalance_maps_storms_keys_to_ours(nimbus) -> None:
    topology_id = await nimbus.submit()
    overrides = '{"topology.spout.wait.progressive.level3.sleep.millis": 7}'
    options = storm.RebalanceOptions(topology_conf_overrides=overrides, wait_secs=0)
    await nimbus.call("rebalance", "wordcount", options)
    stored = json.loads(await nimbus.call("getTopologyConf", topology_id))
    assert stored["topology.sleep.spout.wait.strategy.time.ms"] == 7


async def test_a_topology_whose_input_does_not_exist_is_refused(nimbus) -> None:
    wrong = topology()
    wrong.bolts["count"].common.inputs = {
        storm.GlobalStreamId(componentId="wrods", streamId="default"): storm.Grouping(
            shuffle=storm.NullStruct()
        )
    }
    with pytest.raises(storm.InvalidTopologyException, match="wrods"):
        await nimbus.call("submitTopology", "wc", await nimbus.upload(), "{}", wrong)


async def test_limits_are_checked_before_a_table_of_tasks_is_made(nimbus, monkeypatch) -> None:
    def compiled(*args: object) -> None:
        raise AssertionError("compiled")

    monkeypatch.setattr(submit, "compile_topology", compiled)
    for conf in ({"topology.workers": 60_000}, {"topology.tasks": 60_000}):
        with pytest.raises(storm.InvalidTopologyException):
            await nimbus.submit(conf=conf)


async def test_a_check_that_takes_too_long_ends(nimbus, monkeypatch) -> None:
    """In its own thread, so that the loop is free meanwhile."""
    monkeypatch.setattr(submit, "_CHECK_SECS", -1.0)
    with pytest.raises(storm.InvalidTopologyException, match="could not be checked within"):
        await nimbus.submit()


async def test_more_executors_than_answers_have_room_for_are_refused_by_default(nimbus) -> None:
    with pytest.raises(storm.InvalidTopologyException, match=r"11000 \(nimbus.executors.perTop"):
        await nimbus.submit(executors=11_000)


async def test_the_limits_of_the_administrator_hold(tmp_path) -> None:
    conf = {"nimbus.slots.perTopology": 1, "nimbus.executors.perTopology": 4}
    async with LocalNimbus(tmp_path, conf=conf) as nimbus:
        await nimbus.leads()
        with pytest.raises(storm.InvalidTopologyException, match="asks for 2 workers"):
            await nimbus.submit(conf={"topology.workers": 2})
        with pytest.raises(storm.InvalidTopologyException, match="asks for 6 executors"):
            await nimbus.submit(executors=4)
        topology_id = await nimbus.submit(executors=2)
        stored = await nimbus.state.storm_base(topology_id)
        with pytest.raises(storm.InvalidTopologyException, match="asks for 2 workers"):
            await nimbus.call("rebalance", "wordcount", storm.RebalanceOptions(num_workers=2))
        assert await nimbus.state.storm_base(topology_id) == stored


async def test_a_topology_that_only_a_jvm_could_run_is_refused_by_name(nimbus) -> None:
    """Storm's Java client and Flux send such topologies."""
    java = storm.JavaObject(full_class_name="org.apache.FluxShellBolt", args_list=[])
    cases: list[tuple[str, object]] = [
        ("bolt 'count': it is a Java component (the Java class 'org.apache.FluxShellBolt')", java),
        ("bolt 'count': it is a Java component (a serialized object)", b"\xac\xed"),
    ]
    for says, value in cases:
        wrong = topology()
        wrong.bolts["count"].bolt_object = (
            storm.ComponentObject(java_object=value)
            if isinstance(value, storm.JavaObject)
            else storm.ComponentObject(serialized_java=value)
        )
        with pytest.raises(storm.InvalidTopologyException) as caught:
            await nimbus.call("submitTopology", "wc", await nimbus.upload(), "{}", wrong)
        assert says in caught.value.msg
        assert "shell component" in caught.value.msg
    wrong = topology()
    source = storm.GlobalStreamId(componentId="words", streamId="default")
    for grouping in (
        storm.Grouping(custom_serialized=b"\xac\xed"),
        storm.Grouping(custom_object=storm.JavaObject(full_class_name="a.B", args_list=[])),
    ):
        wrong.bolts["count"].common.inputs = {source: grouping}
        with pytest.raises(storm.InvalidTopologyException, match=r"'count': .*custom grouping"):
            await nimbus.call("submitTopology", "wc", await nimbus.upload(), "{}", wrong)
    for says, changed in (
        ("a worker hook that is a Java object", {"worker_hooks": [b"\xac\xed"]}),
        ("depends on jars ..a.jar..", {"dependency_jars": ["a.jar"]}),
    ):
        wrong = topology()
        for name, value in changed.items():
            setattr(wrong, name, value)
        with pytest.raises(storm.InvalidTopologyException, match=says):
            await nimbus.call("submitTopology", "wc", await nimbus.upload(), "{}", wrong)
    assert await nimbus.state.topology_ids() == []


async def test_a_topology_may_have_blanks_in_its_name(nimbus) -> None:
    topology_id = await nimbus.submit("my topology", conf={"storm.id": "not mine to say"})
    assert topology_id.startswith("my topology-1-")
    conf = json.loads(await nimbus.call("getTopologyConf", topology_id))
    assert (conf["storm.id"], conf["topology.name"]) == (topology_id, "my topology")
    await nimbus.call("rebalance", "my topology", storm.RebalanceOptions(wait_secs=0))
    await nimbus.call("killTopologyWithOpts", "my topology", storm.KillOptions(wait_secs=0))
    assert await nimbus.state.topology_ids() == []


@pytest.mark.skipif(
    importlib.util.find_spec("pyarrow") is None, reason="no PyArrow: pip install -e '.[history]'"
)
async def test_a_history_that_could_not_be_written_is_refused_with_the_reason(tmp_path) -> None:
    async with LocalNimbus(tmp_path, conf={"storm.history.dir": "mars://x"}) as nimbus:
        await nimbus.leads()
        with pytest.raises(storm.InvalidTopologyException) as caught:
            await nimbus.submit(conf={"topology.history.enable": True})
        assert "storm.history.dir mars://x cannot be used here" in caught.value.msg
        assert "fsspec must know mars://" in caught.value.msg
        assert await nimbus.state.topology_ids() == []
        await nimbus.submit(conf={"topology.history.enable": False})  # who asks for none has one


async def test_what_checkpoints_cannot_have_is_refused(nimbus) -> None:
    with pytest.raises(storm.InvalidTopologyException) as caught:
        await nimbus.submit(conf={"topology.checkpoint.interval.secs": 1})
    assert "topology.state.url is not: set it to a URL" in caught.value.msg
    assert "spout 'words' is a shell component, whose state and position" in caught.value.msg
    assert await nimbus.state.topology_ids() == []


async def test_an_upload_can_be_submitted_until_it_expires(nimbus) -> None:
    """Under another name, and after every topology made from it is gone: as in Storm's inbox, on
    which `sparse submit --remote_jar_path` relies."""
    handle = await nimbus.upload()
    await nimbus.submit("one", handle=handle)
    await nimbus.submit("two", handle=handle)
    for name in ("one", "two"):
        await nimbus.call("killTopologyWithOpts", name, storm.KillOptions(wait_secs=0))
    await nimbus.submit("one", handle=handle)


@pytest.mark.parametrize("tool", ["maven-jar 2.4", "maven-shade", ".NET before 4.6.1"])
async def test_a_package_of_a_real_tool_is_accepted(nimbus, tool) -> None:
    await nimbus.submit(handle=await nimbus.upload(TOOLS[tool][0]))


@pytest.mark.parametrize(
    ("package", "why"),
    [
        (b"not a zip", "not an archive"),
        (zip_bytes([Entry("../evil")]), "'..'"),
        (zip_bytes([Entry("link", b"/etc", 0o120777)]), "symbolic link"),
        (zip_bytes([Entry("a.py", b"x" * 99)]).replace(b"\3\4", b"\3\5", 1), "damaged"),
        (zip_bytes([Entry("zeros", b"\0" * 30_000_000)]), "more than 100 times"),
    ],
    ids=["text", "path", "link", "damaged", "bomb"],
)
async def test_a_package_that_no_supervisor_would_unpack_is_refused_at_submit(
    nimbus, package, why
) -> None:
    with pytest.raises(storm.InvalidTopologyException) as caught:
        await nimbus.submit(handle=await nimbus.upload(package))
    assert "the package cannot be unpacked" in caught.value.msg
    assert why in caught.value.msg
    assert await nimbus.state.topology_ids() == []


async def test_a_killed_topology_keeps_its_name_during_the_wait_and_leaves_nothing(
    nimbus, tmp_path
) -> None:
    topology_id = await nimbus.submit()
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=1))
    (summary,) = (await nimbus.call("getClusterInfo")).topologies
    assert summary.status == "KILLED"
    assert await nimbus.call("isTopologyNameAllowed", "wordcount") is False
    with pytest.raises(storm.AlreadyAliveException):
        await nimbus.submit()

    async def gone() -> bool:
        return await nimbus.call("isTopologyNameAllowed", "wordcount")

    await eventually(gone, "the name is free")
    assert await nimbus.state.topologies_with_state() == set()
    assert (await nimbus.call("listBlobs", "")).keys == []
    assert list((tmp_path / "nimbus" / "stormdist").iterdir()) == []
    assert (await nimbus.call("getTopologyHistory", "root")).topo_ids == [topology_id]


async def test_a_kill_without_wait_is_done_when_it_returns(nimbus) -> None:
    await nimbus.submit()
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=0))
    assert await nimbus.state.topology_ids() == []
    again = await nimbus.submit()
    assert again in await nimbus.state.topology_ids()


async def report_drained(nimbus: LocalNimbus, topology_id: str, work: int = 5) -> int | None:
    """Heartbeats as of workers that have nothing in flight; returns the zxid that they name."""
    found = await nimbus.state.storm_and_zxid(topology_id)
    assigned = await nimbus.state.assignment(topology_id)
    if found is None or assigned is None:
        return None
    for slot, executors in assigned[0].slots().items():
        drained = WorkerDrained(found[1], f"run-{slot.port}", work)
        beat = WorkerHeartbeat(topology_id, dict.fromkeys(executors), 1, 1, drained)
        nimbus.state.put_worker_beat_nowait(slot, beat)
    return found[1]


@pytest.mark.parametrize("verb", ["kill", "rebalance"])
async def test_a_wait_without_a_time_ends_when_every_worker_has_drained(nimbus, verb) -> None:
    """The message timeout, the cap, is an hour."""
    topology_id = await nimbus.submit(
        conf={"topology.workers": 2, "topology.message.timeout.secs": 3600}
    )
    zxids = {await report_drained(nimbus, topology_id)}  # from before: these say nothing
    if verb == "kill":
        await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions())
    else:
        await nimbus.call("rebalance", "wordcount", storm.RebalanceOptions())
    # Longer than two looks: nothing is known of the workers since the wait began.
    await asyncio.sleep(1.2)
    waiting = {"kill": TopologyStatus.KILLED, "rebalance": TopologyStatus.REBALANCING}[verb]
    assert (await base(nimbus, topology_id)).status is waiting

    async def done() -> bool:
        found = await base(nimbus, topology_id)
        if found is None or found.status is TopologyStatus.ACTIVE:
            return True
        zxids.add(await report_drained(nimbus, topology_id))
        return False

    await eventually(done, "the wait has ended")
    assert len(zxids - {None}) >= 3, "the workers were not asked a second time"


async def test_a_time_that_was_asked_for_is_waited_in_full(nimbus) -> None:
    topology_id = await nimbus.submit()
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=3600))
    await report_drained(nimbus, topology_id)
    await asyncio.sleep(1.2)
    assert (await base(nimbus, topology_id)).status is TopologyStatus.KILLED


async def test_a_second_kill_restarts_the_wait(nimbus) -> None:
    await nimbus.submit()
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=3600))
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=0))
    assert await nimbus.state.topology_ids() == []


async def test_an_event_that_the_state_does_not_allow_is_refused_by_name(nimbus) -> None:
    await nimbus.submit()
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=3600))
    with pytest.raises(ThriftApplicationError) as caught:
        await nimbus.call("activate", "wordcount")
    assert caught.value.message == ("topology 'wordcount' cannot be activated while it is KILLED")


@pytest.mark.parametrize(
    ("method", "args"),
    [
        ("killTopology", ()),
        ("activate", ()),
        ("deactivate", ()),
        ("rebalance", (storm.RebalanceOptions(),)),
        ("debug", ("", True, 10.0)),
        ("uploadNewCredentials", (storm.Credentials(creds={}),)),
        ("getTopologyInfoByName", ()),
        ("getTopologySummaryByName", ()),
    ],
)
async def test_an_unknown_name_is_not_alive(nimbus, method, args) -> None:
    with pytest.raises(storm.NotAliveException) as caught:
        await nimbus.call(method, "nobody", *args)
    assert caught.value.msg == "nobody is not alive"


async def test_a_rebalance_without_wait_acts_at_once(nimbus) -> None:
    topology_id = await nimbus.submit(executors=4)
    await nimbus.call(
        "rebalance",
        "wordcount",
        storm.RebalanceOptions(
            wait_secs=0,
            num_workers=2,
            num_executors={"count": 2},
            topology_conf_overrides='{"topology.max.spout.pending": 7}',
        ),
    )
    stored = await base(nimbus, topology_id)
    assert stored.status is TopologyStatus.ACTIVE
    assert stored.num_workers == 2
    assert stored.component_executors["count"] == 2
    assert stored.action_options is None
    assignment, _ = await nimbus.state.assignment(topology_id)
    assert len(assignment.slots()) == 2
    tasks = sorted(t for e in assignment.executor_slot for t in e.tasks)
    assert tasks == [1, 2, 3, 4, 5, 6]  # one acker, as before
    conf = json.loads(await nimbus.call("getTopologyConf", topology_id))
    assert conf["topology.max.spout.pending"] == 7


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (storm.RebalanceOptions(num_workers=0), "from 1 to 65536 workers"),
        (storm.RebalanceOptions(num_workers=2**31 - 1), "from 1 to 65536 workers"),
        (storm.RebalanceOptions(wait_secs=-1), "negative"),
        (
            storm.RebalanceOptions(num_executors={"nobody": 2}),
            "no component 'nobody'; it has count",
        ),
        (storm.RebalanceOptions(num_executors={"cuont": 2}), "did you mean 'count'?"),
        (
            storm.RebalanceOptions(num_executors={"count": 3}),
            "tasks=N in the builder",
        ),
        (storm.RebalanceOptions(num_executors={"count": 0}), "at least one executor"),
        (storm.RebalanceOptions(topology_conf_overrides="nonsense"), "not JSON"),
        (
            storm.RebalanceOptions(
                topology_conf_overrides='{"topology.message.timeout.secs": "x"}'
            ),
            "topology.message.timeout.secs is 'x'",
        ),
        (
            storm.RebalanceOptions(topology_conf_overrides='{"topology.users": ["me"]}'),
            "topology.users cannot be changed",
        ),
        (
            storm.RebalanceOptions(
                topology_conf_overrides='{"topology.metrics.consumer.register": '
                '[{"class": "m:A", "parallelism.hint": 1}]}'
            ),
            "topology.metrics.consumer.register cannot be changed by a rebalance",
        ),
        (
            storm.RebalanceOptions(topology_conf_overrides='{"storm.id": "x"}'),
            "storm.id cannot be changed",
        ),
        (
            storm.RebalanceOptions(topology_conf_overrides='{"topology.spout.batch": 1e308}'),
            "topology.spout.batch is 1e+308; expected a whole number from 1 to 1000000",
        ),
        (
            storm.RebalanceOptions(
                topology_conf_overrides='{"topology.blobstore.map": {"words": {}}}'
            ),
            "blob 'words', which does not exist",
        ),
        (
            storm.RebalanceOptions(
                topology_conf_overrides='{"topology.blobstore.map": {"w": {"localname": "../x"}}}'
            ),
            "localname '../x' is not a plain name",
        ),
    ],
)
async def test_an_invalid_rebalance_is_refused_and_changes_nothing(nimbus, options, says) -> None:
    topology_id = await nimbus.submit()
    before = await base(nimbus, topology_id)
    with pytest.raises(storm.InvalidTopologyException) as caught:
        await nimbus.call("rebalance", "wordcount", options)
    assert says in caught.value.msg
    assert await base(nimbus, topology_id) == before


_CHECKPOINTS = {"topology.checkpoint.interval.secs": 1, "topology.state.url": "s3://bucket"}


class Words(Spout):
    outputs = ["word"]

    def next_tuple(self): ...


class Count(Bolt):
    def execute(self, tup): ...


def in_python() -> storm.StormTopology:
    """words -> count without shell components, which have no checkpoints."""
    builder = TopologyBuilder()
    builder.spout("words", Words())
    builder.bolt("count", Count(), parallelism=2).fields("words", "word")
    return to_thrift(builder.build())


async def test_a_rebalance_with_checkpoints_gives_a_bolt_more_and_fewer_tasks(nimbus) -> None:
    topology_id = await nimbus.submit(conf=_CHECKPOINTS, struct=in_python())
    for tasks in (5, 1):
        options = storm.RebalanceOptions(wait_secs=0, num_executors={"count": tasks})
        await nimbus.call("rebalance", "wordcount", options)
        stored = nimbus.nimbus.topology_store.get(topology_id)
        assert stored.tasks_of("count") == tasks
        assert (await base(nimbus, topology_id)).component_executors["count"] == tasks
        assignment, _ = await nimbus.state.assignment(topology_id)
        placed = sorted(t for e in assignment.executor_slot for t in e.tasks)
        assert placed == sorted(stored.task_to_component)


async def test_a_rebalance_with_checkpoints_refuses_too_many_tasks(nimbus) -> None:
    conf = {**_CHECKPOINTS, "topology.max.task.parallelism": 4}
    await nimbus.submit(conf=conf, struct=in_python())
    options = storm.RebalanceOptions(num_executors={"count": 5})
    with pytest.raises(storm.InvalidTopologyException, match="at most 4 tasks"):
        await nimbus.call("rebalance", "wordcount", options)


async def test_tasks_of_an_unknown_component_are_refused(nimbus) -> None:
    with pytest.raises(storm.InvalidTopologyException, match="names 'cuont'"):
        await nimbus.submit(conf={"topology.component.tasks": {"cuont": 2}})


async def test_a_kill_ends_a_rebalance_that_waits(nimbus) -> None:
    await nimbus.submit()
    await nimbus.call("rebalance", "wordcount", storm.RebalanceOptions(wait_secs=3600))
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=0))
    assert await nimbus.state.topology_ids() == []
    assert not nimbus.nimbus.lifecycle._pending


async def test_a_pending_kill_and_rebalance_survive_a_crash(tmp_path) -> None:
    async with LocalNimbus(tmp_path / "first") as first:
        await first.leads()
        supervisor = await first.supervisor("sup-a")
        killed = await first.submit("killed")
        moved = await first.submit("moved")
        await first.call("killTopologyWithOpts", "killed", storm.KillOptions(wait_secs=1))
        await first.call("rebalance", "moved", storm.RebalanceOptions(wait_secs=1, num_workers=2))
        await first.crash()
        # The same disk: a Nimbus that was started again.
        async with LocalNimbus(tmp_path / "first", ensemble=first.ensemble) as second:
            await second.leads()

            async def removed() -> bool:
                return killed not in await second.state.topologies_with_state()

            async def rebalanced() -> bool:
                return (await second.state.storm_base(moved)).num_workers == 2

            await eventually(removed, "the killed topology is removed by the next leader")
            await eventually(rebalanced, "the rebalance is done by the next leader")
            assert (await second.state.storm_base(moved)).status is TopologyStatus.ACTIVE
            keys = (await second.call("listBlobs", "")).keys
            assert {key.rpartition("-")[0] for key in keys} == {moved}
        await supervisor.close()


async def test_a_start_left_pending_by_a_crash_is_finished_by_the_next_leader(tmp_path) -> None:
    async with LocalNimbus(tmp_path) as first:
        await first.leads()
        supervisor = await first.supervisor("sup-a")

        async def dies(*args: object, **kwargs: object) -> None:
            raise ConnectionAbortedError("the process dies here")

        first.nimbus.assigner.assign = dies
        with pytest.raises(ConnectionAbortedError):
            await first.submit()
        (topology_id,) = await first.state.topology_ids()
        stored = await base(first, topology_id)
        assert stored.status is TopologyStatus.INACTIVE
        assert stored.prev_status is TopologyStatus.ACTIVE
        await first.crash()
        async with LocalNimbus(tmp_path, ensemble=first.ensemble) as second:

            async def active() -> bool:
                return (await base(second, topology_id)).status is TopologyStatus.ACTIVE

            await eventually(active, "the start is made")
            assert (await second.state.assignment(topology_id))[0].executor_slot
        await supervisor.close()


async def test_a_missing_argument_is_a_protocol_error(nimbus) -> None:
    with pytest.raises(ThriftApplicationError, match="argument name is missing"):
        await nimbus.service.killTopology(Call("killTopology", "p"), None)


async def test_a_rebalance_waits_if_the_code_is_gone_and_nimbus_survives(
    nimbus, monkeypatch
) -> None:
    """A leader whose disk was lost must not end because one topology cannot be handled."""
    topology_id = await nimbus.submit()
    options = storm.RebalanceOptions(
        wait_secs=1, topology_conf_overrides='{"topology.max.spout.pending": 7}'
    )
    monkeypatch.setattr("squall_nimbus.topologies.lifecycle_shell._RETRY_SECS", 0.01)
    await nimbus.call("rebalance", "wordcount", options)
    real = nimbus.nimbus.topology_store.get
    asked = 0

    def gone(topology_id: str) -> Any:
        nonlocal asked
        asked += 1
        raise BlobNotFoundError(topology_id)

    monkeypatch.setattr(nimbus.nimbus.topology_store, "get", gone)

    async def tried_often() -> bool:
        return nimbus.nimbus.crashed.done() or asked > 20

    await eventually(tried_often, "the rebalance is tried again and again")
    assert not nimbus.nimbus.crashed.done()
    assert (await base(nimbus, topology_id)).status is TopologyStatus.REBALANCING
    monkeypatch.setattr(nimbus.nimbus.topology_store, "get", real)

    async def rebalanced() -> bool:
        return (await base(nimbus, topology_id)).status is TopologyStatus.ACTIVE

    await eventually(rebalanced, "it goes on once the code is there")


async def test_the_leader_is_named_soon_even_if_zookeeper_hangs(nimbus, monkeypatch) -> None:
    monkeypatch.setattr("squall_nimbus.leader._ANSWER_PATIENCE_SECS", 0.05)

    async def hangs(*args: object) -> list[str]:
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(nimbus.store, "children", hangs)
    with pytest.raises(ThriftApplicationError, match=r"ZooKeeper: it did not answer within 0.05 s"):
        await asyncio.wait_for(nimbus.call("getLeader"), 5)
    monkeypatch.undo()


async def test_a_savepoint_in_a_relative_folder_is_refused(nimbus) -> None:
    """It would be in the folder of a worker, which is removed with the topology."""
    topology_id = await nimbus.submit(conf=_CHECKPOINTS, struct=in_python())
    request = storm.SavepointRequest(name="one", asked_ms=1, folder="kept")
    with pytest.raises(storm.InvalidTopologyException, match="'kept' is relative"):
        await nimbus.call("savepoint", "wordcount", request)
    assert (await base(nimbus, topology_id)).savepoint is None
    request.folder = "/kept"
    await nimbus.call("savepoint", "wordcount", request)
    assert (await base(nimbus, topology_id)).savepoint.folder == "/kept"


async def test_a_request_without_a_name_withdraws_the_one_of_its_time(nimbus) -> None:
    topology_id = await nimbus.submit(conf=_CHECKPOINTS, struct=in_python())
    asked = storm.SavepointRequest(name="one", asked_ms=2, stop=True)
    await nimbus.call("savepoint", "wordcount", asked)
    await nimbus.call("savepoint", "wordcount", storm.SavepointRequest(name="", asked_ms=1))
    assert (await base(nimbus, topology_id)).savepoint is not None  # a later one
    await nimbus.call("savepoint", "wordcount", storm.SavepointRequest(name="", asked_ms=2))
    assert (await base(nimbus, topology_id)).savepoint is None


async def test_what_stopped_a_topology_that_is_killed_stays(nimbus) -> None:
    topology_id = await nimbus.submit(conf=_CHECKPOINTS, struct=in_python())
    asked = storm.SavepointRequest(name="one", asked_ms=2, stop=True)
    await nimbus.call("savepoint", "wordcount", asked)
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=600))
    await nimbus.call("savepoint", "wordcount", storm.SavepointRequest(name="", asked_ms=2))
    assert (await base(nimbus, topology_id)).savepoint is not None
