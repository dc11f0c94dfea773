"""Where a request came from, and where its answer goes: the return info that travels with it.

Storm's JSON: `{"id": "...", "host": "drpc1", "port": 3773}`. A request of an in-process server has
that server's name as host, and port 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec


@dataclass(frozen=True, slots=True)
class Origin:
    """A request's id at a server."""

    id: str
    host: str
    port: int

    def to_json(self) -> str:
        return _ENCODER.encode(self).decode()


def parse_origin(text: str) -> Origin:
    """Raises ValueError when it is none."""
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{text!r} is no return info of a DRPC request: {error}") from error


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Origin)
