"""From requirements to wheels, on the client, for the platform of the cluster.

pip resolves, for the Python and the machine of the cluster, wheels only: nothing is built and no
code of a dependency runs. What squall itself requires is a constraint, since a worker has squall's
own dependencies loaded before the topology's code.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Sequence
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename
from packaging.version import Version

from squall_common.errors import PackageError
from squall_common.packaging.dependencies import Wheel, fits, read_wheel
from squall_common.packaging.platforms import Platform
from squall_common.packaging.requirements_text import (
    RequirementsText,
    of_lines,
    read_requirements,
)

_PIP_TIMEOUT_SECS = 1800.0
_OURS = canonicalize_name("squall")


def project_requirements(pyproject: Path) -> list[str]:
    """`[project] dependencies` of a pyproject.toml, squall itself left out: the cluster has it.
    Raises PackageError."""
    try:
        project = tomllib.loads(pyproject.read_text()).get("project", {})
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise PackageError(f"cannot read {pyproject}: {error}") from error
    listed = project.get("dependencies", []) if isinstance(project, dict) else []
    if not isinstance(listed, list) or not all(isinstance(line, str) for line in listed):
        raise PackageError(f"{pyproject}: [project] dependencies is not a list of strings")
    try:
        return [line for line in listed if canonicalize_name(Requirement(line).name) != _OURS]
    except InvalidRequirement as error:
        raise PackageError(f"{pyproject}: {error}") from error


def requirements_text(requirements: Path) -> RequirementsText | None:
    """The contents of a requirements file or a pyproject.toml; None if a resolution depends
    on more than text. Raises PackageError."""
    if requirements.suffix == ".toml":
        return of_lines(project_requirements(requirements))
    return read_requirements(requirements)


def all_pinned(wheels: Sequence[Wheel], text: RequirementsText) -> bool:
    """Whether requirements leave no choice of version for any of these wheels."""
    return all(parse_wheel_filename(one.path.name)[0] in text.pinned for one in wheels)


def resolve(
    requirements: Path | Sequence[str], wheels_dir: Path | None, platform: Platform, folder: Path
) -> list[Wheel]:
    """Find wheels for all that is required and what that requires, and put them into `folder`.

    `requirements` is a requirements file, a pyproject.toml, or the lines themselves. `wheels_dir`
    is looked into before the package index. Raises PackageError with what pip says.
    """
    asked = folder / "requirements.txt"
    if isinstance(requirements, Path) and requirements.suffix != ".toml":
        if not requirements.is_file():
            raise PackageError(f"there is no file {requirements}")
        asked = requirements
    else:
        lines = (
            project_requirements(requirements)
            if isinstance(requirements, Path)
            else list(requirements)
        )
        if not lines:
            return []
        asked.write_text("".join(f"{line}\n" for line in lines))
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in own_requirements()))
    target = folder / "wheels"
    target.mkdir()
    _run_pip(_download_arguments(asked, constraints, wheels_dir, platform, target), platform)
    return [read_wheel(path) for path in sorted(target.iterdir())]


def _download_arguments(
    asked: Path, constraints: Path, wheels_dir: Path | None, platform: Platform, target: Path
) -> list[str]:
    major, minor = platform.python
    arguments = [
        "download", "--dest", str(target), "--requirement", str(asked),
        "--constraint", str(constraints), "--only-binary", ":all:",
        "--python-version", f"{major}.{minor}", "--implementation", "cp",
        "--abi", f"cp{major}{minor}", "--abi", "abi3", "--abi", "none",
    ]  # fmt: skip
    for tag in platform.platform_tags():
        arguments += ["--platform", tag]
    if wheels_dir is not None:
        arguments += ["--find-links", str(wheels_dir.absolute())]
    return arguments


def _run_pip(arguments: list[str], platform: Platform) -> None:
    command = [
        sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--no-color",
        *arguments, "--progress-bar", "off",
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
            timeout=_PIP_TIMEOUT_SECS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise PackageError(
            f"pip did not find the dependencies within {_PIP_TIMEOUT_SECS:.0f} s"
        ) from None
    if done.returncode == 0:
        return
    if "No module named pip" in done.stderr:
        raise PackageError(
            f"{sys.executable} has no pip, which resolves dependencies",
            hint="python -m ensurepip; or give the wheels: --wheels DIR",
        )
    errors = [line.strip() for line in done.stderr.splitlines() if line.startswith("ERROR: ")]
    problems = _conflict(done.stdout) or [line.removeprefix("ERROR: ") for line in errors]
    problems = problems or done.stderr.splitlines()[-5:]
    raise PackageError(
        f"the dependencies are not available as wheels for {platform}: "
        + "; ".join(problems)[:2000],
        hint="a project without a wheel: pip wheel it, and give the folder with --wheels DIR",
    )


def _conflict(printed: str) -> list[str]:
    """Pip's report about requirements that exclude each other."""
    _, found, after = printed.partition("The conflict is caused by:\n")
    return [line.strip() for line in after.partition("\n\n")[0].splitlines()] if found else []


