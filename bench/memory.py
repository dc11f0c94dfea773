"""Memory while a bolt is stuck: what every process of a real cluster holds when nothing is taken
any more, acked or not, with small and large tuples, behind a fan-out, without
`topology.max.spout.pending`; and whether all arrives, exactly once, when it is taken again.

    source (2) --shuffle--> pass (2) --shuffle--> stuck (2)        two workers

The bolt is stuck in a coroutine, beside which its worker goes on, or holds the whole loop.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.devcluster import DevCluster

from bench import clusters
from bench.runs import RunError, WrongCountError
from bench.tables import Table, met, number

GOAL_MB = 200.0
FLOW_SECS = 3.0  # before it sticks
STUCK_SECS = 20.0
SAMPLE_SECS = 0.5
DRAIN_SECS = 120.0  # for what was sent to arrive once it is taken again


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    title: str
    acked: bool
    size: int
    fan: int = 1  # tuples that `pass` emits for each
    blocks: bool = False  # the loop of its worker


def cases() -> list[Case]:
    return [
        Case("acked_small", "acked, 100-byte tuples", True, 100),
        Case("unacked_small", "not acked, 100-byte tuples", False, 100),
        Case("acked_large", "acked, 10,000-byte tuples", True, 10_000),
        Case("unacked_large", "not acked, 10,000-byte tuples", False, 10_000),
        Case("acked_fan_out", "acked, 1,000 bytes, behind a fan-out of 64", True, 1_000, fan=64),
        Case("acked_blocked", "acked, 100 bytes, the loop held", True, 100, blocks=True),
    ]


def totals(folder: Path) -> dict[str, int]:
    """What all tasks have written."""
    found = {"sent": 0, "acked": 0, "failed": 0, "taken": 0}
    for file in folder.glob("*-*.json"):
        for key, value in json.loads(file.read_text()).items():
            found[key] += value
    return found


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """Each case `pairs` times; the worst is reported."""
    rows: dict[str, Any] = {}
    for _ in range(pairs):
        for case in cases():
            if only is None or case.name in only:
                print(f"{case.name} ...", file=sys.stderr, flush=True)
                row = _measure(case)
                if case.name not in rows or row["peak_mb"] > rows[case.name]["peak_mb"]:
                    rows[case.name] = row
    return {"pairs": pairs, "stuck_secs": STUCK_SECS, "counts_checked": True, "cases": rows}


def _measure(case: Case) -> dict[str, Any]:
    try:
        with tempfile.TemporaryDirectory() as name, clusters.cluster(slots=2) as cluster:
            return _stick(case, Path(name), cluster)
    except AssertionError as error:
        raise RunError(f"{case.name}: the cluster: {error}") from error


def _wait(what: str, probe: Callable[[], bool], secs: float) -> None:
    deadline = time.monotonic() + secs
    while not probe():
        if time.monotonic() > deadline:
            raise WrongCountError(f"waited {secs:.0f} s for {what}")
        time.sleep(0.1)


def _stick(case: Case, folder: Path, cluster: DevCluster) -> dict[str, Any]:
    arguments = {
        "folder": str(folder),
        "size": case.size,
        "acked": case.acked,
        "fan": case.fan,
        "blocks": case.blocks,
    }
    cluster.storm("jar", clusters.TOPOLOGIES, "stuck_topology", json.dumps(arguments))
    found = clusters.processes(cluster, workers=2)
    _wait(f"{case.name}: the first tuples", lambda: totals(folder)["taken"] > 0, 60)
    curve: list[dict[str, float]] = []
    start = time.monotonic()

    def sample(secs: float) -> None:
        end = time.monotonic() + secs
        while time.monotonic() < end:
            point = {name: round(clusters.rss_mb(p), 1) for name, p in found.items()}
            curve.append({"secs": round(time.monotonic() - start, 2), **point})
            time.sleep(SAMPLE_SECS)

    sample(FLOW_SECS)
    (folder / "stuck").touch()
    stuck_at = round(time.monotonic() - start, 2)
    sample(STUCK_SECS)
    stuck = totals(folder)
    (folder / "stuck").unlink()
    freed_at = round(time.monotonic() - start, 2)
    sample(FLOW_SECS)
    _wait(f"{case.name}: the flow to resume", lambda: totals(folder)["taken"] > stuck["taken"], 30)
    (folder / "stop").touch()

    def arrived() -> bool:
        now = totals(folder)
        done = now["taken"] >= now["sent"] * case.fan and now["sent"] > stuck["sent"]
        return done and (not case.acked or now["acked"] >= now["sent"])

    last = [-1]

    def settled() -> bool:
        """All has arrived, and the spouts have written that they stopped."""
        if not arrived():
            return False
        before, last[0] = last[0], totals(folder)["sent"]
        time.sleep(0.7)
        return before == totals(folder)["sent"]

    _wait(f"{case.name}: all that was sent to arrive ({totals(folder)})", settled, DRAIN_SECS)
    end = totals(folder)
    expected = {
        "sent": end["sent"],
        "acked": end["sent"] if case.acked else 0,
        "failed": 0,
        "taken": end["sent"] * case.fan,
    }
    if end != expected:
        raise WrongCountError(f"{case.name}: {end}, expected {expected}")
    cluster.storm("kill", "stuck", "-w", "0")
    cluster.wait_gone("stuck")
    peaks = {name: max(point[name] for point in curve) for name in found}
    return {
        "title": case.title,
        "peak_mb": max(peaks.values()),
        "peaks_mb": peaks,
        "goal_mb": GOAL_MB,
        "tuples_checked": end["taken"],
        "sent_until_freed": stuck["sent"],
        "stuck_at_secs": stuck_at,
        "freed_at_secs": freed_at,
        "curve": curve,
    }


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        peaks = row["peaks_mb"]
        workers = [value for name, value in peaks.items() if name.startswith("worker")]
        rows.append(
            [
                row["title"],
                " and ".join(number(value) for value in workers),
                number(peaks["Nimbus"]),
                number(peaks["supervisor"]),
                f"{row['tuples_checked']:,}",
                f"{row['goal_mb']:g}",
                met(row["peak_mb"], row["goal_mb"], None, at_most=True),
            ]
        )
    columns = [
        "a bolt is stuck", "workers, peak RSS in MB", "Nimbus", "supervisor",
        "tuples, each executed once", "goal", "met",
    ]  # fmt: skip
    note = (
        f"Stuck for {report['stuck_secs']:g} s, then resumed; without "
        "`topology.max.spout.pending`. Every tuple sent arrived, once."
    )
    return [Table("Memory with a stuck bolt", columns, rows, [note])]
