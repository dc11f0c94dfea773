"""The rows of a file of the history; an unreadable file is a row with the error."""

from __future__ import annotations

from typing import TYPE_CHECKING

from squall_common.daemon.folders import Folder
from squall_common.history.schema import OtherVersionError, Row, from_parquet, to_parquet
from squall_spark.report.fold import OTHER_VERSION, UNREADABLE

if TYPE_CHECKING:
    import pyarrow


def rows_of(folder: Folder, name: str) -> pyarrow.Table:
    try:
        return table_of(folder.read(name), name)
    except Exception as error:  # deleted meanwhile, or a URL that is gone
        return _trouble(UNREADABLE, f"{name}: {str(error) or type(error).__name__}")


def table_of(data: bytes, name: str) -> pyarrow.Table:
    """The rows of a file with this content."""
    try:
        return from_parquet(data, name)
    except OtherVersionError as error:
        return _trouble(OTHER_VERSION, str(error))
    except Exception as error:  # half a file that was copied ...
        return _trouble(UNREADABLE, f"{name}: {str(error) or type(error).__name__}")


def _trouble(kind: str, text: str) -> pyarrow.Table:
    row = Row(0, kind, text=text[:500])
    return from_parquet(to_parquet([row], worker="", incarnation=""), "")
