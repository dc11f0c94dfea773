"""`storm heartbeats`: the heartbeats of workers, as Nimbus has them or as they are in ZooKeeper."""

from __future__ import annotations

import click

from squall_cli.groups import Group
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import print_json, say


@click.group("heartbeats", cls=Group)
def command() -> None:
    """Inspect the heartbeats of workers.

    Workers report to the leading Nimbus, and write to ZooKeeper while it is
    away; both are shown. PATH begins below storm.zookeeper.root:
    /workerbeats, /workerbeats/TOPOLOGY_ID (get: the workers that report, as
    Nimbus notes them for the next leader) or
    /workerbeats/TOPOLOGY_ID/SUPERVISOR_ID-PORT.
    """


def _checked(_ctx: click.Context, _param: click.Parameter, value: str) -> str:
    if not value.startswith("/") or (value != "/" and value.endswith("/")) or "//" in value:
        raise click.BadParameter(f"{value!r} is not a path such as /workerbeats")
    return value


def _is_of_topology(path: str) -> bool:
    return path.startswith("/workerbeats/") and path.count("/") == 2


def _reported(settings: Settings, path: str) -> dict[str, bytes]:
    """The heartbeats of a topology that Nimbus has, by the name of their node, for the path of the
    topology or of one of them. Without an answer of Nimbus there are none, and the reason is
    printed."""
    import msgspec

    from squall_cli.cluster.nimbus import call_nimbus
    from squall_common.cluster.convert import from_worker_report
    from squall_common.cluster.paths import WORKERBEATS, workerbeat
    from squall_common.errors import NimbusError

    parts = path.removeprefix(WORKERBEATS).split("/")
    if not path.startswith(f"{WORKERBEATS}/") or len(parts) not in (2, 3):
        return {}
    options = msgspec.structs.replace(settings.client(), storm_nimbus_retry_times=0)
    try:
        answer = call_nimbus(options, "getWorkerHeartbeats", parts[1])
    except NimbusError as error:
        say(f"warning: what workers report to Nimbus is not shown: {error.message}")
        return {}
    reports = [from_worker_report(one, None) for one in answer]
    return {
        workerbeat(one.topology_id, one.slot).rpartition("/")[2]: one.heartbeat
        for one in reports
        if one is not None and one.heartbeat
    }


@command.command("list")
@click.argument("path", callback=_checked)
@json_option
@settings_options
def list_(settings: Settings, path: str, as_json: bool) -> None:
    """List the names below a path."""
    from kazoo.exceptions import NoNodeError

    from squall_cli.cluster.cluster_nodes import zookeeper
    from squall_common.cluster.paths import slot_of_workerbeat
    from squall_common.errors import SquallError

    with zookeeper(settings) as client:
        try:
            names = set(client.get_children(path))
        except NoNodeError:
            raise SquallError(f"there is no node {path} in the cluster's state") from None
    if _is_of_topology(path):
        names = {name for name in names if slot_of_workerbeat(name) is not None}
        names |= _reported(settings, path).keys()
    if as_json:
        print_json(sorted(names))
    else:
        for name in sorted(names):
            click.echo(name)


@command.command("get")
@click.argument("path", callback=_checked)
@settings_options
def get(settings: Settings, path: str) -> None:
    """Print a worker's heartbeat as JSON."""
    from squall_cli.cluster.cluster_nodes import plain, read_node, zookeeper
    from squall_common.cluster.codec import decode_heartbeat, decode_topology_heartbeats

    value = _reported(settings, path).get(path.rpartition("/")[2])
    if value is not None:
        print_json(plain(decode_heartbeat(path, value)))
        return
    with zookeeper(settings) as client:
        decode = decode_topology_heartbeats if _is_of_topology(path) else decode_heartbeat
        print_json(read_node(client, path, decode))
