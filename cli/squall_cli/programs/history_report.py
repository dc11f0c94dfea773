"""Starts the process that makes a report of a topology's history (`squall_spark.report`): this one
imports no PySpark."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.parent import end_with_parent
from squall_common.history.recommendation import read_report_file


@dataclass(frozen=True, slots=True)
class ReportOrder:
    """The options of `storm report` and `storm spark report`."""

    topology: str
    since: str | None = None
    history: str | None = None
    json_file: Path | None = None
    html_file: Path | None = None
    master: str = "local[*]"
    spark_conf: tuple[tuple[str, str], ...] = ()
    log_file: Path = Path("spark.log")
    quiet: bool = False
    spark: bool = False


def run_report(options: ClientOptions, order: ReportOrder) -> int:
    """Make a report; returns the exit status. The child reports errors."""
    from squall_cli.programs.entry import wait_for_child

    if order.history is not None:
        options = msgspec.structs.replace(options, storm_history_dir=order.history)
    value = {
        "topology": order.topology,
        "history": _url_of_history(options),
        "since": order.since,
        "json_file": _absolute(order.json_file),
        "html_file": _absolute(order.html_file),
        "quiet": order.quiet,
        "spark": order.spark,
        "master": order.master,
        "spark_conf": order.spark_conf,
        "log_file": _absolute(order.log_file),
    }
    environment = {**os.environ, "SQUALL_SPARK_REPORT": json.dumps(value)}
    argv = [sys.executable, "-P", "-m", "squall_spark.report.main"]
    sys.stdout.flush()
    sys.stderr.flush()
    child = subprocess.Popen(argv, env=environment, preexec_fn=end_with_parent())
    status = wait_for_child(child)
    return 128 - status if status < 0 else status


def make_report(options: ClientOptions, topology_id: str) -> dict[str, Any]:
    """Make a report on the last day now. If its process fails, exits with the same status."""
    with tempfile.TemporaryDirectory(prefix="squall-report-") as folder:
        file = Path(folder, "report.json")
        order = ReportOrder(
            topology_id,
            since="1d",
            json_file=file,
            log_file=Path(folder, "spark.log"),
            quiet=True,
        )
        status = run_report(options, order)
        if status != 0:
            raise click.exceptions.Exit(status)
        return read_report_file(file)


def _url_of_history(options: ClientOptions) -> str:
    """The place of the history: this machine's if it sets a folder, or else Nimbus', if one
    answers. (By default, it is below the folder of the daemon that wrote it.)"""
    from squall_cli.cluster.nimbus import call_nimbus
    from squall_common.errors import SquallError
    from squall_common.history.settings import history_url

    if options.storm_history_dir is None:
        with contextlib.suppress(SquallError, ValueError):
            conf = json.loads(call_nimbus(options, "getNimbusConf"))
            return history_url(ClientOptions.read(conf, where="Nimbus"))
    return history_url(options)


def _absolute(path: Path | None) -> str | None:
    return None if path is None else os.path.abspath(path)
