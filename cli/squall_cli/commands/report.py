"""`storm report`: what a topology did, from its history."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from squall_cli.options import Settings, settings_options
from squall_cli.programs.history_report import ReportOrder, run_report

_OPTIONS = (
    click.argument("topology"),
    click.option(
        "--since",
        metavar="WHEN",
        help="Skip older data: 30m, 6h, 2d (ago), or a time such as 2026-11-21T09:30 (UTC).",
    ),
    click.option(
        "--history",
        metavar="FOLDER",
        help="Path or URL of the history (default: storm.history.dir of this machine, or of "
        "Nimbus).",
    ),
    click.option(
        "--json",
        "json_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the report as JSON.",
    ),
    click.option(
        "--html",
        "html_file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Write the report as one HTML page with plots.",
    ),
)


def report_options(function: Callable[..., int]) -> Callable[..., int]:
    """The argument and the options that every report has."""
    return functools.reduce(lambda made, option: option(made), reversed(_OPTIONS), function)


@click.command("report", no_args_is_help=True)
@report_options
@settings_options
def command(settings: Settings, **options: Any) -> int:
    """Report on a topology's history: a verdict, throughput, latency, skew, hot keys, failures, and
    a recommended parallelism.

    TOPOLOGY is an id or a name (if several had that name, the last one submitted). It must have run
    with topology.history.enable.
    """
    return run_report(settings.client(), ReportOrder(**options))
