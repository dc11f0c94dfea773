"""Packages: the same folder is the same bytes, and what is unsafe or nothing is refused."""

import os
import stat
import zipfile

import pytest

from squall_common.errors import PackageError
from squall_common.packaging import package
from squall_common.packaging.package import build_package, code_paths, modules_in, unpack_package


@pytest.fixture
def folder(tmp_path):
    """A package's folder, and one to build in beside it."""
    source = tmp_path / "wordcount"
    source.mkdir()
    (tmp_path / "out").mkdir()
    (source / "wordcount.py").write_text("x = 1\n")
    (source / "jobs").mkdir()
    (source / "jobs" / "daily.py").write_text("y = 1\n")
    return source


def names(archive):
    with zipfile.ZipFile(archive) as file:
        return file.namelist()


def test_a_folder_becomes_a_zip_of_its_files(folder, tmp_path):
    archive = build_package(folder, tmp_path / "out")
    assert archive == tmp_path / "out" / "wordcount.zip"
    assert names(archive) == ["jobs/daily.py", "wordcount.py"]


def test_the_same_files_are_the_same_bytes(folder, tmp_path):
    first = build_package(folder, tmp_path / "out").read_bytes()
    for path in folder.rglob("*.py"):
        os.utime(path, (1, 1))
    assert build_package(folder, tmp_path / "out").read_bytes() == first


def test_files_that_no_worker_needs_are_left_out(folder, tmp_path):
    for skipped in (".git", "__pycache__", ".venv", "x.egg-info", "jobs/__pycache__"):
        (folder / skipped).mkdir()
        (folder / skipped / "file").write_text("")
    (folder / "old.pyc").write_text("")
    assert names(build_package(folder, tmp_path / "out")) == ["jobs/daily.py", "wordcount.py"]


def test_execute_bits_come_through_and_nothing_else_of_the_mode(folder, tmp_path):
    script = folder / "resources"
    script.mkdir()
    (script / "split.rb").write_text("#!/usr/bin/env ruby\n")
    (script / "split.rb").chmod(0o4755)
    (folder / "wordcount.py").chmod(0o600)
    code = unpack_package(build_package(folder, tmp_path / "out"), tmp_path)
    assert stat.S_IMODE((code / "resources" / "split.rb").stat().st_mode) & 0o4111 == 0o111
    assert (code / "wordcount.py").stat().st_mode & 0o111 == 0


def test_a_project_has_the_content_of_src_at_the_top(folder, tmp_path):
    (folder / "pyproject.toml").write_text("[project]\n")
    (folder / "src").mkdir()
    (folder / "src" / "app.py").write_text("")
    assert "app.py" in names(build_package(folder, tmp_path / "out"))
    (folder / "app.py").write_text("")
    with pytest.raises(PackageError, match=r"'app\.py' both at its top level and in src/"):
        build_package(folder, tmp_path / "out")


def test_a_folder_named_src_without_a_project_stays(folder, tmp_path):
    (folder / "src").mkdir()
    (folder / "src" / "app.py").write_text("")
    assert "src/app.py" in names(build_package(folder, tmp_path / "out"))


def test_an_archive_is_taken_as_it_is(folder, tmp_path):
    archive = build_package(folder, tmp_path / "out").rename(tmp_path / "wc.pyz")
    with_shebang = tmp_path / "app.pyz"
    with_shebang.write_bytes(b"#!/usr/bin/env python3\n" + archive.read_bytes())
    assert build_package(archive, tmp_path / "out") == archive
    assert build_package(with_shebang, tmp_path / "out") == with_shebang


def test_linked_files_are_packed_as_what_they_lead_to(folder, tmp_path):
    (tmp_path / "shared.py").write_text("z = 1\n")
    (folder / "shared.py").symlink_to(tmp_path / "shared.py")
    code = unpack_package(build_package(folder, tmp_path / "out"), tmp_path)
    assert (code / "shared.py").read_text() == "z = 1\n"


def test_a_link_to_a_folder_around_it_is_refused(folder, tmp_path):
    (folder / "jobs" / "up").symlink_to(folder)
    with pytest.raises(PackageError, match="a link to a folder that it lies in"):
        build_package(folder, tmp_path / "out")


