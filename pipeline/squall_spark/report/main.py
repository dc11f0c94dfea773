"""The process that `storm report` and `storm spark report` start; its order is in
SQUALL_SPARK_REPORT (JSON)."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall._entry import print_error
from squall_common.daemon.files import write_atomic
from squall_common.errors import SquallError
from squall_spark.entry import spark_error
from squall_spark.report.analyse import Report, analyse
from squall_spark.report.choose import Chosen, choose, parse_since
from squall_spark.report.page import page
from squall_spark.report.sums import Sums
from squall_spark.report.terminal import show
from squall_spark.session import check_master, check_requirements, spark_session

VARIABLE = "SQUALL_SPARK_REPORT"
# Sums are small, whatever the history's size.
_SPARK_CONF = (("spark.sql.shuffle.partitions", "8"),)


@dataclass(frozen=True, slots=True)
class Order:
    """One report. Paths are absolute."""

    topology: str
    history: str
    since: str | None = None
    json_file: str | None = None
    html_file: str | None = None
    quiet: bool = False  # nothing on stdout
    spark: bool = True  # False: in this process, for a history that fits this machine
    master: str = "local[*]"
    spark_conf: tuple[tuple[str, str], ...] = ()
    log_file: str = "spark.log"

    @classmethod
    def from_json(cls, text: str) -> Order:
        values: dict[str, Any] = json.loads(text)
        values["spark_conf"] = tuple((key, value) for key, value in values["spark_conf"])
        return cls(**values)


def make(order: Order, now: float) -> Report:
    """Make the report. Raises SquallError."""
    since = None if order.since is None else parse_since(order.since, now)
    chosen = choose(order.history, order.topology, since)  # before Spark: that takes a while
    _say(f"reporting on {chosen.topology_id}: {len(chosen.names)} files of {order.history}")
    sums = _by_spark(order, chosen, since, now) if order.spark else _here(chosen, since, now)
    return analyse(
        sums,
        topology_id=chosen.topology_id,
        earlier=chosen.earlier,
        url=order.history,
        made_at_ms=int(now * 1000),
    )


def _here(chosen: Chosen, since: float | None, now: float) -> Sums:
    from squall_spark.report.here import gather_here
    from squall_spark.view.progress import Progress

    return gather_here(chosen, since, now=now, step=Progress(None, brief=True).step)


def _by_spark(order: Order, chosen: Chosen, since: float | None, now: float) -> Sums:
    from squall_spark.report.gather import gather
    from squall_spark.view.progress import Progress

    with contextlib.ExitStack() as stack:
        # (Of its own: what Spark writes to stderr meanwhile goes to the log.)
        out = stack.enter_context(os.fdopen(os.dup(2), "w"))
        with Progress(None, out).step("starting Spark"):
            spark = stack.enter_context(
                spark_session(
                    f"report of {chosen.topology_id}",
                    master=order.master,
                    conf=(*_SPARK_CONF, *order.spark_conf),
                    log_file=Path(order.log_file),
                )
            )
        progress = Progress(spark.sparkContext)
        try:
            return gather(spark, chosen, since, now=now, step=progress.step)
        except SquallError:
            raise
        except Exception as error:
            raise spark_error(error, order.log_file) from error


def check_folders(order: Order) -> None:
    """Check that the requested files can be written, before the work. Raises SquallError."""
    for path in (order.json_file, order.html_file):
        if path is not None and not os.access(Path(path).parent, os.W_OK | os.X_OK):
            raise SquallError(f"{path} cannot be written: no such folder, or not writable")


def write(order: Order, report: Report) -> None:
    """Write the requested files. Raises SquallError."""
    files: dict[str, str] = {}
    if order.json_file is not None:
        files[order.json_file] = json.dumps(report, indent=1, allow_nan=False)
    if order.html_file is not None:
        files[order.html_file] = page(report)
    for path, text in files.items():
        try:
            write_atomic(Path(path), text.encode(), mode=0o644)
        except OSError as error:
            raise SquallError(f"{path} cannot be written: {error.strerror or error}") from error
        if not order.quiet:
            _say(f"wrote {path}")


def _say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main(env: Mapping[str, str] = os.environ) -> int:
    """Run the process; returns the exit status."""
    try:
        order = Order.from_json(env[VARIABLE])
        check_folders(order)
        if order.spark:
            check_master(order.master)
            check_requirements(env)
        elif importlib.util.find_spec("pyarrow") is None:
            raise SquallError(
                "a report needs the Python package pyarrow", hint="pip install 'squall[history]'"
            )
        report = make(order, time.time())
    except SquallError as error:
        print_error(error)
        return 1
    except KeyboardInterrupt:
        return 130
    status = 0
    try:
        write(order, report)
    except SquallError as error:  # the report was made, and is shown anyway
        print_error(error)
        status = 1
    if not order.quiet:
        show(report, sys.stdout)
    return status


if __name__ == "__main__":
    # Imported under its own name, not as `__main__`: Spark pickles functions by module name.
    from squall_spark.report import main as _main

    sys.exit(_main.main())
