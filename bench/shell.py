"""One shell bolt against bare pipes: `bench/multilang.py` as a subject like the others.

python -m bench multilang --script PATH       a splitter of your own, too, such as Storm's
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.runs import ROOT, RunError
from bench.tables import Table, number

_SECS = 5.0
_RUN_SECS = 300.0


@dataclass(frozen=True, slots=True)
class Child:
    name: str  # the file name of its script in bench/multilang_children
    title: str
    script: Path | None = None  # one that is elsewhere


# Splitters that the user named (--script).
_named: list[Path] = []


def use_script(script: Path) -> None:
    """Also measure this splitter, such as Storm's own: a program in Python that emits each word of
    a tuple's first value."""
    if not script.is_file():
        raise RunError(f"there is no file {script}")
    _named.append(script)


def cases() -> list[Child]:
    return [
        Child("split_asks.py", "a child that asks for task ids"),
        Child("split_tells.py", "a child that does not (`need_task_ids` false)"),
        *(Child(script.name, f"`{script.name}`, as given", script) for script in _named),
    ]


def take(pairs: int, only: set[str] | None = None) -> dict[str, Any]:
    """`pairs` rounds of five seconds with each child, by turns with bare pipes."""
    rows = {}
    for child in cases():
        if only is not None and child.name not in only:
            continue
        print(f"{child.title} ...", file=sys.stderr, flush=True)
        which = ["--script", str(child.script)] if child.script else ["--only", child.name]
        command = [sys.executable, str(ROOT / "bench" / "multilang.py"), *which]
        try:
            done = subprocess.run(
                [*command, "--secs", str(_SECS), "--rounds", str(pairs)],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_RUN_SECS,
                check=False,
            )
        except subprocess.TimeoutExpired as error:
            raise RunError(f"{child.name}: took more than {_RUN_SECS:.0f} s") from error
        if done.returncode != 0:
            tail = done.stderr.strip().splitlines()[-1:]
            raise RunError(f"{child.name}: status {done.returncode}: {' '.join(tail)}")
        (row,) = json.loads(done.stdout)["results"]
        rows[child.name] = {"title": child.title, **row}
    return {"pairs": pairs, "cases": rows}


def tables(report: Mapping[str, Any]) -> list[Table]:
    rows = []
    for row in report["cases"].values():
        rate = row["words_per_sec"]
        cpu = row.get("cpu_micros_a_word", {}).get("squall", {})
        rows.append(
            [
                row["title"],
                f"{rate['squall']:,}",
                f"{rate['bare']:,}",
                f"{row['of_bare']:.2f}",
                number(cpu.get("own")),
                number(cpu.get("child")),
                f"{row['of_storm_2_8_8']:.1f}x",
            ]
        )
    columns = [
        "a shell bolt that splits", "words/s", "bare pipes, words/s", "of bare pipes",
        "worker's CPU, us a word", "child's CPU, us a word", "of Storm's 15,000 words/s",
    ]  # fmt: skip
    note = f"Medians of {report['pairs']} alternating rounds; every word anchored and acked."
    return [Table("Shell components", columns, rows, [note])]
