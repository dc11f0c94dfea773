"""`python -m deploy.supply.audit` (`make audit`): known vulnerabilities of the locked packages.

    python -m deploy.supply.audit                       asks PyPI's advisory service, by pip-audit
    python -m deploy.supply.audit --database all.zip    goes by a copy of https://osv.dev's database

Exit status: 0 no vulnerability is known today; 1 some are, and they are listed; 2 there is no
answer: the service cannot be reached, or the copy is too old to count (its newest advisory is more
than two weeks old).
"""

from __future__ import annotations

import argparse
import datetime
import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from deploy.supply.advisories import Database, Finding
from deploy.supply.locked import FILE, ROOT, locked

COUNTS_DAYS = 14.0
# A package that we do not use, and one of its versions that is known to be vulnerable.
CONTROL = ("pycrypto", "2.6.1")
_SERVICE_SECS = 600.0
_WHERE = "https://osv-vulnerabilities.storage.googleapis.com/PyPI/all.zip"


class UnknownError(Exception):
    """Whether there are vulnerabilities is not known; the text says why, and what to do."""


def ask_service() -> list[Finding]:
    """What pip-audit says. Raises UnknownError."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as asked:
        asked.write(f"{FILE.read_text('utf-8')}{CONTROL[0]}=={CONTROL[1]}\n")
        asked.flush()
        audit = (
            *(sys.executable, "-m", "pip_audit", "--disable-pip", "--no-deps"),
            *("--progress-spinner", "off", "--format", "json", "--requirement", asked.name),
        )
        try:
            done = subprocess.run(
                audit, cwd=ROOT, capture_output=True, text=True, timeout=_SERVICE_SECS, check=False
            )
        except subprocess.TimeoutExpired:
            raise _unknown(f"pip-audit took longer than {_SERVICE_SECS:.0f} s") from None
    return understood(done.stdout, done.stderr)


def understood(answer: str, messages: str = "") -> list[Finding]:
    """The findings in pip-audit's answer. Raises UnknownError for one that says nothing: packages
    that the service does not know count for pip-audit as good ones, and so does everything where a
    mirror without advisories stands in for PyPI."""
    try:
        listed = json.loads(answer)["dependencies"]
        skipped = [one["name"] for one in listed if "skip_reason" in one]
        found = [
            Finding(
                one["name"], one["version"], vulnerability["id"],
                tuple(vulnerability["aliases"]), tuple(vulnerability["fix_versions"]),
            )
            for one in listed
            for vulnerability in one.get("vulns", ())
        ]  # fmt: skip
    except (ValueError, KeyError, TypeError):
        raise _unknown((messages.strip().splitlines() or ["it said nothing"])[-1]) from None
    if skipped:
        raise _unknown(f"it knows nothing of {len(skipped)} packages, such as {skipped[0]}")
    if not any((one.package, one.version) == CONTROL for one in found):
        raise _unknown(f"it does not know that {CONTROL[0]} {CONTROL[1]} is vulnerable")
    return [one for one in found if (one.package, one.version) != CONTROL]


def _unknown(why: str) -> UnknownError:
    return UnknownError(
        f"the advisory service gave no answer: {why}\nhint: where it cannot be reached, copy "
        f"{_WHERE} here, and give it with --database (make audit DATABASE=all.zip)"
    )


def check_age(database: Database, now: datetime.datetime) -> None:
    """Raise UnknownError for a copy that is too old to say that nothing is known."""
    age = database.age_days(now)
    if age > COUNTS_DAYS:
        raise UnknownError(
            f"the copy is too old to count: its newest of {len(database.advisories):,} advisories "
            f"is of {database.newest:%Y-%m-%d}, {age:.0f} days ago, and {COUNTS_DAYS:.0f} is the "
            f"limit\nhint: copy {_WHERE} again"
        )


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m deploy.supply.audit",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--database", type=Path, help="a copy of the database, a .zip")
    options = parser.parse_args(arguments)
    packages: Mapping[str, str] = locked()
    findings: list[Finding] = []
    unknown = None
    try:
        if options.database is None:
            findings = ask_service()
        else:
            database = Database.read(options.database)
            findings = database.findings(packages)
            check_age(database, datetime.datetime.now(datetime.UTC))
    except UnknownError as error:
        unknown = error
    except (OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    for one in findings:
        print(one)
    if unknown is not None:
        print(f"error: {unknown}", file=sys.stderr)
    if findings:
        return 1
    if unknown is not None:
        return 2
    print(f"{len(packages)} packages, no known vulnerability")
    return 0


if __name__ == "__main__":
    sys.exit(main())
