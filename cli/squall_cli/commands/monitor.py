"""`storm monitor`: the throughput of a topology, look after look."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from squall_cli.cluster.nimbus import ask_nimbus
from squall_cli.options import Settings, settings_options
from squall_cli.output import printable
from squall_cli.topology_argument import topology_argument
from squall_common.errors import SquallError

if TYPE_CHECKING:
    from squall_common.client.nimbus import NimbusClient
    from squall_common.config.options.typed import ClientOptions
    from squall_thrift import storm

_COLUMNS = ("TIME", "STATUS", "COMPONENT", "STREAM", "EXECUTORS", "SECS", "COUNT", "RATE/S")
_ROW = "{:<8}  {:<11}  {:<20}  {:<12}  {:>9}  {:>6}  {:>12}  {:>12}"


@click.command("monitor")
@topology_argument
@click.option(
    "-i",
    "--interval",
    "interval_secs",
    type=click.FloatRange(min=0.1, max=86_400),
    default=4.0,
    show_default=True,
    metavar="SECS",
    help="Time between two looks. Workers report every three seconds.",
)
@click.option(
    "-m", "--component", metavar="COMPONENT", help="Only this component (default: all of them)."
)
@click.option(
    "-s",
    "--stream",
    metavar="STREAM",
    help="Only this stream (default: 'default' with -m, otherwise all streams together).",
)
@click.option(
    "-w",
    "--watch",
    "watched",
    type=click.Choice(["emitted", "transferred"]),
    default="emitted",
    show_default=True,
    help="What to count.",
)
@click.option(
    "--count", type=click.IntRange(min=1), metavar="N", help="Stop after N looks (default: Ctrl-C)."
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON document a line, one for each row."
)
@settings_options
def command(
    settings: Settings,
    topology_name: str,
    interval_secs: float,
    component: str | None,
    stream: str | None,
    watched: str,
    count: int | None,
    as_json: bool,
) -> None:
    """Print the throughput of a topology's components at intervals, until Ctrl-C.

    COUNT is the number of tuples since the look before. It ends with an error when the topology is
    removed.
    """
    client = settings.client()
    if stream is not None:
        _require_stream(client, topology_name, component, stream)
    elif component is not None:
        stream = "default"
    before, at = _look(client, topology_name, component, stream, watched)[0], time.monotonic()
    if not as_json:
        click.echo(_ROW.format(*_COLUMNS))
    looks = 0
    while count is None or looks < count:
        time.sleep(interval_secs)
        looks += 1
        counts, status, executors = _look(client, topology_name, component, stream, watched)
        now = time.monotonic()
        secs, at = now - at, now
        for name, number in sorted(counts.items()):
            # A worker that started again counts from 0.
            more = max(0, number - before.get(name, 0))
            if as_json:
                line = {
                    "time_secs": int(time.time()),
                    "topology": topology_name,
                    "status": status,
                    "component": name,
                    "stream": stream,
                    "watch": watched,
                    "executors": executors[name],
                    "secs": round(secs, 3),
                    "count": more,
                    "rate_per_sec": round(more / secs, 1),
                }
                click.echo(json.dumps(line))
            else:
                row = (
                    time.strftime("%H:%M:%S"), status, printable(name), printable(stream or "all"),
                    executors[name], f"{secs:.1f}", more, f"{more / secs:.1f}",
                )  # fmt: skip
                click.echo(_ROW.format(*row))
        before = counts


def _require_stream(client: ClientOptions, name: str, component: str | None, stream: str) -> None:
    """Raises SquallError for a stream that the component, or without one any component, does not
    declare: its figures would be zeros forever. `_look` refuses a component that is not there."""

    async def ask(nimbus: NimbusClient) -> storm.StormTopology:
        summary = await nimbus.call("getTopologySummaryByName", name)
        found: storm.StormTopology = await nimbus.call("getTopology", summary.id)
        return found

    topology = ask_nimbus(client, ask, "getTopology")
    parts: dict[str, storm.SpoutSpec | storm.Bolt] = {
        **(topology.spouts or {}),
        **(topology.bolts or {}),
    }
    if component is not None:
        parts = {one: part for one, part in parts.items() if one == component}
    declared = {one for part in parts.values() for one in part.common.streams or {}}
    if parts and stream not in declared:
        whose = f"topology {name!r}" if component is None else f"component {component!r}"
        raise SquallError(
            f"{whose} has no stream {stream!r}",
            hint=f"It has: {', '.join(sorted(declared)) or 'none'}.",
        )


def _look(
    client: ClientOptions, name: str, component: str | None, stream: str | None, watched: str
) -> tuple[dict[str, int], str, dict[str, int]]:
    """The number of tuples since the topology was submitted, its status, and the number of
    executors. Raises SquallError for a component that it does not have."""
    from squall_cli.observe.facts import ALL_TIME

    async def ask(nimbus: NimbusClient) -> tuple[dict[str, int], str, dict[str, int]]:
        summary = await nimbus.call("getTopologySummaryByName", name)
        page = await nimbus.call("getTopologyPageInfo", summary.id, ALL_TIME, False)
        found = {**(page.id_to_spout_agg_stats or {}), **(page.id_to_bolt_agg_stats or {})}
        if component is not None and component not in found:
            raise SquallError(
                f"topology {name!r} has no component {component!r}",
                hint=f"It has: {', '.join(sorted(found))}.",
            )
        wanted = [component] if component is not None else sorted(found)
        executors = {one: found[one].common_stats.num_executors or 0 for one in wanted}
        if stream is None:
            counts = {one: getattr(found[one].common_stats, watched) or 0 for one in wanted}
            return counts, str(summary.status), executors
        counts = {}
        for one in wanted:
            detail = await nimbus.call("getComponentPageInfo", summary.id, one, ALL_TIME, False)
            streams = detail.sid_to_output_stats or {}
            stats = streams[stream].common_stats if stream in streams else None
            counts[one] = 0 if stats is None else getattr(stats, watched) or 0
        return counts, str(summary.status), executors

    return ask_nimbus(client, ask, "getTopologyPageInfo")
