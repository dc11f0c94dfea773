"""A TCP proxy that breaks connections, for transports under test."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct


class TcpProxy:
    """Forwards connections to a port on loopback; `reset` breaks all of them by RST, `pause` holds
    back what they carry, `refuse` closes new ones at once."""

    def __init__(self, target_port: int) -> None:
        self.target_port = target_port
        self.port = 0
        self.connections = 0
        self.refuse = False
        self.record: bytearray | None = None  # all bytes that pass, when it is set
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._running = asyncio.Event()
        self._running.set()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def pause(self) -> None:
        self._running.clear()

    def resume(self) -> None:
        self._running.set()

    def reset(self) -> None:
        """Break every connection; what is on its way is lost."""
        for writer in list(self._writers):
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.resume()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.refuse = True  # also what was accepted and is not served yet
        self.reset()  # those of tasks that had not begun
        if self._server is not None:
            await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuse:
            writer.transport.abort()
            return
        self._writers.add(writer)
        try:
            to_reader, to_writer = await asyncio.open_connection("127.0.0.1", self.target_port)
        except OSError:
            self._writers.discard(writer)
            writer.transport.abort()
            return
        if self.refuse:  # closed meanwhile
            writer.transport.abort()
            to_writer.transport.abort()
            return
        self._writers.add(to_writer)
        self.connections += 1
        for one, other in ((reader, to_writer), (to_reader, writer)):
            task = asyncio.create_task(self._copy(one, other))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(65536):
                await self._running.wait()
                if self.record is not None:
                    self.record += data
                writer.write(data)
                await writer.drain()
        except OSError:
            pass
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
