"""Whether a worker encrypts, and secrets that only one daemon can open."""

import pytest

from squall_common.security.curve import CURVE, encrypts, has_key
from squall_common.security.sealing import Receiver, SealError, seal


@pytest.mark.parametrize(
    ("mode", "expected"), [("auto", True), (True, True), (False, False), (None, False)]
)
def test_a_worker_encrypts_wherever_it_is_bound_unless_it_is_turned_off(
    mode: object, expected: bool
) -> None:
    """On loopback too: other users of the host are strangers. None: a topology of before there
    were keys."""
    conf = {} if mode is None else {CURVE: mode}
    assert encrypts(conf) is expected
    assert has_key(conf) is expected


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
