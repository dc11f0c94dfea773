"""Secrets that Nimbus gives to one daemon only, over a connection that anybody may use.

A daemon that is to be given secrets has a pair of keys of its own, new at each start and in memory
only, and publishes the public one in its entry in ZooKeeper. What is sealed for it (libsodium's
sealed box: X25519, XSalsa20-Poly1305) can be opened by that daemon alone, not by listeners.
"""

from __future__ import annotations

from nacl.exceptions import CryptoError
from nacl.public import PrivateKey, PublicKey, SealedBox

META_KEY = "squall.sealing.key"  # in a supervisor's scheduler meta


class SealError(ValueError):
    """The data was not sealed for this receiver, or was changed; or a key is invalid."""


class Receiver:
    """One daemon's end."""

    def __init__(self) -> None:
        self._key = PrivateKey.generate()
        self.public = bytes(self._key.public_key).hex()

    def open(self, sealed: bytes) -> bytes:
        """Raises SealError."""
        try:
            return bytes(SealedBox(self._key).decrypt(sealed))
        except (CryptoError, TypeError, ValueError) as error:
            raise SealError("it was sealed for somebody else, or has been changed") from error


def seal(data: bytes, receiver: str) -> bytes:
    """`data` for the receiver whose public key this is. Raises SealError."""
    try:
        return bytes(SealedBox(PublicKey(bytes.fromhex(receiver))).encrypt(data))
    except (CryptoError, TypeError, ValueError) as error:
        raise SealError("the receiver's public key is invalid") from error


def supervisor_name(supervisor_id: str) -> str:
    """How a supervisor is named as a receiver."""
    return f"supervisor/{supervisor_id}"


def nimbus_name(host: str, port: int) -> str:
    """How a Nimbus is named as a receiver."""
    return f"nimbus/{host}:{port}"