def own_requirements() -> list[str]:
    """The requirements of Squall itself, without extras."""
    try:
        lines = metadata.requires("squall") or []
    except metadata.PackageNotFoundError:
        return []
    found = [Requirement(line) for line in lines]
    return [f"{r.name}{r.specifier}" for r in found if r.marker is None]


# ---- A folder of wheels ----


def take_wheels(wheels_dir: Path, platform: Platform) -> list[Wheel]:
    """All wheels of a folder, as they are. Raises PackageError that names the wheel that is
    damaged, does not run on the platform, or requires what is neither there nor squall's own."""
    if not wheels_dir.is_dir():
        raise PackageError(f"there is no folder {wheels_dir}")
    paths = sorted(wheels_dir.glob("*.whl"))
    if not paths:
        raise PackageError(f"{wheels_dir} holds no wheels (*.whl)")
    wheels = [read_wheel(path) for path in paths]
    versions: dict[str, Version] = {}
    for wheel in wheels:
        name, version, _, _ = parse_wheel_filename(wheel.path.name)
        if name in versions:
            raise PackageError(
                f"{wheels_dir} holds {name} twice: {versions[name]} and {version}",
                hint="a topology has one version of a project",
            )
        if not fits(wheel.path.name, platform):
            raise PackageError(
                f"{wheel.path.name} does not run on the cluster, which is {platform}",
                hint=f"pip download --only-binary :all: --python-version "
                f"{platform.python[0]}.{platform.python[1]} "
                f"--platform {platform.platform_tags()[0]} {name}",
            )
        versions[name] = version
    for wheel in wheels:
        for requirement in _requirements_of(wheel.path, platform):
            _check_there(wheel.path.name, requirement, versions, wheels_dir)
    return wheels


def _requirements_of(path: Path, platform: Platform) -> list[Requirement]:
    try:
        with zipfile.ZipFile(path) as archive:
            (name,) = [
                n for n in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", n)
            ]
            headers = HeaderParser().parsestr(archive.read(name).decode())
        found = [Requirement(line) for line in headers.get_all("Requires-Dist") or []]
    except (zipfile.BadZipFile, ValueError, KeyError, OSError, InvalidRequirement) as error:
        raise PackageError(f"{path.name} is damaged: {error}") from error
    environment = platform.marker_environment()
    return [r for r in found if r.marker is None or r.marker.evaluate(environment)]


def _check_there(
    wheel: str, requirement: Requirement, versions: dict[str, Version], wheels_dir: Path
) -> None:
    name = canonicalize_name(requirement.name)
    version = versions.get(name)
    if version is None:
        if name in _provided():
            return
        raise PackageError(
            f"{wheel} requires {requirement}, which is not in {wheels_dir}",
            hint="add its wheel, or let it be found: --requirements FILE",
        )
    if not requirement.specifier.contains(version, prereleases=True):
        raise PackageError(f"{wheel} requires {requirement}; {wheels_dir} has {name} {version}")


def _provided() -> set[str]:
    """Names of what every worker has: squall and all that it requires."""
    known: set[str] = set()
    waiting: list[str] = [_OURS]
    while waiting:
        name = waiting.pop()
        if name in known:
            continue
        known.add(name)
        try:
            lines = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        for requirement in map(Requirement, lines):
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                waiting.append(canonicalize_name(requirement.name))
    return known
