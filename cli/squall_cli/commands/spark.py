"""`storm spark`: topologies on Apache Spark. (`squall_spark` imports PySpark in a separate process:
this one starts without it.)"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from squall_cli.commands.report import report_options
from squall_cli.groups import Group
from squall_cli.options import Settings, check_entry, settings_options
from squall_cli.programs.dependencies import DependencyOptions, dependency_options
from squall_cli.programs.history_report import ReportOrder, run_report

_TASKS_MAX = 10_000


@click.group("spark", cls=Group, no_args_is_help=True)
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


def _fields(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, tuple[str, ...]], ...]:
    pairs = []
    for value in values:
        name, _, listed = value.partition("=")
        fields = tuple(field.strip() for field in listed.split(","))
        if not name or not all(fields):
            raise click.BadParameter(f"{value!r} is not BOLT=FIELD,FIELD")
        pairs.append((name, fields))
    return tuple(pairs)


def _parallelism(
    _ctx: click.Context, _param: click.Parameter, values: tuple[str, ...]
) -> tuple[tuple[str, int], ...]:
    pairs = []
    for value in values:
        component, _, number = value.rpartition("=")
        if not component or not number.isdecimal() or not 1 <= int(number) <= _TASKS_MAX:
            raise click.BadParameter(
                f"{value!r} is not COMPONENT=N, with N from 1 to {_TASKS_MAX:,}"
            )
        pairs.append((component, int(number)))
    return tuple(pairs)


# Where Spark runs, and where its output goes.
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
        help="Set a Spark property (repeatable).",
    ),
    click.option(
        "--log",
        "log_file",
        type=click.Path(path_type=Path, dir_okay=False),
        default="spark.log",
        show_default=True,
        help="File for Spark's own output.",
    ),
)


def _session_options(function: Callable[..., int]) -> Callable[..., int]:
    return functools.reduce(lambda made, option: option(made), reversed(_SESSION_OPTIONS), function)


@command.command("run", context_settings={"allow_interspersed_args": False}, no_args_is_help=True)
@click.argument("package", type=click.Path(path_type=Path))
@click.argument("entry", callback=check_entry)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED, metavar="[ARGS]...")
@click.option(
    "--input",
    "inputs",
    multiple=True,
    metavar="SPOUT=[FORMAT:]PATH",
    help="Data instead of a spout (repeatable): parquet, json, csv, text, table, kafka, or "
    "spark:FORMAT?option=value.",
)
@click.option(
    "--output",
    "outputs",
    multiple=True,
    metavar="[BOLT=][FORMAT:]PATH",
    help="Destination of a stream (repeatable): parquet, json, csv, table, kafka, delta, or "
    "spark:FORMAT?option=value. Without BOLT: a folder for each stream without a consumer.",
)
@click.option(
    "--filter",
    "filters",
    multiple=True,
    metavar="SPOUT=SQL",
    callback=_conf_pairs,
    help="Only the records for which a condition on their columns is true (repeatable).",
)
@click.option(
    "--partition-by",
    multiple=True,
    metavar="BOLT=FIELD,...",
    callback=_fields,
    help="Write an output into a folder for each value of these fields (repeatable).",
)
@click.option(
    "--current",
    "current",
    multiple=True,
    metavar="BOLT=[FORMAT:]PATH",
    help="Destination of the newest tuple of each --key, merged into what is there (repeatable): a "
    "folder of Parquet, delta:PATH, or a table of spark:jdbc?...",
)
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="BOLT=FIELD,...",
    callback=_fields,
    help="The fields that are the key of a --current (repeatable).",
)
@click.option("--overwrite", is_flag=True, help="Replace existing outputs.")
@click.option(
    "--parallelism",
    multiple=True,
    metavar="COMPONENT=N",
    callback=_parallelism,
    help="Run a component in N tasks, whatever the topology says (repeatable).",
)
@click.option(
    "--commit-group",
    metavar="GROUP",
    help="Read Kafka topics to their ends; then commit these offsets for the consumer group of a "
    "live topology, which goes on there.",
)
@click.option(
    "--explain",
    is_flag=True,
    help="Print the plan (inputs, stages, what moves, outputs) without running it.",
)
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
    help="With --streaming: folder for the position in the input and the state.",
)
@click.option(
    "--trigger-secs",
    type=click.FloatRange(min=0),
    metavar="SECS",
    default=1.0,
    show_default=True,
    help="With --streaming: start a micro-batch at this interval.",
)
@click.option(
    "--available-now",
    is_flag=True,
    help="With --streaming: process the available input, then stop.",
)
@click.option(
    "--max-bytes",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --streaming: bytes of new files in a micro-batch (default: 64 MiB; a file is never "
    "divided).",
)
@click.option(
    "--max-files",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --streaming: new files in a micro-batch, instead of --max-bytes.",
)
@click.option(
    "--max-rows",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --streaming: Kafka records in a micro-batch (default: 500,000).",
)
@click.option(
    "--on-bad-record",
    metavar="fail|skip|FOLDER",
    default="fail",
    show_default=True,
    help="For a record that cannot be read: end with an error that names file and line, leave it "
    "out, or write it to FOLDER with file, line and reason.",
)
@dependency_options
@settings_options
def run(
    settings: Settings,
    package: Path,
    entry: str,
    arguments: tuple[str, ...],
    dependencies: DependencyOptions,
    **options: Any,
) -> int:
    """Run a topology on Spark: as a batch job over stored data, or on a stream.

    PACKAGE, ENTRY and ARGS are the same as for `storm jar`; options come before PACKAGE. Write
    COMPONENT:STREAM for a stream other than the default one.
    """
    from squall_cli.programs.entry import run_entry

    checkpoint = options["checkpoint"]
    if options["streaming"] and options["commit_group"]:
        raise click.UsageError("--commit-group is for batch jobs, not for --streaming")
    if options["streaming"] and not checkpoint:
        raise click.UsageError("--streaming needs --checkpoint FOLDER")
    if not options["streaming"]:
        for name in ("checkpoint", "available_now", "max_bytes", "max_files", "max_rows"):
            if options[name]:
                raise click.UsageError(f"--{name.replace('_', '-')} needs --streaming")
    if checkpoint and "://" not in checkpoint:
        options["checkpoint"] = os.path.abspath(checkpoint)
    job = {**options, "log_file": os.path.abspath(options["log_file"])}
    return run_entry(
        package,
        entry,
        arguments,
        settings=settings,
        mode="spark",
        dependencies=dependencies,
        program="squall_spark.entry",
        environment={"SQUALL_SPARK_JOB": json.dumps(job)},
    )


@command.command("report", no_args_is_help=True)
@report_options
@_session_options
@settings_options
def report(settings: Settings, **options: Any) -> int:
    """Report on a topology's history by a job on Spark, for a history that is too large for `storm
    report`.

    TOPOLOGY is an id or a name (if several had that name, the last one submitted). It must have run
    with topology.history.enable.
    """
    return run_report(settings.client(), ReportOrder(**options, spark=True))
