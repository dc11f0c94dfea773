"""What deploy/ holds is what Kubernetes, systemd and squall itself would take."""

from __future__ import annotations

import configparser
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from squall_cli.main import SECTIONS
from squall_common.config.load import unknown_keys, validate_conf

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "squall.yaml").read_text())
)
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {m["metadata"]["name"]: m for m in MANIFESTS if m["kind"] == kind}


def check_conf(conf: dict[str, Any]) -> None:
    validate_conf(conf, where="deploy")
    assert unknown_keys(conf) == {}


@pytest.mark.parametrize(
    "manifest", MANIFESTS, ids=lambda m: f"{m['kind']} {m['metadata']['name']}"
)
def test_a_manifest_follows_the_published_schema(manifest: dict[str, Any]) -> None:
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    assert manifest["metadata"]["name"] == "squall" or manifest["metadata"]["namespace"] == "squall"


def test_the_parts_of_the_kubernetes_cluster_fit_together() -> None:
    conf = yaml.safe_load(of_kind("ConfigMap")["squall"]["data"]["storm.yaml"])
    check_conf(conf)
    sets, services = of_kind("StatefulSet"), of_kind("Service")
    for name, one in sets.items():
        spec = one["spec"]
        labels = spec["template"]["metadata"]["labels"]
        assert spec["selector"]["matchLabels"] == labels == services[name]["spec"]["selector"]
        known = {v["name"] for v in spec["template"]["spec"].get("volumes", [])}
        known |= {v["metadata"]["name"] for v in spec.get("volumeClaimTemplates", [])}
        for container in spec["template"]["spec"]["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= known
            if container["image"].startswith("squall"):
                assert container["args"][0] == "storm"
                assert container["args"][1] in SECTIONS["Daemons"]
                paths = {mount["mountPath"] for mount in container["volumeMounts"]}
                assert {conf["storm.local.dir"], conf["storm.log.dir"], "/conf"} <= paths

    def hosts(name: str) -> list[str]:
        return [f"{name}-{n}.{name}" for n in range(sets[name]["spec"]["replicas"])]

    assert conf["nimbus.seeds"] == hosts("nimbus")
    assert conf["storm.zookeeper.servers"] == hosts("zookeeper")


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_an_existing_daemon(path: Path) -> None:
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(path.read_text())
    assert unit.sections() == ["Unit", "Service", "Install"]
    service = unit["Service"]
    command = service["ExecStart"].split()
    assert command[0].endswith("/storm")
    assert command[1] in SECTIONS["Daemons"]
    assert path.name == f"squall-{command[1]}.service"
    assert service["Restart"] == "always"
    # Workers outlive their supervisor.
    assert (service.get("KillMode") == "process") is (command[1] == "supervisor")


def test_the_conf_of_the_units_is_valid() -> None:
    conf = yaml.safe_load((DEPLOY / "systemd" / "storm.yaml").read_text())
    check_conf(conf)
    for path in UNITS:
        text = path.read_text()
        assert f"ReadWritePaths={conf['storm.local.dir']} {conf['storm.log.dir']}" in text
