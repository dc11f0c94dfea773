"""What `storm top` shows: tables of the cluster, its topologies and the components of one."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from squall_cli.observe.fitting import FittingTable
from squall_cli.output import duration, printable
from squall_common.telemetry.findings import FULL, NEARLY_FULL, Severity, calls_of

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from squall_cli.observe.facts import Cluster, Component, Topology
    from squall_common.telemetry.findings import Finding

Rates = Mapping[str, tuple[float, float, float]]  # by component: emitted, handled, failed a second


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
    """The components of a topology, and why it is slow or stopped."""
    from rich.console import Group
    from rich.text import Text

    from squall_cli.observe.findings import findings_of

    name = Text(printable(str(topology.summary.name)), style="bold")
    found = [
        Text(finding_line(one), style="bold red" if one.severity is Severity.STOPPED else "yellow")
        for one in findings_of(topology, now_secs)
    ]
    return Group(Text(""), name, _components(topology, rates), *found)


def finding_line(finding: Finding) -> str:
    """A finding as `storm status` and `storm top` print it."""
    return f"{finding.severity.name}: {printable(finding.title)}. {printable(finding.text)}"


def latency_words(ms: float | None) -> str:
    """`12.3 ms`, `3.01 s`; empty if it is not known."""
    if ms is None:
        return ""
    return f"{ms / 1000:.3g} s" if ms >= 1000 else f"{ms:.3g} ms"


def capacity_words(component: Component) -> str:
    """`12%`; of a bolt that waits in calls, `12 of 100 calls`; empty for a spout."""
    if component.capacity is None:
        return ""
    if component.calls_max is None:
        return f"{component.capacity:.0%}"
    return calls_of(component.calls or 0.0, component.calls_max, component.on_threads)


def blocked_words(component: Component) -> str:
    """Whom a component waits for most, and the share of its time; empty below half a percent."""
    by, share = max(component.blocked.items(), key=lambda item: item[1], default=("", 0.0))
    return f"{share:.0%} by {printable(by)}" if share >= 0.005 else ""


def state_words(component: Component) -> str:
    """How large its state is: `12,345 keys, 1.5 MiB`, without the bytes where it is not stored;
    empty without state."""
    keys, stored = component.state_keys, component.state_bytes
    if keys is None:
        return ""
    words = f"{keys:,} {'key' if keys == 1 else 'keys'}"
    return words if stored is None else f"{words}, {stored / 2**20:.1f} MiB"


def input_words(topology: Topology) -> str:
    """How far spouts whose sources end have come; empty if there are none."""
    if topology.finished:
        return "all read, and nothing is in flight"
    found = []
    for one in topology.components:
        if one.exhausted_tasks is None:
            continue
        if not one.exhausted_tasks:
            state = "has more to read"
        elif one.exhausted_tasks < one.tasks:
            state = f"{one.exhausted_tasks} of {one.tasks} tasks have ended"
        elif one.queue_tuples:
            state = f"all read, {one.queue_tuples:,} messages in flight"
        else:
            state = "drained"
        found.append(f"{one.name}: {state}")
    return "; ".join(found)


def window_rates(topology: Topology) -> Rates:
    """The rates over the last ten minutes."""
    secs = topology.activity.secs
    return {
        one.name: (one.emitted / secs, one.handled / secs, one.failed / secs)
        for one in topology.components
    }


_NUMBERS = frozenset(
    ("EMITTED/S", "ACKED/S", "HANDLED/S", "FAILED/S", "LATENCY", "P99", "CAPACITY", "QUEUE",
     "WORKERS", "EXECUTORS", "UPTIME", "RESTARTS")
)  # fmt: skip


def condition(health: str | None, finished: bool | None) -> str:
    """The word for the health of a topology: what has finished is well, too."""
    return "finished" if finished and health == "ok" else health or ""


_STATUS_STYLES = {"INACTIVE": "yellow", "REBALANCING": "yellow", "KILLED": "bold red"}
_WELL = ("ok", "finished", "starting", "")


def _topologies(
    cluster: Cluster, selected: str | None, rates: Mapping[str, Rates]
) -> RenderableType:
    from rich.text import Text

    table = FittingTable(
        ("", "TOPOLOGY", "STATUS", "HEALTH", "EMITTED/S", "ACKED/S", "FAILED/S", "LATENCY",
         "CAPACITY", "WORKERS", "EXECUTORS", "RESTARTS", "UPTIME"),
        _NUMBERS,
        name="TOPOLOGY",
        leaving=("EXECUTORS", "WORKERS", "UPTIME", "RESTARTS", "ACKED/S", "LATENCY", "EMITTED/S",
                 "CAPACITY", "FAILED/S"),
    )  # fmt: skip
    for summary in cluster.summaries:
        topology = cluster.topologies.get(summary.id or "")
        figures: list[str | Text] = ["", "", "", "", ""]
        finished = summary.finished
        if topology is not None:
            finished = topology.finished
            of = rates[topology.summary.id or ""]
            spouts = [one.name for one in topology.components if one.is_spout]
            busiest = max((one.capacity or 0.0 for one in topology.components), default=0.0)
            latency = topology.activity.complete_ms
            figures = [
                _rate(sum(one[0] for one in of.values())),
                _rate(sum(of[name][1] for name in spouts if name in of)),
                _rate(sum(of[name][2] for name in spouts if name in of)),
                latency_words(latency),
                _in_tone(f"{busiest:.0%}", busiest),
            ]
        status, health = summary.status or "", condition(summary.health, finished)
        table.rows.append(
            (
                ">" if summary.id == selected else "",
                printable(str(summary.name)),
                Text(status, style=_STATUS_STYLES.get(status, "")),
                Text(health, style="" if health in _WELL else "bold red"),
                *figures,
                str(summary.num_workers),
                str(summary.num_executors),
                str(summary.restarts or 0),
                duration(summary.uptime_secs or 0),
            )
        )
    return table


def _components(topology: Topology, rates: Rates) -> RenderableType:
    table = FittingTable(
        ("COMPONENT", "KIND", "EXECUTORS", "EMITTED/S", "HANDLED/S", "FAILED/S", "LATENCY",
         "P99", "CAPACITY", "QUEUE", "BLOCKED", "LAST ERROR"),
        _NUMBERS,
        name="COMPONENT",
        texts=("BLOCKED", "LAST ERROR"),
        leaving=("KIND", "EXECUTORS", "P99", "EMITTED/S", "LATENCY", "LAST ERROR", "QUEUE",
                 "BLOCKED", "FAILED/S"),
    )  # fmt: skip
    for one in topology.components:
        emitted, handled, failed = rates.get(one.name, (0.0, 0.0, 0.0))
        table.rows.append(
            (
                printable(one.name),
                "spout" if one.is_spout else "bolt",
                str(one.executors),
                _rate(emitted),
                _rate(handled),
                _rate(failed),
                latency_words(one.latency_ms),
                latency_words(one.p99_ms),
                _in_tone(capacity_words(one), one.capacity or 0.0),
                "" if one.queue_tuples is None else str(one.queue_tuples),
                blocked_words(one),
                _error(one),
            )
        )
    return table


def _rate(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _in_tone(words: str, share: float) -> Text:
    from rich.text import Text

    style = "bold red" if share >= FULL else "yellow" if share >= NEARLY_FULL else ""
    return Text(words, style=style)


def _error(component: Component) -> str:
    return "" if component.error is None else printable(component.error.line)
