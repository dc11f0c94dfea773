"""The blob store: atomic, versioned, and whole again after any crash."""

import errno
from pathlib import Path

import pytest

from squall_common.errors import SquallError
from squall_nimbus.blobs.store import (
    Access,
    BlobExistsError,
    BlobNotFoundError,
    BlobStore,
    BlobWriter,
)


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    store = BlobStore(tmp_path / "blobs")
    store.open()
    return store


def reopened(store: BlobStore) -> BlobStore:
    again = BlobStore(store.folder)
    again.open()
    return again


def files(store: BlobStore) -> set[str]:
    return {p.name for p in store.folder.rglob("*") if p.is_file()}


def test_a_blob_exists_after_its_commit_and_not_before(store) -> None:
    writer = store.write("words", create=True, acl=(Access(2, "me", 7),), replication=3)
    writer.write(b"one ")
    writer.write(b"two")
    assert "words" not in store
    meta = writer.commit()
    assert store.read("words") == b"one two"
    assert (meta.size, meta.acl, meta.replication) == (7, (Access(2, "me", 7),), 3)
    again = reopened(store)
    assert again.read("words") == b"one two"
    assert again.meta("words") == meta


def test_an_update_is_a_higher_version_and_keeps_the_access_list(store) -> None:
    writer = store.write("words", create=True, acl=(Access(1, None, 1),))
    first = writer.commit()
    writer = store.write("words", create=False)
    writer.write(b"new")
    second = writer.commit()
    assert second.version > first.version
    assert second.acl == first.acl
    assert files(store) == {"meta.json", f"data.{second.version}"}


def test_a_version_still_grows_after_a_deletion(store) -> None:
    first = store.put("words", b"1")
    store.delete("words")
    assert store.put("words", b"1").version > first.version


def test_the_same_content_does_not_make_a_new_version(store) -> None:
    assert store.put("words", b"1") == store.put("words", b"1")


def test_a_reader_reads_its_version_to_the_end(store) -> None:
    store.put("words", b"old")
    file, _ = store.open_read("words")
    with file:
        store.put("words", b"new!")
        store.delete("words")
        assert file.read() == b"old"


def test_of_two_creators_the_first_to_finish_wins(store) -> None:
    first = store.write("words", create=True)
    second = store.write("words", create=True)
    second.write(b"second")
    second.commit()
    first.write(b"first")
    with pytest.raises(BlobExistsError):
        first.commit()
    assert store.read("words") == b"second"
    assert len(files(store)) == 2


def test_a_missing_blob_is_not_found(store) -> None:
    for action in (
        lambda: store.meta("x"),
        lambda: store.read("x"),
        lambda: store.delete("x"),
        lambda: store.set_meta("x", replication=2),
        lambda: store.write("x", create=False),
    ):
        with pytest.raises(BlobNotFoundError):
            action()
    store.put("x", b"")
    with pytest.raises(BlobExistsError):
        store.write("x", create=True)


@pytest.mark.parametrize("key", ["", ".", "..", "a/b", "../../etc/passwd", "a\nb", "x" * 600])
def test_invalid_keys_are_refused(store, key) -> None:
    with pytest.raises(SquallError):
        store.write(key, create=True)


def test_an_abandoned_upload_leaves_nothing(store) -> None:
    writer = store.write("words", create=True)
    writer.write(b"half")
    writer.abort()
    assert files(store) == set()


def test_what_a_crash_left_half_done_is_removed_at_the_start(store) -> None:
    whole = store.put("whole", b"whole")
    torn = store.put("torn", b"torn")
    under_way = store.write("under way", create=True)
    under_way.write(b"x")
    home = store.path("torn").parent
    (home / f"data.{torn.version}").write_bytes(b"to")  # the data did not reach the disk
    (store.path("whole").parent / "data.99").write_bytes(b"a version that was never committed")
    again = reopened(store)
    under_way.abort()
    assert again.all_keys() == ["whole"]
    assert files(again) == {"meta.json", f"data.{whole.version}"}


def test_a_full_disk_is_a_clear_error_and_leaves_the_old_version(store, monkeypatch) -> None:
    store.put("words", b"old")
    writer = store.write("words", create=False)
    writer.write(b"new")

    def full(fd: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SquallError, match="the disk of Nimbus is full"):
        writer.commit()
    monkeypatch.undo()
    assert store.read("words") == b"old"
    assert len(files(store)) == 2
    assert reopened(store).read("words") == b"old"


def test_a_finished_file_is_stored_and_stays_where_it_was(store, tmp_path) -> None:
    upload = tmp_path / "upload"
    upload.write_bytes(b"package")
    meta = store.put_file("jar", upload)
    upload.unlink()
    assert store.read("jar") == b"package"
    assert meta.size == 7


def test_a_write_that_fails_removes_the_part(store, monkeypatch) -> None:
    writer: BlobWriter = store.write("words", create=True)

    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        def close(self) -> None:
            pass

    writer._file.close()
    monkeypatch.setattr(writer, "_file", Full())
    with pytest.raises(SquallError, match="full"):
        writer.write(b"x")
    assert files(store) == set()


@pytest.mark.parametrize("take_away", ["put_aside", "delete"])
def test_removing_a_blob_succeeds_on_a_full_disk(store, monkeypatch, take_away) -> None:
    """A blob is gone once its folder is renamed or its description unlinked: a failure after that
    must not leave a key without bytes, which could not be read, deleted or stored."""

    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    store.put("words", b"one")
    with monkeypatch.context() as patch:
        patch.setattr("squall_nimbus.blobs.store.sync_dir", full)
        with pytest.raises((SquallError, OSError)):
            getattr(store, take_away)("words")
    assert "words" not in store
    with pytest.raises(BlobNotFoundError):
        getattr(store, take_away)("words")
    store.put("words", b"two")
    assert store.read("words") == b"two"
    assert reopened(store).read("words") == b"two"
