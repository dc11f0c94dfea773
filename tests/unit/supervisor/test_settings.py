"""The supervisor's configuration."""

from pathlib import Path
from typing import Any

import pytest

from squall_common.config.load import default_conf
from squall_common.config.options.typed import SupervisorOptions, TopologyOptions
from squall_common.errors import ConfigError
from squall_supervisor.settings import SupervisorSettings, hostname_of


def test_the_defaults_are_those_of_the_defaults_file() -> None:
    """A missing key has the value of defaults.yaml."""
    assert SupervisorSettings.from_conf(default_conf()) == SupervisorSettings.from_conf({})


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("supervisor.slots.ports", [6700, 0], "from 1 to 65535"),
        ("supervisor.slots.ports", [6700, 70000], "from 1 to 65535"),
        ("supervisor.slots.ports", [6700, True], "from 1 to 65535"),
        ("supervisor.slots.ports", [6700, 6700], "twice"),
        ("supervisor.slots.ports", "6700", "expected a list"),
        ("supervisor.worker.timeout.secs", 0.05, "at least 0.1"),
        ("supervisor.worker.timeout.secs", "30", "a number"),
        ("supervisor.worker.shutdown.sleep.secs", -1, "a number from 0"),
        ("supervisor.thrift.port", 70000, "from 0 to 65535"),
        ("storm.id", "a/b", "name of a znode"),
    ],
)
def test_wrong_values_are_refused_by_name(key: str, value: Any, why: str) -> None:
    with pytest.raises(ConfigError, match=why) as error:
        SupervisorSettings.from_conf({key: value})
    assert key in str(error.value)


def test_folders_are_derived_from_storm_local_dir(tmp_path: Path) -> None:
    settings = SupervisorSettings.from_conf({"storm.local.dir": str(tmp_path)})
    assert settings.artifacts_dir == tmp_path / "logs" / "workers-artifacts"
    assert settings.stormdist_dir == tmp_path / "supervisor" / "stormdist"
    assert settings.workers_dir == tmp_path / "workers"


def test_a_disabled_supervisor_has_no_slots() -> None:
    assert SupervisorSettings.from_conf({"supervisor.enable": False}).ports == ()


def test_a_topology_may_have_its_own_worker_timeout_up_to_a_maximum() -> None:
    settings = SupervisorSettings.from_conf({"worker.max.timeout.secs": 100})
    given = [TopologyOptions(topology_worker_timeout_secs=v) for v in (None, 50.0, 500.0)]
    assert [settings.worker_timeout_of(one) for one in given] == [30, 50, 100]


def test_the_host_name_leads_to_where_the_node_listens() -> None:
    assert hostname_of(SupervisorOptions.read({})) == "127.0.0.1"
    assert hostname_of(SupervisorOptions.read({"storm.bind.host": "10.0.0.7"})) == "10.0.0.7"
    assert (
        hostname_of(
            SupervisorOptions.read({"storm.bind.host": "0.0.0.0", "storm.local.hostname": "n1"})
        )
        == "n1"
    )
    assert hostname_of(SupervisorOptions.read({"storm.bind.host": "0.0.0.0"}))
