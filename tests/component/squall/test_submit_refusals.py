"""What checkpoints cannot have is refused before anything runs, in the same words by whoever sees
it: the client, Nimbus, local mode, a worker."""

from __future__ import annotations

import ast
import inspect
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
from tests.support.nimbus_service import LocalNimbus
from tests.support.refused import (
    CLIENT,
    INTERVAL,
    LOCAL,
    NIMBUS,
    REFUSED,
    WORKER,
    AsyncSeek,
    Count,
    Pass,
    Refused,
    Write,
    of,
)

import squall.local
from squall import InvalidTopologyError, LocalCluster, SquallError
from squall._submit import Session, _check, _refuse_without_checkpoints
from squall._workers import LocalWorkers
from squall.testing import TopologyTest
from squall_common.client.nimbus import NimbusClient
from squall_common.component import checkpoints, stored_state
from squall_common.topology.thrift import to_thrift
from squall_thrift import storm


def seen_by(who: str) -> Iterable[Any]:
    return [pytest.param(case, id=name) for name, case in REFUSED.items() if who in case.by]


def conf_of(case: Refused, folder: Path) -> dict[str, Any]:
    conf = {INTERVAL: 0.05, "topology.state.url": str(folder), **case.conf}
    return {key: value for key, value in conf.items() if value is not None}


@pytest.mark.parametrize("case", seen_by(CLIENT))
def test_the_client_refuses(case: Refused, tmp_path: Path) -> None:
    session = Session("cluster", tmp_path / "package.zip", tmp_path, {})
    with pytest.raises(SquallError) as caught:
        _check("words", conf_of(case, tmp_path), case.topology, session, "ACTIVE")
    assert getattr(caught.value, "problems", ()) == (case.says,)


@pytest.mark.parametrize("case", seen_by(NIMBUS))
async def test_nimbus_refuses(case: Refused, tmp_path: Path) -> None:
    async with LocalNimbus(tmp_path) as nimbus:
        await nimbus.leads()
        with pytest.raises(storm.InvalidTopologyException) as caught:
            await nimbus.submit(conf=conf_of(case, tmp_path), struct=to_thrift(case.topology))
        assert caught.value.msg == case.says
        assert await nimbus.state.topology_ids() == []


@pytest.mark.parametrize("case", seen_by(LOCAL))
def test_local_mode_refuses(case: Refused, tmp_path: Path) -> None:
    with LocalCluster() as cluster, pytest.raises(InvalidTopologyError) as caught:
        cluster.submit_topology("words", conf_of(case, tmp_path), case.topology)
    assert caught.value.problems == (case.says,)


