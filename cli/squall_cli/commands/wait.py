"""`storm wait`: return when a topology has read all of its input and has nothing left to do."""

from __future__ import annotations

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say
from squall_cli.topology_argument import topology_argument


@click.command("wait")
@topology_argument
@click.option(
    "--timeout",
    "timeout_secs",
    type=click.IntRange(min=1),
    metavar="SECS",
    help="Fail if it has not finished by then (default: wait as long as it takes).",
)
@json_option
@settings_options
def command(
    settings: Settings, topology_name: str, timeout_secs: int | None, as_json: bool
) -> None:
    """Wait until a topology has finished: all input is read, and all of it is processed.

    Each spout must say when its source has ended: it defines exhausted(), and LinesSpout takes
    follow=False. With checkpoints, sinks have written all rows then. So a job that ends is:

        storm jar job.zip main && storm wait job && storm kill job

    The exit status is 1 at the timeout, if the topology is killed meanwhile, and if a spout does
    not say whether its source ends.
    """
    from squall_cli.cluster.finish import wait_finished

    secs = round(wait_finished(settings.client(), topology_name, timeout_secs), 1)
    if as_json:
        print_json({"topology": topology_name, "action": "wait", "secs": secs})
    else:
        say(f"Finished: {topology_name} has read all of its input, and nothing is in flight.")
