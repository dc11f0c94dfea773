"""The declarations of options, and what becomes of each key of Apache Storm's."""

from __future__ import annotations

import logging
from collections import defaultdict

import pytest
from tests.support.option_reads import ROOT, modules, options_read

from squall_common.config.load import default_conf as defaults
from squall_common.config.load import (
    load_conf,
    normalize_topology_conf,
    validate_conf,
    warn_of_ignored,
)
from squall_common.config.options import OPTIONS, SECTIONS
from squall_common.config.options.__main__ import written
from squall_common.config.options.declaration import COMPONENTS, NO_READER, Reader
from squall_common.config.options.declared.storm import MADE_UP_BY_CLIENTS, STORM_KEYS
from squall_common.config.options.judge import ignored_keys, refused_keys, verdict_of
from squall_common.config.options.pages import storms_keys
from squall_common.config.options.verdicts import Verdict
from squall_common.daemon.run import set_up_daemon_log
from squall_common.errors import ConfigError

# ---- The declarations ----


def test_each_option_is_declared_once():
    declared = [option.key for _, options in SECTIONS for option in options]
    assert len(declared) == len(set(declared)) == len(OPTIONS)


def test_what_is_written_from_the_declarations_is_up_to_date():
    """Run `python -m squall_common.config.options` in the checkout otherwise."""
    stale = [path for path, text in written(ROOT).items() if path.read_text() != text]
    assert stale == []


def test_each_default_is_of_its_type():
    for option in OPTIONS.values():
        assert option.default is None or option.kind.check(option.default), option.key
        assert option.kind.read(option.default) == option.default if option.default else True


# ---- Readers ----

# Who reads an option that code in a folder reads. What all share is in none of them.
_FOLDERS = {
    "nimbus": Reader.NIMBUS,
    "supervisor": Reader.SUPERVISOR,
    "worker": Reader.WORKER,
    "engine": Reader.WORKER,
    "drpc": Reader.DRPC,
    "drpc/squall_drpc/client.py": Reader.COMMAND,
    "ui": Reader.UI,
    "ui/squall_ui/logviewer/daemon.py": Reader.LOGVIEWER,
    "ui/squall_ui/process.py": Reader.UI | Reader.LOGVIEWER,
    "cli": Reader.COMMAND,
    # They read what daemons will read: of this machine, and of a cluster that is to start.
    "cli/squall_cli/doctor/node.py": Reader(0),
    "cli/squall_cli/dev/plan.py": Reader(0),
    "connectors": Reader.WORKER,
    "pipeline": Reader.COMMAND,
}
_SHARED = ("common", "api", "thrift")
# Lists of keys: naming one there reads nothing.
_LISTS = ("options", "schema.py", "scopes.py")


