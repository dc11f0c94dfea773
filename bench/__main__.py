"""`python -m bench [headline|features]`: JSON on stdout, progress on stderr."""

from __future__ import annotations

import argparse
import json
import platform
import sys
from pathlib import Path

from bench.runs import Case, measure
from bench.topologies import WORDS_A_LINE
from squall_worker.engine import core

LINES, ROUNDS = 20_000, 5
WORDS = LINES * ROUNDS * WORDS_A_LINE
NUMBERS = 1_000_000


def words(style: str, *, acked: bool = True, workers: int = 1) -> dict[str, object]:
    arguments: dict[str, object] = {
        "style": style,
        "lines": LINES,
        "rounds": ROUNDS,
        "acked": acked,
    }
    if workers > 1:
        arguments.update(tasks=workers, spouts=workers)
    return arguments


def numbers(style: str, *, acked: bool) -> dict[str, object]:
    return {"style": style, "total": NUMBERS, "acked": acked}


def headline() -> list[Case]:
    wc, const = "word_count", "const_spout"
    cases = [
        Case("word_count", wc, words("tuple"), WORDS, goal_ratio=2.7, limit_ratio=3.2),
        Case("word_count_readme_style", wc, words("readme"), WORDS),
        Case("word_count_unacked", wc, words("tuple", acked=False), WORDS),
        Case("word_count_columns", wc, words("columns"), WORDS, goal_millions=4.5),
        Case(
            "word_count_two_workers", wc, words("tuple", workers=2), 2 * WORDS, workers=2,
            goal_ratio=5, limit_ratio=6,
        ),
        Case("const_spout", const, numbers("tuple", acked=True), NUMBERS, goal_millions=3),
        Case("const_spout_unacked", const, numbers("tuple", acked=False), NUMBERS, goal_millions=6),
        Case(
            "const_spout_unacked_columns", const, numbers("columns", acked=False), NUMBERS,
            goal_millions=9,
        ),
        Case(
            "word_count_pure", wc, words("tuple"), WORDS, core="pure", goal_ratio=6, limit_ratio=7
        ),
    ]  # fmt: skip
    return [case for case in cases if core.COMPILED or case.core == "pure"]


def features() -> list[Case]:
    """Word count with each feature that is on by default stubbed out, in the bench alone."""
    from bench.stubs import STUBS

    which = "compiled" if core.COMPILED else "pure"
    cases = [Case("all_features", "word_count", words("tuple"), WORDS, core=which)]
    cases += [
        Case(f"without_{stub}", "word_count", words("tuple"), WORDS, core=which, stubs=[stub])
        for stub in STUBS
    ]
    cases.append(
        Case("without_acking", "word_count", words("tuple", acked=False), WORDS, core=which)
    )
    return cases


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("what", nargs="?", default="headline", choices=["headline", "features"])
    parser.add_argument("--pairs", type=int, default=7, help="runs of each case (7)")
    parser.add_argument("--only", action="append", help="a case's name; may be repeated")
    parser.add_argument("--output", type=Path, help="write the JSON here too")
    options = parser.parse_args()
    cases = headline() if options.what == "headline" else features()
    if options.only:
        cases = [case for case in cases if case.name in options.only]
    if not cases:
        parser.error("no such case")
    if not core.COMPILED:
        print("the core is not compiled here: only the pure one is measured", file=sys.stderr)
    report = {
        "benchmark": options.what,
        "python": platform.python_version(),
        "machine": platform.machine(),
        **measure(cases, options.pairs, LINES, ROUNDS),
    }
    text = json.dumps(report, indent=1)
    print(text)
    if options.output is not None:
        options.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
