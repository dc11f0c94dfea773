"""Uploads go on where they broke off, and a chunk lands once."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from squall_common.client.upload import CHUNK_BYTES, size_text, upload_package
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import NimbusConnectionError, SquallError
from squall_nimbus.blobs.uploads import Inbox
from squall_thrift.client import ThriftApplicationError

INBOXES: list[Inbox] = []


def inbox_at(folder: Path) -> Inbox:
    inbox = Inbox(
        folder, idle_secs=60, keep_secs=60, upload_bytes_max=10_000_000, clock=lambda: 0.0
    )
    inbox.open()
    INBOXES.append(inbox)
    return inbox


@pytest.fixture(autouse=True)
def _close_inboxes():
    yield
    while INBOXES:
        INBOXES.pop().close()


class Flaky:
    """A Nimbus whose connection breaks: before a call arrives, after it took effect, or so that it
    takes effect late, when the client has gone on over another connection."""

    def __init__(self, inbox: Inbox, breaks: list[str | None]) -> None:
        self.inbox = inbox
        self.breaks = breaks
        self.late: list[tuple[str, tuple]] = []
        self.begun = 0
        self.connections = 1

    async def call(self, method, *arguments):
        how = self.breaks.pop(0) if self.breaks and method != "beginFileUpload" else None
        if how == "lost":
            raise NimbusConnectionError("reset")
        if how == "late":
            self.late.append((method, arguments))
            raise NimbusConnectionError("reset")
        try:
            result = await self._run(method, *arguments)
        except SquallError as error:
            raise ThriftApplicationError(6, str(error)) from error
        if how == "answer lost":
            raise NimbusConnectionError("reset")
        for name, late in self.late:
            with pytest.raises(SquallError):
                await self._run(name, *late)
        self.late.clear()
        return result

    async def _run(self, method, *arguments):
        if method == "beginFileUpload":
            self.begun += 1
            return self.inbox.begin()
        if method == "uploadChunk":
            return await self.inbox.chunk(*arguments)
        if method == "uploadChunkAt":
            return await self.inbox.chunk_at(*arguments)
        return await self.inbox.finish(*arguments)

    async def reconnect(self, conf):
        self.connections += 1


async def run(tmp_path: Path, data: bytes, breaks: list[str | None]) -> Flaky:
    archive = tmp_path / "package.zip"
    archive.write_bytes(data)
    nimbus = Flaky(inbox_at(tmp_path / "inbox"), breaks)
    location = await upload_package(nimbus, archive, ClientOptions())
    path = nimbus.inbox.finished(location)
    assert path is not None
    assert path.read_bytes() == data
    return nimbus


DATA = random.Random(1).randbytes(4 * CHUNK_BYTES + 17)


@pytest.mark.parametrize("how", ["lost", "answer lost", "late"])
@pytest.mark.parametrize("place", range(5))
async def test_an_upload_goes_on_where_the_connection_broke(tmp_path, how, place):
    nimbus = await run(tmp_path, DATA, [*[None] * place, how])
    assert nimbus.connections == 2
    assert nimbus.begun == 1


@pytest.mark.parametrize("how", ["lost", "answer lost"])
async def test_a_connection_that_breaks_at_the_end_costs_nothing(tmp_path, how):
    nimbus = await run(tmp_path, DATA, [*[None] * 5, how])
    assert (nimbus.connections, nimbus.begun) == (2, 1)


async def test_an_upload_that_breaks_at_every_chunk_gets_through(tmp_path):
    breaks = [how for _ in range(5) for how in ("lost", "answer lost", None)]
    assert (await run(tmp_path, DATA, breaks)).begun == 1


async def test_a_connection_that_never_holds_is_an_error(tmp_path):
    with pytest.raises(NimbusConnectionError):
        await asyncio.wait_for(run(tmp_path, DATA, ["lost"] * 100), 10)


async def test_a_nimbus_that_forgot_the_upload_gets_it_again(tmp_path):
    archive = tmp_path / "package.zip"
    archive.write_bytes(DATA)
    nimbus = Flaky(inbox_at(tmp_path / "one"), [None, "lost"])

    async def another_leader(conf):
        nimbus.inbox = inbox_at(tmp_path / "two")

    nimbus.reconnect = another_leader
    location = await upload_package(nimbus, archive, ClientOptions())
    assert nimbus.begun == 2
    assert nimbus.inbox.finished(location).read_bytes() == DATA


async def test_an_offset_that_leaves_a_gap_is_refused(tmp_path):
    inbox = inbox_at(tmp_path)
    handle = inbox.begin()
    await inbox.chunk(handle, b"0123")
    assert await inbox.chunk_at(handle, 2, b"23456") == 7
    for offset in (8, -1):
        with pytest.raises(SquallError, match="7 bytes"):
            await inbox.chunk_at(handle, offset, b"x")
    with pytest.raises(SquallError, match="another connection"):
        await inbox.chunk(handle, b"late")
    await inbox.finish(handle)
    assert inbox.finished(handle).read_bytes() == b"0123456"


@pytest.mark.parametrize(
    ("size", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1000, "1.0 kB"), (999_949, "999.9 kB"),
     (999_950, "1.0 MB"), (3_120_000, "3.1 MB"), (5 * 10**12, "5000.0 GB")],
)  # fmt: skip
def test_a_size_is_shown_in_the_unit_that_fits(size, text):
    assert size_text(size) == text
