"""`--input` and `--output`: the data sets that replace spouts, and the places to write streams to.

    --input  sentences=/data/sentences/*.parquet      the stream "default" of spout "sentences"
    --input  shop:orders=json:/data/orders            stream "orders" of spout "shop", JSON lines
    --output counts=/out/counts                       the stream "default" of bolt "counts"
    --output counts=table:wordcounts                  into a table
    --input  orders=spark:jdbc?url=jdbc:...&dbtable=orders    anything that Spark reads
    --output /out                       the streams without a consumer, each in its own folder

A path's format is given before a colon, or else by its ending, or else by the files in it.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import PurePosixPath
from urllib.parse import parse_qsl

from squall_common.errors import SquallError
from squall_common.names import DEFAULT_STREAM


class Format(enum.Enum):
    """How a data set is stored."""

    PARQUET = "parquet"
    JSON = "json"  # JSON lines
    CSV = "csv"
    TEXT = "text"
    TABLE = "table"
    KAFKA = "kafka"
    SOCKET = "socket"  # streams only, for trying things out
    DELTA = "delta"  # a table of Delta Lake's; outputs only
    SPARK = "spark"  # another one of Spark's: FORMAT?option=value
    FRAME = "frame"  # a DataFrame, from Python (`squall_spark.run`) only


_ENDINGS = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".json": Format.JSON,
    ".jsonl": Format.JSON,
    ".ndjson": Format.JSON,
    ".csv": Format.CSV,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".log": Format.TEXT,
}
_COMPRESSIONS = (".gz", ".bz2", ".zst", ".snappy", ".lz4", ".deflate")
_PREFIX = re.compile(r"(?P<format>[a-z]+):(?!//)(?P<rest>.*)", re.DOTALL)
# What stands in place of a path is a name.
NAMED = frozenset({Format.TABLE, Format.KAFKA, Format.SOCKET, Format.SPARK, Format.FRAME})
READABLE = frozenset(Format) - {Format.FRAME, Format.DELTA}
WRITABLE = frozenset(
    {
        Format.PARQUET,
        Format.JSON,
        Format.CSV,
        Format.TABLE,
        Format.KAFKA,
        Format.DELTA,
        Format.SPARK,
    }
)
_HIDDEN = "***"
_SECRET = re.compile(r"password|passwd|pwd|secret|token|credential", re.IGNORECASE)
_SECRET_IN_URL = re.compile(rf"((?:{_SECRET.pattern})\w*=)[^&;]*", re.IGNORECASE)
_LOGIN = re.compile(r"(?<=//)[^/@]*@|(?<=:thin:)[^/@]*/[^@]*@")
_ONE_STREAM = frozenset({Format.TABLE, Format.KAFKA, Format.SPARK})  # as output


@dataclass(frozen=True, slots=True)
class StreamName:
    """One stream of one component."""

    component: str
    stream: str = DEFAULT_STREAM

    def __str__(self) -> str:
        if self.stream == DEFAULT_STREAM:
            return self.component
        return f"{self.component}:{self.stream}"


@dataclass(frozen=True, slots=True)
class Source:
    """A data set that replaces a stream of a spout. `format` None: look at the files."""

    stream: StreamName
    path: str
    format: Format | None
    filter: str | None = None  # SQL: only the records for which it is true


@dataclass(frozen=True, slots=True)
class Target:
    """The place to write a stream to. `stream` None: every stream without a consumer."""

    stream: StreamName | None
    path: str
    format: Format
    partition_by: tuple[str, ...] = ()  # fields: a folder for each of their values
    key: tuple[str, ...] = ()  # fields: only the newest tuple with the same values is kept


def parse_stream(text: str) -> StreamName:
    """`COMPONENT` or `COMPONENT:STREAM`."""
    component, colon, stream = text.partition(":")
    return StreamName(component, stream if colon else DEFAULT_STREAM)


def parse_input(text: str) -> Source:
    """`STREAM=[FORMAT:]PATH`. Raises SquallError."""
    name, equals, where = text.partition("=")
    if not equals or not name.strip() or not where.strip():
        raise SquallError(
            f"--input {text!r} is not COMPONENT=PATH", hint="for example: --input sentences=/data"
        )
    format_, path = _split_format(where.strip(), f"--input {text!r}", READABLE)
    return Source(parse_stream(name.strip()), path, format_ or format_of_path(path))


def parse_output(text: str, option: str = "--output") -> Target:
    """`[STREAM=][FORMAT:]PATH` after `--output`, `STREAM=[FORMAT:]PATH` after `--current`. Raises
    SquallError."""
    name, equals, where = text.partition("=")
    if not equals or "/" in name:
        name, where = "", text
    elif not name.strip():
        raise SquallError(f"{option} {text!r} has no component before '='")
    if not where.strip():
        raise SquallError(
            f"{option} {text!r} has no path", hint=f"for example: {option} counts=/data/counts"
        )
    format_, path = _split_format(where.strip(), f"{option} {text!r}", WRITABLE)
    if format_ is None:
        guessed = format_of_path(path)
        format_ = guessed if guessed in WRITABLE else Format.PARQUET
    if (format_ in _ONE_STREAM or option == "--current") and not name:
        raise SquallError(
            f"{option} {text!r}: it holds one stream",
            hint=f"name it: {option} COMPONENT={format_.value}:...",
        )
    return Target(parse_stream(name.strip()) if name else None, path, format_)


@dataclass(frozen=True, slots=True)
class Foreign:
    """A source or sink of Spark's that Squall does not know: `FORMAT?option=value&option=value`.
    Characters of a value that mean something in a URL are written as there (`%26` for `&`)."""

    format: str
    options: dict[str, str]

    @classmethod
    def parse(cls, text: str, where: str) -> Foreign:
        """Raises SquallError."""
        name, _, query = text.partition("?")
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=bool(query))
        except ValueError:
            pairs = []
        if not re.fullmatch(r"[\w.-]+", name) or (query and not pairs):
            raise SquallError(
                f"{where}: {text!r} is not FORMAT?option=value&option=value",
                hint="for example: spark:jdbc?url=jdbc:postgresql://host/db&dbtable=counts",
            )
        return cls(name, dict(pairs))


def shown_place(path: str, format_: Format | None) -> str:
    """A place for people and logs: without the passwords among the options of another format."""
    if format_ is not Format.SPARK:
        return path
    name, question, query = path.partition("?")
    shown = []
    for option, value in parse_qsl(query, keep_blank_values=True):
        if _SECRET.search(option):
            value = _HIDDEN
        value = _SECRET_IN_URL.sub(rf"\1{_HIDDEN}", _LOGIN.sub(f"{_HIDDEN}@", value))
        shown.append(f"{option}={value}")
    return f"{name}{question}{'&'.join(shown)}"


def format_of_path(path: str) -> Format | None:
    """The format by the path's ending (compressed or not); None if the ending does not tell."""
    name = PurePosixPath(path).name.lower()
    for ending in _COMPRESSIONS:
        name = name.removesuffix(ending)
    return _ENDINGS.get(PurePosixPath(name).suffix)


def _split_format(where: str, given: str, allowed: frozenset[Format]) -> tuple[Format | None, str]:
    match = _PREFIX.fullmatch(where)
    if match is None:
        return None, where
    known = {f.value: f for f in allowed}
    format_ = known.get(match["format"])
    if format_ is None:
        raise SquallError(
            f"{given}: format {match['format']!r} cannot be used here",
            hint=f"use {', '.join(sorted(known))}; write ./ before a path that contains a colon",
        )
    if not match["rest"]:
        raise SquallError(f"{given} has no path after {match['format']}:")
    return format_, match["rest"]
