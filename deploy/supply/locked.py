"""The packages that CI tests: `constraints.txt`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "constraints.txt"


def locked(text: str | None = None) -> Mapping[str, str]:
    """Package -> version. Raises ValueError for a line that does not pin exactly one version.

    >>> locked("# pinned\\nPyYAML==6.0.2\\n")
    {'pyyaml': '6.0.2'}
    """
    found = {}
    for line in (FILE.read_text("utf-8") if text is None else text).splitlines():
        if not line or line.startswith("#"):
            continue
        one = Requirement(line)
        versions = [spec.version for spec in one.specifier if spec.operator == "=="]
        if len(versions) != 1 or len(one.specifier) != 1:
            raise ValueError(f"{line!r} does not pin one version")
        found[str(canonicalize_name(one.name))] = versions[0]
    return found
