"""Spark's daemon of Python workers, which has imported what tasks need before it forks them.

    python -m squall_spark.tasks.daemon pyspark.worker

Spark's own daemon imports nothing, so each worker that it forks spends most of a second of CPU on
imports. A stage has a worker for each task that runs at a time and for each component in it.
"""

from __future__ import annotations

import gc
import os

import numpy.random
import pandas  # type: ignore[import-untyped]  # noqa: F401
import pyarrow.compute  # noqa: F401
import pyspark.worker  # noqa: F401
from pyspark.daemon import manager

import squall_spark.tasks.stages  # noqa: F401

# Or all workers would have the same ones. (Python's own `random` does this by itself.)
os.register_at_fork(after_in_child=numpy.random.seed)

if __name__ == "__main__":
    # What is imported stays in the pages that all workers share.
    gc.collect()
    gc.freeze()
    manager()
