"""`storm local`: run a topology on this machine, without a cluster."""

from pathlib import Path

import click

from squall_cli.options import Settings, check_entry, settings_options
from squall_cli.programs.dependencies import DependencyOptions, dependency_options

_TTL_SECS = 20


@click.command("local", context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
@click.argument("package", type=click.Path(path_type=Path))
@click.argument("entry", callback=check_entry)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option(
    "--local-ttl",
    "local_ttl_secs",
    type=click.IntRange(min=0),
    metavar="SECS",
    help="Stop the topology after this many seconds if it has not finished: by default 20, and no "
    "limit with --reload.",
)
@click.option(
    "--workers",
    type=click.IntRange(min=1, max=64),
    metavar="N",
    help="Run each topology in N worker processes, which send each other tuples over TCP and are "
    "started again when they end, as on a cluster.",
)
@click.option(
    "--reload",
    is_flag=True,
    help="Run the topology again whenever a Python, TOML or YAML file of PACKAGE changes, or "
    "anything in its resources/; until Ctrl-C.",
)
@click.option(
    "--credentials",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Java properties file with credentials of the topology: lines of key=value.",
)
@dependency_options
@settings_options
def command(
    settings: Settings,
    package: Path,
    entry: str,
    arguments: tuple[str, ...],
    local_ttl_secs: int | None,
    workers: int | None,
    reload: bool,
    credentials: Path | None,
    dependencies: DependencyOptions,
) -> int:
    """Run a topology on this machine, without a cluster.

    It runs in one process, or with --workers in several. PACKAGE, ENTRY and ARGS are the same as
    for `storm jar`; options come before PACKAGE.

    It ends at --local-ttl, or before that when it has finished: all input is read, and all of it is
    processed, as `storm wait` says it of a cluster. For that each spout must say when its source
    has ended: it defines exhausted(), and LinesSpout takes follow=False.

    The exit status is 1 if a message failed and no replay of it, with the same message id,
    succeeded, and if it could not take a last checkpoint, so that sinks lack rows.
    """
    from squall_cli.programs.entry import run_entry

    if local_ttl_secs is None and not reload:
        local_ttl_secs = _TTL_SECS

    def run() -> int:
        return run_entry(
            package,
            entry,
            arguments,
            settings=settings,
            mode="local",
            dependencies=dependencies,
            local_ttl_secs=local_ttl_secs,
            local_workers=workers,
            credentials=credentials,
        )

    if not reload:
        return run()
    from squall_cli.programs.reload import run_reloading, snapshot

    others = () if dependencies.requirements is None else (dependencies.requirements,)
    return run_reloading(lambda: snapshot(package, *others), run)
