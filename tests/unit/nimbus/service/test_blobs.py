"""The blob calls of the Thrift service, as Storm's clients make them."""

import errno
import hashlib

import pytest
from tests.support.nimbus_service import LocalNimbus, eventually

from squall_common.config.options.typed import NimbusOptions
from squall_common.names import dependency_key
from squall_thrift import storm
from squall_thrift.protocol.messages import ThriftApplicationError
from squall_thrift.serving.authorization import Call

META = storm.SettableBlobMeta(
    acl=[storm.AccessControl(type=storm.AccessControlType.USER, name=None, access=7)],
    replication_factor=2,
)


@pytest.fixture
async def nimbus(tmp_path):
    conf = {"nimbus.upload.bytes.max": 1000, "storm.blobstore.inputstream.buffer.size.bytes": 4}
    async with LocalNimbus(tmp_path, conf=conf) as nimbus:
        yield await nimbus.leads()


async def create(nimbus: LocalNimbus, key: str, data: bytes) -> None:
    session = await nimbus.call("beginCreateBlob", key, META)
    await nimbus.call("uploadBlobChunk", session, data)
    await nimbus.call("finishBlobUpload", session)
    await nimbus.call("createStateInZookeeper", key)


async def test_create_read_update_delete(nimbus) -> None:
    with pytest.raises(storm.KeyNotFoundException):
        await nimbus.call("getBlobMeta", "words")
    await create(nimbus, "words", b"0123456789")
    meta = await nimbus.call("getBlobMeta", "words")
    # An entry without a name is the caller's own.
    mine = storm.AccessControl(type=storm.AccessControlType.USER, name="anonymous", access=7)
    assert meta.settable == storm.SettableBlobMeta(acl=[mine], replication_factor=2)
    begin = await nimbus.call("beginBlobDownload", "words")
    assert (begin.version, begin.data_size) == (meta.version, 10)
    chunks = [await nimbus.call("downloadBlobChunk", begin.session) for _ in range(4)]
    assert chunks == [b"0123", b"4567", b"89", b""]
    with pytest.raises(ThriftApplicationError, match="there is no blob download"):
        await nimbus.call("downloadBlobChunk", begin.session)
    with pytest.raises(storm.KeyAlreadyExistsException):
        await nimbus.call("beginCreateBlob", "words", META)
    session = await nimbus.call("beginUpdateBlob", "words")
    await nimbus.call("uploadBlobChunk", session, b"new")
    await nimbus.call("finishBlobUpload", session)
    assert (await nimbus.call("getBlobMeta", "words")).version > meta.version
    assert await nimbus.call("isRemoteBlobExists", "words") is True
    await nimbus.call("deleteBlob", "words")
    assert await nimbus.call("isRemoteBlobExists", "words") is False
    with pytest.raises(storm.KeyNotFoundException):
        await nimbus.call("deleteBlob", "words")


async def test_an_upload_can_be_cancelled(nimbus) -> None:
    session = await nimbus.call("beginCreateBlob", "words", META)
    await nimbus.call("cancelBlobUpload", session)
    with pytest.raises(ThriftApplicationError, match="there is no blob upload"):
        await nimbus.call("uploadBlobChunk", session, b"x")
    await create(nimbus, "words", b"again")


async def test_a_blob_above_the_cap_is_refused(nimbus) -> None:
    session = await nimbus.call("beginCreateBlob", "words", META)
    with pytest.raises(ThriftApplicationError, match="larger than 1000 bytes"):
        await nimbus.call("uploadBlobChunk", session, b"x" * 1001)
    assert (await nimbus.call("listBlobs", "")).keys == []


async def test_a_listing_ends_with_no_keys(nimbus) -> None:
    keys = [f"key-{i:03}" for i in range(150)]
    for key in keys:
        nimbus.nimbus.blobs.put(key, b"")
    found = []
    page = await nimbus.call("listBlobs", "")
    while page.keys:
        found += page.keys
        page = await nimbus.call("listBlobs", page.session)
    assert found == keys


