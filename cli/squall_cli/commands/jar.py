"""`storm jar`: run a topology's entry point, which submits it to the cluster."""

from pathlib import Path

import click

from squall_cli.dependencies import DependencyOptions, dependency_options
from squall_cli.options import Settings, settings_options


@click.command("jar", context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
@click.argument("package", type=click.Path(path_type=Path))
@click.argument("entry")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@dependency_options
@settings_options
def command(
    settings: Settings,
    package: Path,
    entry: str,
    arguments: tuple[str, ...],
    requirements: Path | None,
    wheels: Path | None,
    no_dependencies: bool,
) -> int:
    """Run a topology's entry point and submit it to the cluster.

    PACKAGE is a folder, or a .zip, .jar, .pyz or .pex file. ENTRY names the program in it that
    calls submit_topology: `module`, `module:function` or `path/in/package.py`. What follows ENTRY
    is passed to it untouched, so options of `storm jar` stand before PACKAGE.
    """
    from squall_cli.entry import run_entry

    return run_entry(
        package,
        entry,
        arguments,
        settings=settings,
        mode="cluster",
        dependencies=DependencyOptions(requirements, wheels, no_dependencies),
    )
