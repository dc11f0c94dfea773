"""Peers that hold a listener up, in a process of their own: `python -m bench.crowds KIND ...`.

    half-open PORT COUNT            connections that say nothing, from a thousand addresses; those
                                    that the server closes are opened again, a thousand a second
    slow-thrift PORT COUNT CONF     callers who have proved who they are (by the configuration
    slow-https PORT COUNT CONF      CONF), ask for large answers, and read none

It prints `ready` when all have been opened once, and goes on until its stdin ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading
from pathlib import Path

import yaml

from squall_common.authentication.credentials import ClientCredentials, credentials_of
from squall_common.config.load import default_conf
from squall_common.config.options.typed import ClientOptions
from squall_common.security.identity import Role
from squall_thrift import codec, storm
from squall_thrift.protocol import messages
from squall_thrift.protocol.messages import MessageType
from squall_thrift.serving.authentication import prove_client

_ADDRESSES = 1_000
_AGAIN_A_SEC = 1_000
_RECEIVE_BYTES = 4_096  # what the kernel keeps for a peer that does not read
_ASKED = 200  # answers a slow reader asks for


async def half_open(port: int, count: int) -> None:
    loop = asyncio.get_running_loop()
    open_again: asyncio.Queue[int] = asyncio.Queue()

    class Silent(asyncio.Protocol):
        def __init__(self, number: int) -> None:
            self.number = number

        def connection_lost(self, error: Exception | None) -> None:
            open_again.put_nowait(self.number)

    async def connect(number: int) -> None:
        host = number % _ADDRESSES
        own = f"127.9.{host // 250}.{host % 250 + 1}"
        try:
            await loop.create_connection(
                lambda: Silent(number), "127.0.0.1", port, local_addr=(own, 0)
            )
        except OSError:
            open_again.put_nowait(number)

    for begin in range(0, count, 200):
        await asyncio.gather(*(connect(number) for number in range(begin, min(count, begin + 200))))
    print("ready", flush=True)
    while True:
        await connect(await open_again.get())
        await asyncio.sleep(1 / _AGAIN_A_SEC)


def _socket(port: int) -> socket.socket:
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BYTES)
    made.connect(("127.0.0.1", port))
    made.setblocking(False)
    return made


def credentials(conf: Path, server: Role) -> ClientCredentials:
    """Those of whoever runs the cluster."""
    found = credentials_of(
        ClientOptions.read({**default_conf(), **yaml.safe_load(conf.read_text())}), server
    )
    assert found is not None, f"{conf} is not of a secured cluster"
    return found


async def slow(kind: str, port: int, count: int, conf: Path) -> None:
    own = credentials(conf, Role.NIMBUS)
    if kind == "slow-thrift":
        body = codec.to_bytes(storm.Nimbus.methods["getNimbusConf"].args.cls())
        call = messages.serialize(MessageType.CALL, "getNimbusConf", 1, body)
        asked = (len(call).to_bytes(4, "big") + call) * _ASKED
    else:
        head = "\r\n".join(
            ("GET /metrics HTTP/1.1", f"Host: 127.0.0.1:{port}",
             *(f"{name}: {value}" for name, value in own.http_headers().items()), "", "")
        )  # fmt: skip
        asked = head.encode() * _ASKED
    held = []
    for _ in range(count):
        with contextlib.suppress(OSError):
            made = await asyncio.to_thread(_socket, port)
            reader, writer = await asyncio.open_connection(
                sock=made, ssl=own.context, server_hostname="127.0.0.1", limit=1
            )
            if kind == "slow-thrift":
                await prove_client(reader, writer, own)
            writer.write(asked)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            held.append(writer)
    print("ready", flush=True)
    await asyncio.Event().wait()


def _end_with_stdin() -> None:
    sys.stdin.read()
    os._exit(0)


def main() -> None:
    kind, port, count, *rest = sys.argv[1:]
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    if kind == "half-open":
        asyncio.run(half_open(int(port), int(count)))
    else:
        asyncio.run(slow(kind, int(port), int(count), Path(rest[0])))


if __name__ == "__main__":
    main()
