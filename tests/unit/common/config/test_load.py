"""Configuration: precedence, typed checks, what a topology and a component get."""

import json
from importlib import resources

import pytest
import yaml

from squall_common.config.load import (
    component_conf,
    default_conf,
    load_conf,
    local_dir,
    log_dir,
    normalize_topology_conf,
    parse_override,
    validate_conf,
)
from squall_common.config.schema import COMPONENT_KEYS, SCHEMA
from squall_common.errors import ConfigError


def test_each_key_has_a_default_a_type_and_a_sentence():
    text = (
        resources.files("squall_common.config")
        .joinpath("defaults.yaml")
        .read_text(encoding="utf-8")
    )
    lines = text.splitlines()
    keys = {}
    for number, line in enumerate(lines):
        if line and not line.startswith(("#", " ")):
            keys[line.partition(":")[0]] = lines[number - 1]
    assert set(keys) == set(SCHEMA) == set(default_conf())
    assert [key for key, above in keys.items() if not above.startswith("# ")] == []
    assert len(keys) == len(yaml.safe_load(text))


def test_the_defaults_are_valid():
    validate_conf(default_conf())


def test_every_component_key_is_an_option():
    assert set(SCHEMA) >= COMPONENT_KEYS


def write(path, text):
    path.write_text(text, encoding="utf-8")
    return path


def test_overrides_beat_the_site_file_which_beats_the_defaults(tmp_path):
    site = write(tmp_path / "my.yaml", "nimbus.thrift.port: 7000\ntopology.workers: 3\n")
    conf = load_conf(config_file=site, overrides=["topology.workers=5"], env={})
    assert (conf["nimbus.thrift.port"], conf["topology.workers"]) == (7000, 5)
    assert conf["ui.port"] == default_conf()["ui.port"]


def test_a_named_file_beats_the_conf_dir_and_other_variables_do_nothing(tmp_path):
    write(tmp_path / "storm.yaml", "topology.workers: 2\n")
    named = write(tmp_path / "named.yaml", "topology.workers: 3\n")
    env = {"STORM_CONF_DIR": str(tmp_path), "STORM_TOPOLOGY_WORKERS": "9"}
    assert load_conf(env=env)["topology.workers"] == 2
    assert load_conf(config_file=named, env=env)["topology.workers"] == 3


def test_without_a_site_file_the_defaults_hold(tmp_path):
    assert load_conf(env={"STORM_CONF_DIR": str(tmp_path)})["topology.workers"] == 1
    assert load_conf(env={})["topology.workers"] == 1


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: [", "is not valid YAML"),
        ("- a\n", "expected a map of options"),
        ("1: a\n", "the key 1 is not text"),
        ("a: !!python/object/apply:os.system [ls]\n", "is not valid YAML"),
    ],
)
def test_a_file_that_is_not_a_configuration_is_refused(tmp_path, text, says):
    site = write(tmp_path / "storm.yaml", text)
    with pytest.raises(ConfigError) as caught:
        load_conf(config_file=site, env={})
    assert says in str(caught.value)
    assert str(site) in str(caught.value)


def test_a_named_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml: cannot be read"):
        load_conf(config_file=tmp_path / "none.yaml", env={})


def test_an_empty_file_is_an_empty_configuration(tmp_path):
    assert load_conf(config_file=write(tmp_path / "s.yaml", "# nothing\n"), env={})


def test_all_wrong_values_are_listed_with_key_value_and_what_is_expected(tmp_path):
    text = "nimbus.thrift.port: '6627'\ntopology.workers: 0\nstorm.zookeeper.servers: zk1\n"
    site = write(tmp_path / "storm.yaml", text)
    with pytest.raises(ConfigError) as caught:
        load_conf(config_file=site, env={})
    assert str(caught.value).splitlines() == [
        f"{site}: nimbus.thrift.port is '6627'; expected a whole number from 0 to 65535",
        f"{site}: topology.workers is 0; expected a whole number from 1 to 65536",
        f"{site}: storm.zookeeper.servers is 'zk1'; expected a list, each item text of at most "
        "4096 characters, at least one",
    ]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("topology.workers", True),
        ("topology.workers", 1.5),
        ("topology.message.timeout.secs", 0),
        ("topology.message.timeout.secs", float("nan")),
        ("topology.debug", "yes"),
        ("topology.environment", {"A": ["x"]}),
        ("topology.stats.sample.rate", 1.1),
        ("storm.zookeeper.root", "storm"),
        ("storm.zookeeper.root", "/storm/"),
        ("storm.log.level", "LOUD"),
        ("storm.messaging.curve", 1),
        ("storm.messaging.curve", "yes"),
        ("supervisor.slots.ports", [6700, "6701"]),
        ("nimbus.seeds", []),
        ("topology.kryo.register", "a:B"),
    ],
)
def test_values_of_the_wrong_type_or_range_are_refused(key, value):
    with pytest.raises(ConfigError) as caught:
        validate_conf({key: value}, where="x")
    assert str(caught.value).startswith(f"x: {key} is {value!r}; expected ")


