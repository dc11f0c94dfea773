"""`storm new`: the project that it makes passes its own tests, and runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tests.support.devcluster import environment, storm


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("new")
    made = storm("new", "shop-words", "--json", cwd=folder, check=True)
    answer = json.loads(made.stdout)
    project = folder / "shop-words"
    assert answer["project"] == str(project)
    there = {str(p.relative_to(project)) for p in project.rglob("*") if p.is_file()}
    assert set(answer["files"]) == there
    return project


def run(project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments],
        cwd=project,
        env={**environment(), "PYTEST_ADDOPTS": "-p no:asyncio -p no:cacheprovider"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_it_passes_its_own_tests(project: Path) -> None:
    done = run(project, "pytest", "-q", "-W", "error")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "3 passed" in done.stdout


def test_it_runs_in_one_process(project: Path) -> None:
    done = storm("local", "--no-dependencies", "--local-ttl", "1", project, "shop_words.topology")
    assert done.returncode == 0, done.stderr
    assert "shop-words: count: emitted" in done.stdout + done.stderr


def test_it_has_types_and_is_formatted(project: Path, tmp_path: Path) -> None:
    env = environment()
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--cache-dir",
            str(tmp_path),
            "--follow-imports",
            "silent",
            "--config-file",
            os.devnull,
            "src",
        ],
        cwd=project,
        env={**env, "MYPYPATH": env["PYTHONPATH"]},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    done = run(project, "ruff", "format", "--isolated", "--check", ".")
    assert done.returncode == 0, done.stdout


def test_its_ci_file_names_commands_that_exist(project: Path) -> None:
    workflow = yaml.safe_load((project / ".github" / "workflows" / "tests.yml").read_text())
    steps = [step.get("run", "") for step in workflow["jobs"]["tests"]["steps"]]
    (pack,) = [step for step in steps if step.startswith("storm ")]
    done = storm(*pack.split()[1:], cwd=project)
    assert done.returncode == 0, done.stderr
    (project / "shop-words.zip").unlink()


def test_no_placeholder_is_left(project: Path) -> None:
    for file in project.rglob("*"):
        made = not any(part.endswith("_cache") for part in file.parts)
        if made and file.is_file() and file.suffix in (".py", ".md", ".toml", ".yml", ""):
            assert "{{name}}" not in file.read_text()
            assert "{{package}}" not in file.read_text()


def test_a_folder_with_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    (tmp_path / "words" / "mine.txt").write_text("mine")
    done = storm("new", "words", cwd=tmp_path)
    assert done.returncode == 1
    assert "exists already" in done.stderr
    assert [p.name for p in (tmp_path / "words").iterdir()] == ["mine.txt"]
    assert [p.name for p in tmp_path.iterdir()] == ["words"]


@pytest.mark.parametrize(
    "name", ["json", "class", "squall-x", "1words", "a b", "-x", "a" * 101, "é", "a\n"]
)
def test_a_name_that_cannot_be_a_package_is_refused(name: str, tmp_path: Path) -> None:
    done = storm("new", "--", name, cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []
