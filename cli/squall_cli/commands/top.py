"""`storm top`: a live view of the cluster in a terminal."""

from __future__ import annotations

import contextlib
import queue
import sys
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from squall_cli.options import Settings, json_option, settings_options
from squall_cli.topology_argument import complete_topology

if TYPE_CHECKING:
    from squall_cli.observe.facts import Cluster
    from squall_cli.observe.screen import Rates
    from squall_common.config.options.typed import ClientOptions

_KEYS = "q: quit   up, down (k, j): choose a topology"
_KEY_WAIT_SECS = 0.1
_LATE_SECS = 3  # after which a look that is under way is said to be late
_RATES_SECS = 15  # the rates of the live view are those of the looks within this time


@click.command("top")
@click.argument("topology_name", required=False, shell_complete=complete_topology)
@click.option(
    "-i",
    "--interval",
    "interval_secs",
    type=click.FloatRange(min=0.5, max=3600),
    default=3.0,
    show_default=True,
    metavar="SECS",
    help="Time between two looks. Workers report every three seconds.",
)
@click.option("--once", is_flag=True, help="Print one look and exit (as without a terminal).")
@json_option
@settings_options
def command(
    settings: Settings, topology_name: str | None, interval_secs: float, once: bool, as_json: bool
) -> None:
    """Watch topologies, components, rates, capacity and errors.

    The live view shows the rates of the last seconds, --once and --json those of the last ten
    minutes; LATENCY and CAPACITY are always those of ten minutes. CAPACITY is the share of its time
    that the busiest executor of a bolt spends in execute (of an async bolt, and of one on threads,
    its calls under way and their limit). STATUS and HEALTH are those of `storm list`. q or Ctrl-C
    ends the view.

    In a narrow terminal the figures that matter least are left out.
    """
    from squall_cli.observe.facts import read_cluster

    client = settings.client()
    if as_json or once or not (sys.stdin.isatty() and sys.stdout.isatty()):
        cluster = read_cluster(client, name=topology_name, totals=False)
        _print_once(cluster, as_json=as_json)
        return
    cluster = read_cluster(client, name=topology_name, totals=True)  # an error ends the command
    with contextlib.suppress(KeyboardInterrupt):
        _watch(client, topology_name, cluster, interval_secs)


def _print_once(cluster: Cluster, *, as_json: bool) -> None:
    from squall_cli.observe.screen import details, overview, window_rates
    from squall_cli.output import console, print_json

    if as_json:
        print_json(_as_json(cluster))
        return
    out, now = console(), time.time()
    rates = {key: window_rates(one) for key, one in cluster.topologies.items()}
    out.print(overview(cluster, rates, rates_of="10 minutes", now_secs=now))
    for key, topology in cluster.topologies.items():
        out.print(details(topology, rates[key], now))


class _Looks:
    """Looks at the cluster from a thread that ends with the process, so that keys are answered
    meanwhile. Each result is a Cluster, or the message of an error."""

    def __init__(self, client: ClientOptions, name: str | None, interval_secs: float) -> None:
        self._results: queue.SimpleQueue[Cluster | str] = queue.SimpleQueue()
        self._client = client
        self._name = name
        self._interval_secs = interval_secs
        self._thread = threading.Thread(target=self._run, name="looks", daemon=True)

    def start(self) -> None:
        """Look after the first interval, then again and again."""
        self._thread.start()

    def newest(self) -> Cluster | str | None:
        """The result of a look that has not been returned yet, or None."""
        try:
            return self._results.get_nowait()
        except queue.Empty:
            return None

    def _run(self) -> None:
        from squall_cli.observe.facts import read_cluster
        from squall_common.errors import SquallError

        while True:
            time.sleep(self._interval_secs)
            try:
                self._results.put(read_cluster(self._client, name=self._name, totals=True))
            except SquallError as error:
                self._results.put(error.message)


