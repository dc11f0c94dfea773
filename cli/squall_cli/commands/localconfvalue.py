"""`storm localconfvalue`: a configuration value as this machine sees it."""

import click

from squall_cli.cluster.confvalue import print_value
from squall_cli.options import Settings, json_option, settings_options


@click.command("localconfvalue")
@click.argument("conf_name")
@json_option
@settings_options
def command(settings: Settings, conf_name: str, as_json: bool) -> None:
    """Print a configuration value as this machine sees it."""
    print_value(settings.load(), conf_name, as_json=as_json)
