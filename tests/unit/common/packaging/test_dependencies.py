"""Wheels: what they are called, what they need, and installing them without running them."""

import sys
import zipfile

import pytest
from tests.support.wheels import make_wheel

from squall_common.errors import PackageError
from squall_common.names import parse_dependency_key
from squall_common.packaging.dependencies import (
    build_environment,
    environment_key,
    fits,
    read_wheel,
)
from squall_common.packaging.platforms import Platform, this_platform
from squall_common.packaging.resolution import project_requirements, take_wheels

LINUX = Platform.parse("cp3.11 linux_x86_64 glibc2.31")


# ---- Names ----


def test_a_key_names_its_content(tmp_path):
    one = read_wheel(make_wheel(tmp_path / "a", "one"))
    other = read_wheel(make_wheel(tmp_path / "b", "one", files={"one.py": "x = 2\n"}))
    assert one.path.name == other.path.name
    assert one.key != other.key
    assert parse_dependency_key(one.key) == (one.sha256, "one-1.0-py3-none-any.whl")


@pytest.mark.parametrize(
    "key",
    ["wc-1-1-stormjar.jar", "dep-abc-x.whl", f"dep-{'a' * 64}-../x.whl", f"dep-{'a' * 64}-x.zip",
     f"dep-{'a' * 64}-x\n.whl", ""],
)  # fmt: skip
def test_other_keys_are_not_dependencies(key):
    assert parse_dependency_key(key) is None


def test_an_environment_is_its_wheels_its_platform_and_squall():
    key = environment_key(["a", "b"], LINUX, "1")
    assert environment_key(["b", "a", "a"], LINUX, "1") == key
    others = {
        environment_key(["a"], LINUX, "1"),
        environment_key(["a", "b"], this_platform(), "1"),
        environment_key(["a", "b"], Platform.parse("cp3.12 linux_x86_64 glibc2.31"), "1"),
        environment_key(["a", "b"], LINUX, "2"),
    }
    assert len(others | {key}) == 5


@pytest.mark.parametrize(
    ("tag", "runs"),
    [("py3-none-any", True), ("cp311-cp311-manylinux_2_17_x86_64", True),
     ("cp311-cp311-manylinux_2_35_x86_64", False), ("cp38-abi3-manylinux2014_x86_64", True),
     ("cp312-cp312-manylinux2014_x86_64", False), ("cp311-cp311-win_amd64", False),
     ("cp311-cp311-manylinux2014_aarch64", False)],
)  # fmt: skip
def test_a_wheel_fits_by_its_tags(tag, runs):
    assert fits(f"one-1.0-{tag}.whl", LINUX) is runs


@pytest.mark.parametrize(
    ("member", "why"),
    [("../../out.py", "leads out"), ("/out.py", "absolute"), ("evil-1.0.data/data/../../x", "out")],
)
def test_a_wheel_that_leads_out_of_its_folder_is_refused(tmp_path, member, why):
    wheel = read_wheel(make_wheel(tmp_path, "evil", files={member: "x"}))
    with pytest.raises(PackageError, match=why):
        build_environment([wheel], tmp_path / "environment", sys.executable)
    assert not (tmp_path / "out.py").exists()


def test_a_damaged_wheel_is_named(tmp_path):
    spoiled = make_wheel(tmp_path, "one", spoil="one.py")
    cut = make_wheel(tmp_path, "two")
    cut.write_bytes(cut.read_bytes()[:-40])
    no_record = tmp_path / "three-1.0-py3-none-any.whl"
    with zipfile.ZipFile(no_record, "w") as archive:
        archive.writestr("three.py", "")
    for number, path in enumerate([spoiled, cut, no_record]):
        with pytest.raises(PackageError, match=path.name):
            build_environment([read_wheel(path)], tmp_path / str(number), sys.executable)


def test_two_wheels_with_the_same_file_are_refused(tmp_path):
    wheels = [
        read_wheel(make_wheel(tmp_path, name, files={"same.py": "x = 1\n"}))
        for name in ("one", "two")
    ]
    with pytest.raises(PackageError, match=r"two-1.0.*'same\.py'"):
        build_environment(wheels, tmp_path / "environment", sys.executable)


# ---- A folder of wheels ----


def test_a_folder_of_wheels_is_taken_whole(tmp_path):
    make_wheel(tmp_path, "one", requires=["two>=1", "orjson", 'nothing; python_version < "3"'])
    make_wheel(tmp_path, "two", "1.5", requires=['extra-thing; extra == "more"'])
    assert [w.path.name for w in take_wheels(tmp_path, LINUX)] == [
        "one-1.0-py3-none-any.whl",
        "two-1.5-py3-none-any.whl",
    ]


def test_what_a_folder_of_wheels_lacks_is_named(tmp_path):
    for number, (made, message) in enumerate(
        [
            ([("one", {"requires": ["two>=1"]})], r"one-1\.0.* requires two>=1, which is not in"),
            (
                [("one", {"requires": ["two>=3"]}), ("two", {})],
                r"requires two>=3; .* has two 1\.0",
            ),
            (
                [("one", {"tag": "cp312-cp312-win_amd64"})],
                r"one-1\.0.* does not run on the cluster",
            ),
            ([("one", {}), ("one", {"version": "2.0"})], r"holds one twice: 1\.0 and 2\.0"),
            ([], "holds no wheels"),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        for name, options in made:
            make_wheel(folder, name, **options)
        with pytest.raises(PackageError, match=message):
            take_wheels(folder, LINUX)


# ---- Requirements ----


def test_a_projects_own_requirements_leave_squall_out(tmp_path):
    project = tmp_path / "pyproject.toml"
    project.write_text('[project]\nname = "x"\ndependencies = ["squall>=0.1", "one==1.0"]\n')
    assert project_requirements(project) == ["one==1.0"]
    project.write_text("[tool.x]\n")
    assert project_requirements(project) == []
    for text in ("[project", "[project]\ndependencies = 3\n", '[project]\ndependencies = ["!"]\n'):
        project.write_text(text)
        with pytest.raises(PackageError, match=r"pyproject\.toml"):
            project_requirements(project)
