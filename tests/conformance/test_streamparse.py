"""Projects of streamparse, submitted, listed and killed with its own `sparse`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.conformance.conftest import (
    Notes,
    children,
    errors,
    kill_and_wait,
    nimbus,
    wait_killed,
)
from tests.conformance.test_pystorm_cluster import PROJECTS, check_words
from tests.support.devcluster import STORM, DevCluster, environment, wait_for
from tests.support.live_files import texts
from tests.support.thirdparty import streamparse_env

pytestmark = pytest.mark.conformance


class Sparse:
    """`sparse` in a project's folder."""

    def __init__(self, cluster: DevCluster, folder: Path, nimbus_at: str | None = None) -> None:
        self.env = streamparse_env()
        self.folder = folder
        self.jar = folder.parent / f"{folder.name}.jar"
        self._nimbus = nimbus_at or ":".join(nimbus(cluster))

    def __call__(self, *arguments: str, cwd: Path | None = None, path: str | None = None) -> str:
        kept = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        done = subprocess.run(
            [self.env / "bin" / "sparse", *arguments],
            cwd=cwd or self.folder,
            env={
                **kept,
                "PATH": f"{self.env / 'bin'}{os.pathsep}{path or kept['PATH']}",
                "LEIN_ROOT": "1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert "Traceback" not in said, said
        return done.stdout

    def listed(self) -> set[str]:
        """The topologies that `sparse list` shows: its table breaks their ids where it likes."""
        ids, part = [], ""
        for line in self("list").splitlines():
            if line.startswith("|"):
                part += line.split("|")[1].strip()
            elif part:
                ids.append(part)
                part = ""
        return {re.sub(r"-\d+-\d+$", "", topology_id) for topology_id in ids}

    def configure(self, **more: Any) -> None:
        """What its documentation says: where Nimbus is, and which virtualenv the workers have."""
        path = self.folder / "config.json"
        known = json.loads(path.read_text()) if path.exists() else {}
        environment = {
            "nimbus": self._nimbus,
            "use_ssh_for_nimbus": False,
            "workers": [],
            "virtualenv_root": str(self.env.parent),
            "log": {},
            **more,
        }
        defaults = {"topology_specs": "topologies/", "virtualenv_specs": "virtualenvs/"}
        path.write_text(json.dumps({**defaults, **known, "envs": {"prod": environment}}))

    def pack(self) -> None:
        """What `lein jar` makes of a project without Java."""
        with zipfile.ZipFile(self.jar, "w") as jar:
            for path in sorted((self.folder / "src").rglob("*.py")):
                jar.write(path, Path("resources") / path.relative_to(self.folder / "src"))

    def submit(self, name: str, *options: str, uploaded: str | None = None) -> str:
        """`uploaded`: what an earlier submit uploaded."""
        package = ["--remote_jar_path", uploaded] if uploaded else ["--local_jar_path", self.jar]
        return self(
            "submit", "-n", name, *map(str, package),
            "-o", "install_virtualenv=false", "-o", f"virtualenv_name={self.env.name}",
            *options,
        )  # fmt: skip


def as_options(conf: dict[str, Any]) -> list[str]:
    return [word for key, value in conf.items() for word in ("-o", f"{key}={value}")]


def test_a_project_with_reliable_spouts_and_batching_bolts(
    cluster: DevCluster, notes: Notes, tmp_path: Path
) -> None:
    folder = tmp_path / "project"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(PROJECTS / "streamparse", folder, ignore=ignored)
    sparse = Sparse(cluster, folder)
    sparse.configure()
    sparse.pack()
    said = sparse.submit("conformance", *as_options(notes.conf))
    assert "done" in said
    location = re.search(r"assigned location: (\S+)", said)
    assert location is not None, said
    assert "conformance" in sparse.listed()
    notes.wait_acked(cluster)
    notes.check_spout()
    check_words(notes)
    wait_for("its children", lambda: len(children(cluster, "conformance")) == 6)
    wait_for("the error", lambda: "at the first try" in errors(cluster, "conformance"), 60, 0.5)

    # Once more over the living one, from the same upload, in streamparse's other serializer:
    # killed, its name free, submitted.
    before = set(children(cluster, "conformance"))
    again = Notes(tmp_path / "again")
    again.folder.mkdir()
    sparse.configure(serializer="msgpack")
    java = "com.parsely.streamparse.MessagePackSerializer"
    conf = {**again.conf, "topology.multilang.serializer": java}
    options = ["--force", "--wait", "0", *as_options(conf)]
    said = sparse.submit("conformance", *options, uploaded=location[1])
    assert "Killed." in said
    again.wait_acked(cluster)
    again.check_spout()
    check_words(again)
    now = children(cluster, "conformance")
    assert len(now) == 6
    assert not before & set(now)
    sparse("kill", "-n", "conformance", "--wait", "0")
    wait_killed(cluster, "conformance")
    assert "conformance" not in sparse.listed()


def test_the_project_that_its_quickstart_makes(cluster: DevCluster, tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    sparse = Sparse(cluster, folder)
    sparse("quickstart", "quick", cwd=tmp_path)
    sparse.configure()
    sparse.pack()
    sparse.submit("wordcount", "-o", "topology.max.spout.pending=100")
    try:
        wait_for("words", lambda: "counted [" in worker_logs(cluster, "wordcount"), 60, 0.5)
        assert "wordcount" in sparse.listed()
        check_rest(cluster, sparse, tmp_path)
        sparse("kill", "-n", "wordcount", "--wait", "1")
        wait_killed(cluster, "wordcount")
    finally:
        if "wordcount" in cluster.topologies():
            kill_and_wait(cluster, "wordcount")


def check_rest(cluster: DevCluster, sparse: Sparse, folder: Path) -> None:
    """Its commands that ask the UI's REST API. They take the version of Storm from Leiningen."""
    lein = folder / "bin" / "lein"
    lein.parent.mkdir()
    lein.write_text("#!/bin/sh\necho '[org.apache.storm/storm-core \"2.8.2\"]'\n")
    lein.chmod(0o755)
    sparse.configure(**{"ui.port": cluster.state()["ui"]["port"]})
    path = f"{lein.parent}{os.pathsep}{os.environ['PATH']}"
    stats = sparse("stats", path=path)
    assert "Cluster summary" in stats
    assert "wordcount" in stats
    for component in ("word_spout", "count_bolt"):
        found = sparse("stats", "-n", "wordcount", "-c", component, path=path)
        assert component in found
        assert "Executors" in found or "Input stats" in found
    assert "Bolt (All time)" in sparse("stats", "-n", "wordcount", path=path)
    # (Its tables break long words where they like.)
    uptime, slots = sparse("worker_uptime", path=path), sparse("slot_usage", path=path)
    assert "Worker Stats" in uptime
    assert "Slot (and Executor) Counts" in slots
    assert uptime.count("|") > 10
    assert re.search(r"\d+ \(\d+\)", slots)


def worker_logs(cluster: DevCluster, name: str) -> str:
    return "".join(texts(cluster.data_dir / "logs", f"{name}-*/*/*.log*"))


def test_a_secured_cluster_through_the_proxy(tmp_path: Path) -> None:
    """As it is, and without anything of streamparse's changed: `storm proxy` adds the token."""
    folder = tmp_path / "project"
    shutil.copytree(PROJECTS / "streamparse", folder, ignore=shutil.ignore_patterns("__pycache__"))
    notes = Notes(tmp_path / "notes")
    notes.folder.mkdir()
    streamparse_env()  # before the cluster: it may have to be made
    with (
        DevCluster.start(tmp_path / "cluster", secure=True) as cluster,
        subprocess.Popen(
            [*STORM, "proxy", "--json", "--config", cluster.conf_file, "--port", "0"],
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as proxy,
    ):
        try:
            assert proxy.stdout is not None
            port = json.loads(proxy.stdout.readline())["proxy"]["nimbus"]
            sparse = Sparse(cluster, folder, f"127.0.0.1:{port}")
            sparse.configure()
            sparse.pack()
            assert "done" in sparse.submit("conformance", *as_options(notes.conf))
            assert "conformance" in sparse.listed()
            notes.wait_acked(cluster)
            sparse("kill", "-n", "conformance", "--wait", "0")
            wait_for("the end", lambda: "conformance" not in cluster.topologies(), 60.0)
        finally:
            proxy.send_signal(signal.SIGTERM)
