"""`storm rebalance`: redistribute a topology, with other numbers of workers and executors."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import click

from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, print_table, say
from squall_cli.topology_argument import topology_argument
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusError


def _parse_executors(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> dict[str, int]:
    executors: dict[str, int] = {}
    for value in values:
        component, _, number = value.rpartition("=")
        if not component or not number.isdecimal() or int(number) < 1:
            raise click.BadParameter(f"{value!r} is not COMPONENT=N with N of at least 1")
        executors[component] = int(number)
    return executors


def _parse_object(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        parsed = json.loads(value)
    except ValueError as error:
        raise click.BadParameter(f"not JSON: {error}") from error
    if not isinstance(parsed, dict):
        raise click.BadParameter(f"expected a JSON object, got {value}")
    return parsed


@click.command("rebalance")
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
@click.option(
    "-n", "--num-workers", type=click.IntRange(min=1), metavar="N", help="Number of workers."
)
@click.option(
    "-e",
    "--executor",
    "executors",
    multiple=True,
    metavar="COMPONENT=N",
    callback=_parse_executors,
    help="Number of executors of a component (repeatable); with checkpoints, of its tasks.",
)
@click.option(
    "-r",
    "--resources",
    metavar="JSON",
    callback=_parse_object,
    help='Resources of components, such as {"count": {"cpu.pcore.percent": 20}}.',
)
@click.option(
    "-t",
    "--topology-conf",
    metavar="JSON",
    callback=_parse_object,
    help="Configuration keys to set for the topology.",
)
@click.option(
    "--from-report",
    "report",
    is_flag=False,
    flag_value="",
    metavar="[FILE]",
    help="Use the numbers that a report recommends (storm report --json FILE; without FILE, "
    "a new report). Shows the changes and asks for confirmation.",
)
@click.option("-y", "--yes", is_flag=True, help="With --from-report: do not ask for confirmation.")
@click.option("--force", is_flag=True, help="With --from-report: accept an old report.")
@json_option
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    wait_secs: int | None,
    num_workers: int | None,
    executors: dict[str, int],
    resources: dict[str, Any] | None,
    topology_conf: dict[str, Any] | None,
    report: str | None,
    yes: bool,
    force: bool,
    as_json: bool,
) -> None:
    """Pause a topology, then redistribute it over the cluster.

    A topology with checkpoints (topology.checkpoint.interval.secs) takes one, and goes on from it
    with the tasks that -e asks for: state and positions move to them.

    --from-report sets the executors and workers that a report of its history recommends; -n and -e
    take precedence.
    """
    from squall_thrift import storm

    if report is None and (yes or force):
        raise click.UsageError("--yes and --force need --from-report")
    if report is not None:
        found = _from_report(settings, topology_name, report, force=force, quiet=as_json)
        executors = {**{c: n for c, n in found.items() if c}, **executors}
        num_workers = found.get("") if num_workers is None else num_workers
        if not executors and num_workers is None:
            if as_json:
                print_json(_summary(topology_name, "none", wait_secs, num_workers, executors))
            return
        if not yes:
            _confirm(topology_name)
    options = storm.RebalanceOptions(
        wait_secs=wait_secs,
        num_workers=num_workers,
        num_executors=executors or None,
        topology_resources_overrides=_resources(resources),
        topology_conf_overrides=None if topology_conf is None else json.dumps(topology_conf),
    )
    client = settings.client()
    call_nimbus(client, "rebalance", topology_name, options)
    short = None if num_workers is None else _short_of_slots(client, topology_name, num_workers)
    if short is not None:
        say(short)
    if as_json:
        print_json(_summary(topology_name, "rebalance", wait_secs, num_workers, executors))
        return
    when = "when nothing is in flight" if wait_secs is None else f"after {wait_secs} s"
    say(f"Rebalancing {topology_name}: its spouts pause, and it is redistributed {when}.")


def _short_of_slots(client: ClientOptions, topology_name: str, num_workers: int) -> str | None:
    """A warning if the topology cannot get that many workers now; None if it can."""
    try:
        cluster = call_nimbus(client, "getClusterInfo")
    except NimbusError:  # the rebalance was accepted, and that counts
        return None
    slots = sum(one.num_workers for one in cluster.supervisors)
    used = sum(one.num_used_workers for one in cluster.supervisors)
    own = sum(one.num_workers for one in cluster.topologies if one.name == topology_name)
    free = max(0, slots - used + own)
    if num_workers <= free:
        return None
    return (
        f"warning: {num_workers} workers were asked for, and {topology_name} can get {free} now: "
        f"the cluster has {slots} slots, and other topologies use {used - own}. The others start "
        "when slots become free, or supervisors are added."
    )


def _summary(
    topology_name: str,
    action: str,
    wait_secs: int | None,
    num_workers: int | None,
    executors: dict[str, int],
) -> dict[str, Any]:
    """The output for programs."""
    return {
        "topology": topology_name,
        "action": action,
        "wait_secs": wait_secs,
        "num_workers": num_workers,
        "num_executors": executors,
    }


def _from_report(
    settings: Settings, topology_name: str, report: str, *, force: bool, quiet: bool
) -> dict[str, int]:
    """Show a report's recommendations and return them by component ("": workers)."""
    from squall_cli.programs.history_report import make_report
    from squall_common.history.recommendation import (
        read_report_file,
        recommendation_of,
        running_of,
    )

    client = settings.client()
    given = read_report_file(Path(report)) if report else None  # before any question
    summary = call_nimbus(client, "getTopologySummaryByName", topology_name)
    running = running_of(call_nimbus(client, "getTopologyInfoByName", topology_name))
    found = recommendation_of(
        make_report(client, summary.id) if given is None else given,
        topology_id=summary.id,
        running=running,
        workers=summary.num_workers,
        now_secs=time.time(),
        force=force,
    )
    changes = found.changes
    if changes and not quiet:
        print_table(
            ("component", "now", "recommended", "why"),
            [(one.component or "(workers)", one.now, one.recommended, one.why) for one in changes],
        )
    if found.unjudged:
        names = ", ".join(name or "the workers" for name in found.unjudged)
        say(f"The report has too little data to judge {names}. Make one over a longer history.")
    elif not changes:
        say(f"The report recommends no changes to {topology_name}.")
    return {one.component: one.recommended for one in changes}


def _confirm(topology_name: str) -> None:
    if not sys.stdin.isatty():
        raise click.UsageError("cannot ask for confirmation without a terminal: use --yes")
    click.confirm(f"Apply these changes to {topology_name}?", abort=True, err=True)


def _resources(value: dict[str, Any] | None) -> dict[str, dict[str, float]] | None:
    if value is None:
        return None
    resources: dict[str, dict[str, float]] = {}
    for component, amounts in value.items():
        if not isinstance(amounts, dict) or not all(
            isinstance(amount, int | float) for amount in amounts.values()
        ):
            raise click.BadParameter(f"{component!r} needs an object of numbers", param_hint="-r")
        resources[component] = {name: float(amount) for name, amount in amounts.items()}
    return resources
