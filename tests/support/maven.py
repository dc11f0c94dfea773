"""Jars of Maven Central, with all that they depend on; resolved once, by `mvn`, into `.tools/` of
the checkout. Without Maven or a network the test is skipped with the reason, and fails with
CI=true."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.support.thirdparty import unavailable

ROOT = Path(__file__).resolve().parent.parent.parent
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>test</artifactId>
<version>1</version><dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"


def jars(name: str, version: str, artifacts: Sequence[str]) -> Path:
    """The folder `.tools/NAME/VERSION` with the jars of these artifacts (GROUP:NAME:VERSION)."""
    folder = ROOT / ".tools" / name / version
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        # Several processes of one run of the tests need the same jars, and none of them may start a
        # server on jars that another still writes.
        fcntl.flock(lock, fcntl.LOCK_EX)
        _resolve(folder, name, version, artifacts)
    return folder


def _resolve(folder: Path, name: str, version: str, artifacts: Sequence[str]) -> None:
    complete = folder / "complete"
    wanted = "\n".join(artifacts)
    if complete.exists() and complete.read_text() == wanted:
        return
    complete.unlink(missing_ok=True)
    for jar in folder.glob("*.jar"):
        jar.unlink()
    pom = folder / "pom.xml"
    dependencies = "".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts)
    pom.write_text(_POM.format(dependencies=dependencies))
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), _COPY, f"-DoutputDirectory={folder}"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except FileNotFoundError:
        unavailable(f"the jars of {name} need mvn (Debian: maven)")
    if done.returncode != 0:
        unavailable(f"mvn could not resolve {name} {version}: {done.stdout[-500:]}")
    complete.write_text(wanted)
