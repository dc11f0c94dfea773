"""`storm kill`: stop a topology and remove it."""

import click

from squall_cli.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say


@click.command("kill")
@click.argument("topology_name")
@click.option(
    "-w",
    "--wait-time-secs",
    "wait_secs",
    type=click.IntRange(min=0),
    metavar="SECS",
    help="Time for tuples in flight to finish (default: the topology's message timeout).",
)
@json_option
@settings_options
def command(settings: Settings, topology_name: str, wait_secs: int | None, as_json: bool) -> None:
    """Stop a topology's spouts, wait, then remove it."""
    from squall_thrift import storm

    options = storm.KillOptions(wait_secs=wait_secs)
    call_nimbus(settings.client(), "killTopologyWithOpts", topology_name, options)
    if as_json:
        print_json({"topology": topology_name, "action": "kill", "wait_secs": wait_secs})
        return
    when = "its message timeout" if wait_secs is None else f"{wait_secs} s"
    say(f"Killed {topology_name}: its spouts have stopped, and it is removed after {when}.")
