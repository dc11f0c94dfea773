"""What commands do about requirements before the entry point runs."""

import json
from pathlib import Path

import pytest
from tests.support.fake_nimbus import fake_nimbus
from tests.support.wheels import make_wheel

from squall_cli.programs.dependencies import DependencyOptions, prepare_dependencies
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import PackageError
from squall_common.packaging import resolution
from squall_common.packaging.platforms import this_platform


class Project:
    """A project whose requirements are on a shelf of wheels, and submits of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.package = folder / "job"
        self.shelf = folder / "shelf"
        self.package.mkdir()
        self.runs = 0

    def write(self, more: str) -> None:
        text = f'[project]\nname = "job"\n{more}\n'
        (self.package / "pyproject.toml").write_text(text)

    def prepare(self, client=None, **options):
        """The file names of the wheels that would be shipped."""
        self.runs += 1
        folder = self.folder / f"run-{self.runs}"
        folder.mkdir()
        found = prepare_dependencies(
            DependencyOptions(**options), self.package, folder / "job.zip", folder, client
        )
        return [Path(path).name for path in json.loads(found.get("SQUALL_WHEELS", "[]"))]


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    return Project(tmp_path)


def test_requirements_are_resolved_once(project, monkeypatch, capsys):
    make_wheel(project.shelf, "one")
    project.write('dependencies = ["one"]')
    options = {"requirements": project.package / "pyproject.toml", "wheels": project.shelf}
    pip_runs = []
    run_pip = resolution._run_pip
    monkeypatch.setattr(resolution, "_run_pip", lambda *args: pip_runs.append(1) or run_pip(*args))
    assert project.prepare(**options) == ["one-1.0-py3-none-any.whl"]
    capsys.readouterr()
    assert project.prepare(**options) == ["one-1.0-py3-none-any.whl"]
    assert len(pip_runs) == 1
    said = capsys.readouterr().err
    assert f"resolved for {this_platform()} 0s ago; --refresh resolves them again" in said
    assert project.prepare(refresh=True, **options) == ["one-1.0-py3-none-any.whl"]
    assert len(pip_runs) == 2
    make_wheel(project.shelf, "one", "2.0")
    assert project.prepare(**options) == ["one-2.0-py3-none-any.whl"]


def test_a_package_for_another_python_is_refused_before_anything_is_resolved(project):
    project.write('requires-python = ">=3.99"\ndependencies = ["nowhere"]')
    with fake_nimbus() as nimbus:
        nimbus.answers["getSupervisorPlatforms"] = {"a": str(this_platform())}
        client = ClientOptions.read(nimbus.conf)
        with pytest.raises(PackageError, match=r"requires Python >=3\.99; the cluster has Python"):
            project.prepare(client)
        with pytest.raises(PackageError, match="the cluster has Python"):
            project.prepare(client, none=True)
    with pytest.raises(PackageError, match="this machine has Python"):
        project.prepare(None)


def test_a_package_without_requirements_asks_nimbus_for_nothing(project):
    project.write("")
    with fake_nimbus() as nimbus:
        assert project.prepare(ClientOptions.read(nimbus.conf)) == []
        assert nimbus.calls == []
