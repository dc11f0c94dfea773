"""Whether a worker encrypts, and secrets that only one daemon can open."""

import pytest

from squall.curve import CURVE, encrypts, has_key
from squall.sealing import Receiver, SealError, seal


@pytest.mark.parametrize(
    ("mode", "hostname", "bind_host", "expected"),
    [
        ("auto", "127.0.0.1", "127.0.0.1", False),
        ("auto", "localhost", "127.0.0.1", False),
        ("auto", "::1", "::1", False),
        ("auto", "10.0.0.7", "10.0.0.7", True),
        ("auto", "node7", "0.0.0.0", True),
        ("auto", "node7", "::", True),
        # A host's own name leads to loopback on many machines: it is not looked up.
        ("auto", "node7", "127.0.0.1", True),
        # Nobody else is told of it, but everybody reaches it.
        ("auto", "127.0.0.1", "0.0.0.0", True),
        (True, "127.0.0.1", "127.0.0.1", True),
        (False, "node7", "0.0.0.0", False),
        (None, "node7", "0.0.0.0", False),
    ],
)
def test_who_encrypts(mode: object, hostname: str, bind_host: str, expected: bool) -> None:
    conf = {} if mode is None else {CURVE: mode}
    assert encrypts(conf, hostname=hostname, bind_host=bind_host) is expected
    assert has_key(conf) is (mode not in (None, False))


def test_all_workers_that_reach_each_other_agree() -> None:
    """However the nodes are named and bound, two that both can be reached decide alike."""
    for mode in ("auto", True, False):
        nodes = [("10.0.0.1", "10.0.0.1"), ("a", "0.0.0.0"), ("b", "::"), ("10.0.0.9", "0.0.0.0")]
        assert len({encrypts({CURVE: mode}, hostname=h, bind_host=b) for h, b in nodes}) == 1


def test_what_is_sealed_opens_for_its_receiver_only() -> None:
    receiver = Receiver()
    sealed = seal(b"secret", receiver.public)
    assert receiver.open(sealed) == b"secret"
    assert sealed != seal(b"secret", receiver.public)
    changed = bytes([sealed[0] ^ 1]) + sealed[1:]
    for data in (changed, sealed[:-1], b"", b"x"):
        with pytest.raises(SealError):
            receiver.open(data)
    with pytest.raises(SealError):
        Receiver().open(sealed)
    for public in ("", "zz", "00", "0" * 65, receiver.public + "00"):
        with pytest.raises(SealError):
            seal(b"secret", public)
