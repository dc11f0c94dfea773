"""`storm logs`: the logs of a topology's workers, from all nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import TYPE_CHECKING

import click

from squall_cli.options import Settings, settings_options
from squall_cli.output import printable, say
from squall_cli.topology_argument import topology_argument
from squall_common.errors import NimbusError, SquallError

if TYPE_CHECKING:
    from squall_cli.observe.worker_logs import Slot
    from squall_common.client.nimbus import NimbusClient
    from squall_common.config.options.typed import ClientOptions

_NIMBUS_SECS = 30.0


@click.command("logs")
@topology_argument
@click.argument("component", required=False)
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines, until Ctrl-C.")
@click.option(
    "-n",
    "--lines",
    type=click.IntRange(min=0, max=100_000),
    default=10,
    show_default=True,
    metavar="LINES",
    help="How many lines of each worker to begin with; of at most its last 2 MiB.",
)
@click.option(
    "--file",
    default="worker.log",
    show_default=True,
    metavar="FILE",
    help="The file of each worker, such as worker.log.err, its stderr.",
)
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    component: str | None,
    follow: bool,
    lines: int,
    file: str,
) -> None:
    """Print the logs of a topology's workers, from all nodes.

    With COMPONENT, only of the workers that run tasks of it. Each line begins with the HOST:PORT of
    its worker. With -f, workers that move are followed to their new nodes, and it ends when the
    topology is gone. The logs come from the logviewer of each node ('storm logviewer').
    """
    from squall_cli.cluster.nimbus import ask_nimbus

    client = settings.client()

    async def find(nimbus: NimbusClient) -> tuple[str, list[Slot]]:
        summary = await nimbus.call("getTopologySummaryByName", topology_name)
        return summary.id, await _slots(nimbus, summary.id, component)

    topology_id, slots = ask_nimbus(client, find, "getTopologyPageInfo")
    if not slots and not follow:
        raise SquallError(
            f"no worker of topology {topology_name!r} runs",
            hint=f"'storm status {topology_name}' says why.",
        )
    asyncio.run(
        _follow(client, topology_id, component, slots, file, lines)
        if follow
        else _print(client, topology_id, slots, file, lines)
    )


async def _slots(nimbus: NimbusClient, topology_id: str, component: str | None) -> list[Slot]:
    """Where the workers run that have tasks of a component, or all of them. Raises SquallError for
    a component that the topology does not have."""
    from squall_cli.observe.worker_logs import Slot

    page = await nimbus.call("getTopologyPageInfo", topology_id, "600", False)
    names = {**(page.id_to_spout_agg_stats or {}), **(page.id_to_bolt_agg_stats or {})}
    if component is not None and component not in names:
        raise SquallError(
            f"topology {page.name!r} has no component {component!r}",
            hint=f"It has: {', '.join(sorted(names))}.",
        )
    return [
        Slot(one.host, one.port)
        for one in page.workers or ()
        if component is None or component in (one.component_to_num_tasks or {})
    ]


async def _print(
    client: ClientOptions, topology_id: str, slots: list[Slot], file: str, lines: int
) -> None:
    from squall_cli.observe.worker_logs import logviewer_credentials, logviewers, print_last

    async with logviewers(client.logviewer_port, logviewer_credentials(client)) as logs:
        await print_last(logs, topology_id, slots, file, lines=lines, show=_show, say=say)


async def _follow(
    client: ClientOptions,
    topology_id: str,
    component: str | None,
    slots: list[Slot],
    file: str,
    lines: int,
) -> None:
    from squall_cli.observe.worker_logs import (
        Follower,
        TopologyGoneError,
        logviewer_credentials,
        logviewers,
    )
    from squall_common.client.nimbus import NimbusClient
    from squall_thrift import storm
    from squall_thrift.client import ThriftApplicationError

    async def look() -> list[Slot]:
        try:
            async with asyncio.timeout(_NIMBUS_SECS), await NimbusClient.connect(client) as nimbus:
                return await _slots(nimbus, topology_id, component)
        except storm.NotAliveException:
            raise TopologyGoneError from None
        except TimeoutError:
            raise NimbusError(f"Nimbus has not answered within {_NIMBUS_SECS:g} s") from None
        except storm.AuthorizationException as error:
            raise NimbusError(f"not allowed: {error.msg}") from error
        except ThriftApplicationError as error:
            raise NimbusError(f"the call getTopologyPageInfo failed in Nimbus: {error}") from error

    async with logviewers(client.logviewer_port, logviewer_credentials(client)) as logs:
        await Follower(logs, topology_id, file, lines=lines, show=_show, say=say).run(slots, look)
    say("the topology has been removed")


def _show(slot: Slot, lines: Iterable[str]) -> None:
    text = "\n".join(f"{slot} {printable(line)}" for line in lines)
    if text:
        click.echo(text)
