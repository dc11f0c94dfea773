"""`python -m tests.mutations`: takes the checks of `weakened.toml` away, one at a time, in a copy
of the sources, and runs the one test that must fail then.

    python -m tests.mutations                all (make mutations): three minutes on two quiet cores
    python -m tests.mutations --commit 12    12 of them, others with each commit (make test)
    python -m tests.mutations --only S09     those that cover something, or whose file is named so

First the tests run in the copy as it is, where all must pass, those that fail when they run once
more, alone: a busy machine slows anything down. Exit status: 0 every test failed as it must; 1 one
did not, or its line is gone; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import contextlib
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from tests.mutations import listed
from tests.mutations.listed import DECISIONS, GROUPS, ROOT, Weakened
from tests.mutations.trial import Copy, Outcome

_COPIES = 2


def main() -> int:
    summary, _, rest = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutations",
        description=summary,
        epilog=rest,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--commit", type=int, metavar="N", help="N of them, by the commit's hash")
    parser.add_argument(
        "--only", metavar="TEXT", action="append",
        help="what it covers, or a part of its file or of what it is about; may be repeated",
    )  # fmt: skip
    options = parser.parse_args()
    # Who ends it, waits for the tests that run, and leaves no copies behind.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    entries = listed.read()
    wrong = listed.problems(entries)
    wrong += [f"{name}: no entry covers it" for name in listed.uncovered(entries, GROUPS)]
    wrong += [f"{name}: no entry covers it" for name in listed.uncovered(entries, DECISIONS)]
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    if options.only is not None:
        entries = [
            one
            for one in entries
            if any(text in one.covers or text in one.name for text in options.only)
        ]
        if not entries:
            parser.error(f"no entry has {' or '.join(options.only)}")
    if options.commit is not None:
        entries = listed.sample(entries, options.commit, _commit())
    return _try(entries)


def _commit() -> str:
    """The hash of the commit; without git always the same."""
    done = subprocess.run(
        ("git", "rev-parse", "HEAD"), cwd=ROOT, capture_output=True, text=True, check=False
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def _try(entries: Sequence[Weakened]) -> int:
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="weakened-") as scratch:
        copies = [Copy(Path(scratch) / str(number)) for number in range(_COPIES)]
        try:
            outcomes, red = _tried(copies, entries)
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                signal.signal(number, signal.SIG_IGN)  # deleting the copies takes a moment
    for test in red:
        print(f"FAILED {test}: it does not pass even though nothing was changed")
    skipped = [one for one in outcomes if one.is_skipped]
    for one in skipped:
        print(f"not tried: {one.entry.name}: {one.verdict}")
    bad = [one for one in outcomes if not one.is_red and not one.is_skipped]
    for one in bad:
        print(f"FAILED {one.entry.name}\n  {one.entry.test}\n  {one.verdict}")
    secs = time.monotonic() - began
    seen = sum(one.is_red for one in outcomes)
    print(f"{len(outcomes)} weakened builds, {seen} seen, {len(skipped)} not tried; {secs:.0f} s")
    return 1 if bad or red else 0


def _tried(copies: Sequence[Copy], entries: Sequence[Weakened]) -> tuple[list[Outcome], list[str]]:
    """The outcomes, and the tests that fail in a copy as it is."""
    todo: queue.SimpleQueue[Weakened] = queue.SimpleQueue()
    for one in entries:
        todo.put(one)
    tests = sorted({one.test for one in entries})
    outcomes: list[Outcome] = []
    red: list[str] = []
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            copy = copies[number]
            copy.make()
            own = tests[number :: len(copies)]
            red.extend(copy.red(own))
            while True:
                one = todo.get_nowait()
                outcome = copy.outcome(one)
                outcomes.append(outcome)
                mark = "red   " if outcome.is_red else "---   " if outcome.is_skipped else "FAILED"
                print(f"{mark} {outcome.secs:5.1f} s  {one.name}", flush=True)
        except queue.Empty:
            pass
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(copies))]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except KeyboardInterrupt:
        # The copies are deleted next: first let go of them.
        with contextlib.suppress(queue.Empty):
            while True:
                todo.get_nowait()
        for thread in threads:
            thread.join()
        raise
    if errors:
        raise errors[0]
    return outcomes, red


if __name__ == "__main__":
    sys.exit(main())
