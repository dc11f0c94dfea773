"""`python -m bench WHAT`: takes figures, shows them as tables, writes JSON and plots.

    headline    CPU a tuple against a plain Python loop (the default)
    cluster     workers of a real cluster beside the bench's own processes
    features    what each default-on feature costs
    latency     complete latency at 1,000 messages a second
    idle        CPU and memory of an idle cluster
    memory      memory of every process while a bolt is stuck
    encryption  two workers over TCP, plain and encrypted, and through shared memory
    scale       workers, tasks, sizes and fan-out
    scheduling  a scheduling round of clusters of 100 to 3,000 supervisors
    trust       what a secured cluster costs, and withstands
    multilang   one shell bolt against bare pipes
    connectors  a record of each connector, against real servers
    windows     a count by windows against a plain bolt's
    state       state in memory and on disk: reading, writing, restoring
    checkpoints one each second with a million keys, against none
    streams     streams against bolts written by hand
    nexmark     the queries of Nexmark
    nexmark-peers  the same on Apache Flink and Bytewax, too
    spark       word count on Spark against hand-written PySpark
    peers       other systems on the same lines

Results go to build/bench/WHAT.json and WHAT.svg (with --only to WHAT-part.json); `python -m
bench.report` writes the tables into docs/performance.md, and `python -m bench.turns` compares two
checkouts. Exit status: 0 measured, 1 a wrong count or a run that failed, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import traceback
from pathlib import Path
from typing import Any

from bench import plots
from bench.machine import Watch, describe
from bench.runs import RunError, WrongCountError
from bench.tables import show

OUTPUT = Path(__file__).resolve().parent.parent / "build" / "bench"
# subject -> module with `cases()`, `take(pairs, only) -> report` and `tables(report)`, and the
# default of --pairs: runs of each case
SUBJECTS = {
    "headline": ("bench.headline", 7),
    "cluster": ("bench.cluster_rounds", 7),
    "features": ("bench.features", 15),
    "latency": ("bench.latency", 5),
    "idle": ("bench.idle", 3),
    "memory": ("bench.memory", 1),
    "encryption": ("bench.encryption", 7),
    "scale": ("bench.scale", 3),
    "scheduling": ("bench.scheduling", 5),
    "trust": ("bench.trust", 3),
    "multilang": ("bench.shell", 3),
    "connectors": ("bench.connectors", 3),
    "windows": ("bench.windows", 5),
    "state": ("bench.state", 3),
    "checkpoints": ("bench.checkpoints", 3),
    "streams": ("bench.streams", 7),
    "nexmark": ("bench.nexmark", 3),
    "nexmark-peers": ("bench.nexmark_peers", 3),
    "spark": ("bench.spark", 3),
    "peers": ("bench.peers", 3),
}


def main() -> int:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", nargs="?", default="headline", choices=SUBJECTS)
    parser.add_argument("--pairs", type=int, help="runs of each case")
    parser.add_argument("--only", action="append", help="a case's name; may be repeated")
    parser.add_argument(
        "--script", type=Path, help="multilang: another splitter to measure, such as Storm's own"
    )
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder (build/bench)")
    parser.add_argument("--json", action="store_true", help="JSON on stdout, not tables")
    options = parser.parse_args()
    measured_by = subject(options.what)
    if options.script is not None:
        if options.what != "multilang":
            parser.error("--script is for multilang")
        try:
            measured_by.use_script(options.script)
        except RunError as error:
            parser.error(str(error))
    only = set(options.only) if options.only else None
    if only and (unknown := only - {case.name for case in measured_by.cases()}):
        parser.error(f"no such case: {', '.join(sorted(unknown))}")
    pairs = options.pairs or SUBJECTS[options.what][1]
    watch = Watch()
    try:
        measured = measured_by.take(pairs, only)
    except (RunError, WrongCountError, OSError) as error:
        print(f"error: {options.what}: {error}", file=sys.stderr)
        return 1
    report = {
        "benchmark": options.what,
        **describe(),
        "taken": watch.report(),
        **measured,
    }
    tables = measured_by.tables(report)
    # Some of the cases are not a report of the subject, and must not replace one.
    write(options.output, f"{options.what}-part" if only else options.what, report)
    if options.json:
        print(json.dumps(report, indent=1))
    else:
        show(tables)
        print(f"\nThe machine: {machine_line(report)}")
    for wrong in report.get("wrong", ()):
        print(f"error: {options.what}: {wrong}", file=sys.stderr)
    return 1 if report.get("wrong") else 0


def subject(name: str) -> Any:
    """Its module."""
    return importlib.import_module(SUBJECTS[name][0])


def machine_line(report: dict[str, Any]) -> str:
    taken = report["taken"]
    python = f"Python {report['python']}"
    if report.get("modules") == "python":
        python += ", the engine's modules not compiled"
    return (
        f"{report['cores']} cores of {report['processor'] or report['machine']}, {python}; "
        f"{taken['secs']:.0f} s; load {taken['load_before']:.1f} before, "
        f"{taken['load_after']:.1f} after; others used {taken['others_percent']:.0f} % of it."
    )


def write(folder: Path, name: str, report: dict[str, Any]) -> None:
    """JSON and, where there is one and matplotlib is installed, the plot."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
    print(f"written: {folder / name}.json", file=sys.stderr)
    try:
        made = plots.draw(name, report, folder)
    except ImportError as error:
        print(f"no plot: {error} (make bench installs what it takes)", file=sys.stderr)
        return
    except Exception:
        # The figures are taken and written; the error of the picture is shown in full.
        traceback.print_exc()
        return
    if made is not None:
        print(f"written: {made}", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
