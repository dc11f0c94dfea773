"""The page of a topology of hundreds of executors follows what they do, on a real cluster: from the
counters of tasks in two workers over supervisor and Nimbus to the UI. (How fast that is, is a
matter of the machine: docs/ui.md.)"""

from __future__ import annotations

import gzip
import json
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from tests.support.devcluster import ROOT, DevCluster, wait_for

from squall_common.telemetry.sums import decode_sums

pytestmark = pytest.mark.integration

WIDE = ROOT / "tests" / "topologies" / "wide"
COMPONENTS, EXECUTORS = 16, 40


class Page:
    """An open page: one that has no stream, and asks."""

    def __init__(self, cluster: DevCluster, topology_id: str) -> None:
        ui = cluster.state()["ui"]
        self._url = f"http://{ui['host']}:{ui['port']}/live/topology/{topology_id}"

    def _read(self, path: str) -> bytes:
        with urllib.request.urlopen(self._url + path, timeout=60) as response:
            body: bytes = response.read()
            return gzip.decompress(body) if body[:2] == b"\x1f\x8b" else body

    def components(self) -> dict[str, Any]:
        """What it shows of each component, while it watches."""
        self._read("?wait=no&since=0")
        found: dict[str, Any] = json.loads(self._read("/state"))["state"]["components"]
        return found


def test_a_page_follows_hundreds_of_executors_by_their_sums(tmp_path: Path) -> None:
    stop = tmp_path / "stop"
    with DevCluster.start(tmp_path / "cluster", slots=2) as cluster:
        cluster.storm("jar", "--wait=120", WIDE, "wide", "large", stop, COMPONENTS, EXECUTORS, 2)
        (topology,) = cluster.call("getTopologySummaries")
        assert topology.num_executors == COMPONENTS * EXECUTORS + 1
        page = Page(cluster, topology.id)

        def sums() -> list[bytes] | None:
            """Of both workers."""
            page.components()
            found = [one.sums for one in cluster.call("getWorkerSums", topology.id)]
            return found if len(found) == 2 and all(found) else None

        components = [decode_sums(one).components for one in wait_for("sums", sums, 90, 0.25)]
        assert {name for each in components for name in each} == set(page.components())

        def moves() -> bool:
            shown = page.components()
            return bool(shown["numbers"]["emitRate"] and shown["pass-3"]["executeRate"])

        wait_for("rates", moves, 60, 0.25)
        stop.touch()

        def rests() -> bool:
            shown = page.components()
            return not (shown["numbers"]["emitRate"] or shown["pass-3"]["executeRate"])

        wait_for("the rates to drop", rests, 60, 0.25)
        cluster.kill_all()