async def test_meta_and_replication_can_be_set(nimbus) -> None:
    await create(nimbus, "words", b"x")
    version = (await nimbus.call("getBlobMeta", "words")).version
    acl = [storm.AccessControl(type=storm.AccessControlType.OTHER, access=1)]
    await nimbus.call("setBlobMeta", "words", storm.SettableBlobMeta(acl=acl))
    with pytest.raises(storm.AuthorizationException, match="anonymous does not have WRITE"):
        await nimbus.call("updateBlobReplication", "words", 3)
    # Who sets a list keeps the right to set another one.
    acl.append(storm.AccessControl(type=storm.AccessControlType.USER, name="anonymous", access=7))
    await nimbus.call("setBlobMeta", "words", storm.SettableBlobMeta(acl=acl))
    assert await nimbus.call("updateBlobReplication", "words", 3) == 1
    assert await nimbus.call("getBlobReplication", "words") == 1
    meta = await nimbus.call("getBlobMeta", "words")
    assert meta.settable == storm.SettableBlobMeta(acl=acl, replication_factor=3)
    assert meta.version == version
    with pytest.raises(ThriftApplicationError, match="not between 1 and"):
        await nimbus.call("updateBlobReplication", "words", 0)


async def test_a_blob_that_a_live_topology_uses_is_not_deleted(nimbus) -> None:
    await create(nimbus, "words", b"x")
    topology_id = await nimbus.submit(
        conf={"topology.blobstore.map": {"words": {"localname": "w.txt"}}}
    )
    for key in ("words", f"{topology_id}-stormjar.jar", f"{topology_id}-stormconf.ser"):
        with pytest.raises(storm.IllegalStateException, match=topology_id):
            await nimbus.call("deleteBlob", key)
    await nimbus.call("killTopologyWithOpts", "wordcount", storm.KillOptions(wait_secs=0))
    await nimbus.call("deleteBlob", "words")


async def test_only_nimbus_writes_the_blobs_of_a_topologys_code(nimbus) -> None:
    topology_id = await nimbus.submit()
    for method, args in (
        ("beginUpdateBlob", (f"{topology_id}-stormcode.ser",)),
        ("setBlobMeta", (f"{topology_id}-stormcode.ser", META)),
        ("beginCreateBlob", ("other-1-17-stormjar.jar", META)),
    ):
        with pytest.raises(storm.AuthorizationException):
            await nimbus.call(method, *args)


async def test_a_file_download_never_exists(nimbus) -> None:
    with pytest.raises(ThriftApplicationError, match="no file download '/etc/passwd'"):
        await nimbus.call("downloadChunk", "/etc/passwd")


async def as_user(nimbus: LocalNimbus, user: str, name: str, *args: object) -> object:
    """A call from an authenticated user."""
    return await getattr(nimbus.service, name)(Call(name, "127.0.0.1:1", user), *args)


async def test_access_lists_are_enforced(nimbus) -> None:
    """Owner, other, a named user, a supervisor, an administrator: with the rights Storm gives."""
    nimbus.nimbus.options = NimbusOptions(
        nimbus_admins=("root",), nimbus_supervisor_users=("node",)
    )
    acl = [
        storm.AccessControl(type=storm.AccessControlType.USER, name="bob", access=1),
        storm.AccessControl(type=storm.AccessControlType.OTHER, access=0),
    ]
    meta = storm.SettableBlobMeta(acl=acl)
    session = await as_user(nimbus, "alice", "beginCreateBlob", "words", meta)
    await as_user(nimbus, "alice", "finishBlobUpload", session)
    whole = (await as_user(nimbus, "alice", "getBlobMeta", "words")).settable
    reads = ("beginBlobDownload", "getBlobMeta", "getBlobReplication")
    may = {
        "alice": {*reads, "beginUpdateBlob", "setBlobMeta"},
        "bob": {*reads},
        "eve": set(),
        "node": {*reads},
        "root": {*reads, "beginUpdateBlob", "setBlobMeta"},
    }
    for user, allowed in may.items():
        for name in (*reads, "beginUpdateBlob", "setBlobMeta"):
            args = ("words", whole) if name == "setBlobMeta" else ("words",)
            try:
                await as_user(nimbus, user, name, *args)
            except storm.AuthorizationException:
                assert name not in allowed, (user, name)
            else:
                assert name in allowed, (user, name)
        listed = await as_user(nimbus, user, "listBlobs", "")
        assert listed.keys == (["words"] if allowed else []), user
    with pytest.raises(storm.AuthorizationException, match="eve does not have WRITE"):
        await as_user(nimbus, "eve", "deleteBlob", "words")
    await as_user(nimbus, "alice", "deleteBlob", "words")


