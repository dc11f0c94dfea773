"""`storm supervisor`: the daemon that runs workers on this machine."""

import click

from squall_cli.daemons import exec_daemon
from squall_cli.options import Settings, settings_options


@click.command("supervisor")
@settings_options
def command(settings: Settings) -> None:
    """Run the supervisor of this machine in the foreground."""
    exec_daemon("supervisor", "squall_supervisor", settings.load(daemon=True))
