"""The key of an entry as bytes: the same for keys that are equal, as in a dict, so 1 and 1.0.

    s...    text, in UTF-8
    b...    bytes
    m...    anything else: msgpack of what `_plain` makes of it
    h...    a digest of one of these that is too long for a table

Two keys share a digest only if somebody breaks BLAKE2b; the entry has its whole key beside it.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import uuid
from types import NoneType
from typing import Any

import msgspec

KEY_BYTES_MAX = 500  # a table takes 511

_ENCODER = msgspec.msgpack.Encoder()
_DIGEST = b"h"
_DIGEST_BYTES = 32
_INT_MAX = 2**63
_PLAIN = frozenset({NoneType, bool, int, float, str, bytes, uuid.UUID, dt.date})


def key_bytes(key: Any) -> bytes:
    """Raises ValueError for a key of another type."""
    kind = type(key)
    data: bytes
    if kind is str:
        data = b"s" + key.encode("utf-8", "surrogatepass")
    elif kind is bytes:
        data = b"b" + key
    else:
        data = b"m" + _ENCODER.encode(_plain(key))
    if len(data) > KEY_BYTES_MAX:
        return _DIGEST + hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()
    return data


def is_plain(key: Any) -> bool:
    """Whether `key_bytes` takes a key, as far as can be said at once: not of tuples in tuples."""
    return type(key) in _PLAIN or (type(key) is tuple and _PLAIN.issuperset(map(type, key)))


def is_digest(data: bytes) -> bool:
    """Whether the key itself was too long."""
    return data.startswith(_DIGEST)


def _plain(key: Any) -> Any:
    kind = type(key)
    if kind is str:
        return ["s", key.encode("utf-8", "surrogatepass")]
    if kind is bytes:
        return key
    if key is None:
        return None
    if kind is bool or kind is int or (kind is float and key.is_integer()):
        number = int(key)
        return number if -_INT_MAX <= number < _INT_MAX else ["i", str(number)]
    if kind is float:
        return key
    if kind is tuple:
        return ["t", *map(_plain, key)]
    if kind is uuid.UUID:
        return ["u", key.bytes]
    if kind is dt.date:
        return ["d", key.toordinal()]
    raise ValueError(
        f"a key of type {kind.__name__} cannot be on disk (topology.state.backend): text, bytes, "
        "numbers, dates, UUIDs and tuples of these can"
    )
