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
from squall_cli.secure.enrolment import Folder
from squall_common.config.load import default_conf, unknown_keys, validate_conf
from squall_supervisor.confine import users

COMPOSE = Path(__file__).resolve().parents[3] / "deploy" / "compose"
ENTRYPOINT = COMPOSE / "entrypoint.py"
COMPOSE_FILE: dict[str, Any] = yaml.safe_load((COMPOSE / "compose.yaml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE_FILE["services"]
OTHERS = {"zookeeper", "prometheus", "grafana"}
OURS = {name: one for name, one in SERVICES.items() if name not in OTHERS}
DAEMONS = ("nimbus1", "nimbus2", "supervisor", "drpc", "ui")
# Those that run as root, with the capabilities that they have.
ROOT = {
    "ca": [],
    "supervisor": [one.name for one in users.NEEDED],  # to run workers as others
    "prometheus-certificate": ["CHOWN"],  # to hand a key to a user of another image
}


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


def environment(name: str, conf: str = "", *, is_open: str = "") -> dict[str, str]:
    """That of a service, as Compose fills it in."""
    env = {**OURS[name]["environment"], "STORM_OPEN": is_open}
    env["STORM_YAML"] = env["STORM_YAML"].replace("${SQUALL_CONF:-}", conf)
    return env


def test_one_setting_makes_the_cluster_an_open_one() -> None:
    conf = entrypoint.rendered(environment("supervisor", is_open="yes"))
    validate_conf(conf)
    assert conf["storm.security.insecure"] is True
    assert conf["supervisor.run.worker.as.user.default"] == "storm"
    assert "nimbus.admins" not in conf
    assert entrypoint.certified("nimbus", "n", [], environment("nimbus1", is_open="yes")) == {}
    assert all(OURS[name]["environment"]["STORM_OPEN"] == "${STORM_OPEN:-}" for name in OURS)
    with pytest.raises(entrypoint.EntrypointError, match="neither yes nor no"):
        entrypoint.rendered(environment("supervisor", is_open="1"))


def test_the_key_of_the_ca_is_in_one_container_without_a_network() -> None:
    assert [name for name, one in SERVICES.items() if mounts(one).get("ca")] == ["ca"]
    assert OURS["ca"]["network_mode"] == "none"
    assert "ports" not in OURS["ca"]
    assert not any("docker.sock" in volume for one in OURS.values() for volume in mounts(one))


def mounts(service: dict[str, Any]) -> dict[str, str]:
    """What is mounted, and where."""
    return dict(one.split(":")[:2] for one in service.get("volumes", []))


def test_each_container_gets_certificates_of_its_own_role_as_its_own_user() -> None:
    given = {}
    for word in OURS["ca"]["command"]:
        if word.startswith("/enrol/"):
            folder = Folder.parse(word)
            given[f"enrol-{folder.path.name}"] = folder
            assert mounts(OURS["ca"])[f"enrol-{folder.path.name}"] == str(folder.path)
    for name, service in OURS.items():
        if name == "ca":
            continue
        [volume] = [one for one in mounts(service) if one.startswith("enrol-")]
        assert f"{volume}:/enrol:ro" in service["volumes"]
        folder = given[volume]
        assert folder.uid == (0 if name in ROOT else 1000)
        daemon = entrypoint.daemon_of(service["command"])
        roles = {"user"} if daemon is None else {daemon}
        assert {str(role) for role in folder.roles} - {"logviewer"} == roles
        assert service["environment"]["STORM_CA"] == "/enrol"


def test_zookeeper_is_out_of_reach_of_all_but_daemons_that_need_it() -> None:
    assert SERVICES["zookeeper"]["networks"] == ["state"]
    inside = {name for name, one in SERVICES.items() if "state" in one.get("networks", ())}
    assert inside == {"zookeeper", "nimbus1", "nimbus2", "supervisor"}
    assert COMPOSE_FILE["networks"]["state"] == {"internal": True}


def test_zookeeper_has_no_pages_that_show_what_access_lists_hide() -> None:
    environment = SERVICES["zookeeper"]["environment"]
    assert environment["ZOO_ADMINSERVER_ENABLED"] == "false"
    assert environment["ZOO_4LW_COMMANDS_WHITELIST"] == "srvr"


@pytest.mark.parametrize("name", OURS)
def test_a_service_has_no_more_rights_than_it_needs(name: str) -> None:
    service = OURS[name]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["init"] is True
    assert "privileged" not in service
    # Else the image's: 1000.
    assert service.get("user") == ("0:0" if name in ROOT else None)
    assert sorted(service.get("cap_add", [])) == sorted(ROOT.get(name, []))


@pytest.mark.parametrize("name", DAEMONS)
def test_a_service_runs_a_daemon_with_a_valid_configuration(name: str) -> None:
    service = OURS[name]
    assert service["command"][1] in SECTIONS["Daemons"]
    assert service["restart"] == "unless-stopped"
    conf = entrypoint.rendered(environment(name, "topology.workers: 2"))
    validate_conf(conf, secured=True)
    assert unknown_keys(conf) == {}
    assert conf["supervisor.run.worker.as.user"] is True
    assert conf["nimbus.admins"] == ["storm"]
    assert "storm.security.insecure" not in conf
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


def test_users_of_the_cluster_become_users_of_the_machine(tmp_path: Path) -> None:
    source, passwd = tmp_path / "accounts", tmp_path / "passwd"
    passwd.write_text("root:x:0:0::/root:/bin/sh\nbob:x:20001:20001::/:/bin/sh\n")
    source.write_text("alice 20000\nbob 20001\nroot 0\nmallory 0\n::: 20002\n")
    for _ in range(2):
        entrypoint.add_accounts(source, passwd)
    added = passwd.read_text().splitlines()[2:]
    assert added == ["alice:x:20000:20000::/nonexistent:/usr/sbin/nologin"]
