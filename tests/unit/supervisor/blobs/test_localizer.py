"""What a spoiled disk may do to a supervisor: have a topology fetched anew, and nothing else."""

import io
import shutil
import zipfile
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest
from tests.support.wheels import make_wheel

from squall_common.daemon.clock import SystemClock
from squall_common.names import code_blob_key, conf_blob_key, jar_blob_key
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.dependencies import read_wheel
from squall_common.security.credentials import TopologyCredentials
from squall_common.security.records import RecordError
from squall_supervisor.blobs.environments import Environments
from squall_supervisor.blobs.localizer import Localizer
from squall_supervisor.blobs.source import BlobError, LocalizeError
from squall_supervisor.confine.ownership import grant, readers
from squall_thrift import storm
from squall_thrift.codec import to_bytes

TOPOLOGY = "wc-1-1"


def code(*dependencies: str) -> bytes:
    return to_bytes(
        storm.StormTopology(
            spouts={}, bolts={}, state_spouts={}, dependency_artifacts=list(dependencies)
        )
    )


class Blobs:
    """Nimbus, with one topology."""

    def __init__(self) -> None:
        self.fetched = 0
        self.code = code()
        self.more: dict[str, bytes] = {}
        self.sealing_key = ""
        self.credentials: TopologyCredentials | None = None
        self.key_error: str | None = None

    async def fetch(self, keys: dict[str, Path]) -> dict[str, int]:
        self.fetched += 1
        for key, path in keys.items():
            path.write_bytes(self._blob(key))
        return dict.fromkeys(keys, 1)

    async def versions(self, keys: list[str]) -> dict[str, int]:
        return dict.fromkeys(keys, 1)

    async def topology_credentials(
        self, topology_id: str, supervisor_id: str
    ) -> TopologyCredentials | None:
        return self.credentials

    async def topology_key(self, topology_id: str, supervisor_id: str) -> bytes:
        assert (topology_id, supervisor_id) == (TOPOLOGY, "node")
        if self.key_error is not None:
            raise BlobError(self.key_error)
        return b"the key"

    def _blob(self, key: str) -> bytes:
        if key in self.more:
            return self.more[key]
        if key == conf_blob_key(TOPOLOGY):
            return b"{}"
        if key != jar_blob_key(TOPOLOGY):
            return self.code
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
        environments=Environments(tmp_path / "environments", tmp_path / "tmp", blobs, version="1"),
        supervisor_id="node",
    )
    made.prepare()
    await made.localize(TOPOLOGY)
    assert made.read(TOPOLOGY) is not None
    return made


@pytest.mark.parametrize("spoil", SPOILS)
async def test_a_spoiled_topology_is_fetched_again(
    localizer: Localizer, blobs: Blobs, spoil: Callable[[Path], None]
) -> None:
    spoil(localizer.path_of(TOPOLOGY))
    assert localizer.read(TOPOLOGY) is None
    await localizer.localize(TOPOLOGY)
    assert localizer.read(TOPOLOGY) is not None
    assert blobs.fetched == 2


async def test_unreadable_versions_count_as_changed(localizer: Localizer) -> None:
    assert not await localizer.changed(TOPOLOGY)
    versions_of_another_kind(localizer.path_of(TOPOLOGY))
    assert await localizer.changed(TOPOLOGY)


def another_byte_of_code(folder: Path) -> None:
    (folder / "code" / "wc.py").write_bytes(b"#")


def another_byte_of_the_topology(folder: Path) -> None:
    (folder / "stormcode.ser").write_bytes(b"c0de")


@pytest.mark.parametrize("spoil", [another_byte_of_code, another_byte_of_the_topology])
async def test_bytes_that_changed_are_noticed(
    localizer: Localizer, blobs: Blobs, spoil: Callable[[Path], None]
) -> None:
    assert localizer.intact(TOPOLOGY)
    (localizer.path_of(TOPOLOGY) / "code" / "__pycache__").mkdir()
    await localizer.localize(TOPOLOGY)
    assert blobs.fetched == 1  # files that a worker added are not a change
    spoil(localizer.path_of(TOPOLOGY))
    await localizer.localize(TOPOLOGY)
    assert localizer.intact(TOPOLOGY)
    assert blobs.fetched == 2


async def test_users_let_in_stay_let_in_when_a_topology_is_fetched_again(
    localizer: Localizer,
) -> None:
    """Workers of another user run of it on other slots meanwhile."""
    folder = localizer.path_of(TOPOLOGY)
    try:
        grant(folder, 61001)
    except OSError as error:
        pytest.skip(f"no access lists here: {error}")
    another_byte_of_code(folder)
    await localizer.localize(TOPOLOGY)
    assert localizer.intact(TOPOLOGY)
    assert readers(folder) == [61001]


