"""Typed options: what they make of a configuration."""

from __future__ import annotations

import pytest

from squall_common.config.load import default_conf
from squall_common.config.options import OPTIONS
from squall_common.config.options.classes import CLASSES
from squall_common.config.options.reading import Options
from squall_common.config.options.typed import (
    ClientOptions,
    DrpcOptions,
    LogviewerOptions,
    NimbusOptions,
    SupervisorOptions,
    TopologyOptions,
    UiOptions,
    WorkerOptions,
)
from squall_common.errors import ConfigError

ALL: tuple[type[Options], ...] = (
    NimbusOptions,
    SupervisorOptions,
    WorkerOptions,
    DrpcOptions,
    UiOptions,
    LogviewerOptions,
    ClientOptions,
    TopologyOptions,
)


def test_a_class_has_exactly_the_fields_that_its_declarations_give_it():
    for one, read in zip(CLASSES, ALL, strict=True):
        assert read.__name__ == one.name
        declared = [option.field for option in OPTIONS.values() if one.has(option)]
        assert list(read.__struct_fields__) == declared


def test_no_two_options_share_a_field():
    assert len({option.field for option in OPTIONS.values()}) == len(OPTIONS)


@pytest.mark.parametrize("read", ALL)
def test_an_empty_configuration_and_the_defaults_read_the_same(read):
    assert read.read({}) == read.read(default_conf()) == read()


def test_null_means_the_default_unless_it_is_a_value():
    conf = {"topology.message.timeout.secs": None, "topology.worker.stall.timeout.secs": None}
    read = TopologyOptions.read(conf)
    assert read.topology_message_timeout_secs == 30
    assert read.topology_worker_stall_timeout_secs is None
    assert TopologyOptions.read({}).topology_worker_stall_timeout_secs == 300


def test_values_have_the_type_of_their_field():
    read = TopologyOptions.read(
        {
            "topology.workers": 2.0,
            "topology.message.timeout.secs": 7,
            "topology.kryo.register": ["a:B", {"c:D": "e:F"}],
            "topology.environment": {"A": 1},
        }
    )
    assert (read.topology_workers, type(read.topology_workers)) == (2, int)
    assert type(read.topology_message_timeout_secs) is float
    assert read.topology_kryo_register == ("a:B", {"c:D": "e:F"})
    assert read.topology_environment == {"A": 1}


def test_options_do_not_change():
    given = {"A": 1}
    read = TopologyOptions.read({"topology.environment": given})
    given["A"] = 2
    assert read.topology_environment == {"A": 1}
    with pytest.raises(TypeError):
        read.topology_environment["A"] = 2
    with pytest.raises(AttributeError):
        read.topology_workers = 2


def test_all_wrong_values_are_listed():
    with pytest.raises(ConfigError) as caught:
        NimbusOptions.read({"nimbus.thrift.port": "6627", "nimbus.seeds": []}, where="site")
    assert str(caught.value).splitlines() == [
        "site: nimbus.seeds is []; expected a list, each item text of at most 4096 characters, "
        "at least one",
        "site: nimbus.thrift.port is '6627'; expected a whole number from 0 to 65535",
    ]


def test_true_is_not_taken_for_the_number_one():
    with pytest.raises(ConfigError, match=r"topology\.workers is True"):
        TopologyOptions.read({"topology.workers": True})


def test_keys_of_other_programs_are_passed_over():
    assert WorkerOptions.read({"ui.port": "x", "mine": {}}) == WorkerOptions()


def test_invalid_values_of_a_damaged_configuration_count_as_missing():
    conf = {"topology.workers": "many", "topology.acker.executors": 3}
    assert TopologyOptions.read_valid(conf) == TopologyOptions(topology_acker_executors=3)


def test_a_configuration_over_options_sets_its_values_even_if_they_are_the_default():
    below = TopologyOptions(topology_workers=7, topology_acker_executors=2)
    read = TopologyOptions.read_valid(
        {"topology.workers": 1, "topology.acker.executors": "x"}, over=below
    )
    assert read == TopologyOptions(topology_workers=1, topology_acker_executors=2)
