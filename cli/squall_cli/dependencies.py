"""`--requirements`, `--wheels`: find the dependencies of a topology before it is submitted."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import click

from squall_common.config.options.typed import ClientOptions

if TYPE_CHECKING:
    from squall_common.packaging.dependencies import Wheel
    from squall_common.packaging.platforms import Platform

_R = TypeVar("_R")


@dataclass(frozen=True, slots=True)
class DependencyOptions:
    """The user's options."""

    requirements: Path | None = None
    wheels: Path | None = None
    none: bool = False  # not even those of the project's own pyproject.toml


def dependency_options(function: Callable[..., _R]) -> Callable[..., _R]:
    """Add the options, and pass the function `requirements`, `wheels` and `no_dependencies`."""
    options = (
        click.option(
            "--requirements",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="Ship the requirements of this file: a requirements file or a pyproject.toml "
            "(default: the pyproject.toml of PACKAGE, if there is one).",
        ),
        click.option(
            "--wheels",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Ship the wheels in this folder; with --requirements, search it first.",
        ),
        click.option("--no-dependencies", is_flag=True, help="Ship only the package."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def prepare_dependencies(
    options: DependencyOptions,
    package: Path,
    folder: Path,
    client: ClientOptions | None,
) -> dict[str, str]:
    """Find the wheels and install them into `folder`, for the process that runs the entry point;
    returns the environment variables for that process (see `squall._entry`). `client` leads to
    the cluster that they are for; None means this machine. Raises SquallError."""
    wanted = _wanted(options, package)
    if wanted is None and options.wheels is None:
        return {}
    from squall_common.client.upload import size_text
    from squall_common.packaging.dependencies import build_environment
    from squall_common.packaging.platforms import this_platform

    here = this_platform()
    cluster = here if client is None else _cluster_platform(client)
    wheels = _find(wanted, options.wheels, cluster, folder / "cluster")
    if not wheels:
        return {}
    size = sum(wheel.path.stat().st_size for wheel in wheels)
    print(f"dependencies: {len(wheels)} wheels, {size_text(size)}", file=sys.stderr, flush=True)
    local = (
        wheels if _all_fit(wheels, here) else _find(wanted, options.wheels, here, folder / "here")
    )
    environment = folder / "environment"
    build_environment(local, environment, sys.executable)
    return {
        "SQUALL_ENVIRONMENT": str(environment),
        "SQUALL_WHEELS": json.dumps([str(wheel.path) for wheel in wheels]),
    }


def _cluster_platform(options: ClientOptions) -> Platform:
    """The platform that the supervisors share; if none has reported one, this machine's."""
    from squall_common.client.nimbus import run_nimbus
    from squall_common.packaging.platforms import Platform, this_platform

    text: str = run_nimbus(options, lambda nimbus: nimbus.call("getClusterPlatform"))
    if not text:
        print(
            "note: no supervisor has reported its platform; using this machine's", file=sys.stderr
        )
    return Platform.parse(text) if text else this_platform()


def _wanted(options: DependencyOptions, package: Path) -> Path | None:
    if options.none:
        if options.requirements is not None or options.wheels is not None:
            raise click.UsageError(
                "--no-dependencies cannot be combined with --requirements or --wheels."
            )
        return None
    if options.requirements is not None:
        return options.requirements
    own = package / "pyproject.toml"
    if options.wheels is None and own.is_file():
        from squall_common.packaging.resolution import project_requirements

        return own if project_requirements(own) else None
    return None


def _find(
    wanted: Path | None, wheels_dir: Path | None, platform: Platform, folder: Path
) -> list[Wheel]:
    from squall_common.packaging.resolution import resolve, take_wheels

    if wanted is None:
        assert wheels_dir is not None
        return take_wheels(wheels_dir, platform)
    folder.mkdir()
    print(f"resolving the requirements of {wanted} for {platform} ...", file=sys.stderr, flush=True)
    return resolve(wanted, wheels_dir, platform, folder)


def _all_fit(wheels: list[Wheel], platform: Platform) -> bool:
    from squall_common.packaging.dependencies import fits

    return all(fits(wheel.path.name, platform) for wheel in wheels)
