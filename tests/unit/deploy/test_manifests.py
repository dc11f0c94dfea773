"""What deploy/ holds is what Kubernetes, systemd and squall itself would take."""

from __future__ import annotations

import base64
import configparser
import importlib.util
import re
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import kubernetes_validate
import pytest
import yaml

from squall_cli.main import SECTIONS
from squall_cli.secure.enrolment import uids
from squall_cli.secure.zookeeper_digest import replace_digest
from squall_common.config.load import unknown_keys, validate_conf
from squall_common.security.certificates import check_issued, hosts_of, read_certificate
from squall_supervisor.confine import users

DEPLOY = Path(__file__).resolve().parents[3] / "deploy"
MANIFESTS: list[dict[str, Any]] = list(
    yaml.safe_load_all((DEPLOY / "kubernetes" / "squall.yaml").read_text())
)
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))


def _load() -> ModuleType:
    path = DEPLOY / "kubernetes" / "certificates.py"
    spec = importlib.util.spec_from_file_location("squall_certificates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


certificates = _load()


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {m["metadata"]["name"]: m for m in MANIFESTS if m["kind"] == kind}


def check_conf(conf: dict[str, Any]) -> None:
    validate_conf(conf, where="deploy", secured=True)
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
                check_container(container, name)
                assert container["args"][0] == "storm"
                assert container["args"][1] in SECTIONS["Daemons"]
                paths = {mount["mountPath"] for mount in container["volumeMounts"]}
                needed = {"/conf", "/ca", "/security"}
                assert {conf["storm.local.dir"], conf["storm.log.dir"], *needed} <= paths
                assert "/certificates" not in paths  # those of all pods

    def hosts(name: str) -> list[str]:
        return [f"{name}-{n}.{name}" for n in range(sets[name]["spec"]["replicas"])]

    assert conf["storm.zookeeper.auth.payload.file"] == "/security/zookeeper.digest"
    assert conf["nimbus.seeds"] == hosts("nimbus")
    assert conf["storm.zookeeper.servers"] == hosts("zookeeper")


def check_container(container: dict[str, Any], name: str) -> None:
    """Only what it takes to run workers as other users, or to read their logs, is granted."""
    rights = {
        "supervisor": sorted(one.name for one in users.NEEDED),
        "logviewer": ["DAC_OVERRIDE"],
    }
    context = container["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"]["drop"] == ["ALL"]
    assert sorted(context["capabilities"].get("add", [])) == rights.get(container["name"], [])


def test_each_pod_has_its_certificate_in_the_secret_of_its_set(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = yaml.safe_load(of_kind("ConfigMap")["squall"]["data"]["storm.yaml"])
    assert certificates.main(["--dir", str(tmp_path / "ca"), "--user", "alice"]) == 0
    made = list(yaml.safe_load_all(capsys.readouterr().out))
    for manifest in made:
        version = kubernetes_validate.latest_version()
        kubernetes_validate.validate(manifest, version, strict=True)
    by_name = {one["metadata"]["name"]: one for one in made}
    public = by_name["squall-ca"]["data"]
    ca = read_certificate(public["ca.pem"].encode())
    texts = str(by_name)
    assert "PRIVATE KEY" not in texts  # Secrets have theirs in base64
    assert base64.b64encode((tmp_path / "ca" / "ca.key").read_bytes()).decode() not in texts
    assert uids(by_name["squall-accounts"]["data"]["accounts"]).keys() == {"admin", "alice"}
    assert conf["nimbus.admins"] == ["admin"]
    for name, one in of_kind("StatefulSet").items():
        if name == "zookeeper":
            continue
        files = by_name[f"squall-{name}"]["data"]
        [start] = one["spec"]["template"]["spec"]["initContainers"]
        copied = re.findall(r"cp /certificates/([a-z]+)-\$\{POD##\*-\}(\.\w+)", start["command"][2])
        number = one["spec"]["replicas"]
        digest = {"zookeeper.digest"} if name in ("nimbus", "supervisor") else set()
        own = {f"{r}-{n}{end}" for r, end in copied for n in range(number)}
        assert files.keys() == own | digest
        for n in range(number):
            for role in {role for role, _ in copied}:
                found = read_certificate(base64.b64decode(files[f"{role}-{n}.pem"]))
                holder = check_issued(found, ca, "squall", time.time())
                assert (holder.role, holder.name) == (role, f"{name}-{n}")
                assert f"{name}-{n}.{name}" in hosts_of(found)
    # A second call changes nothing, and a user more keeps all that is there.
    assert certificates.main(["--dir", str(tmp_path / "ca"), "--user", "bob"]) == 0
    again = {one["metadata"]["name"]: one for one in yaml.safe_load_all(capsys.readouterr().out)}
    assert uids(again.pop("squall-accounts")["data"]["accounts"]).keys() == {
        "admin",
        "alice",
        "bob",
    }
    assert again == {name: one for name, one in by_name.items() if name != "squall-accounts"}


def test_a_call_takes_no_certificate_from_a_pod(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which would not start again."""
    made = []
    for more in (["--supervisor", "4"], ["--user", "alice"], ["--supervisor", "2"]):
        assert certificates.main(["--dir", str(tmp_path / "ca"), *more]) == 0
        found = yaml.safe_load_all(capsys.readouterr().out)
        made.append({one["metadata"]["name"]: one for one in found}["squall-supervisor"])
    assert "supervisor-3.pem" in made[0]["data"]
    assert made == [made[0]] * 3


def test_zookeeper_has_no_pages_that_show_what_access_lists_hide() -> None:
    pod = of_kind("StatefulSet")["zookeeper"]["spec"]["template"]["spec"]
    environment = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
    assert environment["ZOO_ADMINSERVER_ENABLED"] == "false"
    assert environment["ZOO_4LW_COMMANDS_WHITELIST"] == "srvr"


def test_a_digest_that_is_replaced_comes_to_pods_with_the_next_call(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    digest = tmp_path / "ca" / "zookeeper.digest"
    made = []
    for _ in range(2):
        assert certificates.main(["--dir", str(tmp_path / "ca")]) == 0
        found = {m["metadata"]["name"]: m for m in yaml.safe_load_all(capsys.readouterr().out)}
        of = {found[f"squall-{name}"]["data"][digest.name] for name in ("nimbus", "supervisor")}
        assert len(of) == 1
        made.append(base64.b64decode(of.pop()).decode())
        assert made[-1] == digest.read_text()
        replace_digest(digest)
    assert made[1].splitlines()[1:] == made[0].splitlines()  # both count


def test_a_user_who_can_be_none_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certificates.main(["--dir", str(tmp_path / "ca"), "--user", "A b"]) == 1
    said = capsys.readouterr()
    assert (said.out, said.err[:6]) == ("", "error:")


def test_nothing_shipped_is_open() -> None:
    for path in (p for p in DEPLOY.rglob("*") if p.suffix in (".yaml", ".service")):
        assert "storm.security.insecure" not in path.read_text(), path


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
    options = dict(word.split("=", 1) for word in command[2:] if word != "-c")
    check_conf(options)
    assert options["storm.security.certificate"] == f"/etc/squall/{command[1]}.pem"
    assert options["storm.security.key"] == f"/etc/squall/{command[1]}.key"
    # A file of its own, as it is closed to all users but the daemon's.
    uses = command[1] in ("nimbus", "supervisor")
    digest = f"/etc/squall/{command[1]}.digest" if uses else None
    assert options.get("storm.zookeeper.auth.payload.file") == digest
    # Root is who runs workers as other users, and who shows their logs.
    rights = {
        "supervisor": [f"CAP_{one.name}" for one in users.NEEDED],
        "logviewer": ["CAP_DAC_OVERRIDE"],
    }.get(command[1], [])
    assert service["User"] == ("root" if rights else "squall")
    assert sorted(service["CapabilityBoundingSet"].split()) == sorted(rights)
    assert service["NoNewPrivileges"] == "yes"
    folder = service["StateDirectory"]
    # Root and squall do not share a folder: systemd gives it to whoever starts last.
    assert folder == service["LogsDirectory"] == ("squall-node" if rights else "squall")
    conf = {**yaml.safe_load((DEPLOY / "systemd" / "storm.yaml").read_text()), **options}
    assert conf["storm.local.dir"] == f"/var/lib/{folder}"
    assert conf["storm.log.dir"] == f"/var/log/{folder}"
    assert service["ReadWritePaths"] == f"{conf['storm.local.dir']} {conf['storm.log.dir']}"
    assert service["Restart"] == "always"
    # Workers outlive their supervisor.
    assert (service.get("KillMode") == "process") is (command[1] == "supervisor")


def test_the_conf_of_the_units_is_valid() -> None:
    conf = yaml.safe_load((DEPLOY / "systemd" / "storm.yaml").read_text())
    check_conf(conf)
    assert conf["storm.security.ca"] == "/etc/squall/ca.pem"
    assert conf["supervisor.run.worker.as.user"] is True
