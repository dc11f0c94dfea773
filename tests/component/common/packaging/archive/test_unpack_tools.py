"""Archives that git makes here and now."""

import subprocess
from pathlib import Path

import pytest
from tests.support.archives import (
    BOLT,
)

from squall_common.packaging.archive.unpack import extract


@pytest.fixture
def target(tmp_path: Path) -> Path:
    path = tmp_path / "inner" / "target"
    path.mkdir(parents=True)
    return path


def unpacked(target: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(target)): path.read_bytes()
        for path in target.rglob("*")
        if path.is_file()
    }


def test_git_itself_agrees(tmp_path: Path, target: Path) -> None:
    """The one tool of the table that every developer's machine has."""
    source = tmp_path / "source"
    (source / "pkg").mkdir(parents=True)
    (source / "pkg" / "größe.py").write_bytes(BOLT)
    git = ["git", "-C", str(source), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "x"]):
        subprocess.run([*git, *command], check=True, timeout=60)
    archive = tmp_path / "package.zip"
    subprocess.run([*git, "archive", "-o", str(archive), "HEAD"], check=True, timeout=60)
    extract(archive, target)
    assert unpacked(target) == {"pkg/größe.py": BOLT}
