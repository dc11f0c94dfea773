"""`storm get-errors`: what went wrong in a topology, how often, and where."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from squall_cli.cluster.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import duration, print_json, print_table, printable, say
from squall_cli.topology_argument import topology_argument
from squall_common.topology.error_text import headline, split_source

if TYPE_CHECKING:
    from squall_thrift import storm


@dataclass(frozen=True, slots=True)
class ErrorGroup:
    """Errors of a component that were raised at the same place."""

    component: str
    count: int
    first_secs: int
    last_secs: int
    worker: str  # of the newest: host:port, or the host if it does not belong to one worker
    source: str  # of the newest: what the component was given; "" if unknown
    text: str  # of the newest: a traceback, or a message

    @property
    def headline(self) -> str:
        """The line that names the error."""
        return headline(self.text)


def group_errors(errors: Mapping[str, Sequence[storm.ErrorInfo]]) -> list[ErrorGroup]:
    """The errors of a topology by component and place, the latest of a component first."""
    by_place: dict[tuple[str, str], list[storm.ErrorInfo]] = {}
    for component, reported in errors.items():
        for error in reported:
            text = split_source(error.error)[1]
            by_place.setdefault((component, _place_of(text)), []).append(error)
    groups = []
    for (component, _), alike in by_place.items():
        newest = max(alike, key=lambda one: one.error_time_secs)
        groups.append(
            ErrorGroup(
                component,
                sum(one.count or 1 for one in alike),
                min(one.error_time_secs for one in alike),
                newest.error_time_secs,
                ":".join(str(part) for part in (newest.host, newest.port) if part),
                *split_source(newest.error),
            )
        )
    return sorted(groups, key=lambda one: (one.component, -one.last_secs, one.text))


def _place_of(text: str) -> str:
    """What errors from the same place have in common: the files and lines of a traceback, whose
    message may differ with every tuple; of other errors the text."""
    if not text.startswith("Traceback "):
        return text
    return "\n".join(line for line in text.splitlines() if line.startswith('  File "'))


@click.command("get-errors")
@topology_argument
@json_option
@settings_options
def command(settings: Settings, topology_name: str, as_json: bool) -> None:
    """Show the errors of a topology: how often, when first and last, and tracebacks.

    Errors of a component from the same place are shown once, with the newest traceback. Nimbus
    keeps the newest ten reports of each component; a report counts those that were held back
    before it.
    """
    from squall_thrift import storm

    options = storm.GetInfoOptions(num_err_choice=storm.NumErrorsChoice.ALL)
    info = call_nimbus(settings.client(), "getTopologyInfoByNameWithOpts", topology_name, options)
    groups = group_errors(info.errors or {})
    if as_json:
        latest: dict[str, str] = {}
        for group in groups:
            latest.setdefault(group.component, group.text)
        print_json(
            {
                # The keys of Apache Storm's own get-errors.
                "Topology Name": info.name,
                "Comp-Errors": latest,
                # Ours.
                "errors": [
                    {
                        "component": group.component,
                        "count": group.count,
                        "first_secs": group.first_secs,
                        "last_secs": group.last_secs,
                        "worker": group.worker,
                        "source": group.source,
                        "error": group.text,
                    }
                    for group in groups
                ],
            }
        )
        return
    if not groups:
        say(f"{topology_name} has reported no errors.")
        return
    now = time.time()
    print_table(
        ("COMPONENT", "COUNT", "FIRST", "LAST", "WORKER", "ERROR"),
        (
            (
                group.component,
                group.count,
                duration(max(0, int(now - group.first_secs))),
                duration(max(0, int(now - group.last_secs))),
                group.worker,
                group.headline,
            )
            for group in groups
        ),
    )
    for group in groups:
        if group.source or group.text.strip() != group.headline:
            given = f", on {printable(group.source)}" if group.source else ""
            click.echo(f"\n{printable(group.component)}{given}:")
            click.echo("\n".join(f"  {line}" for line in printable(group.text).splitlines()))