def _reads() -> dict[str, set[str]]:
    """Of each option the folders, or the file, whose code reads it."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in modules():
        place = path.relative_to(ROOT)
        if any(part in _LISTS for part in place.parts):
            continue
        for key in options_read(path):
            found[key].add(str(place) if str(place) in _FOLDERS else place.parts[0])
    return found


def test_each_option_is_read_by_whom_its_declaration_says():
    """A key that is accepted, documented and read by nothing is a promise that is not kept."""
    reads = _reads()
    wrong = []
    for key, option in OPTIONS.items():
        folders = reads.get(key, set())
        readers = [_FOLDERS[folder] for folder in folders if folder in _FOLDERS]
        if option.ignored is not None or option.refused is not None:
            if option.readers is not NO_READER:
                wrong.append(f"{key} has no effect, and readers")
            continue
        if option.readers is COMPONENTS:
            continue
        if not folders or option.readers is NO_READER:
            wrong.append(f"{key} has no reader: read it, map it, or declare why it is ignored")
        wrong += [f"{key}: declare {reader}" for reader in readers if reader not in option.readers]
        if not folders & set(_SHARED):
            unread = [one for one in option.readers if not any(one in some for some in readers)]
            wrong += [f"{key} is not read by {one}" for one in unread]
    assert wrong == []


# ---- Storm's keys ----


def test_every_key_of_storms_has_one_verdict():
    """286 keys of conf/defaults.yaml at 2.8.8 and 14 more on main, and those of Config.java and
    DaemonConfig.java that have no default; and the JAAS file, which Storm reads by a plain name."""
    assert len(storms_keys()) == 511
    assert not set(STORM_KEYS) & set(OPTIONS)
    for key in storms_keys():
        judged = verdict_of(key)
        assert judged is not None
        assert judged[0] is Verdict.SUPPORTED or judged[1], key
    for storm in STORM_KEYS.values():
        assert (storm.ours in OPTIONS) == (storm.verdict is Verdict.MAPPED)


def storm_default(key: str) -> object:
    return OPTIONS[key].storm_default if key in OPTIONS else STORM_KEYS[key].default


def test_a_site_file_that_spells_out_storms_defaults_is_taken_without_a_word():
    site = {key: storm_default(key) for key in storms_keys()}
    said: list[str] = []
    load_conf(overrides=site, env={}, warn=said.append)
    assert said == []


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("drpc.thrift.transport", "org.apache.storm.security.auth.kerberos.KerberosSaslTransport"),
        (
            "storm.thrift.transport",
            "org.apache.storm.security.auth.digest.DigestSaslTransportPlugin",
        ),
        ("java.security.auth.login.config", "/etc/storm/jaas.conf"),
        ("nimbus.authorizer", "org.apache.storm.security.auth.authorizer.SimpleACLAuthorizer"),
        ("nimbus.thrift.client.use.tls", True),
        ("nimbus.thrift.tls.port", 6628),
        ("nimbus.users", ["anna"]),
        ("ui.https.keystore.path", "/etc/storm/keys"),
        ("ui.filter", "org.apache.hadoop.AuthenticationFilter"),
        ("drpc.https.port", 3775),
        ("storm.zookeeper.auth.user", "storm"),
        ("storm.zookeeper.ssl.enable", True),
        ("storm.blobstore.acl.validation.enabled", True),
        ("topology.users", ["anna"]),
        ("topology.readonly.groups", ["ops"]),
        ("topology.auto-credentials", ["org.apache.storm.AutoTGT"]),
    ],
)
def test_a_key_that_asks_for_protection_is_refused_everywhere(tmp_path, key, value):
    site = tmp_path / "storm.yaml"
    site.write_text(f"{key}: {value if not isinstance(value, bool) else 'true'}\n")
    with pytest.raises(ConfigError, match=f"{key} is refused: ") as caught:
        load_conf(config_file=site, env={})
    assert str(site) in str(caught.value)
    with pytest.raises(ConfigError, match=f"{key} is refused: "):
        normalize_topology_conf({key: value}, defaults())


def test_a_refusal_does_not_show_the_value():
    with pytest.raises(ConfigError) as caught:
        validate_conf({"storm.zookeeper.auth.password": "anna:CANARY"})
    assert "CANARY" not in str(caught.value)


@pytest.mark.parametrize("value", [None, False, "", [], {}, 0, -1])
def test_a_value_that_asks_for_nothing_is_not_refused(value):
    refused = [key for key in STORM_KEYS if STORM_KEYS[key].verdict is Verdict.REFUSED]
    assert len(refused) > 50
    assert refused_keys(dict.fromkeys(refused, value)) == {}


def test_an_open_authorizer_is_not_refused():
    assert (
        refused_keys(
            {"nimbus.authorizer": "org.apache.storm.security.auth.authorizer.NoopAuthorizer"}
        )
        == {}
    )


def test_keys_without_effect_are_warned_of_once_a_reason():
    said: list[str] = []
    conf = load_conf(
        overrides={
            "nimbus.childopts": "-Xmx2g",
            "supervisor.childopts": "-Xmx1g",
            "worker.childopts": None,
            "topology.priority": 5,
            "topology.backpressure.enable": False,
        },
        env={},
        warn=said.append,
    )
    assert said == [
        "-c: these keys have no effect: nimbus.childopts, supervisor.childopts (there is no JVM)",
        "-c: this key has no effect: topology.priority (the scheduler treats all topologies alike)",
        "-c: this key has no effect: topology.backpressure.enable (backpressure is always on, by "
        "credit: topology.worker.buffer.bytes bounds what waits)",
    ]
    assert conf["topology.priority"] == 5


def test_a_daemon_says_in_its_log_what_has_no_effect(tmp_path):
    conf = {**defaults(), "storm.scheduler": "my.Scheduler"}
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    try:
        set_up_daemon_log("nimbus", level="INFO", folder=str(tmp_path))
        warn_of_ignored(conf)
    finally:
        for handler in set(root.handlers) - set(handlers):
            handler.close()
        root.handlers[:] = handlers
        root.setLevel(level)
    (line,) = (tmp_path / "nimbus.log").read_text().splitlines()
    assert "config_keys_ignored keys=storm.scheduler reason=" in line


def test_mapped_keys_set_our_options():
    conf = load_conf(
        overrides={
            "storm.messaging.netty.authentication": True,
            "storm.cgroup.memory.limit.tolerance.margin.mb": 64,
            "topology.spout.wait.progressive.level3.sleep.millis": 5,
        },
        env={},
    )
    assert conf["storm.messaging.curve"] is True
    assert conf["storm.supervisor.memory.limit.tolerance.margin.mb"] == 64
    assert conf["topology.sleep.spout.wait.strategy.time.ms"] == 5
    stored = normalize_topology_conf(
        {"topology.spout.wait.progressive.level3.sleep.millis": 7}, defaults()
    )
    assert stored["topology.sleep.spout.wait.strategy.time.ms"] == 7


def test_our_own_key_beats_a_mapped_one():
    conf = load_conf(
        overrides={
            "topology.spout.wait.progressive.level3.sleep.millis": 5,
            "topology.sleep.spout.wait.strategy.time.ms": 9,
            "storm.messaging.netty.tls.enable": False,
        },
        env={},
    )
    assert conf["topology.sleep.spout.wait.strategy.time.ms"] == 9
    assert conf["storm.messaging.curve"] == "auto"


def test_a_mapped_value_of_the_wrong_type_is_refused_under_the_name_that_was_given():
    with pytest.raises(ConfigError, match=r"level3\.sleep\.millis counts as topology\.sleep"):
        validate_conf({"topology.spout.wait.progressive.level3.sleep.millis": "5"})


def test_what_storms_java_client_makes_up_is_accepted_dropped_and_reported():
    made_up = {
        "storm.zookeeper.topology.auth.scheme": "digest",
        "storm.zookeeper.topology.auth.payload": "-123:CANARY",
    }
    assert set(made_up) == MADE_UP_BY_CLIENTS
    stored = normalize_topology_conf({**made_up, "mine": 1}, defaults(), name="wc")
    assert "CANARY" not in str(stored)
    assert not MADE_UP_BY_CLIENTS & set(stored)
    assert stored["mine"] == 1
    assert set(ignored_keys(made_up)) == MADE_UP_BY_CLIENTS


def test_the_daemons_digest_in_a_topologys_configuration_is_dropped():
    key = "storm.zookeeper.auth.payload"
    stored = normalize_topology_conf({key: "squall:CANARY", "mine": 1}, defaults(), name="wc")
    assert "CANARY" not in str(stored)
    assert stored["mine"] == 1
    site = normalize_topology_conf({}, {**defaults(), key: "squall:CANARY"}, name="wc")
    assert "CANARY" not in str(site)


# ---- Which site file is read ----


@pytest.fixture
def files(tmp_path):
    """A home with a user's own file, the cluster's folder, and the environment that names both."""
    (tmp_path / ".storm").mkdir()
    (tmp_path / ".storm" / "storm.yaml").write_text("topology.workers: 2\n")
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "storm.yaml").write_text("topology.workers: 3\nui.port: 1\n")
    return {"HOME": str(tmp_path), "STORM_CONF_DIR": str(tmp_path / "conf")}


def test_a_client_reads_the_users_own_file_in_place_of_the_clusters(files, tmp_path):
    said: list[str] = []
    conf = load_conf(env=files, client=True, warn=said.append)
    assert (conf["topology.workers"], conf["ui.port"]) == (2, 8080)
    (text,) = said
    assert text.startswith(f"{tmp_path / 'conf' / 'storm.yaml'} is not read, since")


def test_a_daemon_does_not_read_the_users_own_file(files):
    assert load_conf(env=files)["topology.workers"] == 3
    del files["STORM_CONF_DIR"]
    assert load_conf(env=files)["topology.workers"] == 1
    assert load_conf(env=files, client=True)["topology.workers"] == 2


def test_a_client_without_a_file_of_its_own_reads_the_clusters(files, tmp_path):
    (tmp_path / ".storm" / "storm.yaml").unlink()
    assert load_conf(env=files, client=True)["topology.workers"] == 3


def test_a_named_file_beats_both(files, tmp_path):
    said: list[str] = []
    named = tmp_path / "named.yaml"
    named.write_text("topology.workers: 4\n")
    conf = load_conf(config_file=named, env=files, client=True, warn=said.append)
    assert conf["topology.workers"] == 4
    assert said == []


@pytest.mark.parametrize("key", ["nimbus.users", "topology.users", "topology.readonly.groups"])
def test_lists_of_users_count_in_a_secured_cluster_only(key):
    with pytest.raises(ConfigError, match=f"{key} is refused: in an open cluster"):
        validate_conf({key: ["alice"]})
    validate_conf({key: ["alice"]}, secured=True)
    validate_conf({key: []})
