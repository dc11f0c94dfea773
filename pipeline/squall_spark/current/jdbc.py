"""A table of a database, through Spark's JDBC: each batch is one transaction.

    --current 'counts=spark:jdbc?url=jdbc:postgresql://db/shop&dbtable=counts' --key counts=word

Spark writes the newest tuples of a batch into a table of their own beside it, in parallel. Then one
connection of the driver does the rest in one transaction: delete, insert and update in the table,
and note the number of the batch in the table `squall_batches`. So a driver that is killed leaves
the table as it was, and a batch that is there is not merged again.
"""

from __future__ import annotations

import contextlib
import hashlib
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_common.errors import SquallError
from squall_spark.current.newest import GONE, newest, numbered, others
from squall_spark.data.bindings import Foreign
from squall_spark.plan import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_BATCHES = "squall_batches"
_ON_CONFLICT = ("jdbc:postgresql:", "jdbc:sqlite:")
# Java finds a driver by itself only if it was on the class path when the JVM started. Those of
# spark.jars and spark.jars.packages were not.
_DRIVERS = {
    "postgresql": "org.postgresql.Driver",
    "sqlite": "org.sqlite.JDBC",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "oracle": "oracle.jdbc.OracleDriver",
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "h2": "org.h2.Driver",
}
_NO_MERGE = ("jdbc:mysql:", "jdbc:mariadb:")


def check(sink: Sink) -> Foreign:
    """The options of the output. Raises SquallError if they do not name a table, or if the database
    cannot update by key."""
    where = sink.where
    foreign = Foreign.parse(sink.path, where)
    options = {name.lower(): value for name, value in foreign.options.items()}
    for name in ("url", "dbtable"):
        if not options.get(name):
            raise SquallError(f"{where}: spark:jdbc? needs the option {name}")
    if options["url"].startswith(_NO_MERGE):
        raise SquallError(
            f"{where}: --key does not work with MySQL and MariaDB, which have neither MERGE nor ON "
            "CONFLICT"
        )
    driver = _DRIVERS.get(options["url"].removeprefix("jdbc:").partition(":")[0])
    if driver is not None:
        options.setdefault("driver", driver)
    return Foreign(foreign.format, options)


@dataclass(frozen=True, slots=True)
class Columns:
    """Names as they stand in SQL: quoted."""

    key: Sequence[str]
    others: Sequence[str]

    @property
    def all(self) -> list[str]:
        return [*self.key, *self.others]


def statements(url: str, table: str, staged: str, gone: str, columns: Columns) -> list[str]:
    """The SQL that merges the rows of the table `staged` into `table`. The column `gone` is 1 in
    those that delete their key."""
    same = " AND ".join(f"s.{name} = t.{name}" for name in columns.key)
    same_there = " AND ".join(f"s.{name} = {table}.{name}" for name in columns.key)
    names = ", ".join(columns.all)
    deletes = [
        f"DELETE FROM {table} WHERE EXISTS (SELECT 1 FROM {staged} s WHERE {same_there} "
        f"AND s.{gone} = 1)",
        f"DELETE FROM {staged} WHERE {gone} = 1",
    ]
    if url.startswith(_ON_CONFLICT):
        set_ = ", ".join(f"{name} = excluded.{name}" for name in columns.others)
        return [
            *deletes,
            f"INSERT INTO {table} ({names}) SELECT {names} FROM {staged} WHERE 1 = 1 "
            f"ON CONFLICT ({', '.join(columns.key)}) DO "
            + (f"UPDATE SET {set_}" if set_ else "NOTHING"),
        ]
    set_ = ", ".join(f"{name} = s.{name}" for name in columns.others)
    update = f"WHEN MATCHED THEN UPDATE SET {set_} " if set_ else ""
    values = ", ".join(f"s.{name}" for name in columns.all)
    end = ";" if url.startswith("jdbc:sqlserver:") else ""
    return [
        *deletes,
        f"MERGE INTO {table} t USING {staged} s ON ({same}) {update}"
        f"WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({values}){end}",
    ]


def writer_id(writer: str | None, sink: Sink, table: str) -> str:
    """Names a stream's rows of a batch and its number in the database. Each batch job has another:
    two at once, over data of two days, must not fill the same table."""
    if writer is None:
        return uuid.uuid4().hex[:24]
    return hashlib.sha256(f"{writer}/{sink.stream}/{table}".encode()).hexdigest()[:24]


