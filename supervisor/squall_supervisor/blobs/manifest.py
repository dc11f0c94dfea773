"""The content of a folder when it was made, to notice a spoiled disk before a worker runs it.

Files added later (a worker's `__pycache__`) do not matter; every file that was there must be
unchanged.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

from squall_common.daemon.files import write_atomic
from squall_common.errors import describe

# path -> sha256 of a file's bytes and whether it is executable, or where a link leads
Manifest = dict[str, list[object]]


def make_manifest(root: Path, *names: str) -> Manifest:
    """A manifest of the files and folders `names` in `root`. Raises OSError."""
    manifest: Manifest = {}
    for name in names:
        path = root / name
        if path.is_dir() and not path.is_symlink():
            for folder, _, files in os.walk(path):
                for file in files:
                    one = Path(folder) / file
                    manifest[str(one.relative_to(root))] = _describe(one)
        else:
            manifest[name] = _describe(path)
    return manifest


def write_manifest(path: Path, manifest: Manifest) -> None:
    """Durably."""
    write_atomic(path, json.dumps(manifest).encode())


def first_difference(root: Path, manifest_file: Path) -> str | None:
    """The first file that differs from the manifest, or None. A manifest that cannot be read counts
    as a difference. If there is none (an earlier release fetched the folder), there is nothing to
    compare."""
    try:
        manifest = json.loads(manifest_file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        return describe(error)
    try:
        for name, described in manifest.items():
            if _describe(root / name) != described:
                return f"{name} has changed"
    except (OSError, AttributeError) as error:
        return describe(error)
    return None


def _describe(path: Path) -> list[object]:
    if path.is_symlink():
        return ["link", os.readlink(path)]
    with path.open("rb") as file:
        executable = bool(os.fstat(file.fileno()).st_mode & stat.S_IXUSR)
        return [hashlib.file_digest(file, "sha256").hexdigest(), executable]
