"""`storm flux --remote` on a real cluster: what Storm's Flux files and ours define runs in workers,
with the hooks of the topology."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.devcluster import DevCluster, fresh_name, wait_for
from tests.support.live_files import texts
from tests.support.thirdparty import command

pytestmark = pytest.mark.integration

HOOKS = """
import json
import os
from pathlib import Path

from squall import Bolt, Spout, TaskHook, WorkerHook


class Numbers(Spout):
    outputs = ["n"]

    def open(self, conf, context):
        self.left = list(range(20))

    def next_tuple(self):
        if self.left:
            n = self.left.pop()
            self.emit([n], message_id=n)


class Store(Bolt):
    def prepare(self, conf, context):
        self.folder = context.resources["folder"]

    def execute(self, tup):
        pool = self.context.shared_executor
        pool.submit((self.folder / f"tuple-{tup[0]}").touch)


class Folder(WorkerHook):
    def __init__(self, path):
        self.path = Path(path)

    def start(self, conf, context):
        context.resources["folder"] = self.path
        (self.path / f"started-{os.getpid()}").touch()

    async def shutdown(self):
        (self.path / f"ended-{os.getpid()}").touch()


class Acks(TaskHook):
    def prepare(self, conf, context):
        self.folder, self.acked = Path(conf["folder"]), []

    def spout_ack(self, info):
        self.acked.append(info.message_id)
        text = json.dumps(sorted(self.acked))
        (self.folder / "acked.part").write_text(text)
        os.replace(self.folder / "acked.part", self.folder / "acked")

    def bolt_execute(self, info):
        if info.tuple[0] == 7:
            raise LookupError("the hook does not like seven")
"""
YAML = """
name: "NAME"
config:
  folder: "FOLDER"
  topology.auto.task.hooks: ["hooked:Acks"]
spouts: [{id: numbers, className: "hooked:Numbers"}]
bolts: [{id: store, className: "hooked:Store"}]
streams: [{from: numbers, to: store, grouping: {type: SHUFFLE}}]
workerHooks:
  - {id: folder, className: "hooked:Folder", constructorArgs: ["FOLDER"]}
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DevCluster]:
    with DevCluster.start(tmp_path_factory.mktemp("flux"), slots=2) as cluster:
        yield cluster


def test_hooks_of_a_flux_file_run_in_the_worker(cluster: DevCluster, tmp_path: Path) -> None:
    name, seen = fresh_name("hooks"), tmp_path / "seen"
    package = tmp_path / "package"
    package.mkdir()
    seen.mkdir()
    (package / "hooked.py").write_text(HOOKS)
    text = YAML.replace("NAME", name).replace("FOLDER", str(seen))
    (package / "hooks.yaml").write_text(text)
    cluster.storm("flux", "--remote", str(package / "hooks.yaml"))

    def acked() -> bool:
        file = seen / "acked"
        return file.exists() and json.loads(file.read_text()) == list(range(20))

    wait_for("every ack to reach the hook", acked, timeout_secs=60)
    wait_for(
        "every tuple in the shared pool",
        lambda: len(list(seen.glob("tuple-*"))) == 20,
        timeout_secs=60,
    )
    (started,) = seen.glob("started-*")
    wait_for(
        "the error of the hook",
        lambda: "the hook does not like seven" in cluster.storm("get-errors", name).stdout,
        timeout_secs=60,
    )
    wait_for(
        "where it was",
        lambda: "task hook Acks: bolt_execute() failed" in cluster.storm("get-errors", name).stdout,
    )
    cluster.kill(name)
    ended = seen / started.name.replace("started", "ended")
    wait_for("the shutdown of the hook", ended.exists, timeout_secs=60)


def test_a_flux_file_written_for_storm_runs_on_a_cluster(
    cluster: DevCluster, tmp_path: Path
) -> None:
    command("node")
    example = Path(__file__).resolve().parents[3] / "examples" / "flux"
    package = tmp_path / "flux"
    shutil.copytree(example, package, ignore=shutil.ignore_patterns("__pycache__"))
    cluster.storm("flux", "--remote", str(package / "shell.yaml"))
    try:

        def counted() -> bool:
            logs = texts(cluster.data_dir, "worker.log")
            return any("component=log task=" in text for text in logs)

        wait_for("the log of the last bolt", counted, timeout_secs=60)
        found = json.loads(cluster.storm("list", "--json").stdout)
        (topology,) = [one for one in found if one["name"] == "shell-topology"]
        assert topology["status"] == "ACTIVE"
    finally:
        cluster.kill("shell-topology")
