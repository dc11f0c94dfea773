"""`storm activate`: resume the spouts of a topology."""

import click

from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say
from squall_cli.topology_argument import topology_argument


@click.command("activate")
@topology_argument
@json_option
@settings_options
def command(settings: Settings, topology_name: str, as_json: bool) -> None:
    """Resume the spouts of a topology."""
    call_nimbus(settings.client(), "activate", topology_name)
    if as_json:
        print_json({"topology": topology_name, "action": "activate"})
    else:
        say(f"Activated {topology_name}: its spouts emit.")
