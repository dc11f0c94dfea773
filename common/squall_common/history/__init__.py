"""The history of topologies: what workers and daemons write down with `topology.history.enable`,
for `storm report` to read.

    HISTORY/TOPOLOGY_ID/0001763713754123-127.0.0.1-6700-1a.3-000004.parquet

One table (`schema`), one file a writer and rotation (`writer`), whole or not there at all. What is
counted is exact; latencies are histograms (`histogram`); keys of fields groupings are a sample
(`heavy`). pyarrow, and fsspec for URLs, are imported by the writer's thread and by readers only.
"""
