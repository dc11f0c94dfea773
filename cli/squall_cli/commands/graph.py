"""`storm graph`: draw a topology without running it."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from squall_cli.options import Settings, check_entry, json_option, settings_options
from squall_cli.programs.dependencies import DependencyOptions, dependency_options


@click.command("graph", context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
@click.argument("package", type=click.Path(path_type=Path))
@click.argument("entry", callback=check_entry)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option(
    "--format",
    "form",
    type=click.Choice(["mermaid", "svg"]),
    default="mermaid",
    show_default=True,
    help="What to print: Mermaid, for Markdown, or an SVG drawing.",
)
@json_option
@dependency_options
@settings_options
def command(
    settings: Settings,
    package: Path,
    entry: str,
    arguments: tuple[str, ...],
    form: str,
    as_json: bool,
    dependencies: DependencyOptions,
) -> int:
    """Draw a topology, without running it.

    PACKAGE, ENTRY and ARGS are the same as for `storm jar`; options come before PACKAGE. The entry
    point runs, and each topology that it submits is printed: components with their executors and
    tasks, streams and groupings. Nothing reaches a cluster.
    """
    from squall_cli.programs.entry import run_entry

    with contextlib.suppress(BrokenPipeError):
        return run_entry(
            package,
            entry,
            arguments,
            settings=settings,
            mode="graph",
            dependencies=dependencies,
            program="squall._graph",
            environment={"SQUALL_GRAPH": "json" if as_json else form},
        )
    return os.EX_IOERR