class _Rates:
    """The rates of the last seconds, from the totals of several looks."""

    def __init__(self) -> None:
        self._looks: list[Cluster] = []

    def add(self, cluster: Cluster) -> tuple[dict[str, Rates], str]:
        """The rates by topology id, and the words for the time that they cover."""
        from squall_cli.observe.facts import rates_between
        from squall_cli.observe.screen import window_rates

        newest = max((one.time for one in cluster.totals.values()), default=0.0)
        self._looks = [
            one
            for one in self._looks
            if any(newest - each.time < _RATES_SECS for each in one.totals.values())
        ]
        rates: dict[str, Rates] = {}
        longest = 0.0
        for key, topology in cluster.topologies.items():
            before = next((one.totals[key] for one in self._looks if key in one.totals), None)
            if before is None:
                rates[key] = window_rates(topology)
            else:
                rates[key] = rates_between(before, cluster.totals[key])
                longest = max(longest, cluster.totals[key].time - before.time)
        self._looks.append(cluster)
        return rates, f"{longest:.0f} s" if longest else "10 minutes"


def _watch(client: ClientOptions, name: str | None, cluster: Cluster, interval_secs: float) -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from squall_cli.observe.screen import details, overview
    from squall_cli.output import console

    looks, history = _Looks(client, name, interval_secs), _Rates()
    rates, rates_of = history.add(cluster)
    index, failure, looked = 0, "", time.monotonic()

    def screen() -> Group:
        ids = [one.id or "" for one in cluster.summaries]
        selected = ids[index] if ids else ""
        now = time.time()
        topology = cluster.topologies.get(selected)
        return Group(
            overview(
                cluster, rates, rates_of=rates_of, now_secs=now, selected=selected, failure=failure
            ),
            *([] if topology is None else [details(topology, rates[selected], now)]),
            Text(f"\n{_KEYS}", style="dim"),
        )

    looks.start()
    with (
        _keys() as read_key,
        Live(screen(), console=console(), screen=True, auto_refresh=False) as live,
    ):
        live.refresh()
        while (key := read_key(_KEY_WAIT_SECS)) != "q":
            if key is not None:
                index += 1 if key == "down" else -1
            elif (result := looks.newest()) is None:
                silent_secs = int(time.monotonic() - looked)
                late = f"Nimbus has not answered for {silent_secs} s"
                if silent_secs < interval_secs + _LATE_SECS or late == failure:
                    continue
                failure = late
            elif isinstance(result, str):
                failure, looked = f"no newer look: {result}", time.monotonic()
            else:
                cluster, failure, looked = result, "", time.monotonic()
                rates, rates_of = history.add(cluster)
            index = max(0, min(index, len(cluster.summaries) - 1))
            live.update(screen(), refresh=True)


_KEY_NAMES = {b"\x1b[A": "up", b"\x1bOA": "up", b"k": "up", b"\x1b[B": "down", b"\x1bOB": "down",
           b"j": "down", b"q": "q", b"Q": "q"}  # fmt: skip


@contextlib.contextmanager
def _keys() -> Iterator[Any]:
    """A function that waits for a key and returns its name, None for no or any other key; the
    terminal is as before afterwards."""
    import os
    import select
    import termios
    import tty

    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)

    def read(wait_secs: float) -> str | None:
        if not select.select([descriptor], [], [], wait_secs)[0]:
            return None
        typed = os.read(descriptor, 16)
        return _KEY_NAMES.get(typed) if typed else "q"  # nothing: the terminal is gone

    tty.setcbreak(descriptor)
    try:
        yield read
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _as_json(cluster: Cluster) -> dict[str, Any]:
    """As docs/json.md describes it."""
    from squall_cli.observe.as_json import component_as_json, finding_as_json, summary_as_json
    from squall_cli.observe.findings import findings_of

    topologies = []
    for summary in cluster.summaries:
        one = cluster.topologies.get(summary.id or "")
        secs = 1 if one is None else one.activity.secs
        topologies.append(
            {
                **summary_as_json(summary),
                "finished": summary.finished if one is None else one.finished,
                "secs": None if one is None else secs,
                "findings": []
                if one is None
                else [finding_as_json(each) for each in findings_of(one, time.time())],
                "components": []
                if one is None
                else [component_as_json(component, secs) for component in one.components],
            }
        )
    return {
        "leader": cluster.leader or None,
        "nimbuses": cluster.nimbuses,
        "supervisors": cluster.supervisors,
        "slots": cluster.slots,
        "used_slots": cluster.used_slots,
        "topologies": topologies,
    }
