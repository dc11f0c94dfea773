"""pyproject.toml's lists against what is imported, run, and written in docs/dependencies.md."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = [
    Path(path) for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
]
# What the benchmarks compare with is installed apart.
PEERS = (ROOT / "bench" / "peers", ROOT / "bench" / "multilang_children")
OURS = {path.name for path in PACKAGES} | {"tests", "bench", "deploy", "examples", "hatch_build"}
# Modules that lie beside who imports them.
_BESIDE = ("tests", "examples", "bench/cluster_topologies")
OURS |= {file.stem for folder in _BESIDE for file in (ROOT / folder).rglob("*.py")}
# A statement, not a docstring's example: nothing but indentation before it, a known end after it.
_IMPORT = re.compile(r"^ *(?:import|from) ([a-zA-Z_]\w*)(?=[.\w]*(?: import | as |,|  #|$))", re.M)
# Distributions whose modules have other names.
MODULES = {
    "mypy": {"mypyc"},
    "pynacl": {"nacl"},
    "pytest-timeout": {"pytest_timeout"},
    "pyyaml": {"yaml"},
    "pyzmq": {"zmq"},
    "confluent-kafka": {"confluent_kafka"},
    "aio-pika": {"aio_pika"},
    "paho-mqtt": {"paho"},
    "nats-py": {"nats"},
    "sqlalchemy": {"sqlalchemy"},
    "kubernetes-validate": {"kubernetes_validate"},
    "prometheus-client": {"prometheus_client"},
    "cyclonedx-python-lib": {"cyclonedx", "packageurl"},
    "opentelemetry-api": {"opentelemetry"},
    "opentelemetry-sdk": {"opentelemetry"},
    "opentelemetry-exporter-otlp-proto-http": {"opentelemetry"},
}
# What is run, or used by a tool that is, and where that can be read.
RUN = {
    "s3fs": ("connectors/squall_connectors/files/__init__.py", "(s3fs)"),  # by fsspec, for s3://
    "moto": ("tests/support/moto_server.py", '"moto.server"'),
    "py-spy": ("common/squall_common/config/options/declared/node.py", '"py-spy"'),
    "editables": ("hatch_build.py", "editable"),  # hatchling's, for editable wheels
    "pip-audit": ("deploy/supply/audit.py", '"pip_audit"'),
    "ruff": ("pyproject.toml", "[tool.ruff]"),
    "pytest-asyncio": ("pyproject.toml", "asyncio_mode"),
    "pytest-xdist": ("tests/run_all.py", "-n"),
    "types-pyyaml": ("pyproject.toml", "strict = true"),  # mypy's
    "furo": ("docs/conf.py", 'html_theme = "furo"'),
    "myst-parser": ("docs/conf.py", '"myst_parser"'),
    "sphinx-copybutton": ("docs/conf.py", '"sphinx_copybutton"'),
    "sphinx": ("Makefile", "sphinx-build"),
    "pandas": ("docs/dependencies.md", "pandas, which PySpark's Arrow"),
}
# What the product imports only where mypy reads it, which brings it.
FOR_TYPES = {"mypy_extensions": "common/squall_common/daemon/mypyc.py"}


def listed(name: str) -> dict[str, Requirement]:
    """The requirements of an extra, without what it includes of others; "" is the project's."""
    project = PROJECT["project"]
    texts = project["optional-dependencies"][name] if name else project["dependencies"]
    found = {canonicalize_name((one := Requirement(text)).name): one for text in texts}
    return {key: one for key, one in found.items() if key != "squall"}


# With those that newer Pythons than this one may have.
_STANDARD = sys.stdlib_module_names | {"annotationlib"}

# The extras of users; the others are for those who work on Squall.
_NOT_FOR_USERS = {"bench", "dev", "docs"}
LISTS = {
    name: requirements
    for name in ("", *PROJECT["project"]["optional-dependencies"])
    if (requirements := listed(name))  # some only gather others
}
FOR_USERS = tuple(sorted(LISTS.keys() - _NOT_FOR_USERS))
BUILD = {one.name: one for one in map(Requirement, PROJECT["build-system"]["requires"])}


def imported(folders: Iterable[Path]) -> dict[str, str]:
    """The modules of others that the files import, each with a file that does."""
    found: dict[str, str] = {}
    for folder in folders:
        for file in [folder] if folder.is_file() else folder.rglob("*.py"):
            if any(file.is_relative_to(peers) for peers in PEERS):
                continue
            for name in _IMPORT.findall(file.read_text()):
                if name not in _STANDARD and name not in OURS:
                    found[name] = file.relative_to(ROOT).as_posix()
    return found


PRODUCT = imported(ROOT / path for path in PACKAGES)
TOOLS = imported(ROOT / path for path in ("bench", "deploy", "hatch_build.py", "tests"))
# (Tests hold programs as text.)
FOR_ALL = imported(
    ROOT / path for path in ("bench", "deploy/supply", "hatch_build.py", "tests/support")
)


def modules(distribution: str) -> set[str]:
    return MODULES.get(distribution, {distribution, distribution.title()})


@pytest.mark.parametrize(
    ("extra", "name"), [(extra, name) for extra in LISTS for name in LISTS[extra]]
)
def test_what_is_listed_is_imported_or_run(extra: str, name: str) -> None:
    if name in RUN:
        file, words = RUN[name]
        assert words in (ROOT / file).read_text(), f"{name}: {file} does not say {words!r}"
        return
    users = PRODUCT if extra in FOR_USERS else TOOLS
    assert modules(name) & users.keys(), f"nothing imports {name}"


def test_what_is_imported_is_listed() -> None:
    for_users = {m for extra in FOR_USERS for one in LISTS[extra] for m in modules(one)}
    found = {m: file for m, file in PRODUCT.items() if m not in for_users}
    assert found == FOR_TYPES
    for_all = for_users | {m for one in (*LISTS["bench"], *LISTS["dev"]) for m in modules(one)}
    assert {m: file for m, file in FOR_ALL.items() if m not in for_all} == {}


@pytest.mark.parametrize("requirements", [*LISTS.values(), BUILD], ids=[*LISTS, "build"])
def test_versions_are_bounded(requirements: dict[str, Requirement]) -> None:
    for name, requirement in requirements.items():
        kinds = {one.operator for one in requirement.specifier}
        assert ">=" in kinds, f"{name} has no lower bound"
        assert "<" in kinds, f"{name} has no upper bound"


def test_ci_installs_versions_within_the_bounds() -> None:
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    versions = dict(line.split("==") for line in lines if not line.startswith("#"))
    versions = {canonicalize_name(name): version for name, version in versions.items()}
    for extra, requirements in LISTS.items():
        for name, requirement in requirements.items():
            fits = requirement.specifier.contains(versions.get(name, "0"), prereleases=True)
            assert fits, f"{name} of {extra}: make constraints"


def test_each_is_explained() -> None:
    text = (
        (ROOT / "docs" / "dependencies.md")
        .read_text()
        .lower()
        .replace("type stubs", "types-pyyaml")
    )
    words = set(re.findall(r"[a-z0-9-]+", text))
    missing = {one for names in LISTS.values() for one in names} - words
    assert missing == set()
