"""`storm flux`: run a topology that a YAML file defines."""

from __future__ import annotations

import json
from pathlib import Path

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.programs.dependencies import DependencyOptions, dependency_options

_SLEEP_MS = 60_000  # as Storm's


def _print_schema(ctx: click.Context, _param: click.Parameter, value: bool) -> None:
    if value and not ctx.resilient_parsing:
        from squall_flux.model import json_schema

        click.echo(json.dumps(json_schema(), indent=2))
        ctx.exit()


@click.command("flux", no_args_is_help=True)
@click.argument("file")
@click.option("--local", "-l", is_flag=True, help="Run the topology on this machine.")
@click.option("--remote", "-r", is_flag=True, help="Submit the topology to the cluster.")
@click.option(
    "--dry-run", "-d", is_flag=True, help="Check the topology and print it; run and submit nothing."
)
@click.option(
    "--filter",
    "-f",
    "filter_file",
    type=click.Path(path_type=Path),
    metavar="PROPERTIES",
    help="Replace ${name} in FILE, and in what it includes, by the properties of this file.",
)
@click.option(
    "--env-filter", "-e", is_flag=True, help="Replace ${ENV-NAME} by variables of the environment."
)
@click.option(
    "--package",
    type=click.Path(path_type=Path),
    metavar="PACKAGE",
    help="The folder or archive with the classes, and with resources/ for shell components "
    "(default: the folder of FILE).",
)
@click.option("--resource", "-R", is_flag=True, help="FILE is a path in PACKAGE.")
@click.option(
    "--inactive", "-i", is_flag=True, help="Leave the spouts inactive until `storm activate`."
)
@click.option(
    "--sleep",
    "-s",
    "sleep_ms",
    type=click.IntRange(min=0),
    metavar="MS",
    help=f"With --local, stop after this many milliseconds (default {_SLEEP_MS}).",
)
@click.option("--no-detail", "-q", is_flag=True, help="Do not print the components and streams.")
@click.option(
    "--schema",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_schema,
    help="Print the JSON Schema of such files, for editors, and exit.",
)
@json_option
@dependency_options
@settings_options
def command(
    settings: Settings,
    file: str,
    local: bool,
    remote: bool,
    dry_run: bool,
    filter_file: Path | None,
    env_filter: bool,
    package: Path | None,
    resource: bool,
    inactive: bool,
    sleep_ms: int | None,
    no_detail: bool,
    as_json: bool,
    dependencies: DependencyOptions,
) -> int:
    """Run a topology that a YAML file defines.

    FILE is in the format of Storm's Flux. Its classes come from PACKAGE, which is submitted as by
    `storm jar`. Give --local, --remote or --dry-run; with --dry-run the others have no effect.
    """
    if not (local or remote or dry_run):
        raise click.UsageError("Say where to run it: --local, --remote or --dry-run.")
    if local and remote:
        raise click.UsageError("--local and --remote exclude each other.")
    if as_json and not dry_run:
        raise click.UsageError("--json needs --dry-run.")
    if sleep_ms is not None and not local:
        raise click.UsageError("--sleep needs --local.")
    if resource and package is None:
        raise click.UsageError("--resource needs --package.")
    from squall_cli.programs.entry import run_entry

    options = {
        "resource": resource,
        "filter": None if filter_file is None else str(filter_file),
        "env_filter": env_filter,
        "inactive": inactive,
        "detail": not no_detail,
        "json": as_json,
    }
    mode = "graph" if dry_run else "local" if local else "cluster"
    return run_entry(
        Path(file).parent if package is None else package,
        file,
        (),
        settings=settings,
        mode=mode,
        dependencies=dependencies,
        local_ttl_secs=(_SLEEP_MS if sleep_ms is None else sleep_ms) / 1000
        if mode == "local"
        else None,
        program="squall_flux.entry",
        environment={"SQUALL_FLUX": json.dumps(options)},
    )