# ---- Dependencies ----


async def test_a_topology_with_dependencies_has_an_environment(
    tmp_path: Path, localizer: Localizer, blobs: Blobs
) -> None:
    wheel = make_wheel(tmp_path / "wheels", "one")
    key = read_wheel(wheel).key
    blobs.more[key] = wheel.read_bytes()
    blobs.code = code(key)
    await localizer.remove(TOPOLOGY)
    await localizer.localize(TOPOLOGY)
    link = localizer.path_of(TOPOLOGY) / "environment"
    assert (link / "site" / "one.py").is_file()
    environment = link.resolve()
    # It goes with the last topology that uses it, and comes back when it is missing.
    shutil.rmtree(environment)
    assert localizer.read(TOPOLOGY) is None
    await localizer.localize(TOPOLOGY)
    assert (link / "site" / "one.py").is_file()
    localizer.prepare()
    assert environment.is_dir()
    await localizer.remove(TOPOLOGY)
    assert not environment.exists()


async def test_a_dependency_that_is_not_a_wheel_is_reported(
    localizer: Localizer, blobs: Blobs
) -> None:
    blobs.code = code("dep-x")
    await localizer.remove(TOPOLOGY)
    with pytest.raises(LocalizeError, match="not a wheel"):
        await localizer.localize(TOPOLOGY)
    assert localizer.topologies() == []


async def test_code_that_cannot_be_read_is_an_error(localizer: Localizer, blobs: Blobs) -> None:
    blobs.code = b"\x0b\x00\x01\x7f\xff\xff\xff"
    await localizer.remove(TOPOLOGY)
    with pytest.raises(LocalizeError, match="damaged"):
        await localizer.localize(TOPOLOGY)


async def test_a_key_comes_with_its_topology(localizer: Localizer, blobs: Blobs) -> None:
    """0600, checked like the rest; and never in its place nothing."""
    key_file = localizer.path_of(TOPOLOGY) / "curve.key"
    read = localizer.read(TOPOLOGY)
    assert read is not None
    assert read.key_file is None
    assert not key_file.exists()
    # A rebalance has given it one.
    blobs.more[conf_blob_key(TOPOLOGY)] = b'{"storm.messaging.curve": "auto"}'
    shutil.rmtree(localizer.path_of(TOPOLOGY))
    blobs.key_error = "Nimbus refused"
    with pytest.raises(LocalizeError, match="Nimbus refused"):
        await localizer.localize(TOPOLOGY)
    assert localizer.read(TOPOLOGY) is None
    blobs.key_error = None
    await localizer.localize(TOPOLOGY)
    read = localizer.read(TOPOLOGY)
    assert read is not None
    assert read.key_file == key_file
    assert key_file.read_bytes() == b"the key"
    assert key_file.stat().st_mode & 0o777 == 0o600
    assert localizer.path_of(TOPOLOGY).stat().st_mode & 0o777 == 0o700
    key_file.write_bytes(b"another")
    assert not localizer.intact(TOPOLOGY)
    key_file.unlink()  # as a supervisor of before there were keys has left it
    assert localizer.read(TOPOLOGY) is None
    await localizer.localize(TOPOLOGY)
    assert key_file.read_bytes() == b"the key"


async def test_credentials_come_with_the_topology_and_only_newer_ones_replace_them(
    localizer, blobs
) -> None:
    file = localizer.path_of(TOPOLOGY) / "credentials.json"
    await localizer.localize(TOPOLOGY)
    assert not file.exists()
    blobs.credentials = TopologyCredentials(TOPOLOGY, 20, {"user": "ann"})
    assert await localizer.update_credentials(TOPOLOGY)
    assert file.stat().st_mode & 0o777 == 0o600
    assert localizer.read(TOPOLOGY).credentials_file == file
    assert localizer.intact(TOPOLOGY), "they are no part of what was fetched"
    for older in (20, 19):
        blobs.credentials = TopologyCredentials(TOPOLOGY, older, {"user": "bob"})
        assert not await localizer.update_credentials(TOPOLOGY)
    (localizer.path_of(TOPOLOGY) / "stormconf.ser").unlink()
    await localizer.localize(TOPOLOGY)  # fetched again: what is here is newer
    assert localizer.credentials(TOPOLOGY).values == {"user": "ann"}
    file.write_text("{}")
    assert localizer.credentials(TOPOLOGY).number == 0
    assert await localizer.update_credentials(TOPOLOGY)


