"""A view: a folder of Parquet with one row for each key, replaced as a whole.

    VIEW/current            a link to the current version; behind a URL, where there are no links,
    VIEW/_current           a file with its name instead
    VIEW/_switches/N        behind a URL, who has made version N: its name
    VIEW/_versions/N-...    the versions: the current one and the two before it
        _squall.json        what it is, and the last batch of each writer that is in it

A batch writes a new version from the current one and its own tuples, and then switches in one step.
A driver that is killed before leaves the old version, and its successor does the batch again; after
that the batch is found there. A version holds all rows, so a batch costs as much as the view is
large.

Behind a URL the lock of a view is only a file with a time: a driver that was paused for
longer, just before it switches, may meet another one that has taken over. So it first creates the
file of its version's number, which only one of them can do, and which is never the newest one if
others have come meanwhile. The newest of these files is the truth, and `_current` follows it.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.daemon.files import sync_dir, sync_file
from squall_common.daemon.folders import Folder
from squall_common.errors import SquallError
from squall_spark.current.newest import ORDER, newest, numbered, quoted, remaining
from squall_spark.lock import FolderInUseError
from squall_spark.plan import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from squall_spark.data.columns import TypeGuess

_LINK, _POINTER, _VERSIONS, _MANIFEST = "current", "_current", "_versions", "_squall.json"
_SWITCHES = "_switches"
LOCK = "_lock"
_FORMAT = 1
_KEPT = 3  # versions
_LOOKS = 10  # at what others may be deleting
_FILE_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Version:
    """A version of a view."""

    name: str
    key: tuple[str, ...]
    types: list[Any]  # guesses, by field; see `data.columns`
    columns: dict[str, Any]  # Spark's types, as it writes them in JSON
    written: dict[str, int] = field(default_factory=dict)  # the last batch, by writer

    @property
    def fields(self) -> list[str]:
        return [str(each["name"]) for each in self.columns["fields"]]


class View:
    """The view of an output."""

    def __init__(self, url: str, where: str) -> None:
        self.url = url.rstrip("/")
        self._where = where
        self._folder = Folder(self.url)

    # ---- what is there ----

    def current_name(self) -> str | None:
        """The name of the current version; None before the first batch."""
        if self._folder.is_local:
            try:
                return Path(os.readlink(Path(self.url, _LINK))).name
            except (FileNotFoundError, NotADirectoryError):
                return None
            except OSError as error:  # not a link
                raise SquallError(
                    f"{self._where}: {self.url}/{_LINK} cannot be read as a link: {error.strerror}"
                ) from error
        found = [self._pointed(), self._switched()]
        return max((name for name in found if name is not None), key=_number, default=None)

    def _pointed(self) -> str | None:
        """The version that `_current` names."""
        try:
            return self._folder.read(_POINTER).decode().strip()
        except FileNotFoundError:
            return None

    def _switches(self) -> list[str]:
        """(A file that is being written has another name.)"""
        return [name for name in (self._folder / _SWITCHES).names() if name.isdigit()]

    def _switched(self) -> str | None:
        """The version of the newest switch. (Views of earlier versions of squall have none.)"""
        switches = self._folder / _SWITCHES
        for _ in range(_LOOKS):
            newest = max(self._switches(), default=None)
            if newest is None:
                return None
            try:
                return switches.read(newest).decode()
            except FileNotFoundError:  # a newer one has come
                continue
        raise SquallError(
            f"{self._where}: the view {self.url} changes too fast to be read, or {_SWITCHES} in it "
            "is damaged"
        )

    def current(self) -> Version | None:
        """Raises SquallError if it is damaged."""
        name = self.current_name()
        if name is None:
            return None
        try:
            found = json.loads((self._folder / _VERSIONS / name).read(_MANIFEST))
            if found.pop("format") != _FORMAT:
                raise ValueError("it was written by another version of squall")
            return Version(**{**found, "key": tuple(found["key"])})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise SquallError(
                f"{self._where}: the view {self.url} is damaged: {_VERSIONS}/{name}/{_MANIFEST}: "
                f"{error}",
                hint="choose another folder, or write it anew: --overwrite",
            ) from error

    def folder_of(self, name: str) -> str:
        return f"{self.url}/{_VERSIONS}/{name}"

    def check(self) -> None:
        """Raises SquallError if something else is there."""
        if self.current_name() is not None:
            return
        strange = sorted(
            name
            for name in self._folder.names()
            if name not in (_VERSIONS, _SWITCHES, LOCK)
            and not name.startswith((_POINTER, f"{LOCK}."))
        )
        if strange or (self._folder.is_local and Path(self.url).is_file()):
            what = strange[0] if strange else "a file"
            raise SquallError(
                f"{self._where}: {self.url} is there and is not a view of current values (it has "
                f"{what})",
                hint="choose another folder",
            )

    # ---- a batch ----

    def fits(self, sink: Sink, version: Version) -> None:
        """Raises SquallError if the view is of other tuples."""
        for what, there, wanted in (
            ("fields", sorted(version.fields), sorted(sink.fields)),
            ("key", sorted(version.key), sorted(sink.key)),
        ):
            if there != wanted:
                raise SquallError(
                    f"{self._where}: the view {self.url} has the {what} {', '.join(there)}, and "
                    f"the stream {', '.join(wanted)}",
                    hint="choose another folder, or write it anew: --overwrite",
                )

    def widen(self, sink: Sink, guess: TypeGuess) -> TypeGuess:
        """Types that hold what is in the view as well. Raises SquallError."""
        version = self.current()
        if version is None:
            return guess
        self.fits(sink, version)
        from squall_spark.data.columns import TypeGuess

        by_field = dict(zip(version.fields, version.types, strict=True))
        wide = TypeGuess(sink.fields)
        wide.guesses = [by_field[name] for name in sink.fields]
        wide.merge(guess)
        return wide

    def merge(
        self,
        frame: DataFrame,
        sink: Sink,
        types: TypeGuess,
        writer: str | None,
        batch: int,
        *,
        files: int,
        anew: bool,
    ) -> bool:
        """Merge a batch. `types` are those of `frame`, widened; `files` is how many its tuples
        are worth. Returns False, and does nothing, if the batch is there already."""
        before = None if anew else self.current()
        if before is not None and writer is not None and before.written.get(writer, -1) >= batch:
            if not self._folder.is_local and self._pointed() != before.name:
                self._folder.write(_POINTER, before.name.encode())  # the driver was killed before
            return False
        spark = frame.sparkSession
        tuples = numbered(frame, sink)
        partitions = files
        if before is not None:
            old, size = self._old(spark, before, frame)
            partitions += size // _FILE_BYTES
            tuples = old.unionByName(tuples, allowMissingColumns=True)
        rows = remaining(newest(tuples, sink, partitions), sink.fields)
        number = _number(before.name) + 1 if before is not None else 1
        if anew and (there := self.current_name()) is not None:
            number = _number(there) + 1
        name = f"{number:09d}-{uuid.uuid4().hex[:8]}"
        output = rows.write
        if sink.partition_by:
            output = output.partitionBy(*sink.partition_by)
        output.parquet(self.folder_of(name))
        written = {} if before is None else dict(before.written)
        if writer is not None:
            written[writer] = batch
        version = Version(name, sink.key, types.guesses, json.loads(rows.schema.json()), written)
        self._switch(version)
        self._clean(spark, name)
        return True

    def _old(
        self, spark: SparkSession, version: Version, frame: DataFrame
    ) -> tuple[DataFrame, int]:
        """The rows of a version, before all new ones, and their size in bytes."""
        from pyspark.sql import functions as sf
        from pyspark.sql.types import ArrayType, StructType

        folder = self.folder_of(version.name)
        # (With its types: those of folders would be guessed from their names.)
        old = spark.read.schema(StructType.fromJson(version.columns)).parquet(folder)
        now = {each.name: each.dataType for each in frame.schema.fields}
        columns = []
        for each in old.schema.fields:
            column, type_ = sf.col(quoted(each.name)), now[each.name]
            # (Lists and structs become wider in the union.)
            if each.dataType != type_ and not isinstance(type_, StructType | ArrayType):
                column = column.cast(type_)
            columns.append(column.alias(each.name))
        jvm: Any = spark.sparkContext._jvm
        path = jvm.org.apache.hadoop.fs.Path(folder)
        system = path.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())
        size = int(system.getContentSummary(path).getLength())
        return old.select(*columns, sf.lit(-1).cast("long").alias(ORDER)), size

    def _switch(self, version: Version) -> None:
        text = json.dumps({"format": _FORMAT, **asdict(version)})
        folder = self._folder / _VERSIONS / version.name
        folder.write(_MANIFEST, text.encode())
        if not self._folder.is_local:
            self._claim(version)
            self._folder.write(_POINTER, version.name.encode())
            return
        # What the link points to outlives a loss of power.
        here = Path(folder.url)
        for made in (*here.rglob("*"), here, here.parent):
            if made.is_dir():
                sync_dir(made)
            else:
                sync_file(made)
        beside = Path(self.url, f"{_POINTER}.{os.getpid()}")
        beside.unlink(missing_ok=True)
        beside.symlink_to(f"{_VERSIONS}/{version.name}")
        os.replace(beside, Path(self.url, _LINK))
        sync_dir(Path(self.url))

    def _claim(self, version: Version) -> None:
        """Make a version the current one. Raises FolderInUseError if another driver has made one
        from the same, or later ones."""
        number = version.name.partition("-")[0]
        # (It may be there already by this driver: a store's client repeats what got no answer.)
        with contextlib.suppress(FileExistsError):
            (self._folder / _SWITCHES).create(number, version.name.encode())
        if self._switched() != version.name:
            raise FolderInUseError(
                f"{self._where}: another job has written the view {self.url} while this one was "
                "paused",
                hint="let one job at a time write it; nothing of the other is lost, and this batch "
                "is not in it",
            )

    def _clean(self, spark: SparkSession, current: str) -> None:
        """Delete versions that are older than those that are kept, and those that never were the
        current one: what a killed driver has left has the number of the current one. Later ones are
        those of a driver that has taken over while this one was paused."""
        names = (self._folder / _VERSIONS).names()
        number = current.partition("-")[0]
        before = sorted(
            name
            for name in names
            if name < number and _MANIFEST in (self._folder / _VERSIONS / name).names()
        )
        kept = {current, *before[1 - _KEPT :]}
        jvm: Any = spark.sparkContext._jvm
        conf = spark.sparkContext._jsc.hadoopConfiguration()
        for name in names:
            if name not in kept and name.partition("-")[0] <= number:
                path = jvm.org.apache.hadoop.fs.Path(self.folder_of(name))
                path.getFileSystem(conf).delete(path, True)
        for switch in self._switches():
            if switch < number:
                (self._folder / _SWITCHES).delete(switch)


def _number(name: str) -> int:
    return int(name.partition("-")[0])


def view_folder(path: str) -> str:
    """The folder with the Parquet files of a view's current version, which stays for the next two:

        frame = spark.read.parquet(squall_spark.view_folder("/out/counts"))

    Raises SquallError for a folder that is not a view.
    """
    view = View(path, "view_folder")
    name = view.current_name()
    if name is None:
        raise SquallError(f"{path} is not a view of current values, or nothing was written yet")
    return view.folder_of(name)
