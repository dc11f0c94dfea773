"""Any database that SQLAlchemy speaks to: `SqlSink`. Needs `squall[sql]`, and the driver of the
database.

    builder.bolt("store", SqlSink(
        "mysql+pymysql://db/shop", "REPLACE INTO prices VALUES (:sku, :price)", ["sku", "price"]
    )).shuffle("price")
"""

from squall_connectors.sql.sink import SqlSink

__all__ = ["SqlSink"]
