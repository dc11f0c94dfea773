"""Writes what was measured into docs/performance.md, and docs/connectors.md.

    python -m bench.report [WHAT ...]

For each subject with a build/bench/WHAT.json the text between `<!-- bench:WHAT -->` and
`<!-- /bench:WHAT -->` is replaced by its tables and a line about the machine; plots that the page
shows are copied to docs/performance/. Take the figures on a quiet machine: the line says how busy
it was. Exit status: 0 written, 1 a report is missing or is not one, 2 wrong usage.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.__main__ import OUTPUT, SUBJECTS, machine_line, subject
from bench.runs import ROOT

PAGE = ROOT / "docs" / "performance.md"
# Subjects with another page.
PAGES = {"connectors": ROOT / "docs" / "connectors.md"}
# Those that the page shows.
PLOTS = {
    "memory": "Memory of the larger worker over time",
    "scale": "Cost and throughput over workers, tasks, bytes and fan-out",
}


class ReportError(RuntimeError):
    """The report cannot be written into the page."""


def markdown(name: str, report: Mapping[str, Any]) -> str:
    """Tables, with titles where there are several, and the machine."""
    tables = subject(name).tables(report)
    parts = []
    for table in tables:
        if len(tables) > 1:
            parts.append(f"{table.title}:")
        parts.append(table.markdown())
    if name in PLOTS:
        parts.append(f"![{PLOTS[name]}](performance/{name}.svg)")
    parts.append(f"Taken on {machine_line(report)}")
    return "\n\n".join(parts)


def replace(page: str, name: str, text: str) -> str:
    """The page with a new text in the block of `name`. Raises ReportError if there is no block."""
    begin, end = f"<!-- bench:{name} -->", f"<!-- /bench:{name} -->"
    if page.count(begin) != 1 or page.count(end) != 1 or page.index(begin) > page.index(end):
        raise ReportError(f"the page needs one {begin} and one {end} after it")
    head, _, rest = page.partition(begin)
    return f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}"


def read(folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.json"
    try:
        report: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise ReportError(f"{path}: not there; take it with: make bench-{name}") from None
    except ValueError as error:
        raise ReportError(f"{path}: {error}") from error
    if report.get("benchmark") != name:
        raise ReportError(f"{path} is not a report of {name}")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__)
    parser.add_argument("what", nargs="*", help="subjects (default: all that were taken)")
    parser.add_argument("--output", type=Path, default=OUTPUT, help="folder of the reports")
    parser.add_argument("--page", type=Path, help="another page for all subjects")
    options = parser.parse_args()
    if unknown := set(options.what) - set(SUBJECTS):
        parser.error(f"no such subject: {', '.join(sorted(unknown))}")
    names = options.what or [n for n in SUBJECTS if (options.output / f"{n}.json").exists()]
    try:
        pages: dict[Path, str] = {}
        for name in names:
            path = options.page or PAGES.get(name, PAGE)
            page = pages.get(path) or path.read_text()
            pages[path] = replace(page, name, markdown(name, read(options.output, name)))
            if name in PLOTS:
                plot = path.parent / "performance" / f"{name}.svg"
                plot.parent.mkdir(exist_ok=True)
                shutil.copyfile(options.output / plot.name, plot)
    except (OSError, ReportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path, page in pages.items():
        path.write_text(page)
    where = ", ".join(map(str, pages)) or "no page"
    print(f"written into {where}: {', '.join(names) or 'nothing'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
