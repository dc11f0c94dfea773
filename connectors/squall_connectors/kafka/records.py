"""From Kafka's messages to tuples: which parts of a record become fields, and how bytes are read.

Columns of whole batches are the fast way: one list a field, without an object for each record. A
translator gets a `KafkaRecord` each, and may return any values, or None to leave a record out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
from confluent_kafka import Message

from squall_common.errors import InvalidTopologyError, describe

DEFAULT_FIELDS = ("topic", "partition", "offset", "key", "value")


#: Of every client. What it would log about a lost broker, again and again, is reported as an error
#: of the topology instead.
CLIENT_DEFAULTS: dict[str, Any] = {"log_level": 2, "reconnect.backoff.max.ms": 2_000}


@dataclass(frozen=True, slots=True)
class KafkaRecord:
    """One record. `timestamp` is in milliseconds since the epoch, or None."""

    topic: str
    partition: int
    offset: int
    key: Any
    value: Any
    timestamp: int | None
    headers: Mapping[str, bytes | None]


def _timestamp(message: Message) -> int | None:
    kind, value = message.timestamp()
    return value if kind else None


def _headers(message: Message) -> dict[str, bytes | None]:
    headers: Any = message.headers() or ()
    return dict(headers)


_PARTS: dict[str, Callable[[Message], Any]] = {
    "topic": Message.topic,
    "partition": Message.partition,
    "offset": Message.offset,
    "key": Message.key,
    "value": Message.value,
    "timestamp": _timestamp,
    "headers": _headers,
}


def text(data: bytes) -> str:
    """UTF-8 text."""
    return data.decode()


_DECODERS: dict[str, Callable[[bytes], Any]] = {"text": text, "json": orjson.loads}

Decoder = str | Callable[[bytes], Any]


def decoder_of(what: str, given: Decoder) -> Callable[[bytes], Any] | None:
    """The function for "text", "json" or a function; None for "bytes", which stay as they are.
    Raises InvalidTopologyError for anything else."""
    if callable(given):
        return given
    if given != "bytes" and given not in _DECODERS:
        raise InvalidTopologyError(
            f"{what}={given!r}: expected 'bytes', 'text', 'json' or a function of bytes"
        )
    return _DECODERS.get(given)


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that no tuple could be made of."""

    message: Message
    reason: str


class Translation:
    """Makes rows of messages, as a spout was told to."""

    def __init__(
        self,
        fields: Sequence[str],
        key: Decoder,
        value: Decoder,
        translator: Callable[[KafkaRecord], Sequence[Any] | None] | None,
    ) -> None:
        """Raises InvalidTopologyError for a field that records do not have."""
        self._decoders = {"key": decoder_of("key", key), "value": decoder_of("value", value)}
        self._translator = translator
        self._width = len(fields)
        if not fields:
            raise InvalidTopologyError("fields is empty: a tuple needs at least one value")
        self._parts: list[Callable[[Message], Any]] = []
        if translator is None:
            for field in fields:
                if field not in _PARTS:
                    raise InvalidTopologyError(
                        f"field {field!r}: records have {', '.join(_PARTS)}",
                        hint="a translator may return values for other fields",
                    )
            self._parts = [self._part(field) for field in fields]

    def _part(self, field: str) -> Callable[[Message], Any]:
        read = _PARTS[field]
        decode = self._decoders.get(field)
        if decode is None:
            return read

        def decoded(message: Message) -> Any:
            data = read(message)
            return None if data is None else decode(data)

        return decoded

    def columns(self, messages: Sequence[Message]) -> list[list[Any]] | None:
        """A list of values for each field, one for each message; None if some message has to be
        looked at by itself (see `rows`)."""
        if self._translator is not None:
            return None
        try:
            return [list(map(part, messages)) for part in self._parts]
        except Exception:  # one of them cannot be decoded
            return None

    def rows(self, messages: Sequence[Message]) -> list[Sequence[Any] | Unreadable | None]:
        """The values of each message; None for one that is left out."""
        columns = self.columns(messages)
        if columns is None:
            return [self._row(message) for message in messages]
        return list(zip(*columns, strict=True))

    def _row(self, message: Message) -> Sequence[Any] | Unreadable | None:
        try:
            if self._translator is None:
                return [part(message) for part in self._parts]
            values = self._translator(self._record(message))
            if values is not None and len(values) != self._width:
                raise ValueError(
                    f"the translator returned {len(values)} values for {self._width} fields"
                )
            return values
        except Exception as error:
            return Unreadable(message, describe(error))

    def _record(self, message: Message) -> KafkaRecord:
        return KafkaRecord(*(self._part(name)(message) for name in _PARTS))
