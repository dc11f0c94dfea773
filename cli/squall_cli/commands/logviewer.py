"""`storm logviewer`: serves the logs of this node's workers and daemons."""

import click

from squall_cli.daemons import exec_daemon
from squall_cli.options import Settings, settings_options


@click.command("logviewer")
@settings_options
def command(settings: Settings) -> None:
    """Run a logviewer, which serves this node's logs, in the foreground."""
    exec_daemon("logviewer", "squall_ui.logviewer", settings.load(daemon=True))
