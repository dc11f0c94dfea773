"""`storm kill_workers`: kill every worker that this machine's supervisor started."""

import click

from squall_cli.daemons import exec_daemon
from squall_cli.options import Settings, settings_options


@click.command("kill_workers")
@settings_options
def command(settings: Settings) -> None:
    """Kill the workers of this machine's supervisor (stop it first)."""
    exec_daemon(
        "supervisor", "squall_supervisor", settings.load(daemon=True), arguments=("--kill-workers",)
    )
