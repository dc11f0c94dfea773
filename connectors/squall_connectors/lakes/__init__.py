"""Tables in files: `DeltaSink` appends to Delta Lake tables and needs `squall[delta]` (deltalake),
`IcebergSink` to Apache Iceberg tables and needs `squall[iceberg]` (pyiceberg).

    from squall_connectors.lakes.delta import DeltaSink
    from squall_connectors.lakes.iceberg import IcebergSink

Each has a module of its own, so that one does not need the other's client.
"""
