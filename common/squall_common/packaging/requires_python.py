"""The Pythons that a package asks for, compared with those that would run it.

A project states `requires-python` in its pyproject.toml, and a built distribution `Requires-Python`
in its METADATA. Workers run the Python of their supervisor, so a package for another one would fail
in every worker, at the first syntax or module that this Python lacks.
"""

from __future__ import annotations

import re
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

from packaging.specifiers import InvalidSpecifier, SpecifierSet

from squall_common.errors import PackageError
from squall_common.packaging.platforms import Platform

# METADATA at the top level (a wheel), and of what self-contained archives bundle: `site-packages/`
# in shiv's, `.deps/NAME.whl/` in a PEX.
_METADATA = re.compile(r"(?:site-packages/|\.deps/[^/]+/)?[^/]+\.dist-info/METADATA")
_FILE_BYTES_MAX = 4 * 1024 * 1024
# Platforms have two numbers, and requirements may have three (`>=3.11.4`): a Python fits if any of
# its patch releases does.
_PATCHES = range(100)


@dataclass(frozen=True, slots=True)
class PythonRequirement:
    """The Pythons that one file asks for."""

    file: str  # for messages
    wanted: SpecifierSet

    def allows(self, python: tuple[int, int]) -> bool:
        """Whether a release of this Python (such as 3.11) fits."""
        major, minor = python
        return any(
            self.wanted.contains(f"{major}.{minor}.{patch}", prereleases=True) for patch in _PATCHES
        )


def python_requirements(package: Path, archive: Path) -> list[PythonRequirement]:
    """The Python versions that a package asks for: a folder in its pyproject.toml, an archive also
    in the metadata of the distributions in it. `archive` is the package as it is uploaded. Raises
    PackageError."""
    if package.is_dir():
        own = package / "pyproject.toml"
        return pyproject_requirement(own) if own.is_file() else []
    found: list[PythonRequirement] = []
    try:
        with zipfile.ZipFile(archive) as file:
            for info in file.infolist():
                if info.file_size > _FILE_BYTES_MAX:
                    continue
                shown = f"{info.filename} in {archive.name}"
                if info.filename == "pyproject.toml":
                    found += _of_pyproject(file.read(info).decode(), shown)
                elif _METADATA.fullmatch(info.filename):
                    headers = HeaderParser().parsestr(file.read(info).decode())
                    found += _requirement(headers.get("Requires-Python"), shown)
    except (zipfile.BadZipFile, OSError, NotImplementedError, RuntimeError, ValueError) as error:
        raise PackageError(f"cannot read {archive}: {error}") from error
    return found


def pyproject_requirement(pyproject: Path) -> list[PythonRequirement]:
    """The Python versions that a pyproject.toml asks for, if any. Raises PackageError."""
    try:
        return _of_pyproject(pyproject.read_text(), str(pyproject))
    except (OSError, UnicodeDecodeError) as error:
        raise PackageError(f"cannot read {pyproject}: {error}") from error


def check_pythons(
    requirements: Iterable[PythonRequirement], platforms: Mapping[str, Platform], *, who: str
) -> None:
    """Raise PackageError if a requirement excludes the Python of a node. `platforms` has nodes by
    name; `who` has them ("the cluster")."""
    for requirement in requirements:
        refused: dict[tuple[int, int], list[str]] = {}
        for node, platform in sorted(platforms.items()):
            if not requirement.allows(platform.python):
                refused.setdefault(platform.python, []).append(node)
        if refused:
            had = ", ".join(
                f"Python {major}.{minor}" + ("" if len(nodes) == len(platforms) else _some(nodes))
                for (major, minor), nodes in sorted(refused.items())
            )
            raise PackageError(
                f"{requirement.file} requires Python {requirement.wanted}; {who} has {had}",
                hint="change requires-python if the code runs there, or run it on another Python",
            )


def _some(nodes: list[str]) -> str:
    more = len(nodes) - 4
    return f" on {', '.join(nodes[:4])}" + (f" and {more} more" if more > 0 else "")


def _of_pyproject(text: str, shown: str) -> list[PythonRequirement]:
    try:
        project = tomllib.loads(text).get("project", {})
    except tomllib.TOMLDecodeError as error:
        raise PackageError(f"cannot read {shown}: {error}") from error
    wanted = project.get("requires-python") if isinstance(project, dict) else None
    if wanted is not None and not isinstance(wanted, str):
        raise PackageError(f"{shown}: [project] requires-python is {wanted!r}; expected text")
    return _requirement(wanted, shown)


def _requirement(wanted: str | None, shown: str) -> list[PythonRequirement]:
    if not wanted:
        return []
    try:
        return [PythonRequirement(shown, SpecifierSet(wanted))]
    except InvalidSpecifier:
        raise PackageError(
            f"{shown}: {wanted!r} does not say which Pythons fit", hint='such as ">=3.11,<3.14"'
        ) from None
