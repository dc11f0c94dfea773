"""The rings of one worker: how they are offered and accepted, and how the other side is woken.

Each ring goes in one direction, like a PUSH socket. Its writer connects to the reader's abstract
socket, hands over the memory, and writes into it once the reader has answered. Afterwards a byte on
the connection wakes the other side, and its end says that the other side has ended; what was
written before is still read. The kernel removes all of it with the processes: an abstract name, a
memfd and a connection leave nothing behind.

A worker of an earlier release, one on another host, and one in another network namespace do not
listen there: the connection is refused at once, and frames go on over ZeroMQ. Nor does a worker
whose user is another one, or which does not have the topology's key.

(The byte is sent on a socket and not added to an eventfd, since whether an eventfd blocks is a flag
that both sides share: the other side could have a writer wait forever.)
"""

from __future__ import annotations

import asyncio
import enum
import errno
import hashlib
import os
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.daemon.logs import get_logger
from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_worker.transport.frames import (
    FRAME_BYTES_MAX,
    DataParts,
    Frame,
    FrameParts,
    Session,
)
from squall_worker.transport.ring.hello import (
    ANSWER_BYTES,
    HELLO_BYTES_MAX,
    NONCE_BYTES,
    Hello,
    HelloError,
    answer_to,
    check_answer,
    listening_name,
)

if TYPE_CHECKING:
    from squall_worker.transport.link import Link
    from squall_worker.transport.ring.memory import Reader, Writer

log = get_logger(__name__)

_BACKLOG = 256
_ACCEPTED_MAX = 256  # connections that may stand; a topology has fewer workers on a host
_HANDSHAKE_SECS = 5.0
# Errors of accept that leave the connection waiting, and how long it waits then.
_NONE_TO_SPARE = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_ACCEPT_AGAIN_SECS = 1.0
_CREDENTIALS = struct.Struct("3i")
_WAKE = b"\1"
_WAKES_MAX = 64  # read in one go


