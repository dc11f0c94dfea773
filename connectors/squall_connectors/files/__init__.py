"""Files: `TailSpout` follows files that grow and rotate, `FolderSpout` reads files that are put
into a folder, `FileSink` writes files. The last two take any URL of fsspec (local, S3, GCS ...) and
need `squall[files]` (fsspec, and pyarrow for Parquet), and the client of the store:
`squall[s3]` (s3fs) for S3.

`LinesSpout` and `TransactionalFileSink` are for topologies with checkpoints, and read and write
each record exactly once.

    builder.spout("log", TailSpout("/var/log/app/*.log", state="/var/lib/app/positions"))
    builder.bolt("out", FileSink("s3://bucket/orders", ["sku", "price"], format="parquet"))
"""

from squall_connectors.files.folder import FolderSpout
from squall_connectors.files.lines import LinesSpout
from squall_connectors.files.sink import FileSink
from squall_connectors.files.tail import TailSpout
from squall_connectors.files.transactional import TransactionalFileSink

__all__ = ["FileSink", "FolderSpout", "LinesSpout", "TailSpout", "TransactionalFileSink"]
