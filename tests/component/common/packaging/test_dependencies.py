"""Dependencies resolved by pip, and installed for a worker that runs them."""

import os
import subprocess
import sys

import pytest
from tests.support.wheels import make_wheel

from squall_common.errors import PackageError
from squall_common.packaging.dependencies import build_environment, read_wheel
from squall_common.packaging.platforms import Platform
from squall_common.packaging.resolution import resolve

LINUX = Platform.parse("cp3.11 linux_x86_64 glibc2.31")


def run(environment, code):
    env = {**os.environ, "PYTHONPATH": str(environment / "site")}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


# ---- Installing ----


def test_wheels_are_installed_with_their_programs(tmp_path):
    wheels = [
        read_wheel(make_wheel(tmp_path, "one", scripts={"say-one": "one:main"})),
        read_wheel(make_wheel(tmp_path, "two", "2.0")),
    ]
    build_environment(wheels, tmp_path / "environment", sys.executable)
    assert run(tmp_path / "environment", "import one, two; print(one.VERSION, two.VERSION)") == (
        "1.0 2.0"
    )
    program = tmp_path / "environment" / "bin" / "say-one"
    assert os.access(program, os.X_OK)
    assert program.read_text().startswith(f"#!{sys.executable}\n")


def test_no_code_of_a_wheel_runs(tmp_path):
    files = {
        "evil.pth": "import os; os.mkdir('ran')\n",
        "setup.py": "raise SystemExit\n",
        "evil.py": "",
    }
    build_environment(
        [read_wheel(make_wheel(tmp_path, "evil", files=files))],
        tmp_path / "environment",
        sys.executable,
    )
    assert run(tmp_path / "environment", "import evil, os; print(os.path.exists('ran'))") == "False"


@pytest.fixture
def offline(monkeypatch):
    """pip without an index."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")


def test_requirements_become_wheels_of_the_newest_version_that_fits(tmp_path, offline):
    shelf = tmp_path / "shelf"
    make_wheel(shelf, "one", requires=["two<2"])
    for version in ("1.0", "1.9", "2.0"):
        make_wheel(shelf, "two", version)
    make_wheel(shelf, "two", "1.95", tag="cp311-cp311-win_amd64")
    file = tmp_path / "requirements.txt"
    file.write_text("# what we need\none\n")
    (tmp_path / "work").mkdir()
    wheels = resolve(file, shelf, LINUX, tmp_path / "work")
    assert [w.path.name for w in wheels] == [
        "one-1.0-py3-none-any.whl",
        "two-1.9-py3-none-any.whl",
    ]


def test_what_cannot_be_resolved_is_one_message(tmp_path, offline):
    shelf = tmp_path / "shelf"
    make_wheel(shelf, "one", requires=["orjson<1"])
    make_wheel(shelf, "two", tag="cp312-cp312-win_amd64")
    for number, (line, message) in enumerate(
        [("nowhere", "nowhere"), ("one", "orjson"), ("two", "two")]
    ):
        work = tmp_path / str(number)
        work.mkdir()
        with pytest.raises(PackageError, match=f"not available as wheels for cp3.11.*{message}"):
            resolve([line], shelf, LINUX, work)
    with pytest.raises(PackageError, match="there is no file"):
        resolve(tmp_path / "none.txt", None, LINUX, tmp_path)