def test_null_is_as_if_the_key_were_not_given(tmp_path):
    site = write(tmp_path / "s.yaml", "nimbus.thrift.port: null\ntopology.acker.executors: null\n")
    conf = load_conf(config_file=site, env={})
    assert conf["nimbus.thrift.port"] == 6627
    assert conf["topology.acker.executors"] is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("topology.workers=2", ("topology.workers", 2)),
        ("topology.acker.executors=null", ("topology.acker.executors", None)),
        ('nimbus.seeds=["a", "b"]', ("nimbus.seeds", ["a", "b"])),
        ("topology.environment={A: b}", ("topology.environment", {"A": "b"})),
        ("topology.version=1.0", ("topology.version", "1.0")),
        ("topology.debug=true", ("topology.debug", True)),
        ("mine=a=b", ("mine", "a=b")),
        ("mine=", ("mine", None)),
        ("mine=a: b: c", ("mine", "a: b: c")),
    ],
)
def test_an_override_is_key_and_yaml_value(text, expected):
    assert parse_override(text) == expected


@pytest.mark.parametrize("text", ["topology.workers", "=2", ""])
def test_an_invalid_override_is_refused(text):
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_override(text)


def test_folders_are_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    conf = load_conf(overrides=["storm.local.dir=here"], env={})
    assert conf["storm.local.dir"] == str(tmp_path / "here")
    assert local_dir(conf) == tmp_path / "here"
    assert log_dir(conf) == tmp_path / "here" / "logs"
    assert log_dir(load_conf(overrides=["storm.log.dir=l"], env={})) == tmp_path / "l"


def test_unknown_keys_are_kept_and_warned_of_with_the_nearest_option():
    said = []
    overrides = ["topology.worker=2", "nimbus.unheard=1", "mine=1"]
    conf = load_conf(overrides=overrides, env={}, warn=said.append)
    assert (conf["topology.worker"], conf["mine"]) == (2, 1)
    assert said == [
        "-c: unknown option topology.worker (did you mean topology.workers?)",
        "-c: unknown option nimbus.unheard",
    ]


def test_a_library_that_loads_a_configuration_logs_the_warnings(caplog):
    load_conf(overrides=["topology.worker=2"], env={})
    (record,) = caplog.records
    assert record.getMessage().startswith('config_warning text="-c: unknown option topology.worker')


def test_a_topologys_conf_is_nimbus_own_under_the_submitters():
    nimbus = load_conf(overrides=["topology.message.timeout.secs=7", "ui.port=1"], env={})
    conf = normalize_topology_conf(
        {"topology.workers": 3.0, "mine": [1, None], "topology.debug": None}, nimbus, name="wc"
    )
    assert conf["topology.message.timeout.secs"] == 7
    assert conf["topology.workers"] == 3
    assert type(conf["topology.workers"]) is int
    assert conf["mine"] == [1, None]
    assert conf["topology.debug"] is False
    assert conf["topology.name"] == "wc"
    assert conf["nimbus.seeds"] == ["localhost"]
    assert conf["nimbus.thrift.port"] == 6627
    json.dumps(conf, allow_nan=False)


def test_nothing_of_one_node_gets_into_a_topologys_conf():
    conf = normalize_topology_conf({}, load_conf(env={}))
    assert not [k for k in conf if k.startswith(("supervisor.", "storm.local", "storm.log", "ui."))]


def test_the_number_of_ackers_is_fixed_when_a_topology_is_submitted():
    """A rebalance to more workers must not change it: it is part of the messages' ids."""
    nimbus = default_conf()
    assert normalize_topology_conf({"topology.workers": 4}, nimbus)["topology.acker.executors"] == 4
    given = {"topology.workers": 4, "topology.acker.executors": 0}
    assert normalize_topology_conf(given, nimbus)["topology.acker.executors"] == 0


def test_null_event_loggers_mean_one_a_worker():
    given = {"topology.workers": 2, "topology.eventlogger.executors": None}
    conf = normalize_topology_conf(given, default_conf())
    assert conf["topology.eventlogger.executors"] == 2


@pytest.mark.parametrize(
    ("conf", "says"),
    [
        ({"topology.workers": "two"}, "topology.workers is 'two'; expected a whole number"),
        ({"mine": {1, 2}}, "mine is {1, 2}; expected a JSON value"),
        ({"mine": float("inf")}, "expected a JSON value"),
        ({3: 4}, "the key 3 is not text"),
        ({"topology.worker.timeout.secs": 601}, "at most worker.max.timeout.secs"),
    ],
)
def test_a_topology_conf_that_cannot_be_is_refused(conf, says):
    with pytest.raises(ConfigError) as caught:
        normalize_topology_conf(conf, default_conf())
    assert says in str(caught.value)


def test_a_null_stall_timeout_turns_it_off():
    """It is a value of its own: never. For most keys null means the default."""
    given = {"topology.worker.stall.timeout.secs": None, "topology.message.timeout.secs": None}
    conf = normalize_topology_conf(given, default_conf())
    assert conf["topology.worker.stall.timeout.secs"] is None
    assert conf["topology.message.timeout.secs"] == 30


def test_a_component_overrides_only_what_storm_lets_it():
    topology = {"topology.debug": False, "topology.workers": 2, "mine": 1}
    own = {"topology.debug": True, "topology.workers": 9, "mine": 2, "more": 3}
    assert component_conf(topology, own) == {
        "topology.debug": True,
        "topology.workers": 2,
        "mine": 2,
        "more": 3,
    }
