"""`storm remoteconfvalue`: a configuration value as Nimbus sees it."""

import json

import click

from squall_cli.cluster.confvalue import print_value
from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options


@click.command("remoteconfvalue")
@click.argument("conf_name")
@json_option
@settings_options
def command(settings: Settings, conf_name: str, as_json: bool) -> None:
    """Print a configuration value as the cluster's Nimbus sees it."""
    conf = json.loads(call_nimbus(settings.client(), "getNimbusConf"))
    print_value(conf, conf_name, as_json=as_json)
