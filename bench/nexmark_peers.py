"""Nexmark beside other systems: the same events and queries on Squall, Apache Flink and Bytewax.

Before anything is measured, each query of each peer answers 10,000 events, and its answers are
compared with those of `examples/nexmark/plain.py`.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench import auctions, nexmark
from bench.peers.compare import BUILT, Peer, environment
from bench.peers.nexmark import flink
from bench.peers.nexmark.queries import QUERIES, standing
from bench.peers.tools import UnavailableError, run_script
from bench.runs import Case, RunError, WrongCountError, run
from bench.tables import Table, number

TOTAL = 200_000
_CHECKED = 10_000
_WARM_UPS = 5  # Java compiles what a query runs often
_SCRIPT = Path(flink.HERE) / "with_bytewax.py"
_BYTEWAX = Peer("bytewax", "Bytewax", "none", package="bytewax")
_ON_BYTEWAX = ("q0", "q1", "q2", "q3", "q9", "q11", "q17", "q21", "q22")
_RUN_SECS = 180.0
# Answers of which the last of a key counts.
_LAST = ("q9", "q17")


def cases() -> list[Case]:
    """Those queries that Flink's SQL says, too."""
    return [case for case in nexmark.cases(TOTAL) if case.name in QUERIES]


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """`pairs` runs of each query on each system, by turns. `only` names queries."""
    chosen = [case for case in cases() if only is None or case.name in only]
    rows: dict[str, dict[str, Any]] = {
        case.name: {"title": case.title, "squall": [], "flink": [], "bytewax": []}
        for case in chosen
    }
    skipped: list[str] = []
    with tempfile.TemporaryDirectory(prefix="squall-nexmark-") as name:
        folder = Path(name)
        data = _Data.write(folder)
        python = _install(skipped, "Bytewax", lambda: environment(_BYTEWAX))
        home = _install(skipped, "Apache Flink", _flink_home)
        if python is not None:
            for case in chosen:
                if case.name in _ON_BYTEWAX:
                    _check_bytewax(case.name, python, data, folder)
        if home is None:
            _rounds(pairs, chosen, rows, None, python, data, folder)
        else:
            with flink.Flink(home, data.few, folder) as checked:
                for case in chosen:
                    _check_flink(case.name, checked, data)
            with flink.Flink(home, data.all, folder) as measured:
                _rounds(pairs, chosen, rows, measured, python, data, folder)
    return {"pairs": pairs, "counts_checked": True, "skipped": skipped, "cases": rows}


@dataclass(frozen=True, slots=True)
class _Data:
    """Files of events, all and few, and the few as objects."""

    all: Path
    few: Path
    checked: list[Any]

    @classmethod
    def write(cls, folder: Path) -> _Data:
        from events import Generator  # type: ignore[import-not-found]

        generator = Generator(rate=auctions.RATE)
        checked = [generator.event(n) for n in range(_CHECKED)]
        data = cls(folder / "events.tsv", folder / "few.tsv", checked)
        flink.write_events((generator.event(n) for n in range(TOTAL)), data.all)
        flink.write_events(checked, data.few)
        return data


def _flink_home() -> Path:
    home = BUILT / f"flink-{flink.VERSION}"
    flink.install(home)
    return home


def _install(skipped: list[str], name: str, install: Any) -> Path | None:
    try:
        found: Path = install()
    except UnavailableError as error:
        skipped.append(f"{name}: left out ({error}).")
        return None
    return found


def _rounds(
    pairs: int,
    chosen: list[Case],
    rows: Mapping[str, dict[str, Any]],
    on_flink: flink.Flink | None,
    python: Path | None,
    data: _Data,
    folder: Path,
) -> None:
    for at in range(pairs):
        print(f"round {at + 1} of {pairs}", file=sys.stderr, flush=True)
        for case in chosen:
            row = rows[case.name]
            row["squall"].append(run(case).cpu_secs)
            if on_flink is not None:
                sql = QUERIES[case.name].sql
                for _ in range(_WARM_UPS if at == 0 else 0):
                    on_flink.measure(sql, TOTAL)
                # Less what a job costs that has a single event: it has to end, too.
                cpu = on_flink.measure(sql, TOTAL)[0] - on_flink.measure(sql, 1)[0]
                row["flink"].append(max(0.0, cpu))
            if python is not None and case.name in _ON_BYTEWAX:
                row["bytewax"].append(_bytewax(case.name, python, data.all, folder)["cpu_secs"])


def _plain(query: str, data: _Data) -> Any:
    import plain  # type: ignore[import-not-found]

    return getattr(plain, query)(data.checked)


def _check_flink(query: str, on_flink: flink.Flink, data: _Data) -> None:
    asked = QUERIES[query]
    found = asked.read(standing(on_flink.rows(asked.sql, _CHECKED)))
    expected = asked.plain(_plain(query, data))
    if found != expected:
        raise WrongCountError(f"Flink's answers to {query} are not those of plain.py")


def _check_bytewax(query: str, python: Path, data: _Data, folder: Path) -> None:
    answers = _bytewax(query, python, data.few, folder)["answers"]
    found: Any
    if query in _LAST:
        found = {_hashable(key): _hashable(answer) for key, answer in answers}
    else:
        found = Counter(map(_hashable, answers))
    expected = _plain(query, data)
    if query == "q11":
        expected = QUERIES[query].plain(expected)
    if found != expected:
        raise WrongCountError(f"Bytewax' answers to {query} are not those of plain.py")


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _bytewax(query: str, python: Path, events: Path, folder: Path) -> dict[str, Any]:
    result = folder / "bytewax.json"
    # The events' classes are those of the example, which needs nothing of Squall for them.
    environment = {**os.environ, "PYTHONPATH": str(auctions.FOLDER)}
    command = [str(python), str(_SCRIPT), str(events), query, str(result)]
    try:
        run_script(command, f"Bytewax, {query}", _RUN_SECS, folder, environment)
    except UnavailableError as error:
        raise RunError(str(error)) from error
    found: dict[str, Any] = json.loads(result.read_text())
    return found


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for name, row in report["cases"].items():
        ours, *peers = (
            1e6 * statistics.median(row[system]) / TOTAL if row[system] else None
            for system in ("squall", "flink", "bytewax")
        )
        assert ours is not None
        cells = [name, row["title"], number(ours)]
        for peer in peers:
            cells += ["", ""] if peer is None else [number(peer), f"{ours / peer:.2f}x"]
        rows.append(cells)
    columns = [
        "query", "what it asks", "Squall: CPU, us an event", "Apache Flink", "Squall / Flink",
        "Bytewax", "Squall / Bytewax",
    ]  # fmt: skip
    note = (
        f"Medians of {report['pairs']} alternating runs of {TOTAL:,} events, {auctions.RATE:,} in "
        "a second of their time, made before; one worker, or parallelism 1. CPU of all threads "
        f"from the first event on, for Flink less that of a job of one event; the JVM has run "
        f"each query {_WARM_UPS} times before. Squall acks every event; the others run without "
        "checkpoints."
    )
    return [Table("Nexmark beside other systems", columns, rows, [note, *report["skipped"]])]
