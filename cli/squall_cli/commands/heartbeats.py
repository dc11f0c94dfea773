"""`storm heartbeats`: the heartbeats of workers, as they are in ZooKeeper."""

from __future__ import annotations

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json


@click.group("heartbeats")
def command() -> None:
    """Inspect the heartbeats of workers in ZooKeeper.

    PATH begins below storm.zookeeper.root: /workerbeats, /workerbeats/TOPOLOGY_ID or
    /workerbeats/TOPOLOGY_ID/SUPERVISOR_ID-PORT.
    """


def _checked(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not value.startswith("/") or (value != "/" and value.endswith("/")) or "//" in value:
        raise click.BadParameter(f"{value!r} is not a path such as /workerbeats")
    return value


@command.command("list")
@click.argument("path", callback=_checked)
@json_option
@settings_options
def list_(settings: Settings, path: str, as_json: bool) -> None:
    """List the names below a path."""
    from kazoo.exceptions import NoNodeError

    from squall_cli.cluster_nodes import zookeeper
    from squall_common.errors import SquallError

    with zookeeper(settings) as client:
        try:
            names = sorted(client.get_children(path))
        except NoNodeError:
            raise SquallError(f"there is no node {path} in the cluster's state") from None
    if as_json:
        print_json(names)
    else:
        for name in names:
            click.echo(name)


@command.command("get")
@click.argument("path", callback=_checked)
@settings_options
def get(settings: Settings, path: str) -> None:
    """Print a worker's heartbeat as JSON."""
    from squall_cli.cluster_nodes import read_node, zookeeper
    from squall_common.cluster.codec import decode_heartbeat

    with zookeeper(settings) as client:
        print_json(read_node(client, path, decode_heartbeat))
