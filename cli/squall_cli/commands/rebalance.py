"""`storm rebalance`: spread a topology anew, with other numbers of workers and executors."""

from __future__ import annotations

import json
from typing import Any

import click

from squall_cli.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say


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
@click.argument("topology_name")
@click.option(
    "-w",
    "--wait-time-secs",
    "wait_secs",
    type=click.IntRange(min=0),
    metavar="SECS",
    help="Let tuples in flight finish for so long (default: the topology's message time-out).",
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
    help="Number of executors of a component (repeatable).",
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
    as_json: bool,
) -> None:
    """Pause a topology, then spread it anew over the cluster."""
    from squall_thrift import storm

    options = storm.RebalanceOptions(
        wait_secs=wait_secs,
        num_workers=num_workers,
        num_executors=executors or None,
        topology_resources_overrides=_resources(resources),
        topology_conf_overrides=None if topology_conf is None else json.dumps(topology_conf),
    )
    call_nimbus(settings.load(), "rebalance", topology_name, options)
    if as_json:
        print_json(
            {
                "topology": topology_name,
                "action": "rebalance",
                "wait_secs": wait_secs,
                "num_workers": num_workers,
                "num_executors": executors,
            }
        )
        return
    when = "its message time-out" if wait_secs is None else f"{wait_secs} s"
    say(f"Rebalancing {topology_name}: it is spread anew after {when}.")


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
