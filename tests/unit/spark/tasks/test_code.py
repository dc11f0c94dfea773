"""The user's code in Python workers."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path

import pytest
from tests.support.wheels import make_wheel

from squall import SquallError
from squall_spark.tasks import code as code_module
from squall_spark.tasks.code import Code, code_of


@pytest.fixture(autouse=True)
def _own_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))


def test_on_this_machine_folders_are_imported_from(tmp_path: Path) -> None:
    (tmp_path / "archive.zip").write_bytes(b"")
    code = code_of(
        tmp_path / "code", tmp_path / "archive.zip", sent=False, environment=tmp_path / "env"
    )
    assert code.paths() == tmp_path / "code"
    assert sys.path[:2] == [str(tmp_path / "code"), str(tmp_path / "env" / "site")]
    before = list(sys.path)
    code.paths()
    assert sys.path == before


def test_elsewhere_the_package_and_wheels_are_unpacked_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent, root = tmp_path / "sent", tmp_path / "executor"
    for folder in (sent, root):
        folder.mkdir()
    with zipfile.ZipFile(sent / "package.zip", "w") as package:
        package.writestr("words.py", "WORDS = 1\n")
    wheel = make_wheel(sent, "shipped", files={"shipped_words.py": "N = 3\n"})
    spark_files = type(
        "SparkFiles",
        (),
        {
            "get": staticmethod(lambda name: str(sent / name)),
            "getRootDirectory": staticmethod(lambda: str(root)),
        },
    )
    monkeypatch.setattr("pyspark.SparkFiles", spark_files)
    code = code_of(tmp_path, sent / "package.zip", sent=True, wheels=[wheel])
    folder = code.paths()
    assert folder is not None
    assert (folder / "words.py").exists()
    import shipped_words  # type: ignore[import-not-found]

    assert shipped_words.N == 3
    monkeypatch.setattr(code_module, "unpack_package", None)  # not again
    monkeypatch.setattr(code_module, "build_environment", None)
    assert code.paths() == folder


def test_a_wheel_for_another_machine_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.SparkFiles.getRootDirectory", lambda: str(tmp_path))
    code = Code(wheels=("native-1.0-cp39-cp39-win_amd64.whl",))
    with pytest.raises(SquallError, match=r"native-1\.0-.* does not run on this executor"):
        code.paths()


def test_what_a_notebook_defines_becomes_main(monkeypatch: pytest.MonkeyPatch) -> None:
    class Split:
        pass

    main = type(sys)("__main__")
    monkeypatch.setitem(sys.modules, "__main__", main)
    Code(main={"Split": Split}).paths()
    assert vars(main)["Split"] is Split
