import itertools
import shutil

import pytest
from spool import SpoolSink, SpoolSource
from squall.testing.connectors import SinkContract, SourceContract


class Folder:
    """A folder on a disk that may go away. For the contract it is a server."""

    def __init__(self, path):
        self.path = path
        path.mkdir()

    def kill(self):
        self.path.rename(f"{self.path}.away")

    def restart(self):
        shutil.move(f"{self.path}.away", self.path)


class Spool:
    kill_records = 400
    kills = 1
    outage_secs = 1.0

    @pytest.fixture(autouse=True)
    def new_folder(self, tmp_path):
        self.server = Folder(tmp_path / "spool")
        self.folder = self.server.path
        self.numbers = itertools.count()


class TestSource(Spool, SourceContract):
    def make_source(self, **options):
        return SpoolSource(str(self.folder), **options)

    def put(self, records):
        for record in records:
            path = self.folder / f"{next(self.numbers):08}"
            hidden = path.with_name(f".{path.name}")
            hidden.write_text(record)
            hidden.replace(path)

    def partition_of(self, record):
        return "all"  # one task reads them in order


class TestSink(Spool, SinkContract):
    fields = ("name", "value")

    def make_sink(self, **options):
        return SpoolSink(str(self.folder), **options)

    def values_of(self, record):
        return [record, record]

    def stored(self):
        return [path.read_text() for path in self.folder.glob("[!.]*")]

    def rejected(self):
        return ["../etc/passwd", "no"]
