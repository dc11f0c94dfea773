"""What `storm top` shows: tables of the cluster, its topologies and the components of one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from squall_cli.output import duration, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

    from squall_cli.observe.facts import Cluster, Component, Topology

Rates = Mapping[str, tuple[float, float, float]]  # by component: emitted, handled, failed a second

_NEARLY_FULL, _FULL = 0.6, 0.8  # of an executor's time


def overview(
    cluster: Cluster,
    rates: Mapping[str, Rates],
    *,
    rates_of: str,
    now_secs: float,
    selected: str | None = None,
    failure: str = "",
) -> RenderableType:
    """The cluster and its topologies. `rates` are by topology id, measured over the time that
    `rates_of` names; `selected` is the id of the topology to mark."""
    from rich.console import Group
    from rich.text import Text

    head = Text(
        f"storm top  {time.strftime('%H:%M:%S', time.localtime(now_secs))}  "
        f"Nimbus {cluster.leader or 'without a leader'} ({cluster.nimbuses})  "
        f"{cluster.supervisors} supervisors  {cluster.used_slots}/{cluster.slots} slots used  "
        f"{len(cluster.summaries)} topologies  rates of {rates_of}",
        no_wrap=True,
        overflow="ellipsis",
    )
    parts: list[RenderableType] = [head]
    if failure:
        parts.append(Text(printable(failure), style="bold red"))
    return Group(*parts, Text(""), _topologies(cluster, selected, rates))


def details(topology: Topology, rates: Rates, now_secs: float) -> RenderableType:
    """The components of a topology, and why it is slow or stands."""
    from rich.console import Group
    from rich.text import Text

    from squall_cli.observe.reasons import reasons_of

    name = Text(printable(str(topology.summary.name)), style="bold")
    reasons = [
        Text(f"{one.severity.value.upper()}: {printable(one.text)}", style="yellow")
        for one in reasons_of(topology, now_secs)
    ]
    return Group(Text(""), name, _components(topology, rates), *reasons)


def window_rates(topology: Topology) -> Rates:
    """The rates over the last ten minutes."""
    secs = topology.activity.secs
    return {
        one.name: (one.emitted / secs, one.handled / secs, one.failed / secs)
        for one in topology.components
    }


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        number = column.endswith("/S") or column in _NUMBERS
        table.add_column(column, justify="right" if number else "left", no_wrap=True)
    return table


_NUMBERS = frozenset(("LATENCY", "CAPACITY", "WORKERS", "EXECUTORS", "UPTIME", "RESTARTS"))


def _topologies(cluster: Cluster, selected: str | None, rates: Mapping[str, Rates]) -> Table:
    from rich.text import Text

    table = _table(
        "", "TOPOLOGY", "STATUS", "HEALTH", "EMITTED/S", "ACKED/S", "FAILED/S", "LATENCY",
        "CAPACITY", "WORKERS", "EXECUTORS", "RESTARTS", "UPTIME",
    )  # fmt: skip
    for summary in cluster.summaries:
        topology = cluster.topologies.get(summary.id or "")
        figures: list[RenderableType] = ["", "", "", "", ""]
        if topology is not None:
            of = rates[topology.summary.id or ""]
            spouts = [one.name for one in topology.components if one.is_spout]
            busiest = max((one.capacity or 0.0 for one in topology.components), default=0.0)
            latency = topology.activity.complete_ms
            figures = [
                _rate(sum(one[0] for one in of.values())),
                _rate(sum(of[name][1] for name in spouts if name in of)),
                _rate(sum(of[name][2] for name in spouts if name in of)),
                "" if latency is None else f"{latency:.3g} ms",
                _capacity(busiest),
            ]
        health = summary.health or ""
        table.add_row(
            ">" if summary.id == selected else "",
            printable(str(summary.name)),
            summary.status,
            Text(health, style="" if health in ("ok", "starting", "") else "bold red"),
            *figures,
            str(summary.num_workers),
            str(summary.num_executors),
            str(summary.restarts or 0),
            duration(summary.uptime_secs or 0),
        )
    return table


def _components(topology: Topology, rates: Rates) -> Table:
    table = _table(
        "COMPONENT", "KIND", "EXECUTORS", "EMITTED/S", "HANDLED/S", "FAILED/S", "LATENCY",
        "CAPACITY", "LAST ERROR",
    )  # fmt: skip
    for one in topology.components:
        emitted, handled, failed = rates.get(one.name, (0.0, 0.0, 0.0))
        table.add_row(
            printable(one.name),
            "spout" if one.is_spout else "bolt",
            str(one.executors),
            _rate(emitted),
            _rate(handled),
            _rate(failed),
            "" if one.latency_ms is None else f"{one.latency_ms:.3g} ms",
            "" if one.capacity is None else _capacity(one.capacity),
            _error(one),
        )
    return table


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _capacity(value: float) -> RenderableType:
    from rich.text import Text

    style = "bold red" if value >= _FULL else "yellow" if value >= _NEARLY_FULL else ""
    return Text(f"{value:.0%}", style=style)


def _error(component: Component) -> str:
    return "" if component.error is None else printable(component.error.line)