class Signed:
    """The hashes that Nimbus has signed, by topology."""

    def __init__(self) -> None:
        self.hashes: dict[str, dict[str, str]] = {}

    def sign(self, blobs: Blobs) -> None:
        keys = (jar_blob_key(TOPOLOGY), code_blob_key(TOPOLOGY), conf_blob_key(TOPOLOGY))
        blobs.more.setdefault(keys[0], blobs._blob(keys[0]))  # an archive has the time in it
        self.hashes[TOPOLOGY] = {key: sha256(blobs._blob(key)).hexdigest() for key in keys}

    def of(self, topology_id: str) -> dict[str, str]:
        if topology_id not in self.hashes:
            raise RecordError(f"the manifest lists nothing of {topology_id}")
        return self.hashes[topology_id]


def signed_localizer(folder: Path, blobs: Blobs, signed: Signed) -> Localizer:
    made = Localizer(
        folder / "stormdist",
        folder / "tmp",
        blobs,
        SystemClock(),
        limits=Limits(),
        downloads_max=2,
        environments=Environments(folder / "environments", folder / "tmp", blobs, version="1"),
        supervisor_id="node",
        signed=signed.of,
    )
    made.prepare()
    return made


async def test_only_what_was_signed_gets_onto_the_disk(tmp_path: Path, blobs: Blobs) -> None:
    """A package with other bytes, and a topology that no manifest lists."""
    signed = Signed()
    localizer = signed_localizer(tmp_path, blobs, signed)
    with pytest.raises(LocalizeError, match="lists nothing"):
        await localizer.localize(TOPOLOGY)
    signed.sign(blobs)
    honest, blobs.code = blobs.code, code("other")
    with pytest.raises(LocalizeError, match="not those that Nimbus has signed"):
        await localizer.localize(TOPOLOGY)
    assert localizer.read(TOPOLOGY) is None
    blobs.code = honest
    await localizer.localize(TOPOLOGY)
    assert localizer.is_as_signed(TOPOLOGY)


async def test_a_topology_changes_when_its_record_does(tmp_path: Path, blobs: Blobs) -> None:
    """Not when Nimbus shows another version of its blobs."""
    signed = Signed()
    signed.sign(blobs)
    localizer = signed_localizer(tmp_path, blobs, signed)
    await localizer.localize(TOPOLOGY)
    versions_of_another_kind(localizer.path_of(TOPOLOGY))
    assert not await localizer.changed(TOPOLOGY)
    blobs.more[conf_blob_key(TOPOLOGY)] = b'{"topology.workers": 2}'
    assert not await localizer.changed(TOPOLOGY)
    signed.sign(blobs)
    assert await localizer.changed(TOPOLOGY)
    assert not localizer.is_as_signed(TOPOLOGY)  # no worker begins with what is here
    await localizer.update(TOPOLOGY)
    assert localizer.is_as_signed(TOPOLOGY)
    topology = localizer.read(TOPOLOGY)
    assert topology is not None
    assert topology.conf == {"topology.workers": 2}


async def test_a_topology_of_the_open_cluster_has_not_changed_by_being_signed(
    localizer: Localizer, tmp_path: Path, blobs: Blobs
) -> None:
    """Its workers run on, but none is launched before what is here was fetched as signed."""
    signed = Signed()
    signed.sign(blobs)
    await localizer.localize(TOPOLOGY)
    localizer = signed_localizer(tmp_path, blobs, signed)
    assert not await localizer.changed(TOPOLOGY)
    assert not localizer.is_as_signed(TOPOLOGY)
    blobs.more[conf_blob_key(TOPOLOGY)] = b'{"topology.workers": 2}'
    signed.sign(blobs)
    assert await localizer.changed(TOPOLOGY)  # rebalanced since
    blobs.more[conf_blob_key(TOPOLOGY)] = b"{}"
    signed.sign(blobs)
    await localizer.localize(TOPOLOGY)
    assert localizer.is_as_signed(TOPOLOGY)
    assert not await localizer.changed(TOPOLOGY)


async def test_a_topology_is_there_while_its_old_files_are_removed(
    localizer: Localizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers on other slots read it, and would end if it seemed to have changed."""
    await localizer.localize(TOPOLOGY)
    (localizer.path_of(TOPOLOGY) / "stormconf.ser").unlink()
    there: list[bool] = []
    remove = shutil.rmtree

    def look(path: Path, ignore_errors: bool = False) -> None:
        if path.name.startswith("removed-"):
            there.append(localizer.read(TOPOLOGY) is not None)
        remove(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", look)
    await localizer.localize(TOPOLOGY)
    assert there == [True]
