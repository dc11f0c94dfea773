"""`storm package`: the archive without a cluster."""

import json
import zipfile

import pytest

from squall_cli.main import run


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "job"
    folder.mkdir()
    (folder / "job.py").write_text("x = 1\n")
    return folder


def test_a_package_is_written_where_asked_and_described(source, tmp_path, capsys):
    target = tmp_path / "out.zip"
    assert run(["package", str(source), "-o", str(target), "--json"]) == 0
    reported = json.loads(capsys.readouterr().out)
    assert reported["package"] == str(target)
    assert (reported["files"], reported["unpacked_bytes"]) == (1, 6)
    assert zipfile.ZipFile(target).namelist() == ["job.py"]
    first = target.read_bytes()
    assert run(["package", str(source), "-o", str(target)]) == 0
    assert target.read_bytes() == first
    assert reported["sha256"] in capsys.readouterr().out
    assert sorted(p.name for p in tmp_path.iterdir()) == ["job", "out.zip"]


def test_by_default_it_lies_in_this_folder(source, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run(["package", "job"]) == 0
    assert (tmp_path / "job.zip").is_file()


def test_a_failure_to_pack_or_write_is_one_message(source, tmp_path, capsys):
    for arguments, message in (
        ([str(tmp_path / "none")], "there is no package"),
        ([str(source), "-o", str(tmp_path / "no" / "x.zip")], "cannot write"),
    ):
        assert run(["package", *arguments]) == 1
        err = capsys.readouterr().err
        assert message in err
        assert "Traceback" not in err
    archive = tmp_path / "a.zip"
    assert run(["package", str(source), "-o", str(archive)]) == 0
    capsys.readouterr()
    assert run(["package", str(archive)]) == 1
    assert "is already a package" in capsys.readouterr().err
