"""Writes constraints.txt: of each package that the project needs, the newest version that fits.

    python -m tests.constraints        (`make constraints`)

`make` installs these versions, so that a release of today changes no result of yesterday. Run it
now and then, run the tests, and commit the file with what the new versions needed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "constraints.txt"
_HEAD = """\
# The versions that `make` installs and CI tests, so that a release of today changes no result of
# yesterday. `make constraints` writes this file. Users install within the bounds of pyproject.toml.
"""


def newest() -> dict[str, str]:
    """Package -> version, as pip would install them into an empty environment."""
    command = [
        *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
        *("--dry-run", "--ignore-installed", "--report", "-", "-e", ".[dev,spark]"),
    ]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found = (item["metadata"] for item in json.loads(done.stdout)["install"])
    return {item["name"]: item["version"] for item in found if item["name"] != "squall"}


def main() -> None:
    versions = sorted(newest().items(), key=lambda item: item[0].lower())
    FILE.write_text(_HEAD + "".join(f"{name}=={version}\n" for name, version in versions))


if __name__ == "__main__":
    main()
