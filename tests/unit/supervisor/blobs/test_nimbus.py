"""Fetching blobs in chunks, over connections that break."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from squall_common.errors import NimbusError
from squall_supervisor.blobs import nimbus as nimbus_blobs
from squall_supervisor.blobs.nimbus import NimbusBlobs
from squall_supervisor.blobs.source import BlobError
from squall_thrift import storm


class FakeNimbus:
    """Answers the calls of a download, each connection with troubles of its own."""

    def __init__(self, blobs: dict[str, bytes], chunk_bytes: int = 4) -> None:
        self.blobs = blobs
        self.chunk_bytes = chunk_bytes
        self.connections = 0
        self.begun: list[str] = []
        self.broken_after: list[int | None] = []  # calls, by connection
        self.size_error = 0
        self._sessions: dict[str, bytes] = {}
        self._calls = 0

    async def connect(self) -> "FakeNimbus":
        self.connections += 1
        self._calls = 0
        return self

    async def __aenter__(self) -> "FakeNimbus":
        return self

    async def __aexit__(self, *details: object) -> None:
        self._sessions.clear()

    async def call(self, method: str, argument: str) -> Any:
        limit = self.broken_after[self.connections - 1 : self.connections]
        self._calls += 1
        if limit and limit[0] is not None and self._calls > limit[0]:
            raise NimbusError("the connection broke")
        if method == "beginBlobDownload":
            self.begun.append(argument)
            if argument not in self.blobs:
                raise storm.KeyNotFoundException(msg=argument)
            data = self.blobs[argument]
            self._sessions[argument] = data
            return storm.BeginDownloadResult(
                version=7, session=argument, data_size=len(data) + self.size_error
            )
        if method == "downloadBlobChunk":
            data = self._sessions[argument]
            self._sessions[argument] = data[self.chunk_bytes :]
            return data[: self.chunk_bytes]
        assert method == "getBlobMeta"
        return storm.ReadableBlobMeta(version=9)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries, which the test skips."""
    made: list[float] = []

    async def sleep(secs: float) -> None:
        made.append(secs)

    monkeypatch.setattr(nimbus_blobs.asyncio, "sleep", sleep)
    return made


@pytest.fixture
def files(tmp_path: Path) -> Callable[..., dict[str, Path]]:
    return lambda *keys: {key: tmp_path / key for key in keys}


def content(files: dict[str, Path]) -> dict[str, bytes]:
    return {key: path.read_bytes() for key, path in files.items()}


async def test_blobs_arrive_whole_over_one_connection(
    files: Callable[..., dict[str, Path]], pauses: list[float]
) -> None:
    nimbus = FakeNimbus({"a": b"0123456789", "b": b""})
    wanted = files("a", "b")
    assert await NimbusBlobs(nimbus.connect, retries_max=3).fetch(wanted) == {"a": 7, "b": 7}
    assert content(wanted) == nimbus.blobs
    assert (nimbus.connections, pauses) == (1, [])


async def test_a_break_costs_only_the_blob_under_way(
    files: Callable[..., dict[str, Path]], pauses: list[float]
) -> None:
    nimbus = FakeNimbus({"a": b"0123", "b": b"0123456789", "c": b"x"})
    nimbus.broken_after = [5, None]
    wanted = files("a", "b", "c")
    await NimbusBlobs(nimbus.connect, retries_max=3).fetch(wanted)
    assert content(wanted) == nimbus.blobs
    assert nimbus.begun == ["a", "b", "b", "c"]
    assert pauses == [0.1]


async def test_it_gives_up_after_the_retries(
    files: Callable[..., dict[str, Path]], pauses: list[float]
) -> None:
    nimbus = FakeNimbus({"a": b"0123"})
    nimbus.broken_after = [0] * 9
    with pytest.raises(BlobError, match="broke"):
        await NimbusBlobs(nimbus.connect, retries_max=3).fetch(files("a"))
    assert nimbus.connections == 4
    assert pauses == [0.1, 0.2, 0.4]


@pytest.mark.parametrize("size_error", [-1, 1])
async def test_a_wrong_number_of_bytes_is_an_error(
    files: Callable[..., dict[str, Path]], pauses: list[float], size_error: int
) -> None:
    nimbus = FakeNimbus({"a": b"01234567"})
    nimbus.size_error = size_error
    with pytest.raises(BlobError, match="but Nimbus announced"):
        await NimbusBlobs(nimbus.connect, retries_max=0).fetch(files("a"))


async def test_an_unknown_blob_is_not_requested_again(
    files: Callable[..., dict[str, Path]], pauses: list[float]
) -> None:
    nimbus = FakeNimbus({})
    with pytest.raises(BlobError, match="no such blob: a"):
        await NimbusBlobs(nimbus.connect, retries_max=3).fetch(files("a"))
    assert (nimbus.connections, pauses) == (1, [])


async def test_versions_are_asked_for(pauses: list[float]) -> None:
    nimbus = FakeNimbus({})
    blobs = NimbusBlobs(nimbus.connect, retries_max=0)
    assert await blobs.versions(["a", "b"]) == {"a": 9, "b": 9}
