"""A spool: a folder in which each file is a record. Whoever takes a file removes it."""

import asyncio
import os
from pathlib import Path

from squall_connectors.base import AsyncSource, RecordsRejectedError, Sink


class SpoolSource(AsyncSource):
    """Reads the files of a folder, in the order of their names. Run it with one task."""

    outputs = ["name", "value"]

    def __init__(self, folder, **options):
        super().__init__(**options)
        self.folder = Path(folder)

    async def connect(self):
        os.stat(self.folder)  # an error here is an outage: the base tries again
        self.taken = set()

    async def fetch(self, limit):
        found = await asyncio.to_thread(self.read_new, limit)
        if not found:
            await asyncio.sleep(0.1)
        return [(name, [name, text]) for name, text in found]

    def read_new(self, limit):
        names = sorted(set(os.listdir(self.folder)) - self.taken)
        names = [name for name in names if not name.startswith(".")][:limit]
        found = [(name, (self.folder / name).read_text()) for name in names]
        self.taken.update(names)
        return found

    async def settle(self, message_ids):
        for name in message_ids:
            (self.folder / name).unlink(missing_ok=True)
        self.taken.difference_update(message_ids)


class SpoolSink(Sink):
    """Writes each tuple into a file that is named by its first field."""

    def __init__(self, folder, **options):
        super().__init__(**options)
        self.folder = Path(folder)

    async def connect(self):
        os.stat(self.folder)

    async def write(self, tuples):
        rejected = {}
        for index, tup in enumerate(tuples):
            name, text = str(tup[0]), str(tup[1])
            if "/" in name or name.startswith("."):
                rejected[index] = f"{name!r} is not a name of a file"
                continue
            # First under a hidden name: nobody reads half a file. A repetition replaces it.
            hidden = self.folder / f".{name}"
            hidden.write_text(text)
            hidden.replace(self.folder / name)
        if rejected:
            raise RecordsRejectedError(rejected)
