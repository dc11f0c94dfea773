"""What pods of deploy/kubernetes start with: their init containers, run here."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from squall_common.cluster.access.configured import read_digests
from squall_common.config.options.typed import NimbusOptions

KUBERNETES = Path(__file__).resolve().parents[3] / "deploy" / "kubernetes"
MANIFESTS: dict[tuple[str, str], Any] = {
    (one["kind"], one["metadata"]["name"]): one
    for one in yaml.safe_load_all((KUBERNETES / "squall.yaml").read_text())
}


@pytest.mark.parametrize("name", ["nimbus", "supervisor", "ui"])
def test_a_pod_that_uses_zookeeper_starts_with_its_digest_in_a_file_of_its_own(
    name: str, tmp_path: Path
) -> None:
    """Its init container is run, with the files of its Secret."""
    given, own = tmp_path / "certificates", tmp_path / "security"
    given.mkdir()
    own.mkdir()
    done = subprocess.run(
        [sys.executable, KUBERNETES / "certificates.py", "--dir", tmp_path / "ca"],
        check=True, timeout=60, capture_output=True,
    )  # fmt: skip
    made = {one["metadata"]["name"]: one for one in yaml.safe_load_all(done.stdout)}
    for file, text in made[f"squall-{name}"]["data"].items():
        (given / file).write_bytes(base64.b64decode(text))
    pod = MANIFESTS["StatefulSet", name]["spec"]["template"]["spec"]
    [start] = pod["initContainers"]
    *shell, script = start["command"]
    for folder in (given, own):
        script = script.replace(f"/{folder.name}/", f"{folder}/")
    command, env = [*shell, script], {"PATH": os.environ["PATH"], "POD": f"{name}-1"}
    if name == "ui":
        env["POD"] = "ui-0"
    subprocess.run(command, env=env, check=True, timeout=30)
    assert {file.stat().st_mode & 0o777 for file in own.iterdir()} == {0o600}
    file = own / "zookeeper.digest"
    if name == "ui":  # it does not use ZooKeeper
        assert not file.exists()
        return
    conf = yaml.safe_load(MANIFESTS["ConfigMap", "squall"]["data"]["storm.yaml"])
    assert conf["storm.zookeeper.auth.payload.file"] == "/security/zookeeper.digest"
    options = NimbusOptions.read({**conf, "storm.zookeeper.auth.payload.file": str(file)})
    digests = read_digests(options)
    assert digests is not None
    [payload] = digests.payloads
    assert payload == (tmp_path / "ca" / "zookeeper.digest").read_text().strip()
    # It is nowhere else: neither in what is said in the clear, nor in an argument or a variable.
    assert payload not in str(made)
    assert payload not in str(pod)
    # A Secret of a version before: the pod does not start, and says which file is missing.
    file.unlink()
    (given / file.name).unlink()
    done = subprocess.run(command, env=env, check=False, timeout=30, capture_output=True)
    assert done.returncode != 0
    assert b"zookeeper.digest" in done.stderr
