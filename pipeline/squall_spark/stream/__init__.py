"""A plan as a Structured Streaming query: every micro-batch is a small batch job.

Spark's checkpoint records which input belongs to which micro-batch; ours, beside it, holds the
state of stateful bolts after each (`squall_spark.state`). A micro-batch that was cut short runs
again with the same number and the same input: it starts from the state before it and replaces its
output, the folder `batch=N` of each `--output`. So each tuple takes effect once, whichever process
is killed.

    query        the query, and one micro-batch
    inputs       the streams of a plan as one data frame, and how much of it a batch gets
    checkpoint   what has to survive between two runs
"""
