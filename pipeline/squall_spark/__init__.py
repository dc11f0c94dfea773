"""Topologies on Apache Spark, through PySpark.

The same topology that runs on a cluster runs here over finite data, or in micro-batches over a
stream. A component is a stage of partition-wise Python (`mapInArrow`), and one partition of the
stage is one *task*. A worker's engine (`squall_engine`) runs it, so that prepare, execute, emit,
every kind of bolt and every grouping are the cluster's own code. Only the transport is Spark. The
tuples that a task emits are encoded as a worker would send them, in *sections* of many tuples, and
each section is one row:

    to int          the task that receives it
    data binary     the tuples, as on the wire between two workers; null in a marker, which only
                    names the task of its partition

`repartitionById` brings each row to the partition of its task: Spark never sees a single tuple, and
moves few large rows instead of many small ones.

    plan        from a topology to stages, or a list of what Spark cannot run        pure
    before      what can be checked of inputs and outputs before a JVM is started    no Spark
    traits      the facts about users' classes that the planner needs
    session     the Spark session: Java, logs, where the Python is
    batch       builds the data frames of a plan and writes the outputs
    lock        one driver for a checkpoint or a view
    diagnose, messages    what an error of Spark's means
    job, entry  the process behind `storm spark run`
    python      `run`, for programs and notebooks

    tasks/      what Spark's Python workers run
    data/       inputs and outputs
    current/    outputs that hold the current value of each key
    view/       what people see of a plan and of its run
    state/      the state of stateful bolts between micro-batches
    stream/     a plan as a query over a stream
    report/     the report of a topology's history

Rejected: one row per tuple (three times as slow, and every value would need a column type), pickle
(the cluster does not use it), and a second implementation of bolts and groupings for Spark.
"""

from squall_spark.current.view import view_folder
from squall_spark.python import Result, run

__all__ = ["Result", "run", "view_folder"]
