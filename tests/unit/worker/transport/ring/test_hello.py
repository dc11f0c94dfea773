"""The handshake of a ring as bytes."""

from __future__ import annotations

import random

import pytest

from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.launch_spec import Incarnation
from squall_worker.transport.frames import Session
from squall_worker.transport.ring.hello import (
    HELLO_BYTES_MAX,
    Hello,
    HelloError,
    answer_to,
    check_answer,
    listening_name,
)

HELLO = Hello(
    b"topology",
    Session(2**63, 7, 1),
    Session(5, 1, 2),
    1 << 20,
    bytes(16),
    WorkerSlot("nöde", 6700),
)
SECRET = b"secret"


def test_a_hello_is_read_as_it_was_written() -> None:
    data = HELLO.serialize(SECRET)
    assert Hello.parse(data, SECRET) == HELLO
    longest = HELLO._replace(slot=WorkerSlot("n" * 255, 65_535))
    assert len(longest.serialize(SECRET)) == HELLO_BYTES_MAX
    assert Hello.parse(longest.serialize(SECRET), SECRET) == longest
    with pytest.raises(ValueError, match="does not fit"):
        HELLO._replace(slot=WorkerSlot("n" * 256, 1)).serialize(SECRET)


def test_any_changed_byte_is_found() -> None:
    data = HELLO.serialize(SECRET)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1
        with pytest.raises(HelloError):
            Hello.parse(bytes(changed), SECRET)
    for size in (*range(len(data)), len(data) + 1):
        with pytest.raises(HelloError):
            Hello.parse((data + b"\0")[:size], SECRET)


def test_noise_is_no_hello_even_with_the_key() -> None:
    """What proves the key is checked as well."""
    source = random.Random(1)
    for _ in range(2_000):
        body = bytearray(HELLO.serialize(SECRET)[:-32])
        for _ in range(source.randint(1, 4)):
            body[source.randrange(len(body))] = source.randrange(256)
        from squall_worker.transport.ring.hello import _mac

        data = bytes(body) + _mac(SECRET, b"hello", bytes(body))
        try:
            Hello.parse(data, SECRET)
        except HelloError:
            pass


def test_a_hello_and_an_answer_prove_the_topologys_key() -> None:
    with pytest.raises(HelloError, match="key"):
        Hello.parse(HELLO.serialize(b"other"), SECRET)
    check_answer(answer_to(HELLO, SECRET), HELLO, SECRET)
    for answer in (
        b"",
        answer_to(HELLO, b"other"),
        answer_to(HELLO._replace(nonce=b"1" * 16), SECRET),
    ):
        with pytest.raises(HelloError, match="answer"):
            check_answer(answer, HELLO, SECRET)


def test_each_run_of_a_worker_listens_under_its_own_name() -> None:
    names = {
        listening_name(topology, WorkerSlot(node, port), Incarnation(zxid, launch))
        for topology in (b"1", b"2")
        for node in ("a", "b")
        for port in (1, 2)
        for zxid in (1, 2)
        for launch in (1, 2)
    }
    assert len(names) == 32
    assert all(name.startswith(b"\0squall-ring-") for name in names)
