"""What deploy/monitoring asks Prometheus for: metrics that exist, on ports that are served."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from squall_common.telemetry.samples import WORKER_FAMILIES

ROOT = Path(__file__).resolve().parents[3]
MONITORING = ROOT / "deploy" / "monitoring"
COMPOSE = yaml.safe_load((ROOT / "deploy" / "compose" / "compose.yaml").read_text())
_NAME = re.compile(r"\bsquall_[a-z_]+\b")
_DECLARED = re.compile(r'"(squall_[a-z_]+)"')
_SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def names_of_daemons() -> set[str]:
    """The families that daemons declare: all texts in their pages' modules that are such names."""
    modules = (
        "common/squall_common/telemetry/page.py",
        "nimbus/squall_nimbus/metrics_page.py",
        "supervisor/squall_supervisor/metrics_page.py",
        "supervisor/squall_supervisor/watch/samples.py",
        "drpc/squall_drpc/server/daemon.py",
    )
    return {name for one in modules for name in _DECLARED.findall((ROOT / one).read_text())}


def known(name: str) -> bool:
    families = names_of_daemons() | WORKER_FAMILIES.keys()
    return name in families or any(
        name.removesuffix(suffix) in families for suffix in _SUFFIXES if name.endswith(suffix)
    )


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "alerts.yaml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in rules())
    dashboard = json.loads((MONITORING / "grafana" / "squall.json").read_text())
    for panel in dashboard["panels"]:
        yield from (target["expr"] for target in panel.get("targets", ()))
    yield from (one.get("definition", "") for one in dashboard["templating"]["list"])


def test_rules_and_dashboard_ask_for_metrics_that_exist() -> None:
    asked = {name for text in expressions() for name in _NAME.findall(text)}
    assert len(asked) > 20
    assert {name for name in asked if not known(name)} == set()


def test_each_rule_says_what_is_wrong_and_how_bad_it_is() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["summary"]


@pytest.mark.parametrize("file", ["prometheus.yaml", "prometheus-open.yaml"])
def test_prometheus_asks_the_ports_that_the_daemons_of_the_compose_file_serve(file: str) -> None:
    conf = yaml.safe_load(COMPOSE["x-image"]["environment"]["STORM_YAML"].partition("${")[0])
    jobs = yaml.safe_load((MONITORING / file).read_text())["scrape_configs"]
    by_name = {job["job_name"]: job for job in jobs}
    nimbus = by_name["nimbus"]["static_configs"][0]["targets"]
    assert nimbus == [f"nimbus{n}:{conf['nimbus.metrics.port']}" for n in (1, 2)]
    supervisor = by_name["supervisor"]["dns_sd_configs"][0]
    assert supervisor["port"] == conf["supervisor.metrics.port"]
    assert supervisor["names"] == ["supervisor"]
    assert by_name["drpc"]["static_configs"][0]["targets"] == ["drpc:3774"]


def test_prometheus_proves_who_it_is_in_a_secured_cluster() -> None:
    """By the files that a container leaves to it, and checks whom it asks."""
    jobs = yaml.safe_load((MONITORING / "prometheus.yaml").read_text())["scrape_configs"]
    assert len(jobs) == 5
    left = {f"/etc/prometheus/security/{name}.pem" for name in ("ca", "certificate", "key")}
    for job in jobs:
        tls = job["tls_config"]
        assert job["scheme"] == "https"
        assert {tls["ca_file"], tls["cert_file"], tls["key_file"]} == left
        assert "insecure_skip_verify" not in tls
    leaving = COMPOSE["services"]["prometheus-certificate"]["environment"]
    mounts = [one.split(":") for one in COMPOSE["services"]["prometheus"]["volumes"]]
    assert ["prometheus-security", "/etc/prometheus/security", "ro"] in mounts
    assert leaving["STORM_CERTIFICATE_DIR"] == "/security"
    names = COMPOSE["services"]["supervisor"]["environment"]["STORM_CERTIFICATE_HOSTS"]
    assert {job["tls_config"].get("server_name", names) for job in jobs} == {names}


def test_of_a_secured_cluster_the_same_daemons_are_read_over_tls_with_a_certificate() -> None:
    def by_name(file: str) -> dict[str, Any]:
        conf = yaml.safe_load((MONITORING / file).read_text())
        assert conf["rule_files"] == ["/etc/prometheus/alerts.yaml"]
        return {job["job_name"]: job for job in conf["scrape_configs"]}

    def port(job: dict[str, Any]) -> int:
        if "dns_sd_configs" in job:
            return int(job["dns_sd_configs"][0]["port"])
        (found,) = {int(one.rpartition(":")[2]) for one in job["static_configs"][0]["targets"]}
        return found

    plain, secured = by_name("prometheus.yaml"), by_name("prometheus-hosts.yaml")
    assert {name: port(job) for name, job in secured.items()} == {
        name: port(job) for name, job in plain.items()
    }
    for job in secured.values():
        # Names of Prometheus' own configuration.
        assert job.keys() <= {"job_name", "scheme", "tls_config", "static_configs"}
        assert job["scheme"] == "https"
        tls = job["tls_config"]
        assert tls.keys() == {"ca_file", "cert_file", "key_file", "min_version"}


@pytest.mark.parametrize("service", ["prometheus", "grafana"])
def test_the_monitoring_profile_mounts_files_that_are_there(service: str) -> None:
    one = COMPOSE["services"][service]
    assert one["profiles"] == ["monitoring"]
    for volume in one["volumes"]:
        for chosen in ("", "-open"):  # in a secured cluster, and in an open one
            source = volume.replace("${STORM_OPEN:+-open}", chosen).partition(":")[0]
            assert source in COMPOSE["volumes"] or (ROOT / "deploy" / "compose" / source).is_file()
