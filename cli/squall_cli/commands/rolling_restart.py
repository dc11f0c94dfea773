"""`storm rolling-restart`: restart the workers of topologies one at a time."""

from __future__ import annotations

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say
from squall_cli.topology_argument import complete_topology


@click.command("rolling-restart")
@click.argument(
    "topology_names",
    nargs=-1,
    metavar="[TOPOLOGY_NAME]...",
    shell_complete=complete_topology,
)
@click.option("--all", "every", is_flag=True, help="Restart the workers of every topology.")
@click.option(
    "--host", "hosts", multiple=True, metavar="HOST", help="Only workers on this host (repeatable)."
)
@click.option(
    "--timeout",
    "timeout_secs",
    type=click.IntRange(min=1),
    default=150,
    show_default=True,
    metavar="SECS",
    help="Time limit for one worker to run again.",
)
@json_option
@settings_options
def command(
    settings: Settings,
    topology_names: tuple[str, ...],
    every: bool,
    hosts: tuple[str, ...],
    timeout_secs: int,
    as_json: bool,
) -> int:
    """Restart workers one at a time, without losing or failing a message.

    Each worker drains, exits and is started again with the code installed now; then it is the next
    one's turn. If a worker does not come back, the command stops, and the remaining workers keep
    running as they are.
    """
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_cli.cluster.rolling import RollingRestart, Turn
    from squall_common.errors import SquallError

    if bool(topology_names) == every:
        raise click.UsageError("name the topologies, or use --all")
    client = settings.client()
    if every:
        found = call_nimbus(client, "getTopologySummaries")
        topology_names = tuple(sorted(one.name for one in found if one.status != "KILLED"))
    restart = RollingRestart(client, timeout_secs=timeout_secs)
    restart.plan(tuple(dict.fromkeys(topology_names)), hosts, named=not every)
    where = f" on {', '.join(hosts)}" if hosts else ""
    if not restart.turns and not every:
        raise SquallError(f"{', '.join(topology_names)}: no worker runs{where}")
    total = len(restart.turns)

    def report(number: int, turn: Turn) -> None:
        if not as_json and turn.error is None:
            say(f"[{number}/{total}] {turn.worker} of {turn.topology} {_said(turn)}")

    def _said(turn: Turn) -> str:
        match turn.result:
            case "restarted":
                return f"runs again after {turn.secs:.1f} s"
            case "moved":
                return "was moved meanwhile, so it is already new"
            case "gone":
                return "needs no restart: the topology was killed meanwhile"
            case _:
                return "was already restarted meanwhile"

    try:
        restart.run(report)
    except SquallError:
        if not as_json:
            raise
    if as_json:
        print_json(
            [
                {
                    "topology": turn.topology,
                    "worker": turn.worker,
                    "result": turn.result,
                    "secs": turn.secs,
                    "error": turn.error,
                }
                for turn in restart.turns
            ]
        )
    elif not total:
        say(f"No worker runs{where}.")
    return 1 if any(turn.error for turn in restart.turns) else 0
