"""What `storm dev` decides before it starts anything."""

from __future__ import annotations

import errno
import fcntl
import getpass
import json
import os
from pathlib import Path
from typing import Any

import pytest

from squall_cli.dev.cluster import DevCluster
from squall_cli.dev.plan import DevPlan, check_ports, default_data_dir, make_plan
from squall_common.daemon.ports import LOOPBACK
from squall_common.errors import ConfigError, SquallError


def plan(**changes: Any) -> DevPlan:
    arguments: dict[str, Any] = {
        "data_dir": Path("/data"),
        "supervisors": 2,
        "slots": 3,
        "free_ports": None,
        "is_free": lambda _port: True,
        "site_conf": {"storm.zookeeper.root": "/storm", "nimbus.monitor.freq.secs": 10},
        "overrides": {},
    }
    return make_plan(**{**arguments, **changes})


def test_usual_ports_are_storms() -> None:
    usual = plan()
    assert (usual.zookeeper_port, usual.nimbus_port) == (2181, 6627)
    assert [s.slots for s in usual.supervisors] == [(6700, 6701, 6702), (6703, 6704, 6705)]


def test_free_ports_are_dealt_out_once_each() -> None:
    free = plan(free_ports=lambda count: list(range(100, 100 + count)))
    assert sorted(free.ports()) == list(range(100, 113))
    assert len({free.zookeeper_port, free.nimbus_port}) == 2


def test_every_daemon_has_a_folder_of_its_own() -> None:
    two = plan()
    confs = [two.nimbus_conf(), *map(two.supervisor_conf, two.supervisors)]
    confs += [two.ui_conf(), two.logviewer_conf()]
    assert len({conf["storm.local.dir"] for conf in confs}) == 5
    assert all(conf["storm.bind.host"] == LOOPBACK for conf in confs)
    assert all(conf["storm.zookeeper.port"] == 2181 for conf in confs)
    assert confs[1]["supervisor.slots.ports"] == [6700, 6701, 6702]
    assert confs[1]["supervisor.thrift.port"] == 0


def test_overrides_stand_above_the_site_file() -> None:
    conf = plan(overrides={"nimbus.monitor.freq.secs": 1}).nimbus_conf()
    assert conf["nimbus.monitor.freq.secs"] == 1


def test_the_clients_conf_carries_overrides_but_no_defaults() -> None:
    conf = plan(overrides={"topology.workers": 2}).client_conf()
    assert conf["topology.workers"] == 2
    assert "nimbus.monitor.freq.secs" not in conf


def test_a_key_that_is_decided_here_cannot_be_overridden() -> None:
    with pytest.raises(ConfigError, match=r"storm dev sets supervisor\.slots\.ports") as caught:
        plan(overrides={"supervisor.slots.ports": [1]})
    assert caught.value.hint == "Use --slots instead."


def test_several_ports_in_use_are_one_message() -> None:
    with pytest.raises(SquallError, match=r"ports 2181 \(ZooKeeper\), 6627 \(Nimbus\) are in use"):
        check_ports(plan(), lambda port: port not in (2181, 6627))


def test_data_folder_follows_xdg() -> None:
    assert default_data_dir({"XDG_STATE_HOME": "/state"}) == Path("/state/squall/dev")
    assert default_data_dir({}) == Path.home() / ".local/state/squall/dev"


def test_the_last_ports_of_a_folder_are_taken_again_when_they_are_free(tmp_path: Path) -> None:
    """So that a topology finds its slots again after a restart of the cluster."""

    def choose(**changes: Any) -> set[int]:
        chosen = plan(data_dir=tmp_path, free_ports=lambda n: list(range(100, 100 + n)), **changes)
        return set(chosen.ports())

    state = {
        "zookeeper": {"port": 51},
        "nimbus": {"port": 52},
        "drpc": {"port": 53, "invocations_port": 54, "http_port": 55},
        "ui": {"port": 56},
        "logviewer": {"port": 57},
        "supervisors": [{"slots": [61, 62, 63]}, {"slots": [64, 65, 66]}],
    }
    assert choose() == set(range(100, 113))
    (tmp_path / "cluster.json").write_text(json.dumps(state))
    assert choose() == {51, 52, 53, 54, 55, 56, 57, 61, 62, 63, 64, 65, 66}
    assert choose(is_free=lambda port: port != 65) == set(range(100, 113))
    assert choose(slots=2) == set(range(100, 111))
    (tmp_path / "cluster.json").write_text('{"zookeeper": 3')
    assert choose() == set(range(100, 113))


def test_an_unwritable_state_file_is_reported_and_stops_nothing(tmp_path: Path) -> None:
    """It is written whenever a daemon ends: a full disk must not keep that daemon away."""
    reported: list[str] = []
    cluster = DevCluster(plan(data_dir=tmp_path / "gone"), reported.append)
    cluster._write_state()
    assert reported == [
        f"{tmp_path / 'gone' / 'cluster.json'} cannot be written: {os.strerror(errno.ENOENT)}."
    ]


async def test_a_conf_file_that_cannot_be_written_is_one_message(tmp_path: Path) -> None:
    in_the_way = plan(data_dir=tmp_path).conf_file
    (in_the_way / "folder").mkdir(parents=True)
    with pytest.raises(SquallError, match=r"cannot write .*storm\.yaml: "):
        async with DevCluster(plan(data_dir=tmp_path), str):
            pass
    in_the_way.joinpath("folder").rmdir()
    fd = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # nobody holds it any more
    os.close(fd)


def test_who_starts_a_secured_cluster_administers_each_daemon_that_asks() -> None:
    """Also the supervisors, for their metrics pages."""
    secured = plan(secure=True)
    confs = [secured.nimbus_conf(), secured.drpc_conf(), secured.logviewer_conf()]
    confs += [secured.supervisor_conf(one) for one in secured.supervisors]
    assert [conf["nimbus.admins"] for conf in confs] == [[getpass.getuser()]] * len(confs)
