"""`storm local --reload`: which changes of a package count."""

from __future__ import annotations

from pathlib import Path

from squall_cli.programs.reload import changed, snapshot


def _package(folder: Path) -> Path:
    for name in ("job.py", "lib/words.py", "resources/split.js", "conf.yaml", "out.txt"):
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(name)
    return folder


def test_source_files_count_and_what_a_topology_may_write_does_not(tmp_path: Path) -> None:
    package = _package(tmp_path)
    before = snapshot(package)
    assert sorted(before) == ["conf.yaml", "job.py", "lib/words.py", "resources/split.js"]
    (package / "out.txt").write_text("more")
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "x.py").write_text("")
    assert changed(before, snapshot(package)) == []


def test_changed_new_and_deleted_files_are_named(tmp_path: Path) -> None:
    package = _package(tmp_path)
    before = snapshot(package)
    (package / "job.py").write_text("changed it is")
    (package / "lib" / "words.py").unlink()
    (package / "new.py").write_text("")
    assert changed(before, snapshot(package)) == ["job.py", "lib/words.py", "new.py"]


def test_a_file_replaced_by_one_of_the_same_size_and_time_counts(tmp_path: Path) -> None:
    import os

    package = _package(tmp_path)
    before = snapshot(package)
    found = (package / "job.py").stat()
    (package / "other").write_text("jab.py")
    os.utime(package / "other", ns=(found.st_atime_ns, found.st_mtime_ns))
    (package / "other").replace(package / "job.py")
    assert changed(before, snapshot(package)) == ["job.py"]


def test_an_archive_and_a_file_of_requirements_count_themselves(tmp_path: Path) -> None:
    archive, requirements = tmp_path / "job.zip", tmp_path / "requirements.txt"
    archive.write_text("1")
    before = snapshot(archive, requirements)
    requirements.write_text("numpy")
    assert changed(before, snapshot(archive, requirements)) == [str(requirements)]
    archive.write_text("22")
    assert changed(before, snapshot(archive, requirements)) == [str(requirements), "job.zip"]


def test_a_package_that_cannot_be_read_is_a_state_of_its_own(tmp_path: Path) -> None:
    package = _package(tmp_path / "package")
    before = snapshot(package)
    (package / "dangling.py").symlink_to(tmp_path / "missing")
    broken = snapshot(package)
    assert str(package) in changed(before, broken)
    (package / "dangling.py").unlink()
    assert changed(before, snapshot(package)) == []
