"""`storm jar`: run a topology's entry point, which submits it to the cluster."""

import json
from dataclasses import replace
from pathlib import Path

import click

from squall_cli.options import Settings, check_entry, settings_options
from squall_cli.programs.dependencies import DependencyOptions, dependency_options

_WAIT_SECS = 120


class _JarCommand(click.Command):
    """Accepts `--wait` without a value, where click would take PACKAGE for it, and `--wait 60`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        takes_value = {
            name
            for param in self.params
            if isinstance(param, click.Option) and not param.is_flag and param.name != "wait_secs"
            for name in param.opts
        }
        index = 0
        while index < len(args) and args[index].startswith("-") and args[index] != "--":
            if args[index] == "--wait":
                secs = str(_WAIT_SECS)
                following = args[index + 1] if index + 1 < len(args) else ""
                if following.isdecimal() and not Path(following).exists():
                    secs = args.pop(index + 1)
                args[index] = f"--wait={secs}"
            index += 2 if args[index] in takes_value else 1
        return super().parse_args(ctx, args)


@click.command(
    "jar",
    cls=_JarCommand,
    context_settings={"allow_interspersed_args": False},
    no_args_is_help=True,
)
@click.argument("package", type=click.Path(path_type=Path))
@click.argument("entry", callback=check_entry)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option(
    "--wait",
    "wait_secs",
    type=click.IntRange(min=0),
    metavar="[SECS]",
    help="Wait until every task runs; fail with the reason if that does not happen within SECS"
    f" ({_WAIT_SECS}).",
)
@click.option(
    "--credentials",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Java properties file with credentials of the topology: lines of key=value.",
)
@click.option(
    "--from-savepoint",
    "savepoint",
    metavar="URL|NAME",
    help="Start from this savepoint: its place, or its name among the topology's own "
    "(storm savepoint TOPOLOGY --list).",
)
@click.option(
    "--allow-non-restored-state",
    is_flag=True,
    help="Drop state of components that the topology does not have any more.",
)
@dependency_options
@settings_options
def command(
    settings: Settings,
    package: Path,
    entry: str,
    arguments: tuple[str, ...],
    dependencies: DependencyOptions,
    wait_secs: int | None,
    credentials: Path | None,
    savepoint: str | None,
    allow_non_restored_state: bool,
) -> int:
    """Run a topology's entry point and submit it to the cluster.

    PACKAGE is a folder, or a .zip, .jar, .pyz or .pex file. ENTRY names the program in it that
    calls submit_topology: `module`, `module:function` or `path/in/package.py`. Arguments
    after ENTRY are passed to it unchanged, so options of `storm jar` come before PACKAGE.
    """
    from squall_cli.programs.entry import run_entry

    if savepoint is not None:
        given = f"topology.checkpoint.savepoint={json.dumps(savepoint)}"
        settings = replace(settings, overrides=(*settings.overrides, given))
    if allow_non_restored_state:
        given = "topology.checkpoint.allow.non.restored.state=true"
        settings = replace(settings, overrides=(*settings.overrides, given))
    return run_entry(
        package,
        entry,
        arguments,
        settings=settings,
        mode="cluster",
        wait_secs=wait_secs,
        credentials=credentials,
        dependencies=dependencies,
    )
