"""Which keys of a node's configuration its topologies get to see."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.support.option_reads import options_read

from squall_common.config.for_workers import WORKER_KEYS, worker_conf
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.config.options import OPTIONS
from squall_common.config.options.typed import WorkerOptions
from squall_common.config.schema import SCHEMA

ROOT = Path(__file__).parents[4]
FOLDERS = ("api", "common", "engine", "thrift", "worker", "drpc")


def test_a_workers_part_of_a_configuration_is_chosen_by_name():
    conf = {
        **default_conf(),
        "my.plugin.password": "CANARY",
        "storm.zookeeper.auth.payload": "CANARY",
        "worker.secret": "CANARY",
        "drpc.https.keystore.password": "CANARY",
        "nimbus.admins": ["CANARY"],
        "topology.debug": True,
        "site.region": "eu",
        "supervisor.worker.conf.keys": ["site.region"],
    }
    seen = worker_conf(conf)
    assert "CANARY" not in str(seen)
    assert seen["storm.zookeeper.servers"] == conf["storm.zookeeper.servers"]
    assert seen["topology.debug"] is True
    assert seen["site.region"] == "eu"


def test_nimbus_stores_none_of_its_own_secrets_with_a_topology():
    """The stored configuration reaches every worker of the topology too."""
    own = {"storm.zookeeper.auth.payload": "CANARY", "drpc.keystore.password": "CANARY"}
    stored = normalize_topology_conf({"my.key": "mine"}, {**default_conf(), **own}, name="wc")
    assert "CANARY" not in str(stored)
    assert stored["my.key"] == "mine"
    asked = {"site.password": "of the topology"}
    merged = normalize_topology_conf(
        asked, {**default_conf(), "site.password": "CANARY"}, name="wc"
    )
    assert merged["site.password"] == "of the topology"


def test_listed_keys_are_options():
    assert set(SCHEMA) >= WORKER_KEYS


def test_what_a_worker_reads_of_its_node_is_given_to_it():
    fields = WorkerOptions.__struct_fields__
    read = {option.key for option in OPTIONS.values() if option.field in fields}
    assert read <= WORKER_KEYS


def test_a_worker_reads_no_option_that_it_is_not_given():
    """Every option that is read in code which a worker imports, whichever class of typed options
    it comes from."""
    modules = _imported_by_a_worker()
    assert {"squall_worker.process", "squall_drpc.spout"} <= set(modules)
    missing = {
        f"{key} in {module}"
        for module, path in modules.items()
        for key in options_read(path)
        if not key.startswith("topology.") and key not in WORKER_KEYS | _PROOFS
    }
    assert not missing, f"add to squall_common.config.for_workers: {sorted(missing)}"


# How a client of a secured cluster proves who it is. A worker does not: what it would be given, its
# topology's code could read.
_PROOFS = {
    "storm.security.ca",
    "storm.security.certificate",
    "storm.security.key",
    "storm.security.token.file",
    "storm.doAsUser",
}
# What is named in these are lists of keys, or how a daemon or a client reads its configuration.
_ABOUT_ALL_KEYS = {
    "squall_common.config.load",
    "squall_common.config.schema",
    "squall_common.config.for_workers",
}
# What a worker's code imports only when it is not in a worker: local mode, submitting, daemons.
_ELSEWHERE = {
    "squall.local",
    "squall.testing",
    "squall.testing._runs",
    "squall.testing.connectors",
    "squall.testing.topologies",
    "squall._submit",
    "squall._entry",
    "squall_common.daemon.run",
}


def _imported_by_a_worker() -> dict[str, Path]:
    """The modules of ours that a worker can import, wherever in them the import stands."""
    known = {}
    for folder in FOLDERS:
        for path in (ROOT / folder).rglob("*.py"):
            name = ".".join(path.relative_to(ROOT / folder).with_suffix("").parts)
            known[name.removesuffix(".__init__")] = path
    roots = [name for name in known if name.startswith("squall_worker")]
    todo = [*roots, "squall_drpc.spout", "squall_drpc.bolts"]
    found: dict[str, Path] = {}
    while todo:
        name = todo.pop()
        if name in found or name not in known or name in _ABOUT_ALL_KEYS | _ELSEWHERE:
            continue
        if name.startswith("squall_common.config.options"):  # the declarations of all keys
            continue
        found[name] = known[name]
        for node in ast.walk(ast.parse(known[name].read_text())):
            if isinstance(node, ast.Import):
                todo += [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                todo += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return found
