"""`NatsSink`: tuples as messages in a JetStream stream."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import nats.errors
import nats.js.errors
import orjson

from squall import TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError, describe
from squall_connectors.base.outages import shown_servers
from squall_connectors.base.sink import RecordsRejectedError, Sink
from squall_connectors.nats import connection as connections


class NatsSink(Sink):
    """Publishes each tuple, and acks it when the stream has stored it.

        NatsSink("nats://broker:4222", subject="priced", data_field="price", id_field="order")

    With `id_field`, the server drops a message whose id it has seen within the stream's duplicate
    window: a tuple that is replayed soon is stored once. Data that are not bytes or a string are
    written as JSON.
    """

    def __init__(
        self,
        servers: str,
        *,
        subject: str | None = None,
        subject_field: str | None = None,
        data_field: str = "data",
        headers_field: str | None = None,
        id_field: str | None = None,
        options: Mapping[str, Any] | None = None,
        options_env: Mapping[str, str] | None = None,
        ca_file: str | None = None,
        batch_records: int = 256,
        batch_secs: float = 0.02,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """The subject is `subject`, or the value of `subject_field`; a stream must take it.
        `options`, `options_env` and `ca_file` are those of NatsSpout, the others those of `Sink`.
        Raises InvalidTopologyError unless there is one of the two subjects."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        if (subject is None) == (subject_field is None):
            raise InvalidTopologyError("NatsSink: give either subject or subject_field")
        self._servers, self._subject, self._subject_field = servers, subject, subject_field
        self.server_shown = shown_servers(servers)
        self._data_field, self._headers_field = data_field, headers_field
        self._id_field, self._options = id_field, dict(options or {})
        self._options_env, self._ca_file = dict(options_env or {}), ca_file

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._connection: Any = None
        self._jetstream: Any = None
        await super().prepare(conf, context)

    def is_outage(self, error: BaseException) -> bool:
        refused = nats.errors.MaxPayloadError | nats.errors.BadSubjectError
        if isinstance(error, refused):
            return False
        # Also a stream that is not there yet, or has no leader: the record is not at fault. Nor is
        # it at whatever the client raises when its connection is lost within a call.
        lost = self._connection is None or not self._connection.is_connected
        return lost or isinstance(error, nats.errors.Error) or super().is_outage(error)

    async def connect(self) -> None:
        self._connection = await connections.connect(
            "NatsSink", self._servers, self._options, self._options_env, self._ca_file
        )
        self._jetstream = self._connection.jetstream(timeout=self._write_timeout_secs)

    async def disconnect(self) -> None:
        connection, self._connection = self._connection, None
        await connections.end(connection)

    async def write(self, tuples: Sequence[Tuple]) -> None:
        rejected: dict[int, str] = {}
        publishing = []
        for index, tup in enumerate(tuples):
            try:
                arguments = self._message(tup)
                if len(arguments["payload"]) > self._connection.max_payload:
                    raise nats.errors.MaxPayloadError
            except (KeyError, TypeError, nats.errors.MaxPayloadError) as error:
                rejected[index] = describe(error)
            else:
                publishing.append(self._jetstream.publish(**arguments))
        # Sent in this order, and confirmed in any.
        outcomes = await asyncio.gather(*publishing, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        if rejected:
            raise RecordsRejectedError(rejected)

    def _message(self, tup: Tuple) -> dict[str, Any]:
        headers: dict[str, str] = {}
        if self._headers_field is not None:
            headers |= tup[self._headers_field] or {}
        if self._id_field is not None:
            headers["Nats-Msg-Id"] = str(tup[self._id_field])
        subject = self._subject if self._subject_field is None else tup[self._subject_field]
        data = tup[self._data_field]
        if isinstance(data, str):
            data = data.encode()
        elif not isinstance(data, bytes):
            data = orjson.dumps(data)
        return {"subject": subject, "payload": data, "headers": headers or None}