def test_a_link_to_nothing_is_refused(folder, tmp_path):
    (folder / "gone").symlink_to(tmp_path / "nothing")
    with pytest.raises(PackageError, match="is a link to something that is not there"):
        build_package(folder, tmp_path / "out")


def test_a_file_that_is_not_a_package_is_refused(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text("hello")
    with pytest.raises(PackageError, match="neither a folder nor an archive"):
        build_package(text, tmp_path)
    with pytest.raises(PackageError, match="there is no package"):
        build_package(tmp_path / "none.zip", tmp_path)
    text.write_bytes(b"")
    with pytest.raises(PackageError, match=r"notes.txt is empty: it has no bytes"):
        build_package(text, tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(PackageError, match="is empty"):
        build_package(tmp_path / "empty", tmp_path)


def test_an_archive_that_leads_out_is_refused_and_writes_nothing_there(tmp_path):
    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("../evil.py", "")
    (tmp_path / "in").mkdir()
    with pytest.raises(PackageError, match=r"\.\./evil\.py"):
        unpack_package(archive, tmp_path / "in")
    assert not (tmp_path / "evil.py").exists()
    assert not (tmp_path / "in" / "evil.py").exists()


def test_a_damaged_archive_is_refused(folder, tmp_path):
    archive = build_package(folder, tmp_path / "out")
    data = bytearray(archive.read_bytes())
    data[30:60] = b"\xff" * 30
    archive.write_bytes(data)
    with pytest.raises(PackageError):
        unpack_package(archive, tmp_path)


def test_bundled_dependencies_are_on_the_path_after_the_package(tmp_path):
    for name in (".deps/b.whl", ".deps/a.whl", "site-packages"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / ".deps" / "note.txt").write_text("")
    assert code_paths(tmp_path) == [
        str(tmp_path),
        str(tmp_path / ".deps" / "a.whl"),
        str(tmp_path / ".deps" / "b.whl"),
        str(tmp_path / "site-packages"),
    ]


def test_the_modules_of_a_package_are_listed_for_messages(folder):
    (folder / "jobs" / "__init__.py").write_text("")
    (folder / "not-one.py").write_text("")
    assert modules_in(folder) == ["jobs", "jobs.daily", "wordcount"]


# ---- .stormignore ----


def test_stormignore_leaves_out_what_a_gitignore_would(folder, tmp_path):
    (folder / "data").mkdir()
    for name in ("data/big.bin", "data/keep.bin", "notes.txt", "jobs/notes.txt"):
        (folder / name).write_text("x")
    (folder / ".stormignore").write_text("# not for workers\ndata/*\n!data/keep.bin\n/notes.txt\n")
    assert names(build_package(folder, tmp_path / "out")) == [
        "data/keep.bin",
        "jobs/daily.py",
        "jobs/notes.txt",
        "wordcount.py",
    ]


def test_a_stormignore_that_leaves_nothing_is_an_error(folder, tmp_path):
    (folder / ".stormignore").write_text("*\n")
    with pytest.raises(PackageError, match="is empty"):
        build_package(folder, tmp_path / "out")


def test_a_stormignore_that_is_not_text_is_an_error(folder, tmp_path):
    (folder / ".stormignore").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(PackageError, match=r"\.stormignore is not a text file"):
        build_package(folder, tmp_path / "out")


def _also_packs(monkeypatch, path):
    """As if `path` had been in the folder when its files were listed."""
    listed = package.package_files
    monkeypatch.setattr(
        package, "package_files", lambda source: [*listed(source), (path.name, path)]
    )


def test_a_file_that_is_removed_while_a_folder_is_packed_is_left_out(folder, tmp_path, monkeypatch):
    _also_packs(monkeypatch, folder / "clicks.db-journal")
    assert names(build_package(folder, tmp_path / "out")) == ["jobs/daily.py", "wordcount.py"]


def test_a_file_that_cannot_be_read_is_named(folder, tmp_path, monkeypatch):
    _also_packs(monkeypatch, folder / "jobs")  # reading a folder fails, also for root
    with pytest.raises(PackageError, match="jobs cannot be read: Is a directory"):
        build_package(folder, tmp_path / "out")
