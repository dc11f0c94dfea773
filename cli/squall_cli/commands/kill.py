"""`storm kill`: stop a topology and remove it."""

from __future__ import annotations

import time
from typing import Any

import click

from squall_cli.cluster.nimbus import NotAliveError, call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say
from squall_cli.topology_argument import topology_argument
from squall_common.config.options.typed import ClientOptions

_LOOK_SECS = 0.3


@click.command("kill")
@topology_argument
@click.option(
    "-w",
    "--wait-time-secs",
    "wait_secs",
    type=click.IntRange(min=0),
    metavar="SECS",
    help="Wait exactly this long (default: until nothing is in flight, at most the topology's "
    "message timeout).",
)
@click.option("--wait", "until_gone", is_flag=True, help="Return when the topology is removed.")
@json_option
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    wait_secs: int | None,
    until_gone: bool,
    as_json: bool,
) -> None:
    """Stop a topology's spouts, let it drain, then remove it."""
    from squall_thrift import storm

    client = settings.client()
    topology_id = ""
    if until_gone:
        topology_id = call_nimbus(client, "getTopologySummaryByName", topology_name).id
    began = time.monotonic()
    options = storm.KillOptions(wait_secs=wait_secs)
    call_nimbus(client, "killTopologyWithOpts", topology_name, options)
    answer: dict[str, Any] = {
        "topology": topology_name,
        "action": "kill",
        "wait_secs": wait_secs,
    }
    if not as_json:
        when = "when nothing is in flight" if wait_secs is None else f"after {wait_secs} s"
        say(f"Killed {topology_name}: its spouts have stopped, and it is removed {when}.")
    if until_gone:
        _wait_gone(client, topology_name, topology_id)
        answer["gone_after_secs"] = round(time.monotonic() - began, 1)
        if not as_json:
            say(f"Removed {topology_name} after {answer['gone_after_secs']} s.")
    if as_json:
        print_json(answer)


def _wait_gone(client: ClientOptions, topology_name: str, topology_id: str) -> None:
    """Return when Nimbus does not know the topology any more."""
    try:
        while call_nimbus(client, "getTopologySummaryByName", topology_name).id == topology_id:
            time.sleep(_LOOK_SECS)
    except NotAliveError:
        pass
