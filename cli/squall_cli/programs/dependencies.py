"""`--requirements`, `--wheels`: find the dependencies of a topology before it is submitted, and
check that its Python is one that will run it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.output import duration
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
    refresh: bool = False  # resolve anew, whatever is kept


def dependency_options(function: Callable[..., _R]) -> Callable[..., _R]:
    """Add the options, and pass the function `dependencies`, a DependencyOptions."""
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
        click.option(
            "--refresh",
            is_flag=True,
            help="Resolve the requirements again, even if the result of an earlier run is kept.",
        ),
    )

    @wraps(function)
    def with_dependencies(
        *args: Any,
        requirements: Path | None,
        wheels: Path | None,
        no_dependencies: bool,
        refresh: bool,
        **kwargs: Any,
    ) -> _R:
        given = DependencyOptions(requirements, wheels, no_dependencies, refresh)
        return function(*args, dependencies=given, **kwargs)

    found: Callable[..., _R] = with_dependencies
    for option in reversed(options):
        found = option(found)
    return found


def prepare_dependencies(
    options: DependencyOptions,
    package: Path,
    archive: Path,
    folder: Path,
    client: ClientOptions | None,
) -> dict[str, str]:
    """Find the wheels and install them into `folder`, for the process that runs the entry point;
    returns the environment variables for that process (see `squall._entry`). `archive` is the
    package as it is uploaded; `client` leads to the cluster that it is for; None means this
    machine. Raises SquallError, also for a package that asks for another Python."""
    from squall_common.packaging.requires_python import (
        check_pythons,
        pyproject_requirement,
        python_requirements,
    )

    wanted = _wanted(options, package)
    pythons = python_requirements(package, archive)
    if wanted is not None and wanted.suffix == ".toml" and wanted != package / "pyproject.toml":
        pythons += pyproject_requirement(wanted)
    needs_wheels = wanted is not None or options.wheels is not None
    if not needs_wheels and not pythons:
        return {}
    from squall_common.client.upload import size_text
    from squall_common.packaging.dependencies import build_environment
    from squall_common.packaging.platforms import common_platform, this_platform

    here = this_platform()
    nodes = {} if client is None else _cluster_platforms(client)
    if nodes:
        check_pythons(pythons, nodes, who="the cluster")
    # The entry point runs here, also when the workers will run elsewhere.
    check_pythons(pythons, {"this machine": here}, who="this machine")
    if not needs_wheels:
        return {}
    cluster = common_platform(nodes) or here
    wheels = _find(wanted, options, cluster, folder / "cluster")
    if not wheels:
        return {}
    size = sum(wheel.path.stat().st_size for wheel in wheels)
    count = "1 wheel" if len(wheels) == 1 else f"{len(wheels)} wheels"
    print(f"dependencies: {count}, {size_text(size)}", file=sys.stderr, flush=True)
    local = wheels if _all_fit(wheels, here) else _find(wanted, options, here, folder / "here")
    environment = folder / "environment"
    build_environment(local, environment, sys.executable)
    return {
        "SQUALL_ENVIRONMENT": str(environment),
        "SQUALL_WHEELS": json.dumps([str(wheel.path) for wheel in wheels]),
    }


def _cluster_platforms(client: ClientOptions) -> dict[str, Platform]:
    """The platforms that supervisors have reported, by node."""
    from squall_common.packaging.platforms import parse_platforms

    nodes = parse_platforms(call_nimbus(client, "getSupervisorPlatforms"))
    if not nodes:
        print(
            "note: no supervisor has reported its platform; using this machine's", file=sys.stderr
        )
    return nodes


def _wanted(options: DependencyOptions, package: Path) -> Path | None:
    if options.none:
        if options.requirements is not None or options.wheels is not None or options.refresh:
            raise click.UsageError(
                "--no-dependencies cannot be combined with --requirements, --wheels or --refresh."
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
    wanted: Path | None, options: DependencyOptions, platform: Platform, folder: Path
) -> list[Wheel]:
    from squall_common.packaging.resolution import (
        all_pinned,
        own_requirements,
        requirements_text,
        resolve,
        take_wheels,
    )
    from squall_common.packaging.resolution_cache import (
        ResolutionCache,
        resolution_key,
        user_cache_folder,
    )

    if wanted is None:
        assert options.wheels is not None
        return take_wheels(options.wheels, platform)
    text = requirements_text(wanted)
    key = None
    if text is not None:
        key = resolution_key(text, options.wheels, platform, own_requirements())
    cache = ResolutionCache(user_cache_folder())
    kept = None if options.refresh else cache.find(key)
    if kept is not None:
        ago = duration(int(kept.age_secs))
        print(
            f"the requirements of {wanted} were resolved for {platform} {ago} ago; "
            "--refresh resolves them again",
            file=sys.stderr,
        )
        return kept.wheels
    folder.mkdir()
    print(f"resolving the requirements of {wanted} for {platform} ...", file=sys.stderr, flush=True)
    wheels = resolve(wanted, options.wheels, platform, folder)
    cache.keep(key, wheels, pinned=text is not None and all_pinned(wheels, text))
    return wheels


def _all_fit(wheels: list[Wheel], platform: Platform) -> bool:
    from squall_common.packaging.dependencies import fits

    return all(fits(wheel.path.name, platform) for wheel in wheels)
