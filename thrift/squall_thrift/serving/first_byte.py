"""Waits for the first byte of a connection, before anything is done for it.

Peers that say nothing are a kind of strangers of their own, which makes room for each other when it
is a crowd: a client begins TLS at once, and is never among the oldest of them. One that hangs up
without a word, as the probes of load balancers do, has not been refused anything.
"""

import asyncio
import socket


async def has_begun(connected: socket.socket) -> bool:
    """Wait until the peer sends something; whether it did, and has not hung up. Nothing is read."""
    loop = asyncio.get_running_loop()
    there: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not there.done():
            there.set_result(None)

    loop.add_reader(connected, arrived)
    try:
        await there
    finally:
        loop.remove_reader(connected)
    try:
        return bool(connected.recv(1, socket.MSG_PEEK))
    except OSError:
        return False
