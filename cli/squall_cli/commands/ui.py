"""`storm ui`: the web UI and its REST API."""

import click

from squall_cli.daemons import exec_daemon
from squall_cli.options import Settings, settings_options


@click.command("ui")
@settings_options
def command(settings: Settings) -> None:
    """Run the web UI and its REST API in the foreground."""
    exec_daemon("ui", "squall_ui", settings.load(daemon=True))
