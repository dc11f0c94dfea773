"""The handshake of a ring, as bytes. The writer of a ring connects to its reader and sends a hello,
with the descriptor of the memory; the reader answers, or hangs up. All integers are little-endian.

    hello                                          answer
    offset size                                    offset size
         0    8  magic "SQRING1\\0"                      0    8  magic "SQRANSW1"
         8    8  topology, as in frames                 8   32  HMAC of the nonce
        16   16  session of the writer
        32   16  session of the reader
        48    8  capacity of the ring
        56   16  nonce
        72    2  the writer's port
        74    1  n, length of the writer's node id
        75    n  the writer's node id, UTF-8
      75+n   32  HMAC of everything before

The HMACs are SHA-256 with the topology's secret key, or with none where the topology has none. They
keep workers of different topologies apart that run as the same user; that both sides are the same
user says the kernel.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_worker.transport.frames import Session, data_head

_MAGIC, _ANSWER = b"SQRING1\0", b"SQRANSW1"
_HEAD = struct.Struct("<8s8sQIIQIIQ16sHB")
_MAC_BYTES = 32
NONCE_BYTES = 16
HELLO_BYTES_MAX = _HEAD.size + 255 + _MAC_BYTES
ANSWER_BYTES = len(_ANSWER) + _MAC_BYTES


class HelloError(ValueError):
    """Bytes that are not a hello, or an answer, of this version and topology."""


class Hello(NamedTuple):
    """Who offers a ring to whom."""

    topology: bytes
    writer: Session
    reader: Session
    capacity: int
    nonce: bytes
    slot: WorkerSlot  # the writer's

    def data_head(self) -> bytes:
        """What plain data frames in the ring begin with."""
        return data_head(self.topology, self.slot, self.writer, self.reader)

    def serialize(self, secret: bytes) -> bytes:
        """With the HMAC. Raises ValueError if a field does not fit."""
        node = self.slot.node.encode()
        try:
            head = _HEAD.pack(
                _MAGIC, self.topology, *self.writer, *self.reader, self.capacity, self.nonce,
                self.slot.port, len(node),
            )  # fmt: skip
        except struct.error as error:
            raise ValueError(f"a field does not fit into a hello: {error}") from error
        return head + node + _mac(secret, b"hello", head + node)

    @classmethod
    def parse(cls, data: bytes, secret: bytes) -> Hello:
        """The inverse of `serialize`. Raises HelloError."""
        if not _HEAD.size + _MAC_BYTES <= len(data) <= HELLO_BYTES_MAX:
            raise HelloError(f"{len(data)} bytes are not a hello")
        body, mac = data[:-_MAC_BYTES], data[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, _mac(secret, b"hello", body)):
            raise HelloError("it does not prove the topology's key")
        magic, topology, *numbers, capacity, nonce, port, length = _HEAD.unpack_from(body)
        if magic != _MAGIC or len(body) != _HEAD.size + length:
            raise HelloError("not a hello of this version")
        try:
            node = body[_HEAD.size :].decode()
        except UnicodeDecodeError:
            raise HelloError("node id is not UTF-8") from None
        writer, reader = Session(*numbers[:3]), Session(*numbers[3:])
        return cls(topology, writer, reader, capacity, nonce, WorkerSlot(node, port))


def answer_to(hello: Hello, secret: bytes) -> bytes:
    """The reader's answer."""
    return _ANSWER + _mac(secret, b"answer", hello.nonce)


def check_answer(data: bytes, hello: Hello, secret: bytes) -> None:
    """Raises HelloError if these bytes are not the answer to `hello`."""
    if not hmac.compare_digest(data, answer_to(hello, secret)):
        raise HelloError("not the reader's answer")


def listening_name(topology: bytes, slot: WorkerSlot, incarnation: Incarnation) -> bytes:
    """The abstract name of the socket at which a worker is offered rings."""
    who = repr((topology, slot.node, slot.port, *_numbers(incarnation))).encode()
    return b"\0squall-ring-" + hashlib.blake2b(who, digest_size=16).hexdigest().encode()


def _numbers(incarnation: Incarnation) -> tuple[int, int]:
    return incarnation.assignment_zxid, incarnation.launch


def _mac(secret: bytes, what: bytes, data: bytes) -> bytes:
    return hmac.digest(secret, what + data, "sha256")