@pytest.mark.parametrize("case", seen_by(WORKER))
def test_a_worker_refuses(case: Refused, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also what only it can see."""
    monkeypatch.setattr(squall.local, "all_refusals", lambda *_: ())
    monkeypatch.setattr(squall.local, "class_refusals", lambda *_, **__: ())
    with LocalCluster() as cluster, pytest.raises(SquallError) as caught:
        cluster.submit_topology("words", conf_of(case, tmp_path), case.topology)
    assert str(caught.value).replace("\n", ": ") == case.says


def test_every_refusal_is_in_the_table() -> None:
    """Or is one of the two below: a part of each text that the module makes is found."""
    trees = [ast.parse(inspect.getsource(module)) for module in (checkpoints, stored_state)]
    made = [
        ast.unparse(node.args[1] if node.func.id == "refusal_of" else node.args[0])
        for tree in trees
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("Refusal", "refusal_of")
    ]
    texts = [case.says for case in REFUSED.values()] + [WORKERS, ENGINE]
    for text in made:
        # The longest piece of it that is the same each time.
        pieces = [
            part.value
            for part in ast.walk(ast.parse(text))
            if isinstance(part, ast.Constant) and isinstance(part.value, str)
        ]
        longest = max(pieces, key=len, default="")
        assert len(longest) < 5 or any(longest in said for said in texts), longest
    assert len(made) > 20


WORKERS = (
    f"{INTERVAL} is set, and several worker processes of `storm local` take no checkpoints: run it "
    f"without --workers, unset the option, or give `-c {INTERVAL}=null`"
)
ENGINE = (
    f"{INTERVAL} is set, and nothing takes checkpoints here: unset it, or give "
    f"`-c {INTERVAL}=null`; `storm local`, LocalCluster and clusters take them"
)


def test_the_client_leaves_to_the_cluster_what_its_configuration_may_complete(
    tmp_path: Path,
) -> None:
    session = Session("cluster", tmp_path / "package.zip", tmp_path, {})
    for name in ("stored nowhere", "on disk, and stored nowhere"):
        case = REFUSED[name]
        conf = {key: value for key, value in case.conf.items() if value is not None}
        assert _check("words", conf, case.topology, session, "ACTIVE") == conf


@pytest.mark.parametrize(
    ("conf", "cluster", "is_refused"),
    [({}, {}, True), ({INTERVAL: 1}, {}, False), ({}, {INTERVAL: 1}, False)],
)
async def test_the_client_refuses_coroutines_on_disk_where_nothing_asks_for_checkpoints(
    conf: dict[str, Any], cluster: dict[str, Any], is_refused: bool, tmp_path: Path
) -> None:
    class Nimbus:
        async def call(self, method: str) -> str:
            assert method == "getNimbusConf"
            return json.dumps(cluster)

    case = REFUSED["coroutines on disk"]
    session = Session("cluster", tmp_path / "package.zip", tmp_path, {})
    asked = _refuse_without_checkpoints(cast(NimbusClient, Nimbus()), conf, case.topology, session)
    if not is_refused:
        await asked
        return
    with pytest.raises(InvalidTopologyError) as caught:
        await asked
    assert caught.value.problems == (case.says,)


def test_several_local_workers_take_no_checkpoints(tmp_path: Path) -> None:
    workers = LocalWorkers(2, code_dir=tmp_path)
    with pytest.raises(InvalidTopologyError) as caught:
        workers.submit_topology("words", {INTERVAL: 1}, of(Pass()))
    assert caught.value.problems == (WORKERS,)
    with pytest.raises(InvalidTopologyError, match="which works with checkpoints only"):
        workers.submit_topology("words", {}, of(Pass()))


def test_the_test_kit_takes_no_checkpoints() -> None:
    with pytest.raises(InvalidTopologyError) as caught:
        TopologyTest(of(Pass()), {INTERVAL: 1}).__enter__()
    assert caught.value.problems == (ENGINE,)
    with pytest.raises(SquallError, match="which works with checkpoints only"):
        TopologyTest(of(Pass())).__enter__()


def test_spark_takes_no_checkpoints_of_a_cluster(tmp_path: Path) -> None:
    session = Session("spark", tmp_path, tmp_path, {}, runner=lambda *_: None)
    with pytest.raises(InvalidTopologyError) as caught:
        _check("words", {INTERVAL: 1}, of(Pass()), session, "ACTIVE")
    assert caught.value.problems == (ENGINE,)


def test_all_that_is_wrong_is_said_at_once(tmp_path: Path) -> None:
    session = Session("cluster", tmp_path / "package.zip", tmp_path, {})
    topology = of(Pass(), AsyncSeek(), conf={"topology.max.replays": 3})
    conf = {INTERVAL: 1, "topology.state.provider": "redis", "topology.max.replays": 1}
    with LocalCluster() as cluster, pytest.raises(InvalidTopologyError) as caught:
        cluster.submit_topology("words", conf, topology)
    assert len(caught.value.problems) == 5  # its folder, provider, replays; its bolt, its spout
    with pytest.raises(InvalidTopologyError) as caught:
        _check("words", conf, topology, session, "ACTIVE")
    assert len(caught.value.problems) == 2  # the cluster may have the rest of the configuration


async def test_a_rebalance_brings_nothing_that_checkpoints_cannot_have(tmp_path: Path) -> None:
    """It would end each worker at its start."""
    topology = of(Count())
    conf = {INTERVAL: 1, "topology.state.url": "s3://bucket"}
    async with LocalNimbus(tmp_path) as nimbus:
        await nimbus.leads()
        await nimbus.submit("words", conf, struct=to_thrift(topology))

        async def refused(**overrides: Any) -> str:
            conf = {f"topology.{key.replace('_', '.')}": value for key, value in overrides.items()}
            options = storm.RebalanceOptions(wait_secs=0, topology_conf_overrides=json.dumps(conf))
            with pytest.raises(storm.InvalidTopologyException) as caught:
                await nimbus.call("rebalance", "words", options)
            return str(caught.value.msg)

        assert await refused(max_replays=3) == REFUSED["replays"].says
        assert await refused(state_url="./state") == REFUSED["a relative path"].says
        assert await refused(state_provider="redis") == REFUSED["a provider"].says
        options = storm.RebalanceOptions(
            wait_secs=0, topology_conf_overrides='{"topology.checkpoint.interval.secs": 5}'
        )
        await nimbus.call("rebalance", "words", options)


async def test_a_rebalance_brings_no_checkpoints_to_what_cannot_have_them(tmp_path: Path) -> None:
    async with LocalNimbus(tmp_path) as nimbus:
        await nimbus.leads()
        await nimbus.submit("words")  # of shell components
        overrides = json.dumps({INTERVAL: 1, "topology.state.url": "s3://bucket"})
        options = storm.RebalanceOptions(wait_secs=0, topology_conf_overrides=overrides)
        with pytest.raises(storm.InvalidTopologyException, match="'count' is a shell component"):
            await nimbus.call("rebalance", "words", options)


def test_what_can_have_checkpoints_runs(tmp_path: Path) -> None:
    with LocalCluster() as cluster:
        conf = {INTERVAL: 0.05, "topology.state.url": str(tmp_path)}
        cluster.submit_topology("words", conf, of(Count()))
        cluster.submit_topology("rows", conf, of(Write(), grouping="shuffle"))
