"""`storm get-errors`: the latest errors of a topology."""

from __future__ import annotations

import time

import click

from squall_cli.nimbus import call_nimbus
from squall_cli.options import Settings, json_option, settings_options
from squall_cli.output import duration, print_json, print_table, say


@click.command("get-errors")
@click.argument("topology_name")
@json_option
@settings_options
def command(settings: Settings, topology_name: str, as_json: bool) -> None:
    """Show the latest error of each component of a topology."""
    from squall_thrift import storm

    options = storm.GetInfoOptions(num_err_choice=storm.NumErrorsChoice.ONE)
    info = call_nimbus(settings.client(), "getTopologyInfoByNameWithOpts", topology_name, options)
    latest = {
        component: max(errors, key=lambda error: error.error_time_secs)
        for component, errors in sorted((info.errors or {}).items())
        if errors
    }
    if as_json:
        # The keys of Apache Storm's own get-errors.
        print_json(
            {
                "Topology Name": info.name,
                "Comp-Errors": {component: error.error for component, error in latest.items()},
            }
        )
        return
    if not latest:
        say(f"{topology_name} has reported no errors.")
        return
    now = time.time()
    print_table(
        ("COMPONENT", "AGO", "WORKER", "ERROR"),
        (
            (
                component,
                duration(max(0, int(now - error.error_time_secs))),
                _place(error.host, error.port),
                _headline(error.error),
            )
            for component, error in latest.items()
        ),
    )


def _place(host: str | None, port: int | None) -> str:
    """The place of an error, without a port if it does not belong to one worker."""
    return ":".join(str(part) for part in (host, port) if part)


def _headline(error: str) -> str:
    """The last line of a traceback, which names the error."""
    lines = [line for line in error.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
