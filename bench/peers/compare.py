"""Takes the figures of the peers, each round beside ours and the plain loop."""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import clusters
from bench.headline import word_count
from bench.peers import running
from bench.peers.storm_cluster import StormCluster, install
from bench.peers.tools import UnavailableError, run_script, run_tool
from bench.runs import ROOT, RunError, WrongCountError, plain_secs, run
from bench.tables import Table, number
from bench.topologies import WORDS_A_LINE, make_lines, plain_loop
from squall_engine import core

LINES, ROUNDS = 20_000, 5
HERE = Path(__file__).resolve().parent
BUILT = ROOT / "build" / "bench" / "peers"
_RUN_SECS = 180.0
_INSTALL_SECS = 600.0
_NONE, _ONCE = "none", "at least once"


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    title: str
    guarantee: str
    kind: str = "script"  # or "ours", "plain", "cluster", "storm"
    workers: int = 1
    # Of a script: what pip installs (None: this environment has it), and its input.
    package: str | None = None
    script: str = ""
    rounds: int = ROUNDS
    streaming: bool = False
    # On a cluster: word count, or "constant", the same tuple again and again; and in columns of
    # so many rows.
    shape: str = "words"
    rows: int = 1


def cases() -> list[Peer]:
    return [
        Peer("plain", "a plain Python loop, no engine", _NONE, "plain"),
        Peer("squall_1", "Squall, one worker", _ONCE, "ours"),
        Peer("squall_2", "Squall, two workers", _ONCE, "ours", workers=2),
        Peer("cluster_1", "Squall on a real cluster, one worker", _ONCE, "cluster"),
        Peer("cluster_2", "Squall on a real cluster, two workers", _ONCE, "cluster", workers=2),
        Peer("storm_1", "Apache Storm, one worker, tuned", _ONCE, "storm"),
        Peer("storm_2", "Apache Storm, two workers, tuned", _ONCE, "storm", workers=2),
        Peer("bytewax", "Bytewax, one worker", _NONE, package="bytewax", script="with_bytewax"),
        Peer("pathway", "Pathway, one thread", _NONE, package="pathway", script="with_pathway"),
        Peer("streamz", "streamz", _NONE, package="streamz", script="with_streamz"),
        Peer(
            "spark_streaming", "PySpark, Structured Streaming, native count",
            "exactly-once state", script="with_pyspark", rounds=50, streaming=True,
        ),
        Peer(
            "spark_batch", "PySpark, a batch query, native count", "a batch job",
            script="with_pyspark", rounds=50,
        ),
        Peer("const_1", "Squall on a real cluster", _NONE, "cluster", shape="constant"),
        Peer(
            "const_columns_1", "the same, columns of 1,000 rows", _NONE, "cluster",
            shape="constant", rows=1_000,
        ),
        Peer("const_storm_1", "Apache Storm, tuned", _NONE, "storm", shape="constant"),
    ]  # fmt: skip


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """`pairs` runs of each by turns; a cluster comes up once, and is measured in as many windows.
    `only` names peers."""
    chosen = [peer for peer in cases() if only is None or peer.name in only]
    rows: dict[str, dict[str, Any]] = {}
    words = LINES * ROUNDS * WORDS_A_LINE
    with tempfile.TemporaryDirectory(prefix="squall-peers-") as name:
        folder = Path(name)
        file = folder / "lines.txt"
        file.write_text("\n".join(make_lines(LINES)) + "\n")
        ready: dict[str, Path] = {}
        for peer in chosen:
            rows[peer.name] = {
                "title": peer.title,
                "guarantee": peer.guarantee,
                "ours": peer.kind in ("ours", "cluster"),
                "shape": peer.shape,
            }
            if peer.kind == "script":
                try:
                    ready[peer.name] = environment(peer)
                except UnavailableError as error:
                    rows[peer.name]["skipped"] = str(error)
        samples: dict[str, list[tuple[float, float]]] = {}
        for at in range(pairs):
            print(f"round {at + 1} of {pairs}", file=sys.stderr, flush=True)
            for peer in chosen:
                if peer.kind in ("cluster", "storm") or "skipped" in rows[peer.name]:
                    continue
                print(f"  {peer.title}", file=sys.stderr, flush=True)
                if peer.kind == "plain":
                    secs = plain_secs(LINES, ROUNDS)
                    sample = (secs / words, words / secs)
                elif peer.kind == "ours":
                    case = word_count(
                        peer.name, workers=peer.workers, lines=LINES, rounds=ROUNDS, core=core.NAME
                    )
                    result = run(case)
                    sample = (result.cpu_secs / case.tuples, case.tuples / result.wall_secs)
                else:
                    try:
                        sample = _script(peer, ready[peer.name], file, folder)
                    except (UnavailableError, WrongCountError) as error:
                        _leave_out(rows[peer.name], error)
                        samples.pop(peer.name, None)
                        continue
                samples.setdefault(peer.name, []).append(sample)
        for name_of_peer, found in samples.items():
            rows[name_of_peer] |= {
                "cpu_us_a_word": round(1e6 * statistics.median(cpu for cpu, _ in found), 3),
                "cpu_us_all": [round(1e6 * cpu, 3) for cpu, _ in found],
                "words_sec": round(statistics.median(rate for _, rate in found)),
                "words_checked": words,
            }
        for peer in chosen:
            if peer.kind in ("cluster", "storm"):
                print(f"{peer.title} ...", file=sys.stderr, flush=True)
                if peer.kind == "cluster":
                    rows[peer.name] |= _on_cluster(peer, file, folder, pairs)
                    continue
                try:
                    rows[peer.name] |= _on_storm(peer, file, folder, pairs)
                except (UnavailableError, RunError, WrongCountError) as error:
                    _leave_out(rows[peer.name], error)
    wrong = [row["skipped"] for row in rows.values() if row.get("wrong")]
    return {"pairs": pairs, "counts_checked": True, "wrong": wrong, "cases": rows}


