"""What can be checked of inputs and outputs on this machine, before a JVM is started."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable

from squall_common.errors import SquallError
from squall_spark.data.bindings import Format
from squall_spark.data.datasets import not_there
from squall_spark.data.look import is_here
from squall_spark.plan import Sink, SparkPlan


def check_inputs(plan: SparkPlan) -> None:
    """Raises SquallError for a missing file or folder on this machine."""
    for stage in plan.stages:
        for source in stage.sources:
            # (Python's patterns have no {a,b}, which Hadoop's have.)
            if not is_here(source.path, source.format) or "{" in source.path:
                continue
            found = glob.glob(source.path)
            if not found:
                raise not_there(source)
            for path in found[:100]:
                if not os.access(path, os.R_OK):
                    raise SquallError(
                        f"--input {source.stream}: {path} cannot be read: permission denied"
                    )


def check_outputs(sinks: Iterable[Sink]) -> None:
    """Raises SquallError for an output that is there, on this machine."""
    for sink in sinks:
        if is_here(sink.path, sink.format) and os.path.lexists(sink.path):
            raise already_there(sink)


def already_there(sink: Sink) -> SquallError:
    what = "table" if sink.format is Format.TABLE else "folder"
    return SquallError(
        f"--output {sink.stream}: the {what} {sink.path} already exists",
        hint="choose another, or replace it: --overwrite",
    )
