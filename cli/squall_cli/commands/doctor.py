"""`storm doctor`: which doors of this node are open."""

from __future__ import annotations

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, printable


@click.command("doctor")
@click.option("--security", is_flag=True, help="Name each open door of this node.")
@json_option
@settings_options
def command(settings: Settings, security: bool, as_json: bool) -> int:
    """Examine this node. Ends with 1 if a door is open.

    Run it as the user of the daemons, with their configuration. It asks each listener of the
    configuration for something as a stranger would, looks at files, certificates and settings, and
    asks ZooKeeper what it lets strangers do. It changes nothing, and shows no secret.
    """
    from squall_cli.doctor.doors import State, doors
    from squall_cli.doctor.node import look

    if not security:
        raise click.UsageError("say what to examine: --security")
    found = doors(look(settings.load(daemon=True)))
    is_open = [door for door in found if door.state is State.OPEN]
    if as_json:
        rows = [
            {"id": one.id, "state": one.state.value, "what": one.what, "remedy": one.remedy}
            for one in found
        ]
        print_json({"open": len(is_open), "doors": rows})
    else:
        for one in found:
            click.echo(f"{one.state.value:<8} {printable(one.what)}")
            if one.remedy:
                click.echo(f"{'':<8} To close it: {printable(one.remedy)}.")
        count = {0: "No door is open.", 1: "1 door is open."}
        click.echo(count.get(len(is_open), f"{len(is_open)} doors are open."))
    return 1 if is_open else 0