def _leave_out(row: dict[str, Any], error: Exception) -> None:
    """One that does not run, or counts wrong, does not take the figures of the others along."""
    row["skipped"] = str(error)
    row["wrong"] = isinstance(error, WrongCountError)


def environment(peer: Peer) -> Path:
    """The Python that has the package. Raises UnavailableError."""
    if peer.package is None:
        if importlib.util.find_spec("pyspark") is None:
            raise UnavailableError("PySpark is not installed here (the extra [spark])")
        return Path(sys.executable)
    folder = BUILT / f"{peer.package}-{sys.implementation.cache_tag}"
    python = folder / "bin" / "python"
    done = folder / ".installed"
    if not done.exists():
        print(f"installing {peer.package} ...", file=sys.stderr, flush=True)
        folder.parent.mkdir(parents=True, exist_ok=True)
        what = f"installing {peer.package}"
        run_tool([sys.executable, "-m", "venv", "--clear", str(folder)], what, _INSTALL_SECS)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        run_tool([*pip, "--prefer-binary", peer.package, "psutil"], what, _INSTALL_SECS)
        done.touch()
    return python


def _script(peer: Peer, python: Path, file: Path, folder: Path) -> tuple[float, float]:
    """CPU-seconds a word, and words a second. Raises UnavailableError, WrongCountError."""
    result = folder / f"{peer.name}.json"
    environment = {**os.environ, "SQUALL_BENCH_STREAMING": "1" if peer.streaming else "0"}
    environment["PYSPARK_PYTHON"] = str(python)
    command = [str(python), str(HERE / f"{peer.script}.py"), str(file), str(peer.rounds)]
    run_script([*command, str(result)], peer.title, _RUN_SECS, folder, environment)
    measured = json.loads(result.read_text())
    expected = {word: n * peer.rounds for word, n in plain_loop(make_lines(LINES), 1).items()}
    if measured["counts"] != expected:
        raise WrongCountError(f"{peer.title}: the counts of some words are wrong")
    words = LINES * peer.rounds * WORDS_A_LINE
    return measured["cpu_secs"] / words, words / measured["wall_secs"]


def _topology(peer: Peer) -> running.Topology:
    return running.CONSTANT if peer.shape == "constant" else running.word_count(LINES)


def _on_storm(peer: Peer, file: Path, folder: Path, windows: int) -> Mapping[str, Any]:
    home = BUILT / "storm"
    install(home)
    results = folder / f"{peer.name}-results"
    results.mkdir()
    with StormCluster.start(home, folder / peer.name) as cluster:
        pending = 2_000 // peer.workers
        if peer.shape == "constant":
            cluster.submit_constant(peer.name, results)
        else:
            cluster.submit_words(
                peer.name, file, results, workers=peer.workers, pending=pending, tuned=True
            )
        figures = running.measure(peer.title, _topology(peer), results, cluster.workers, windows)
        cluster.kill(peer.name)
    return figures


def _on_cluster(peer: Peer, file: Path, folder: Path, windows: int) -> Mapping[str, Any]:
    results = folder / f"{peer.name}-results"
    results.mkdir()
    try:
        with clusters.cluster(slots=peer.workers) as cluster:
            arguments: tuple[str, ...]
            if peer.shape == "constant":
                arguments = ("constant_topology", peer.name, str(results), str(peer.rows))
            else:
                pending = str(2_000 // peer.workers)
                arguments = ("words_topology", peer.name, str(file), str(results))
                arguments += (str(peer.workers), pending)
            cluster.storm("jar", clusters.TOPOLOGIES, *arguments)

            def workers() -> list[Any]:
                found = clusters.processes(cluster, peer.workers)
                return [process for name, process in found.items() if name.startswith("worker")]

            figures = running.measure(peer.title, _topology(peer), results, workers, windows)
            cluster.storm("kill", peer.name, "-w", "0")
            cluster.wait_gone(peer.name)
    except AssertionError as error:
        raise RunError(f"{peer.title}: {error}") from error
    return figures


def tables(report: Mapping[str, Any]) -> list[Table]:
    words, constants, skipped = [], [], []
    ours = report["cases"].get("squall_1", {}).get("cpu_us_a_word")
    for row in report["cases"].values():
        if "skipped" in row:
            skipped.append(f"{row['title']}: left out ({row['skipped']}).")
            continue
        us = row["cpu_us_a_word"]
        spread = f"{number(min(row['cpu_us_all']))}-{number(max(row['cpu_us_all']))}"
        rate = f"{row['words_sec'] / 1e6:.2f}"
        if row.get("shape") == "constant":
            constants.append([row["title"], number(us), spread, rate])
            continue
        times = f"{us / ours:.1f}x" if ours else ""
        words.append([row["title"], number(us), spread, times, rate, row["guarantee"]])
    columns = [
        "word count", "CPU, us a word", "range", "of Squall's, one worker", "M words/s of time",
        "guarantee in this run",
    ]  # fmt: skip
    note = (
        f"The same {LINES:,} lines of eight words, repeated; medians of {report['pairs']} "
        "alternating runs, or of windows on a running cluster; every word's count was exact. CPU "
        "of all processes that handle words; for a cluster, of its workers."
    )
    found = [Table("Peers", columns, words, [note, *skipped])] if words or skipped else []
    if constants:
        columns = ["one constant tuple, not acked", "CPU, us a tuple", "range", "M/s of time"]
        note = "One worker of a real cluster, a spout and a bolt; each tuple was counted once."
        found.append(Table("A constant tuple", columns, constants, [note]))
    return found