def load_memory() -> Any:
    """The compiled module, or None where it was not compiled or is older than its source."""
    try:
        from squall_worker.transport.ring import memory
    except ImportError:
        return None
    source = Path(memory.__file__).with_name("memory.pyx")
    try:
        made_of = hashlib.blake2b(source.read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return memory  # an installation has no source
    if made_of != memory.SOURCE_HASH:
        log.warning("compiled_ring_is_stale", file=memory.__file__, hint="pip install -e .")
        return None
    return memory


class End(enum.Enum):
    """What is true of one end of a ring."""

    SHAKING = "It was offered, or a connection was accepted; nothing is written or read yet."
    OPEN = "Frames go through it."
    ENDED = "The writer has gone; what it wrote is still read."
    CLOSED = "It has no socket and no memory any more."


class Outgoing:
    """The writing end of a ring."""

    def __init__(self, sock: socket.socket, writer: Writer, hello: Hello, peer: WorkerSlot) -> None:
        self.sock = sock
        self.hello = hello
        self.peer = peer
        self.state = End.SHAKING
        self._writer = writer
        self._head = hello.data_head()

    def push_data(self, sequence: int, acknowledged: int, sections: list[bytes]) -> bool:
        """Like `push`, for a data frame of the ring's sessions, without grants and flags."""
        while not self._writer.write_data(self._head, sequence, acknowledged, sections):
            if self._writer.wait():
                return False
        return True

    def push(self, frame: Frame) -> bool:
        """Write a frame; returns False if there is no room: then a byte comes when there is.
        Raises memory.RingError."""
        parts = frame.parts()
        while not self._writer.write(parts):
            if self._writer.wait():
                return False
        return True

    def wake(self) -> None:
        """Wake the reader, if it sleeps. Raises memory.RingError."""
        if self._writer.must_wake():
            send_byte(self.sock)

    def close(self) -> None:
        """Close it. The reader still reads what was written."""
        self.state = End.CLOSED
        self.sock.close()
        self._writer.close()


class Incoming:
    """The reading end of a ring, at first a connection that has not said whose."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.state = End.SHAKING
        self.hello: Hello | None = None  # not None once it is open
        self.head = b""  # of the data frames of its sessions
        self.link: Link | None = None  # of these sessions, once a frame was taken
        self.timer: asyncio.TimerHandle | None = None
        self.reader: Reader | None = None

    def close(self) -> None:
        """Close it; what was not read is lost."""
        self.state = End.CLOSED
        self.sock.close()
        if self.timer is not None:
            self.timer.cancel()
        if self.reader is not None:
            self.reader.close()


class Rings:
    """The rings of a worker, both directions.

    `expects(hello)` says whether the hello's sessions are those of the link to that slot.
    `on_open(slot)` is called when frames for a peer may go into a ring, `on_room(slot)` when there
    is room again, `on_lost(slot)` when the peer has closed a ring that was open, `on_data()` when a
    byte says that there is something to read: it is taken after that, and another may be taken with
    it, so the rings have to be read once more later, before they are put to sleep.
    """

    def __init__(
        self,
        topology: bytes,
        slot: WorkerSlot,
        incarnation: Incarnation,
        *,
        memory: Any,
        capacity: int,
        secret: bytes,
        expects: Callable[[Hello], bool],
        on_open: Callable[[WorkerSlot], None],
        on_room: Callable[[WorkerSlot], None],
        on_lost: Callable[[WorkerSlot], None],
        on_data: Callable[[], None],
    ) -> None:
        self.error: type[Exception] = memory.RingError
        self._topology = topology
        self._slot = slot
        self._incarnation = incarnation
        self._memory = memory
        self._capacity = memory.whole_capacity(capacity)
        self._secret = secret
        self._expects = expects
        self._on_open = on_open
        self._on_room = on_room
        self._on_lost = on_lost
        self._on_data = on_data
        self._loop = asyncio.get_running_loop()
        self._listener: socket.socket | None = None
        self._accept_timer: asyncio.TimerHandle | None = None
        self._outgoing: dict[WorkerSlot, Outgoing] = {}
        self._incoming: list[Incoming] = []

    def listen(self) -> None:
        """Let others offer rings. Without it (the name is taken), none comes."""
        listener = _new_socket()
        try:
            listener.bind(listening_name(self._topology, self._slot, self._incarnation))
            listener.listen(_BACKLOG)
        except OSError as error:
            listener.close()
            log.warning("no_rings", why=error)
            return
        self._listener = listener
        self._accept()

    def _accept(self) -> None:
        assert self._listener is not None
        self._loop.add_reader(self._listener, self._on_connection)

    # -- out ----------------------------------------------------------------------------------

    def outgoing(self, peer: WorkerSlot) -> Outgoing | None:
        """The open ring to a peer."""
        found = self._outgoing.get(peer)
        return found if found is not None and found.state is End.OPEN else None

    def offer(self, peer: WorkerSlot, own: Session, other: Session) -> None:
        """Offer a ring to the session of a peer, if it is on this host and takes rings."""
        self.drop_outgoing(peer)
        sock = _new_socket()
        try:
            sock.connect(listening_name(self._topology, peer, other.incarnation))
            if not _is_own_user(sock):
                raise PermissionError("another user listens there")
            writer = self._memory.Writer(self._capacity)
            hello = Hello(
                self._topology, own, other, self._capacity, os.urandom(NONCE_BYTES), self._slot
            )
            fd = writer.take_fd()
            try:
                socket.send_fds(sock, [hello.serialize(self._secret)], [fd])
            finally:
                os.close(fd)
        except (OSError, ValueError) as error:
            sock.close()
            if not isinstance(error, ConnectionRefusedError):
                log.warning("ring_not_offered", peer=peer, why=error)
            return
        self._outgoing[peer] = ring = Outgoing(sock, writer, hello, peer)
        self._loop.add_reader(sock, self._on_outgoing, ring)

    def drop_outgoing(self, peer: WorkerSlot) -> None:
        """Close the ring to a peer, if there is one."""
        ring = self._outgoing.pop(peer, None)
        if ring is not None:
            self._loop.remove_reader(ring.sock)
            ring.close()

    def _on_outgoing(self, ring: Outgoing) -> None:
        """The reader has answered, has made room, or has gone."""
        if ring.state is End.SHAKING:
            data = _receive(ring.sock, ANSWER_BYTES)
            if data is None:
                return
            try:
                check_answer(data, ring.hello, self._secret)
            except HelloError:
                self.drop_outgoing(ring.peer)  # it hung up: it does not expect us, or not yet
                return
            ring.state = End.OPEN
            self._on_open(ring.peer)
        elif ring.state is End.OPEN:
            data = _receive(ring.sock, _WAKES_MAX)
            if data == b"":
                self.drop_outgoing(ring.peer)
                self._on_lost(ring.peer)
            elif data is not None:
                self._on_room(ring.peer)

    # -- in -----------------------------------------------------------------------------------

    def _on_connection(self) -> None:
        assert self._listener is not None
        try:
            sock, _ = self._listener.accept()
        except OSError as error:
            if error.errno in _NONE_TO_SPARE:  # it stays readable: do not spin
                self._loop.remove_reader(self._listener)
                self._accept_timer = self._loop.call_later(_ACCEPT_AGAIN_SECS, self._accept)
            return  # or it has gone already
        sock.setblocking(False)
        if not _is_own_user(sock) or len(self._incoming) >= _ACCEPTED_MAX:
            sock.close()
            return
        ring = Incoming(sock)
        ring.timer = self._loop.call_later(_HANDSHAKE_SECS, self._expire, ring)
        self._incoming.append(ring)
        self._loop.add_reader(sock, self._on_incoming, ring)

    def _expire(self, ring: Incoming) -> None:
        if ring.state is End.SHAKING:
            self._drop_incoming(ring)

    def _drop_incoming(self, ring: Incoming) -> None:
        self._incoming.remove(ring)
        self._loop.remove_reader(ring.sock)
        ring.close()

    def _on_incoming(self, ring: Incoming) -> None:
        """The writer says hello, has written something, or has gone."""
        if ring.state is End.SHAKING:
            try:
                self._greet(ring)
            except BlockingIOError:
                return
            except (OSError, ValueError, self.error) as error:
                log.warning("ring_refused", why=error)
                self._drop_incoming(ring)
        elif ring.state is End.OPEN:
            # What was written first: the byte can wait, and taking it is a call of the kernel.
            self._on_data()
            if ring.state is End.OPEN and _receive(ring.sock, _WAKES_MAX) == b"":
                ring.state = End.ENDED
                self._loop.remove_reader(ring.sock)

    def _greet(self, ring: Incoming) -> None:
        """Take a hello. Raises BlockingIOError, and OSError, ValueError or RingError for one that
        is refused."""
        flags = socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        data, fds, _, _ = socket.recv_fds(ring.sock, HELLO_BYTES_MAX + 1, 1, flags)
        try:
            hello = Hello.parse(data, self._secret)
            if hello.topology != self._topology or len(fds) != 1:
                raise HelloError("a hello of another topology, or without a ring")
            if not self._expects(hello):
                raise HelloError("not the session of a peer")
            ring.reader = self._memory.Reader(fds[0], hello.capacity, FRAME_BYTES_MAX)
        finally:
            for fd in fds:
                os.close(fd)
        ring.sock.send(answer_to(hello, self._secret), socket.MSG_DONTWAIT)
        assert ring.timer is not None
        ring.timer.cancel()
        # A link has one ring: what an earlier one still held would come too late.
        for other in self._incoming[:]:
            if other.hello is not None and other.hello.slot == hello.slot:
                self._drop_incoming(other)
        ring.hello, ring.head, ring.state = hello, hello.data_head(), End.OPEN

    def read(self, limit_bytes: int) -> Iterator[tuple[Incoming, DataParts | FrameParts]]:
        """The frames that have come, and their rings, which are open, of all rings by turns, until
        about `limit_bytes` were read: plain data frames of a ring's sessions in four parts, others
        as `Frame.of_parts` takes them. A ring whose writer breaks its rules is closed."""
        open_rings = [ring for ring in self._incoming if ring.hello is not None]
        while open_rings and limit_bytes > 0:
            for ring in open_rings[:]:
                assert ring.reader is not None
                assert ring.hello is not None
                parts: DataParts | FrameParts | None
                try:
                    parts = ring.reader.read_data(ring.head) or ring.reader.read()
                    if parts is None and ring.reader.must_wake():
                        send_byte(ring.sock)
                except self.error as error:
                    self.refuse(ring.hello.slot, error)
                    parts = None
                if parts is None:
                    open_rings.remove(ring)
                    continue
                limit_bytes -= parts[-1] + 1
                yield ring, parts
                if ring.state is End.CLOSED and ring in open_rings:
                    open_rings.remove(ring)

    def refuse(self, slot: WorkerSlot, reason: object) -> None:
        """Close the ring from a peer that put something else than its frames into it."""
        for ring in self._incoming[:]:
            if ring.hello is not None and ring.hello.slot == slot:
                log.error("ring_broken", peer=slot, why=reason)
                self._drop_incoming(ring)

    def sleep(self) -> bool:
        """Have every writer send a byte at its next frame; returns False if there is something to
        read already. Rings whose writers have gone are closed once they are empty."""
        asleep = True
        for ring in self._incoming[:]:
            if ring.reader is None:
                continue
            assert ring.hello is not None
            if not ring.reader.sleep():
                asleep = False
            elif ring.state is End.ENDED:
                self._drop_incoming(ring)
        return asleep

    def drop_incoming(self, peer: WorkerSlot) -> None:
        """Close the ring from a peer that is no longer wanted."""
        for ring in self._incoming[:]:
            if ring.hello is not None and ring.hello.slot == peer:
                self._drop_incoming(ring)

    def close(self) -> None:
        """Close everything. Peers still read what was written."""
        if self._accept_timer is not None:
            self._accept_timer.cancel()
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        for peer in [*self._outgoing]:
            self.drop_outgoing(peer)
        for ring in self._incoming[:]:
            self._drop_incoming(ring)


def _new_socket() -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.setblocking(False)
    return sock


def _is_own_user(sock: socket.socket) -> bool:
    """Whether the process at the other end runs as this user. (For the side that connected: the one
    that called listen.)"""
    data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    _, uid, _ = _CREDENTIALS.unpack(data)
    return bool(uid == os.geteuid())


def _receive(sock: socket.socket, size: int) -> bytes | None:
    """What has come; None: nothing, b"": the other side has gone."""
    try:
        return sock.recv(size, socket.MSG_DONTWAIT)
    except (BlockingIOError, InterruptedError):
        return None
    except OSError:
        return b""


def send_byte(sock: socket.socket) -> None:
    """Wake the other side. A full socket has bytes enough, and a broken one is found out by its
    reader."""
    try:
        sock.send(_WAKE, socket.MSG_DONTWAIT)
    except OSError:
        pass
