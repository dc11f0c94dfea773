"""Tables in files: `DeltaSink` appends to Delta Lake tables and needs `squall[delta]` (deltalake),
`IcebergSink` to Apache Iceberg tables and needs `squall[iceberg]` (pyiceberg).

    from squall_connectors.lakes import DeltaSink, IcebergSink

Each is imported when it is first used, so that one does not need the other's client.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall_connectors.lakes.delta import DeltaSink
    from squall_connectors.lakes.iceberg import IcebergSink

__all__ = ["DeltaSink", "IcebergSink"]


def __getattr__(name: str) -> Any:
    if name == "DeltaSink":
        from squall_connectors.lakes.delta import DeltaSink

        return DeltaSink
    if name == "IcebergSink":
        from squall_connectors.lakes.iceberg import IcebergSink

        return IcebergSink
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
