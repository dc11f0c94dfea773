"""The alert rules of deploy/monitoring, as Prometheus itself reads them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from squall_common.config.load import default_conf

MONITORING = Path(__file__).resolve().parents[3] / "deploy" / "monitoring"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
def test_promtool_accepts_the_rules() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", MONITORING / "alerts.yaml"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool (Debian: prometheus)")
@pytest.mark.parametrize(
    "name", [path.name for path in sorted(MONITORING.glob("prometheus*.yaml"))]
)
def test_promtool_accepts_the_configuration(name: str) -> None:
    done = subprocess.run(
        ["promtool", "check", "config", "--syntax-only", MONITORING / name],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ["prometheus.yaml", "prometheus-open.yaml"])
def test_prometheus_reads_every_daemon_of_the_cluster_in_compose(name: str) -> None:
    """Each at a service of that name, on the port on which it has its page."""
    scrapes = yaml.safe_load((MONITORING / name).read_text())["scrape_configs"]
    compose = yaml.safe_load((MONITORING.parent / "compose" / "compose.yaml").read_text())
    found = {}
    for one in scrapes:
        static = [target for group in one.get("static_configs", []) for target in group["targets"]]
        by_name = [
            f"{name}:{dns['port']}"
            for dns in one.get("dns_sd_configs", [])
            for name in dns["names"]
        ]
        found[one["job_name"]] = [*static, *by_name]
    defaults = default_conf()
    conf = compose["x-image"]["environment"]["STORM_YAML"].replace("${SQUALL_CONF:-}", "")
    keys = yaml.safe_load(conf)
    nimbus, supervisor = keys["nimbus.metrics.port"], keys["supervisor.metrics.port"]
    assert found == {
        "nimbus": [f"nimbus1:{nimbus}", f"nimbus2:{nimbus}"],
        "supervisor": [f"supervisor:{supervisor}"],
        "drpc": [f"drpc:{defaults['drpc.http.port']}"],
        "ui": [f"ui:{defaults['ui.port']}"],
        "logviewer": [f"supervisor:{defaults['logviewer.port']}"],
    }
    hosts = {target.partition(":")[0] for targets in found.values() for target in targets}
    assert hosts <= compose["services"].keys()
    down = (MONITORING / "alerts.yaml").read_text()
    assert f'up{{job=~"{"|".join(found)}"}} == 0' in down