async def test_a_topology_may_use_only_blobs_that_its_owner_may_read(nimbus) -> None:
    acl = [storm.AccessControl(type=storm.AccessControlType.OTHER, access=0)]
    session = await as_user(
        nimbus, "alice", "beginCreateBlob", "words", storm.SettableBlobMeta(acl=acl)
    )
    await as_user(nimbus, "alice", "finishBlobUpload", session)
    with pytest.raises(storm.InvalidTopologyException, match="anonymous may not read"):
        await nimbus.submit(conf={"topology.blobstore.map": {"words": {}}})


@pytest.mark.parametrize(
    "acl",
    [
        [(1, None, 1), (1, None, 2)],
        [(2, "bob", 1), (2, "bob", 2)],
        [(2, "bob", 8)],
        [(2, "bob", -1)],
    ],
)
async def test_an_invalid_access_list_is_refused(nimbus, acl) -> None:
    entries = [
        storm.AccessControl(type=storm.AccessControlType(kind), name=name, access=access)
        for kind, name, access in acl
    ]
    with pytest.raises(ThriftApplicationError, match="access"):
        await nimbus.call("beginCreateBlob", "words", storm.SettableBlobMeta(acl=entries))


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "a\\b", "a\x00b", "x" * 600, "\uf000"])
async def test_a_key_that_cannot_name_a_blob_is_refused(nimbus, key) -> None:
    with pytest.raises(ThriftApplicationError, match="blob key"):
        await nimbus.call("beginCreateBlob", key, META)


async def test_a_full_disk_is_a_clear_error_and_leaves_nothing(nimbus, monkeypatch) -> None:
    await create(nimbus, "words", b"old")
    session = await nimbus.call("beginUpdateBlob", "words")
    await nimbus.call("uploadBlobChunk", session, b"new")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("squall_nimbus.blobs.store.os.fsync", full)
    with pytest.raises(ThriftApplicationError, match="the disk of Nimbus is full"):
        await nimbus.call("finishBlobUpload", session)
    monkeypatch.undo()
    assert nimbus.nimbus.blobs.read("words") == b"old"
    assert list((nimbus.nimbus.blobs.folder / "writing").iterdir()) == []


async def test_unused_dependencies_are_deleted(tmp_path) -> None:
    conf = {"nimbus.topology.blobstore.deletion.delay.ms": 0, "nimbus.monitor.freq.secs": 0.05}
    async with LocalNimbus(tmp_path, conf=conf) as nimbus:
        await nimbus.leads()
        await create(nimbus, "words", b"a user's own")
        await create(nimbus, "dep-unused.whl", b"x")

        async def gone() -> bool:
            return (await nimbus.call("listBlobs", "")).keys == ["words"]

        await eventually(gone, "the dependency is removed")


async def test_a_dependency_must_have_the_content_that_its_key_names(nimbus) -> None:
    data = b"a wheel"
    name = "one-1.0-py3-none-any.whl"
    key = dependency_key(hashlib.sha256(data).hexdigest(), name)
    session = await nimbus.call("beginCreateBlob", key, META)
    await nimbus.call("uploadBlobChunk", session, b"something else")
    with pytest.raises(ThriftApplicationError, match="has the hash"):
        await nimbus.call("finishBlobUpload", session)
    assert await nimbus.call("isRemoteBlobExists", key) is False
    await create(nimbus, key, data)
    session = await nimbus.call("beginUpdateBlob", key)
    await nimbus.call("uploadBlobChunk", session, b"something else")
    with pytest.raises(ThriftApplicationError, match="has the hash"):
        await nimbus.call("finishBlobUpload", session)
    begin = await nimbus.call("beginBlobDownload", key)
    assert begin.data_size == len(data)


async def test_one_client_cannot_take_all_places(nimbus) -> None:
    """Of blob uploads and downloads; another address, or another user, still gets one."""

    async def begin(key: str, *, peer: str = "10.0.0.7:4000", principal: str | None = None) -> str:
        call = Call("beginCreateBlob", peer, principal)
        session: str = await nimbus.service.beginCreateBlob(
            call, key, storm.SettableBlobMeta(acl=[])
        )
        return session

    for n in range(128):
        await begin(f"k{n}", peer=f"10.0.0.7:{4000 + n}")
    with pytest.raises(ThriftApplicationError, match=r"10\.0\.0\.7 has 128 blob uploads open"):
        await begin("more")
    await begin("other", peer="10.0.0.8:4000")
    await begin("user", principal="alice")