def merge(
    frame: DataFrame, sink: Sink, writer: str | None, batch: int, *, files: int, anew: bool
) -> bool:
    """Merge a batch. Returns False, and does nothing, if it is there already. Raises SquallError
    if the database refuses it."""
    options = check(sink).options
    database = Database(frame.sparkSession, options)
    table = options["dbtable"]
    schema, dot, _ = table.rpartition(".")
    id_ = writer_id(writer, sink, table)
    staged, batches = f"{schema}{dot}squall_new_{id_}", f"{schema}{dot}{_BATCHES}"
    with _refused(sink, table):
        if writer is not None:
            database.create(batches, "writer VARCHAR(40) NOT NULL PRIMARY KEY, batch BIGINT")
            if database.last_batch(batches, id_) >= batch:
                return False
        database.create(table, database.definition(frame, sink))
        there = {name.lower(): name for name in database.columns(table)}
    missing = [name for name in sink.fields if name.lower() not in there]
    if missing:
        raise SquallError(
            f"{sink.where}: table {table} has no column {', '.join(missing)} (it has "
            f"{', '.join(there.values())})"
        )
    # Under the names that they have in the table: databases fold those that were not quoted.
    names = {name: there[name.lower()] for name in sink.fields}
    rows = newest(numbered(frame, sink), sink, files)
    rows = rows.withColumn(GONE, rows[GONE].cast("int")).withColumnsRenamed(names)
    if options["url"].startswith("jdbc:sqlite:"):
        rows = rows.coalesce(1)  # it has one writer at a time
    columns = Columns(
        [database.quoted(names[name]) for name in sink.key],
        [database.quoted(names[name]) for name in others(sink)],
    )
    try:
        rows.write.format("jdbc").options(**{**options, "dbtable": staged}).mode("overwrite").save()
        with _refused(sink, table), database.transaction() as run:
            if anew:
                run(f"DELETE FROM {table}")
            for sql in statements(options["url"], table, staged, database.quoted(GONE), columns):
                run(sql)
            if writer is not None:
                run(f"DELETE FROM {batches} WHERE writer = '{id_}'")
                run(f"INSERT INTO {batches} (writer, batch) VALUES ('{id_}', {batch})")
    finally:
        with contextlib.suppress(Exception), database.transaction() as run:
            run(f"DROP TABLE {staged}")  # otherwise the next batch of a stream replaces it
    return True


class Database:
    """A database, through Spark's driver of it. Every method makes a connection of its own."""

    def __init__(self, spark: SparkSession, options: Mapping[str, str]) -> None:
        jvm: Any = spark.sparkContext._jvm
        self._jvm = jvm
        self._options = options
        self._dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(options["url"])

    def quoted(self, name: str) -> str:
        return str(self._dialect.quoteIdentifier(name))

    def last_batch(self, table: str, writer: str) -> int:
        """-1 if the writer has written none."""
        with self._connection() as connection:
            rows = connection.createStatement().executeQuery(
                f"SELECT batch FROM {table} WHERE writer = '{writer}'"
            )
            return int(rows.getLong(1)) if rows.next() else -1

    def columns(self, table: str) -> list[str]:
        with self._connection() as connection:
            rows = connection.createStatement().executeQuery(f"SELECT * FROM {table} WHERE 1 = 0")
            of = rows.getMetaData()
            return [str(of.getColumnName(i + 1)) for i in range(of.getColumnCount())]

    def create(self, table: str, definition: str) -> None:
        """Create a table that is not there."""
        utils = self._jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
        with self._connection() as connection:
            if not utils.tableExists(connection, self._jdbc_options(table)):
                connection.createStatement().executeUpdate(f"CREATE TABLE {table} ({definition})")

    def definition(self, frame: DataFrame, sink: Sink) -> str:
        """The columns of a table for a sink, with its key."""
        from pyspark.sql.types import StructField, StructType

        schema = StructType(
            [
                StructField(each.name, each.dataType, nullable=each.name not in sink.key)
                for each in frame.schema.fields
            ]
        )
        jvm: Any = self._jvm
        java = frame.sparkSession._jsparkSession.parseDataType(schema.json())
        types = jvm.scala.Option.apply(self._options.get("createtablecolumntypes"))
        utils = jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils
        listed = utils.schemaString(self._dialect, java, False, types)
        return f"{listed}, PRIMARY KEY ({', '.join(map(self.quoted, sink.key))})"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Callable[[str], Any]]:
        """A function that runs SQL; all of it takes effect at the end, or none."""
        with self._connection() as connection:
            connection.setAutoCommit(False)
            try:
                yield lambda sql: connection.createStatement().executeUpdate(sql)
                connection.commit()
            except BaseException:
                with contextlib.suppress(Exception):  # the connection may be gone
                    connection.rollback()
                raise

    @contextlib.contextmanager
    def _connection(self) -> Iterator[Any]:
        options = self._jdbc_options(self._options["dbtable"])
        connection = self._dialect.createConnectionFactory(options).apply(-1)
        try:
            yield connection
        finally:
            connection.close()  # and its statements

    def _jdbc_options(self, table: str) -> Any:
        jvm = self._jvm
        options = jvm.PythonUtils.toScalaMap({**self._options, "dbtable": table})
        return jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcOptionsInWrite(options)


@contextlib.contextmanager
def _refused(sink: Sink, table: str) -> Iterator[None]:
    """Errors of the database as ours."""
    try:
        yield
    except SquallError:
        raise
    except Exception as error:  # Py4J's
        if not type(error).__module__.startswith(("py4j", "pyspark")):
            raise
        java = getattr(error, "java_exception", None)
        text = " ".join((str(error) if java is None else str(java.getMessage())).split())
        hint = None
        if "ON CONFLICT" in text:
            hint = "the table needs a primary key or a unique index on exactly the fields of --key"
        raise SquallError(
            f"{sink.where}: table {table} was not updated by key: {text}", hint=hint
        ) from error
