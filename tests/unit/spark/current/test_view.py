"""Views of current values: what is there, and what is refused."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from tests.unit.spark.current.support import sink_of

from squall import SquallError
from squall_common.daemon.folders import Folder
from squall_spark.current.view import Version, View, view_folder
from squall_spark.current.write import held
from squall_spark.data.columns import TypeGuess
from squall_spark.lock import FolderInUseError

FIELDS = [
    {"name": name, "type": type_, "nullable": True, "metadata": {}}
    for name, type_ in (("n", "long"), ("word", "string"))
]
VERSION = Version("000000001-a", ("word",), ["int", "str"], {"type": "struct", "fields": FIELDS})


def make(folder: Path, version: Version = VERSION) -> View:
    view = View(str(folder), "--current count")
    (folder / "_versions" / version.name).mkdir(parents=True)
    view._switch(version)
    return view


def test_the_link_and_the_file_behind_a_url_name_the_version(tmp_path: Path) -> None:
    view = make(tmp_path / "a")
    assert view.current() == VERSION
    assert (tmp_path / "a" / "current").resolve().name == VERSION.name
    url = f"file://{tmp_path}/b"
    (tmp_path / "b" / "_versions" / VERSION.name).mkdir(parents=True)
    behind = View(url, "--current count")
    behind._switch(VERSION)
    assert behind.current() == VERSION
    assert view_folder(url) == f"{url}/_versions/{VERSION.name}"
    with pytest.raises(SquallError, match="is not a view of current values"):
        view_folder(str(tmp_path))


def test_a_paused_driver_does_not_undo_what_another_has_merged(tmp_path: Path) -> None:
    """Behind a URL a lock is a name with a time. The paused one wakes up just before its switch,
    at once or many versions later."""
    url = f"file://{tmp_path}"
    paused, other = View(url, "--current count"), View(url, "--current count")
    for name in ("000000001-a", "000000002-b"):
        other._switch(replace(VERSION, name=name))
    with pytest.raises(FolderInUseError, match="another job has written the view"):
        paused._switch(replace(VERSION, name="000000002-z"))
    assert view_folder(url) == f"{url}/_versions/000000002-b"
    for name in ("000000003-c", "000000004-d"):
        other._switch(replace(VERSION, name=name))
        other._clean(MagicMock(), name)
    with pytest.raises(FolderInUseError):
        paused._switch(replace(VERSION, name="000000002-y"))
    assert view_folder(url) == f"{url}/_versions/000000004-d"
    # Killed, or paused, between its two steps: then the file for other readers is behind.
    (tmp_path / "_current").write_text("000000003-c")
    assert other.current_name() == "000000004-d"
    assert view_folder(url).endswith("-d")
    batch = replace(VERSION, name="000000005-e", written={"w": 7})
    other._switch(batch)
    (tmp_path / "_current").write_text("000000004-d")
    sink = sink_of(url)
    types = TypeGuess(sink.fields)
    assert not other.merge(MagicMock(), sink, types, "w", 7, files=1, anew=False)
    assert (tmp_path / "_current").read_text() == "000000005-e"


def test_a_switch_whose_answer_was_lost_is_this_drivers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client of an object store then tries again, and finds the file that it has made."""
    create = Folder.create

    def create_twice(folder: Folder, name: str, data: bytes) -> None:
        create(folder, name, data)
        create(folder, name, data)

    monkeypatch.setattr(Folder, "create", create_twice)
    view = View(f"file://{tmp_path}", "--current count")
    view._switch(VERSION)
    assert view.current_name() == VERSION.name
    with pytest.raises(FolderInUseError):
        view._switch(replace(VERSION, name="000000001-z"))


def test_a_driver_that_was_paused_after_its_switch_deletes_nothing_newer(tmp_path: Path) -> None:
    """Another one has taken over meanwhile: the current version is its."""
    view = make(tmp_path)
    make(tmp_path, replace(VERSION, name="000000002-b"))
    (tmp_path / "_versions" / "000000003-c").mkdir()  # which is being written
    spark = MagicMock()
    view._clean(spark, VERSION.name)
    assert not spark.sparkContext._jvm.org.apache.hadoop.fs.Path.called


def test_all_folders_of_a_version_are_durable_before_the_link_is_switched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of --partition-by, too."""
    version = tmp_path / "_versions" / VERSION.name
    (version / "day=1").mkdir(parents=True)
    (version / "day=1" / "part-0.parquet").touch()
    synced: list[Path] = []

    def sync(path: Path) -> None:
        if not (tmp_path / "current").is_symlink():
            synced.append(path)

    monkeypatch.setattr("squall_spark.current.view.sync_dir", sync)
    monkeypatch.setattr("squall_spark.current.view.sync_file", sync)
    View(str(tmp_path), "--current count")._switch(VERSION)
    assert {*version.rglob("*"), version, version.parent} <= set(synced)


def test_what_a_killed_driver_has_left_takes_no_version_away(tmp_path: Path) -> None:
    """It was killed just before it would have switched."""
    view = make(tmp_path)
    names = ["000000001-a", "000000002-b", "000000003-c", "000000004-0", "000000004-d"]
    for name in names[1:]:
        make(tmp_path, replace(VERSION, name=name))
    (tmp_path / "_versions" / "000000004-z").mkdir()
    spark = MagicMock()
    view._clean(spark, "000000004-d")
    deleted = spark.sparkContext._jvm.org.apache.hadoop.fs.Path.call_args_list
    left = ["000000001-a", "000000004-0", "000000004-z"]
    assert sorted(call.args[0] for call in deleted) == [view.folder_of(name) for name in left]


def test_types_are_those_of_the_view_and_the_new_tuples(tmp_path: Path) -> None:
    view, sink = make(tmp_path), sink_of(str(tmp_path))
    guess = TypeGuess(sink.fields)
    guess.guesses = ["str", "float"]
    assert view.widen(sink, guess).guesses == ["str", "float"]
    guess.guesses = [None, "str"]
    with pytest.raises(SquallError, match="field 'n' holds both int and str"):
        view.widen(sink, guess)
    with pytest.raises(SquallError, match=r"the view .* has the key word, and the stream n"):
        view.widen(sink_of(str(tmp_path), ("n",)), guess)


def test_what_is_no_view_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "part-0.parquet").touch()
    with pytest.raises(SquallError, match=r"is not a view of current values \(it has part-0"):
        View(str(tmp_path), "--current count").check()
    View(str(tmp_path / "new"), "--current count").check()


def test_a_damaged_view_is_an_error_with_its_file(tmp_path: Path) -> None:
    view = make(tmp_path)
    file = tmp_path / "_versions" / VERSION.name / "_squall.json"
    for text in ("{", "[]", json.dumps({"format": 2, **asdict(VERSION)})):
        file.write_text(text)
        with pytest.raises(SquallError, match=r"is damaged: .*_squall\.json"):
            view.current()


def test_one_driver_holds_a_view(tmp_path: Path) -> None:
    sink = sink_of(f"{tmp_path}/out")
    message = r"--current count=.* is in use"
    with held([sink]), pytest.raises(FolderInUseError, match=message), held([sink]):
        pass
    View(sink.path, "--current count").check()  # the lock is a part of a view
