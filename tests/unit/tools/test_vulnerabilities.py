"""docs/reference/vulnerabilities.md names a test for each vulnerability of Apache Storm."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "vulnerabilities.md").read_text("utf-8")
ROWS = re.findall(r"^\| (\d{4}-\d+) \| .* \| `([\w/]+\.py)::(\w+)` \|$", PAGE, re.M)


def test_each_has_a_row() -> None:
    ids = [cve for cve, _, _ in ROWS]
    assert len(ids) == len(set(ids)) == 33
    assert PAGE.count("\n| 2") == 33  # no row that is made otherwise


def test_each_test_exists() -> None:
    missing = [
        f"{cve}: {path}::{name}"
        for cve, path, name in ROWS
        if not re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text("utf-8"), re.M)
    ]
    assert missing == []
