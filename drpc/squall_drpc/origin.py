"""The return info that travels with a request: where it came from and where its answer goes.

Storm's JSON: `{"id": "...", "host": "drpc1", "port": 3773}`. For a request of an in-process server,
host is that server's name and port is 0.
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
    """The origin in a return info. Raises ValueError when the text is not one."""
    try:
        return _DECODER.decode(text)
    except msgspec.MsgspecError as error:
        raise ValueError(f"{text!r} is not the return info of a DRPC request: {error}") from error


_ENCODER = msgspec.json.Encoder()
_DECODER = msgspec.json.Decoder(Origin)
