"""OpenSearch, and Elasticsearch, which has the same bulk API: `OpenSearchSink`. Needs nothing
beyond Squall.

builder.bolt("index", OpenSearchSink("https://search:9200", ["sku", "price"], index="prices",
                                     id_field="sku")).shuffle("price")
"""

from squall_connectors.opensearch.sink import OpenSearchSink

__all__ = ["OpenSearchSink"]
