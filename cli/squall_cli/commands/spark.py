"""`storm spark`: topologies on Apache Spark. (PySpark is imported in a process of its own, by
`squall_spark`: this one starts without it.)"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from squall_cli.options import Settings, settings_options
from squall_cli.reports import ReportOrder, run_report


@click.group("spark", no_args_is_help=True)
def command() -> None:
    """Run topologies on Apache Spark."""


def _conf_pairs(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, str], ...]:
    pairs = []
    for value in values:
        key, equals, rest = value.partition("=")
        if not equals or not key:
            raise click.BadParameter(f"{value!r} is not KEY=VALUE")
        pairs.append((key, rest))
    return tuple(pairs)


# Where Spark runs, and what it prints.
_SESSION_OPTIONS = (
    click.option(
        "--master",
        default="local[*]",
        show_default=True,
        metavar="URL",
        help="Spark's master: local[N] (* for all cores), spark://HOST:PORT, yarn, k8s://...",
    ),
    click.option(
        "--spark-conf",
        multiple=True,
        metavar="KEY=VALUE",
        callback=_conf_pairs,
        help="Set a property of Spark's (repeatable).",
    ),
    click.option(
        "--log",
        "log_file",
        type=click.Path(path_type=Path, dir_okay=False),
        default="spark.log",
        show_default=True,
        help="File for what Spark itself prints.",
    ),
)


def _session_options(function: Callable[..., int]) -> Callable[..., int]:
    return functools.reduce(lambda made, option: option(made), reversed(_SESSION_OPTIONS), function)


@command.command("run", context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
@click.argument("package", type=click.Path(path_type=Path))
@click.argument("entry")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="SPOUT=[FORMAT:]PATH",
    help="Data in place of a spout (repeatable): parquet, json, csv, text, table.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="[BOLT=][FORMAT:]PATH",
    help="Where a stream is written (repeatable): parquet, json, table. Without BOLT: a folder "
    "for each stream that nobody consumes.",
)
@click.option("--overwrite", is_flag=True, help="Replace outputs that exist.")
@_session_options
@click.option(
    "--streaming",
    is_flag=True,
    help="Run until interrupted, on data as it arrives: new files, kafka:HOST:PORT/TOPIC, "
    "socket:HOST:PORT.",
)
@click.option(
    "--checkpoint",
    metavar="FOLDER",
    help="With --streaming: where it stands is kept here, state included.",
)
@click.option(
    "--trigger-secs",
    type=click.FloatRange(min=0),
    metavar="SECS",
    default=1.0,
    show_default=True,
    help="With --streaming: start a micro-batch so often.",
)
@click.option(
    "--available-now",
    is_flag=True,
    help="With --streaming: process what is there, then end.",
)
@settings_options
def run(
    settings: Settings, package: Path, entry: str, arguments: tuple[str, ...], **options: Any
) -> int:
    """Run a topology over data: as a batch job on Spark, or on a stream.

    PACKAGE, ENTRY and ARGS are those of `storm jar`; options stand before PACKAGE. A name with a
    stream is COMPONENT:STREAM.
    """
    from squall_cli.entry import run_entry

    checkpoint = options["checkpoint"]
    if options["streaming"] and not checkpoint:
        raise click.UsageError("--streaming needs --checkpoint FOLDER")
    if not options["streaming"] and (checkpoint or options["available_now"]):
        raise click.UsageError("--checkpoint and --available-now are for --streaming")
    if checkpoint and "://" not in checkpoint:
        options["checkpoint"] = os.path.abspath(checkpoint)
    job = {**options, "log_file": os.path.abspath(options["log_file"])}
    return run_entry(
        package,
        entry,
        arguments,
        settings=settings,
        mode="spark",
        program="squall_spark.entry",
        environment={"SQUALL_SPARK_JOB": json.dumps(job)},
    )


@command.command("report", no_args_is_help=True)
@click.argument("topology")
@click.option(
    "--since",
    metavar="WHEN",
    help="Leave out what is older: 30m, 6h, 2d (ago), or a time such as 2026-11-21T09:30 (UTC).",
)
@click.option(
    "--history",
    metavar="FOLDER",
    help="Path or URL of the history (default: storm.history.dir, here or else at Nimbus).",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write it as JSON."
)
@click.option(
    "--html",
    "html_file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write it as one HTML page with plots.",
)
@_session_options
@settings_options
def report(settings: Settings, **options: Any) -> int:
    """Say what a topology's history tells: throughput, latency, skew, hot keys, failures, and a
    recommended parallelism.

    TOPOLOGY is a name (of several that had it, the last one submitted) or an id. It must have run
    with topology.history.enable.
    """
    return run_report(settings.load(), ReportOrder(**options))
