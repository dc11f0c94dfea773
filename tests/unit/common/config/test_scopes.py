"""Options are refused where they would have no effect."""

from __future__ import annotations

import pytest

from squall_common.config.for_workers import STORED_KEYS
from squall_common.config.schema import SCHEMA
from squall_common.config.scopes import check_program_conf, counts_for_topology, topology_part
from squall_common.errors import ConfigError


def test_the_command_line_gives_a_topology_what_counts_for_it():
    given = {
        "topology.workers": 2,
        "storm.messaging.curve": True,
        "drpc.servers": ["a"],
        "mine": 1,
        "nimbus.seeds": ["here"],  # the command's own
        "storm.log.level": "DEBUG",
    }
    assert topology_part(given, mode="cluster") == {
        "topology.workers": 2,
        "storm.messaging.curve": True,
        "drpc.servers": ["a"],
        "mine": 1,
    }


@pytest.mark.parametrize(
    ("key", "says"),
    [
        ("storm.zookeeper.port", "every daemon reads it; set it in the storm.yaml of each node"),
        ("nimbus.executors.perTopology", "Nimbus reads it; set it in Nimbus' storm.yaml"),
        ("supervisor.slots.ports", "the supervisors read it; set it in their storm.yaml"),
        ("task.heartbeat.frequency.secs", "the supervisors read it"),
        ("drpc.requests.max", "the DRPC servers read it"),
        ("worker.heap.memory.mb", "set topology.worker.max.heap.size.mb"),
        ("supervisor.worker.timeout.secs", "set topology.worker.timeout.secs"),
    ],
)
def test_a_daemons_option_is_refused_with_where_it_is_set(key, says):
    for refuse in (
        lambda: topology_part({key: 1}, mode="cluster"),
        lambda: check_program_conf({key: 1}, where="conf of topology 'wc'"),
    ):
        with pytest.raises(ConfigError) as caught:
            refuse()
        assert f"{key} has no effect" in str(caught.value)
        assert says in str(caught.value)


def test_what_leads_to_nimbus_counts_on_the_command_line_only():
    with pytest.raises(ConfigError, match=r"set it by `storm jar -c nimbus.seeds="):
        check_program_conf({"nimbus.seeds": ["a"]}, where="conf of topology 'wc'")
    with pytest.raises(ConfigError, match=r"nimbus.seeds has no effect without a cluster"):
        topology_part({"nimbus.seeds": ["a"]}, mode="local")


def test_every_option_either_counts_or_is_refused_in_words():
    for key in SCHEMA:
        if not counts_for_topology(key):
            with pytest.raises(ConfigError, match=r"has no effect"):
                check_program_conf({key: None}, where="conf")


def test_what_counts_for_a_topology_is_stored_with_it():
    """Nimbus' own value is the default of the topology's."""
    assert [k for k in SCHEMA if counts_for_topology(k) and not k.startswith("topology.")] == [
        k for k in SCHEMA if counts_for_topology(k) and k in STORED_KEYS
    ]
