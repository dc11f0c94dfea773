"""`SqlSink`: tuples as the parameters of a statement."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy
from sqlalchemy import exc

from squall import TopologyContext, Tuple
from squall_common.errors import InvalidTopologyError
from squall_connectors.base.sink import ThreadedSink


class SqlSink(ThreadedSink):
    """Executes a statement for each tuple, those of a batch in one transaction, and acks them when
    the database has committed.

        SqlSink("postgresql+psycopg://db/shop",
                "INSERT INTO prices VALUES (:sku, :price) ON CONFLICT (sku) DO NOTHING",
                ["sku", "price"])

    `:field` is the value of a field. Write a statement that changes nothing when it is repeated,
    such as an upsert: then a replayed tuple does not matter. For PostgreSQL and SQLite there are
    faster sinks of their own.
    """

    def __init__(
        self,
        url: str,
        statement: str,
        fields: Sequence[str],
        *,
        create: str | None = None,
        engine_options: Mapping[str, Any] | None = None,
        batch_records: int = 500,
        batch_secs: float = 0.05,
        write_timeout_secs: float = 30.0,
        outage_secs_max: float | None = None,
    ) -> None:
        """`url` is SQLAlchemy's, with a driver that blocks; `engine_options` go to `create_engine`.
        `create` is executed after each connection. The others are those of `Sink`. Raises
        InvalidTopologyError if the parameters of the statement are not the fields."""
        super().__init__(
            batch_records=batch_records,
            batch_secs=batch_secs,
            write_timeout_secs=write_timeout_secs,
            outage_secs_max=outage_secs_max,
        )
        parameters = set(sqlalchemy.text(statement).compile().params)
        if parameters != set(fields):
            raise InvalidTopologyError(
                f"SqlSink: the statement has the parameters {sorted(parameters)}, and the fields "
                f"are {sorted(fields)}"
            )
        self._url, self._statement, self._fields = url, statement, list(fields)
        self._create, self._engine_options = create, dict(engine_options or {})
        self.server_shown = _shown_server(url)

    async def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._engine: sqlalchemy.Engine | None = None
        self._text = sqlalchemy.text(self._statement)
        await super().prepare(conf, context)

    def is_outage(self, error: BaseException) -> bool:
        if isinstance(error, exc.DBAPIError):
            lost = exc.OperationalError | exc.InterfaceError | exc.InternalError
            return error.connection_invalidated or isinstance(error, lost)
        return isinstance(error, exc.TimeoutError) or super().is_outage(error)

    def connect_blocking(self) -> None:
        self._engine = engine = sqlalchemy.create_engine(
            self._url, **{"pool_size": 1, "max_overflow": 1, **self._engine_options}
        )
        with self._transaction(engine) as connection:
            connection.execute(sqlalchemy.text(self._create or "SELECT 1"))

    def disconnect_blocking(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.dispose()

    def write_blocking(self, tuples: Sequence[Tuple]) -> None:
        assert self._engine is not None
        rows = [{field: tup[field] for field in self._fields} for tup in tuples]
        with self._transaction(self._engine) as connection:
            connection.execute(self._text, rows)

    @contextlib.contextmanager
    def _transaction(self, engine: sqlalchemy.Engine) -> Iterator[sqlalchemy.Connection]:
        pool = engine.pool
        try:
            with engine.begin() as connection:
                yield connection
        finally:
            if self._engine is not engine:
                # The call was given up, and the engine disposed of, before its connection came back
                # to the pool.
                pool.dispose()


def _shown_server(url: str) -> str | None:
    """The server as errors may show it. None: there is none, or SQLAlchemy cannot read `url`, of
    which it complains when it connects."""
    try:
        parsed = sqlalchemy.make_url(url)
    except (exc.ArgumentError, ValueError):
        return None
    if not parsed.host:
        return None
    port = "" if parsed.port is None else f":{parsed.port}"
    return f"{parsed.drivername}://{parsed.host}{port}"
