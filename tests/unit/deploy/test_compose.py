"""What the containers of deploy/compose start with, and what compose.yaml promises."""

from __future__ import annotations

import importlib.util
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from squall_cli.main import SECTIONS
from squall_common.config.load import default_conf, unknown_keys, validate_conf

COMPOSE = Path(__file__).resolve().parents[3] / "deploy" / "compose"
ENTRYPOINT = COMPOSE / "entrypoint.py"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())[
    "services"
]
OTHERS = {"zookeeper", "prometheus", "grafana"}
OURS = {name: one for name, one in SERVICES.items() if name not in OTHERS}


def _load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("squall_entrypoint", ENTRYPOINT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


entrypoint = _load()


def test_ports_are_published_to_this_machine_only() -> None:
    published = [port for one in SERVICES.values() for port in one.get("ports", [])]
    assert len(published) == 7
    assert all(port.startswith("127.0.0.1:") for port in published)


@pytest.mark.parametrize("name", OURS)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = OURS[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert "privileged" not in service
    assert "user" not in service  # the image's: 1000


@pytest.mark.parametrize("name", [name for name in OURS if name != "wordcount"])
def test_a_service_runs_a_daemon_with_a_valid_configuration(name: str) -> None:
    service = OURS[name]
    assert service["command"][1] in SECTIONS["Daemons"]
    assert service["restart"] == "unless-stopped"
    env = {**service["environment"]}
    env["STORM_YAML"] = env["STORM_YAML"].replace("${SQUALL_CONF:-}", "topology.workers: 2")
    conf = entrypoint.rendered(env)
    validate_conf(conf)
    assert unknown_keys(conf) == {}
    assert conf["topology.workers"] == 2
    for seed in conf["nimbus.seeds"]:
        host, _, port = seed.partition(":")
        assert OURS[host]["hostname"] == host
        listens = entrypoint.port_of(OURS[host]["command"], conf)
        assert listens == int(port or 6627)
        assert f"127.0.0.1:{listens}:{listens}" in OURS[host]["ports"]
    assert conf["drpc.servers"] == ["drpc"]
    assert conf["storm.zookeeper.servers"] == ["zookeeper"]


def test_the_default_ports_are_those_of_the_configuration() -> None:
    conf = default_conf()
    for daemon, (key, default) in entrypoint.PORTS.items():
        assert conf[key] == default
        assert entrypoint.port_of(["storm", daemon], {}) == default
        assert entrypoint.port_of(["storm", daemon], {key: 7000}) == 7000
        assert entrypoint.port_of(["storm", daemon, "-c", f"{key}=7001"], {key: 7000}) == 7001


def test_the_environment_gives_storm_yaml() -> None:
    conf = entrypoint.rendered(
        {
            "STORM_ZOOKEEPER_SERVERS": "a, b,",
            "NIMBUS_SEEDS": "n",
            "STORM_DATA_DIR": "/d",
            "STORM_YAML": "storm.bind.host: 127.0.0.1",
        }
    )
    assert conf == {
        "storm.local.dir": "/d",
        "storm.log.dir": "/logs",
        "storm.bind.host": "127.0.0.1",
        "storm.zookeeper.servers": ["a", "b"],
        "nimbus.seeds": ["n"],
    }


def test_a_mounted_storm_yaml_is_left_alone_and_a_written_one_is_not(tmp_path: Path) -> None:
    path = tmp_path / "storm.yaml"
    entrypoint.site_conf(path, {"NIMBUS_SEEDS": "n"})
    assert path.stat().st_mode & 0o777 == 0o600
    entrypoint.site_conf(path, {"NIMBUS_SEEDS": "m"})
    assert yaml.safe_load(path.read_text())["nimbus.seeds"] == ["m"]
    path.write_text("nimbus.seeds: [mounted]\n")
    assert entrypoint.site_conf(path, {"NIMBUS_SEEDS": "n"}) == {"nimbus.seeds": ["mounted"]}
    assert path.read_text() == "nimbus.seeds: [mounted]\n"


def test_a_daemon_learns_the_name_that_others_resolve() -> None:
    env = {"STORM_LOCAL_HOSTNAME": "node7"}
    given = entrypoint.with_hostname(["storm", "supervisor", "-c", "a=b"], {}, env)
    assert given == ["storm", "supervisor", "-c", "storm.local.hostname=node7", "-c", "a=b"]
    for command, conf in (
        (["storm", "nimbus", "-c", "storm.local.hostname=x"], {}),
        (["storm", "nimbus"], {"storm.local.hostname": "x"}),
    ):
        assert entrypoint.with_hostname(command, conf, env) == command


def test_the_image_is_built_from_every_package() -> None:
    root = COMPOSE.parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = (root / ".dockerignore").read_text().split()
    assert {f"!{package.partition('/')[0]}" for package in packages} <= set(copied)
