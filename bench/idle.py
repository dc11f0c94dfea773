"""What an idle cluster uses: Nimbus, a supervisor, and the worker of one active topology whose
spout has nothing to emit. On a real cluster of processes (`storm dev`)."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bench import clusters
from bench.runs import RunError
from bench.tables import Table, met, number

WINDOW_SECS = 10.0
RSS_MB_GOAL, CPU_PERCENT_GOAL = 100.0, 1.0
# Idle, measured on the same kind of machine; the log writer of a worker (73 MB) is not counted.
STORM_MB = {"Nimbus": "206", "supervisor": "171", "worker": "500-1,000"}


@dataclass(frozen=True, slots=True)
class Process:
    name: str


def cases() -> list[Process]:
    return [Process(name) for name in ("Nimbus", "supervisor", "worker")]


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """`pairs` windows of ten seconds each."""
    samples: dict[str, dict[str, list[float]]] = {}
    try:
        with clusters.cluster(slots=1) as cluster:
            cluster.storm("jar", clusters.TOPOLOGIES, "idle_topology")
            found = clusters.processes(cluster, workers=1)
            clusters.wait_for_calm(found)
            for number_of_window in range(pairs):
                print(f"window {number_of_window + 1} of {pairs}", file=sys.stderr, flush=True)
                before = {name: clusters.cpu_secs(process) for name, process in found.items()}
                start = time.monotonic()
                time.sleep(WINDOW_SECS)
                for name, process in found.items():
                    took = time.monotonic() - start
                    used = clusters.cpu_secs(process) - before[name]
                    sample = samples.setdefault(name, {"cpu": [], "rss": [], "uss": []})
                    sample["cpu"].append(100.0 * used / took)
                    sample["rss"].append(clusters.rss_mb(process))
                    sample["uss"].append(process.memory_full_info().uss / 1e6)
            topology = cluster.topologies()["idle"]
            if topology["status"] != "ACTIVE":
                raise RunError(f"the topology is {topology['status']}, not ACTIVE")
            cluster.storm("kill", "idle", "-w", "0")
            cluster.wait_gone("idle")
    except AssertionError as error:
        raise RunError(f"the cluster: {error}") from error
    rows = {
        name: {
            "title": f"{name} (with one topology)" if name == "worker" else name,
            "rss_mb": round(max(sample["rss"]), 1),
            "uss_mb": round(max(sample["uss"]), 1),
            "cpu_percent": round(statistics.median(sample["cpu"]), 3),
            "cpu_percent_all": [round(value, 3) for value in sample["cpu"]],
            "goal_rss_mb": RSS_MB_GOAL,
            "goal_cpu_percent": CPU_PERCENT_GOAL,
        }
        for name, sample in samples.items()
        if only is None or name in only
    }
    return {"pairs": pairs, "window_secs": WINDOW_SECS, "cases": rows}


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, row in report["cases"].items():
        verdicts = {
            met(row["rss_mb"], row["goal_rss_mb"], None, at_most=True),
            met(row["cpu_percent"], row["goal_cpu_percent"], None, at_most=True),
        }
        rows.append(
            [
                row["title"],
                number(row["rss_mb"]),
                number(row["uss_mb"]),
                f"{row['cpu_percent']:.2f} %",
                f"{row['goal_rss_mb']:g} MB, {row['goal_cpu_percent']:g} %",
                "yes" if verdicts == {"yes"} else "NO",
                STORM_MB[name],
            ]
        )
    columns = [
        "idle process", "RSS, MB", "its own (USS), MB", "CPU of a core", "goal", "met",
        "Apache Storm's RSS, MB",
    ]  # fmt: skip
    note = (
        f"The largest memory and the median CPU of {report['pairs']} windows of "
        f"{report['window_secs']:g} s. Apache Storm's figures were measured separately."
    )
    return [Table("An idle cluster", columns, rows, [note])]
