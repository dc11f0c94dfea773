"""What is sent to a NATS server before there is TLS: nothing."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlparse

import pytest
from nats.aio.client import Srv

from squall_connectors.nats.connection import _EncryptedClient


class Plain:
    """A transport without TLS, like that of ws://: it has no stream of its own."""


@pytest.mark.parametrize("url", ["ws://app:secret@server:80", "nats://app:secret@server:80"])
def test_a_connection_without_tls_is_refused_with_its_server(url: str) -> None:
    client = _EncryptedClient()
    transport: Any = Plain()
    client._transport = transport
    client._current_server = Srv(urlparse(url))
    with pytest.raises(ConnectionError, match="server at server:80 does not ask for TLS") as caught:
        client._connect_command()
    assert "secret" not in str(caught.value)
    assert not client.is_checked
