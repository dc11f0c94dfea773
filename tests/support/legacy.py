"""Files and bytes for the port that Storm's Java clients use."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from squall_thrift import storm
from squall_thrift.client import ThriftClient
from squall_thrift.protocol import sasl
from squall_thrift.protocol.sasl import Status

DIGEST = "org.apache.storm.security.auth.digest.DigestSaslTransportPlugin"
KERBEROS = "org.apache.storm.security.auth.kerberos.KerberosSaslTransportPlugin"
_MODULE = "org.apache.zookeeper.server.auth.DigestLoginModule"


def jaas_file(path: Path, entry: str, options: Mapping[str, str], *, module: str = _MODULE) -> str:
    """Write a JAAS file with one entry, which its owner alone may read; returns its path."""

    def quoted(text: str) -> str:
        return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'

    lines = [f"    {key}={quoted(value)}" for key, value in options.items()]
    path.touch(mode=0o600)
    path.write_text("\n".join([f"{entry} {{", f"    {module} required", *lines]) + ";\n};\n")
    return str(path)


class DigestClient:
    """A client of the legacy port, step by step, which computes as RFC 2831 says."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def __init__(self, port: int, user: str, password: str) -> None:
        self.port = port
        self.user = user
        self.password = password
        self.sent = b""  # the response
        self.expected = b""  # what a server that knows the password says

    async def connect(self) -> Self:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aenter__(self) -> Self:
        return await self.connect()

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()

    def send(self, status: Status, data: bytes) -> None:
        self.writer.write(sasl.serialize(status, data))

    async def receive(self) -> tuple[Status, bytes]:
        async with asyncio.timeout(30):
            return await sasl.read_message(self.reader)

    async def challenge(self) -> dict[str, str]:
        """Begin, as Storm's client does: with an empty response."""
        self.send(Status.START, b"DIGEST-MD5")
        self.send(Status.OK, b"")
        status, data = await self.receive()
        assert status is Status.OK
        return dict(re.findall(r'([a-z-]+)="?([^",]*)', data.decode()))

    async def log_in(self, **changed: str) -> tuple[Status, bytes]:
        """The server's answer to a response, of which some values are others."""
        challenge = await self.challenge()
        values = {
            "charset": "utf-8",
            "username": f'"{self.user}"',
            "realm": f'"{challenge["realm"]}"',
            "nonce": f'"{challenge["nonce"]}"',
            "nc": "00000001",
            "cnonce": '"of-a-client"',
            "digest-uri": '"storm_thrift_server/127.0.0.1"',
            "maxbuf": "65536",
            "qop": "auth",
            **changed,
        }

        def proof(method: str) -> str:
            def value(key: str) -> str:
                return values[key].strip('"')

            # Section 2.1.2.1, with all text in ASCII.
            a1 = _md5(f"{self.user}:{value('realm')}:{self.password}".encode())
            a1 += f":{value('nonce')}:{value('cnonce')}".encode()
            a1 += f":{values['authzid']}".encode() if "authzid" in values else b""
            parts = [value("nonce"), value("nc"), value("cnonce"), value("qop")]
            a2 = _md5(f"{method}:{value('digest-uri')}".encode()).hex()
            return _md5(":".join([_md5(a1).hex(), *parts, a2]).encode()).hex()

        self.expected = b"rspauth=" + proof("").encode()
        text = ",".join(f"{key}={one}" for key, one in values.items())
        self.sent = f"{text},response={proof('AUTHENTICATE')}".encode()
        self.send(Status.OK, self.sent)
        return await self.receive()

    async def call(self, name: str, *arguments: Any) -> Any:
        """A call, after the log-in."""
        client = ThriftClient(storm.Nimbus, "127.0.0.1", self.port)
        client._streams = (self.reader, self.writer)  # as if it had opened them itself
        return await client.call(name, *arguments)


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
