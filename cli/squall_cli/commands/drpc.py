"""`storm drpc`: the server between the callers of DRPC functions and the topologies."""

import click

from squall_cli.daemons import exec_daemon
from squall_cli.options import Settings, settings_options


@click.command("drpc")
@settings_options
def command(settings: Settings) -> None:
    """Run a DRPC server in the foreground."""
    exec_daemon("drpc", "squall_drpc", settings.load(daemon=True))
