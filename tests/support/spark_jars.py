"""Packages of Spark's from Maven Central, for tests: resolved once, by `mvn`, into `.tools/spark`.

    spark_jars(KAFKA)      the value of spark.jars

The checksums are pinned. Without Maven or a network the test is skipped with the reason, and fails
with CI=true.
"""

from __future__ import annotations

import fcntl
import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.thirdparty import unavailable

ROOT = Path(__file__).resolve().parent.parent.parent
_TOOLS = ROOT / ".tools" / "spark"
_COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion><groupId>test</groupId><artifactId>jars</artifactId>
<version>1</version><dependencies>{dependencies}</dependencies></project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
)

# The newest connector there is (Spark is 4.3): it was made for Spark 4.2.
KAFKA: Mapping[str, str] = {
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0": (
        "64539c45e5d39f7ddb747312c239f38f5208d08c1a0ddf7d70beb2fbd9373705"
    ),
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.2.0": (
        "641c7947afc8aa1189e433b7c2d305293993c8691bc1c2062d6d4f513b12518c"
    ),
    "org.apache.kafka:kafka-clients:3.9.2": (
        "014b4ef36884478a932641818b080c36a8f8e2e92dc771e800c9d2694f4f83d8"
    ),
    "org.apache.commons:commons-pool2:2.13.1": (
        "f77a5060d6936a9144023584232f9de3f2248f1abfe156e9d31795f18770674f"
    ),
}

# Java's driver of PostgreSQL.
POSTGRESQL: Mapping[str, str] = {
    "org.postgresql:postgresql:42.7.8": (
        "2a32a9dcbc42d67a50ad3a0de5efd102c8d2be46720045f2cbd6689f160ab7c7"
    ),
}


def spark_jars(artifacts: Mapping[str, str]) -> str:
    """The jars of these artifacts, separated by commas."""
    folder = _TOOLS / hashlib.sha256(repr(sorted(artifacts.items())).encode()).hexdigest()[:12]
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "complete").exists():
            _resolve(artifacts, folder)
            (folder / "complete").touch()
    return ",".join(str(jar) for jar in sorted(folder.glob("*.jar")))


def _resolve(artifacts: Mapping[str, str], folder: Path) -> None:
    pom = folder / "pom.xml"
    listed = "".join(_DEPENDENCY.format(*name.split(":")) for name in artifacts)
    pom.write_text(_POM.format(dependencies=listed))
    options = (f"-DoutputDirectory={folder}", "-DexcludeTransitive=true")
    try:
        done = subprocess.run(
            ["mvn", "-q", "-B", "-f", str(pom), _COPY, *options],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    except FileNotFoundError:
        unavailable("Spark's packages need mvn (Debian: maven)")
    if done.returncode != 0:
        unavailable(f"mvn could not resolve {', '.join(artifacts)}: {done.stdout[-500:]}")
    for name, expected in artifacts.items():
        _, artifact, version = name.split(":")
        found = hashlib.sha256((folder / f"{artifact}-{version}.jar").read_bytes()).hexdigest()
        if found != expected:
            pytest.fail(f"{name} has the SHA-256 {found}, not {expected}", pytrace=False)
