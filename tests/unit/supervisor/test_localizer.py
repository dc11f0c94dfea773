"""What a spoiled disk may do to a supervisor: have a topology fetched anew, and nothing else."""

import io
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from squall.archive import Limits
from squall.clock import SystemClock
from squall.names import conf_blob_key, jar_blob_key
from squall_supervisor.localizer import Localizer

TOPOLOGY = "wc-1-1"


class Blobs:
    """Nimbus, with one topology."""

    def __init__(self) -> None:
        self.fetched = 0

    async def fetch(self, keys: dict[str, Path]) -> dict[str, int]:
        self.fetched += 1
        for key, path in keys.items():
            path.write_bytes(self._blob(key))
        return dict.fromkeys(keys, 1)

    async def versions(self, keys: list[str]) -> dict[str, int]:
        return dict.fromkeys(keys, 1)

    def _blob(self, key: str) -> bytes:
        if key == conf_blob_key(TOPOLOGY):
            return b"{}"
        if key != jar_blob_key(TOPOLOGY):
            return b"code"
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            archive.writestr("wc.py", "")
        return buffer.getvalue()


def a_file_in_place_of_the_folder(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.write_bytes(b"")


def a_folder_in_place_of_the_conf(folder: Path) -> None:
    (folder / "stormconf.ser").unlink()
    (folder / "stormconf.ser").mkdir()


def a_conf_without_an_end(folder: Path) -> None:
    (folder / "stormconf.ser").write_bytes(b"[" * 100_000)


def a_conf_of_zeros(folder: Path) -> None:
    (folder / "stormconf.ser").write_bytes(bytes(100))


def no_code(folder: Path) -> None:
    shutil.rmtree(folder / "code")


def versions_of_another_kind(folder: Path) -> None:
    (folder / "versions.json").write_text("[]")


SPOILS = [
    a_file_in_place_of_the_folder,
    a_folder_in_place_of_the_conf,
    a_conf_without_an_end,
    a_conf_of_zeros,
    no_code,
]


@pytest.fixture
def blobs() -> Blobs:
    return Blobs()


@pytest.fixture
async def localizer(tmp_path: Path, blobs: Blobs) -> Localizer:
    made = Localizer(
        tmp_path / "stormdist",
        tmp_path / "tmp",
        blobs,
        SystemClock(),
        limits=Limits(),
        downloads_max=2,
    )
    made.prepare()
    await made.localize(TOPOLOGY)
    assert made.read(TOPOLOGY) is not None
    return made


@pytest.mark.parametrize("spoil", SPOILS)
async def test_what_is_spoiled_is_fetched_anew(
    localizer: Localizer, blobs: Blobs, spoil: Callable[[Path], None]
) -> None:
    spoil(localizer.path_of(TOPOLOGY))
    assert localizer.read(TOPOLOGY) is None
    await localizer.localize(TOPOLOGY)
    assert localizer.read(TOPOLOGY) is not None
    assert blobs.fetched == 2


async def test_versions_that_say_nothing_are_not_the_present_ones(localizer: Localizer) -> None:
    assert not await localizer.changed(TOPOLOGY)
    versions_of_another_kind(localizer.path_of(TOPOLOGY))
    assert await localizer.changed(TOPOLOGY)
