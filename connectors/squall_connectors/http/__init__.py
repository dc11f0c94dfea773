"""HTTP. Needs nothing beyond Squall.

WebhookSpout    takes requests            HttpEnrich    makes one for each tuple
HttpPollSpout   makes one at intervals    SseSpout      reads server-sent events
WebSocketSpout  reads a WebSocket
"""

from squall_connectors.http.enrich import HttpEnrich
from squall_connectors.http.poll import HttpPollSpout
from squall_connectors.http.sse import SseSpout
from squall_connectors.http.webhook import WebhookSpout
from squall_connectors.http.websocket import WebSocketSpout

__all__ = ["HttpEnrich", "HttpPollSpout", "SseSpout", "WebSocketSpout", "WebhookSpout"]
