"""The Pythons that packages ask for."""

import zipfile

import pytest
from tests.support.wheels import make_wheel

from squall_common.errors import PackageError
from squall_common.packaging.platforms import Platform
from squall_common.packaging.requires_python import (
    check_pythons,
    pyproject_requirement,
    python_requirements,
)

PY311 = Platform.parse("cp3.11 linux_x86_64 glibc2.36")
PY313 = Platform.parse("cp3.13 linux_x86_64 glibc2.36")


def project(folder, wanted):
    folder.mkdir(exist_ok=True)
    file = folder / "pyproject.toml"
    file.write_text(f'[project]\nname = "x"\nrequires-python = "{wanted}"\n')
    return file


@pytest.mark.parametrize(
    ("wanted", "fits"),
    [(">=3.11", True), (">=3.11.9", True), (">=3.13", False), ("<3.11", False), ("==3.11.*", True),
     ("~=3.10", True), (">=3.8,!=3.11.*", False), (">3.11", True), ("==3.11.4", True)],
)  # fmt: skip
def test_a_python_fits_if_any_of_its_patch_releases_does(tmp_path, wanted, fits):
    (requirement,) = pyproject_requirement(project(tmp_path, wanted))
    assert requirement.allows((3, 11)) is fits


def test_a_cluster_of_another_python_is_refused_with_both_versions(tmp_path):
    asked = pyproject_requirement(project(tmp_path, ">=3.13"))
    with pytest.raises(
        PackageError, match=r"pyproject\.toml requires Python >=3\.13; the cluster has Python 3\.11"
    ):
        check_pythons(asked, {"a": PY311, "b": PY311}, who="the cluster")
    check_pythons(asked, {"a": PY313}, who="the cluster")


def test_the_nodes_of_a_mixed_cluster_that_do_not_fit_are_named(tmp_path):
    asked = pyproject_requirement(project(tmp_path, ">=3.13"))
    nodes = {f"old{number}": PY311 for number in range(6)} | {"new": PY313}
    with pytest.raises(
        PackageError, match=r"has Python 3\.11 on old0, old1, old2, old3 and 2 more"
    ):
        check_pythons(asked, nodes, who="the cluster")


def test_a_folder_is_judged_by_its_pyproject(tmp_path):
    project(tmp_path / "job", ">=3.13")
    (found,) = python_requirements(tmp_path / "job", tmp_path / "unused.zip")
    assert str(found.wanted) == ">=3.13"
    (tmp_path / "plain").mkdir()
    assert python_requirements(tmp_path / "plain", tmp_path / "unused.zip") == []


def test_an_archive_is_judged_by_its_metadata_and_what_it_bundles(tmp_path):
    archive = tmp_path / "job.pyz"
    metadata = "Metadata-Version: 2.1\nName: x\nVersion: 1\nRequires-Python: {}\n"
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("pyproject.toml", '[project]\nrequires-python = ">=3.11"\n')
        file.writestr("site-packages/a-1.dist-info/METADATA", metadata.format(">=3.12"))
        file.writestr(".deps/b-1-py3-none-any.whl/b-1.dist-info/METADATA", metadata.format(">=3.9"))
        file.writestr("vendor/deep/c-1.dist-info/METADATA", metadata.format(">=4"))
    found = python_requirements(archive, archive)
    assert [str(one.wanted) for one in found] == [">=3.11", ">=3.12", ">=3.9"]
    assert found[1].file == "site-packages/a-1.dist-info/METADATA in job.pyz"


def test_a_wheel_without_requires_python_asks_for_nothing(tmp_path):
    wheel = make_wheel(tmp_path, "one")
    assert python_requirements(wheel, wheel) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [('requires-python = "newest"', "'newest' does not say which Pythons fit"),
     ("requires-python = 3.11", "expected text"), ("requires-python = ", "cannot read")],
)  # fmt: skip
def test_a_pyproject_that_says_it_wrongly_is_refused(tmp_path, text, message):
    file = tmp_path / "pyproject.toml"
    file.write_text(f"[project]\n{text}\n")
    with pytest.raises(PackageError, match=message):
        pyproject_requirement(file)
