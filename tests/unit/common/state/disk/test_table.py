from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import lmdb
import pytest

from squall_common.state.disk import table as table_module
from squall_common.state.disk.table import DiskTable
from squall_common.state.errors import StateStoreError, StateTableLostError


def test_its_files_have_no_name_and_are_of_this_process_alone(tmp_path: Path) -> None:
    table = DiskTable(str(tmp_path))
    table.write([[(b"a", b"1")]])
    assert list(tmp_path.iterdir()) == []
    descriptors = [fd for fd in os.listdir("/proc/self/fd") if str(tmp_path) in _target(fd)]
    assert descriptors
    assert not any(os.get_inheritable(int(fd)) for fd in descriptors)
    assert table.get(b"a") == b"1"


def _target(fd: str) -> str:
    try:
        return os.readlink(f"/proc/self/fd/{fd}")
    except OSError:  # that of the list
        return ""


def test_a_write_is_seen_at_once_and_a_view_stays_as_it_was(tmp_path: Path) -> None:
    table = DiskTable(str(tmp_path))
    table.write([[(b"a", b"1"), (b"b", b"2")]])
    view = table.view()
    table.write([[(b"a", b"3"), (b"c", b"4")]], [b"b", b"none"])
    assert [table.get(key) for key in (b"a", b"b", b"c")] == [b"3", None, b"4"]
    assert list(view) == list(view) == [(b"a", b"1"), (b"b", b"2")]
    view.close()
    assert list(table.view()) == [(b"a", b"3"), (b"c", b"4")]


def test_a_write_that_fails_says_where_and_the_table_is_usable(tmp_path: Path) -> None:
    table = DiskTable(str(tmp_path))
    with pytest.raises(StateStoreError, match=f"could not write the state .* in {tmp_path}"):
        table.write([[(b"k" * 600, b"")]])
    table.write([[(b"a", b"1")]])
    assert table.get(b"a") == b"1"


class FailingMetaPage:
    """LMDB whose disk fails under its meta page: the write that was under way is not done, and no
    transaction begins any more."""

    def __init__(self, env: Any) -> None:
        self._env = env
        self._is_lost = False

    def begin(self, write: bool = False) -> Any:
        if self._is_lost:
            raise lmdb.PanicError("Update of meta page failed")
        return FailingCommit(self, self._env.begin(write=True)) if write else self._env.begin()

    def lose(self) -> None:
        self._is_lost = True

    def close(self) -> None:
        self._env.close()


class FailingCommit:
    def __init__(self, env: FailingMetaPage, transaction: Any) -> None:
        self._env = env
        self._transaction = transaction

    def __enter__(self) -> Any:
        return self._transaction

    def __exit__(self, *_: Any) -> None:
        self._transaction.abort()
        self._env.lose()
        raise lmdb.Error("mdb_txn_commit: Input/output error")


def test_a_table_that_takes_no_more_writes_says_so_and_is_read_as_it_was(tmp_path: Path) -> None:
    table = DiskTable(str(tmp_path))
    table.write([[(b"a", b"1")]])
    table._env = FailingMetaPage(table._env)
    for said in ("Input/output error", "meta page failed"):
        with pytest.raises(StateTableLostError, match=f"could not write .* {tmp_path}: .*{said}"):
            table.write([[(b"a", b"2"), (b"b", b"2")]], [b"c"])
        assert (table.get(b"a"), table.get(b"b")) == (b"1", None)
        assert table.after(b"", entries_max=9, bytes_max=99) == [(b"a", b"1")]
    with pytest.raises(StateTableLostError, match=f"could not read .* {tmp_path}: .*meta page"):
        table.view()


def test_a_write_may_be_larger_than_a_transaction(tmp_path: Path) -> None:
    entries = [(b"%03d" % number, b"value") for number in range(100)]
    table = DiskTable(str(tmp_path))
    table.write(iter((entries[:40], iter(entries[40:]))))
    assert list(table.view()) == entries


def test_a_folder_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(StateStoreError, match=r"could not open the state .* in .*/none"):
        DiskTable(str(tmp_path / "none"))


def test_a_folder_behind_a_link_is_closed_in_children_too(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    table = DiskTable(str(tmp_path / "link"))
    table.write([[(b"a", b"1")]])
    descriptors = [fd for fd in os.listdir("/proc/self/fd") if str(tmp_path) in _target(fd)]
    assert descriptors
    assert not any(os.get_inheritable(int(fd)) for fd in descriptors)


def test_a_process_with_few_addresses_gets_a_smaller_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_module, "_MAP_BYTES", (1 << 60, 1 << 24))
    table = DiskTable(str(tmp_path))
    table.write([[(b"a", b"1")]])
    assert table.get(b"a") == b"1"
    assert list(tmp_path.iterdir()) == []
