"""`storm nimbus`: the daemon that accepts topologies and schedules them."""

import click

from squall_cli.daemons import exec_daemon
from squall_cli.options import Settings, settings_options


@click.command("nimbus")
@settings_options
def command(settings: Settings) -> None:
    """Run Nimbus in the foreground."""
    exec_daemon("nimbus", "squall_nimbus", settings.load(daemon=True))
