"""What coordinator and workers of a cluster say to each other, as sections: see `messages`.

    byte EPOCHS | msgpack [what, placement, ...]

`placement` names the assignment that both have to know: who has another one is not meant.
Incarnations are larger than msgpack's numbers, and go as text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from squall_engine.core.codec import CodecError
from squall_engine.core.sections import EPOCHS
from squall_engine.epochs.messages import (
    Begin,
    Completed,
    Go,
    Hello,
    Name,
    Release,
    Report,
    Restore,
    ToCoordinator,
    ToWorker,
)
from squall_engine.epochs.parts import Part

_KIND = bytes([EPOCHS])
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode
_PLAIN: dict[str, type[Go] | type[Release] | type[Completed]] = {
    "go": Go,
    "release": Release,
    "completed": Completed,
}
_NAME_OF = {kind: name for name, kind in _PLAIN.items()}


@dataclass(frozen=True, slots=True)
class Renew:
    """To workers, ahead of the Restore that follows: a generation is over."""

    generation: int


Message = ToCoordinator | ToWorker | Renew


def encode(placement: str, message: Message) -> bytes:
    """The section of a message. The manifest of a Restore is its name, or None."""
    match message:
        case Hello(worker, incarnation, generation, waits):
            said: list[Any] = ["hello", worker, str(incarnation), generation, waits]
        case Report(worker, generation, epoch, (component, index), part):
            said = ["report", worker, generation, epoch, component, index, part]
        case Restore(generation, epoch, shape, members, manifest, history):
            known = {str(worker): str(one) for worker, one in members.items()}
            name = None if manifest is None else [manifest.generation, manifest.epoch]
            said = ["restore", generation, epoch, dict(shape), known, name, history]
        case Begin(generation, epoch, full):
            said = ["begin", generation, epoch, full]
        case Renew(generation):
            said = ["renew", generation]
        case _:
            said = [_NAME_OF[type(message)], message.generation, message.epoch]
    return _KIND + _encode([said[0], placement, *said[1:]])


def decode(placement: str, section: bytes) -> Message | None:
    """The message; None if it is not for those who know this placement. Raises CodecError."""
    try:
        what, meant, *rest = _decode(memoryview(section)[1:])
        return _message(what, rest) if meant == placement else None
    except (msgspec.MsgspecError, ValueError, TypeError, KeyError) as error:
        raise CodecError(f"a message about epochs cannot be read: {error}") from error


def _message(what: str, rest: list[Any]) -> Message:
    match what:
        case "hello":
            worker, incarnation, generation, waits = rest
            return Hello(worker, int(incarnation), generation, waits)
        case "report":
            worker, generation, epoch, component, index, part = rest
            found = None if part is None else msgspec.convert(part, Part)
            return Report(worker, generation, epoch, (component, index), found)
        case "restore":
            generation, epoch, shape, members, name, history = rest
            known = {int(worker): int(one) for worker, one in members.items()}
            manifest = None if name is None else Name(name[0], name[1], "manifest")
            return Restore(generation, epoch, shape, known, manifest, history)
        case "begin":
            return Begin(*rest)
        case "renew":
            return Renew(*rest)
    return _PLAIN[what](*rest)
