"""Secrets that only one daemon can open."""

import pytest

from squall_common.security.sealing import Receiver, SealError, seal


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
