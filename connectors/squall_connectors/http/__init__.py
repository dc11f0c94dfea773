"""HTTP: `WebhookSpout` takes requests, and `HttpEnrich` makes them. Needs nothing beyond Squall."""

from squall_connectors.http.enrich import HttpEnrich
from squall_connectors.http.webhook import WebhookSpout

__all__ = ["HttpEnrich", "WebhookSpout"]
