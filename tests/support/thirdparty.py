"""Storm components and clients that others wrote, from package registries: none of them is a
dependency of squall. Each is installed once, into `.tools/` of this checkout.

Where something cannot be had, its tests are skipped and say why; in CI (`CI=true`) they fail.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import venv
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

import pytest
from tests.support.devcluster import ROOT

TOOLS = ROOT / ".tools" / "conformance"
_INSTALL_SECS = 240


def unavailable(why: str) -> NoReturn:
    """Skip the test, or fail it in CI."""
    if os.environ.get("CI", "").lower() in ("true", "1", "yes"):
        pytest.fail(f"{why} (in CI that is a failure)", pytrace=False)
    pytest.skip(why)


def command(name: str) -> str:
    """The path of a command of this machine."""
    found = shutil.which(name)
    if found is None:
        unavailable(f"there is no `{name}` on this machine")
    return found


def pystorm_python() -> Path:
    """An interpreter that has pystorm, and msgpack for its second serializer."""
    return _python("pystorm", ("pystorm==3.1.4", "msgpack>=1.0"))


def streamparse_env() -> Path:
    """A virtual environment with streamparse: `bin/sparse`, `bin/streamparse_run`."""
    # It imports pkg_resources, which setuptools 81 no longer has.
    return _python(
        "streamparse", ("streamparse==5.0.1", "setuptools<81", "msgpack>=1.0")
    ).parent.parent


def others_python() -> Path:
    """An interpreter that has the libraries whose users the pages for migrating address."""
    return _python("others", ("bytewax==0.21.1", "celery==5.7.0", "faust-streaming==0.15.3"))


def ipython_packages() -> Path:
    """The folder of IPython's modules, for a Python path."""
    (packages,) = _python("ipython", ("ipython==9.4.0",)).parent.parent.glob("lib/*/site-packages")
    return packages


def beam_python() -> Path:
    """An interpreter that has Apache Beam, whose trigger driver says what windows hold."""
    return _python("beam", ("apache-beam==2.77.0",))


def pyright_program() -> Path:
    """The type checker pyright. (It fetches itself from npm when it is first run.)"""
    return _python("pyright", ("pyright==1.1.414",)).parent / "pyright"


def petrel_python() -> Path:
    """An interpreter that has petrel. What petrel pins (thrift 0.9.3, six and PyYAML of 2015) does
    not install on today's Python: the nearest versions that do take its place."""
    return _python(
        "petrel",
        ("six", "PyYAML<5.4", "thrift>=0.16", "setuptools<81", "wheel"),
        ("petrel==1.0.3.0.3.post1",),
    )


def node_storm_path() -> str:
    """A NODE_PATH that has node-storm."""
    return str(_npm("node-storm", "0.0.1"))


def axe_script() -> str:
    """The source of axe-core, which finds what keeps people with disabilities off a page."""
    return (_npm("axe-core", "4.10.3") / "axe-core" / "axe.min.js").read_text()


def _npm(name: str, version: str) -> Path:
    """A node_modules with a package of npm."""
    package = f"{name}@{version}"

    def install(folder: Path) -> None:
        options = ("--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder))
        _run(npm, "install", *options, package)

    npm = command("npm")
    return _installed(name, (package,), install) / "node_modules"


def _python(name: str, packages: Sequence[str], alone: Sequence[str] = ()) -> Path:
    """An interpreter with `packages`, and with those in `alone` but not what they ask for."""

    def install(folder: Path) -> None:
        venv.create(folder, with_pip=True, clear=True)
        pip = (str(folder / "bin" / "python"), "-m", "pip", "install", "-q")
        _run(*pip, "--disable-pip-version-check", *packages)
        if alone:
            _run(*pip, "--disable-pip-version-check", "--no-deps", *alone)

    return _installed(name, (*packages, *alone), install) / "bin" / "python"


def _installed(name: str, packages: Sequence[str], install: Callable[[Path], None]) -> Path:
    """The folder that `install` fills, once for these packages."""
    key = hashlib.sha256(" ".join(packages).encode()).hexdigest()[:8]
    folder = TOOLS / f"{name}-{key}"
    ready = folder / ".ready"
    with _locked(name):
        if not ready.exists():
            folder.mkdir(parents=True, exist_ok=True)
            try:
                install(folder)
            except (OSError, subprocess.SubprocessError) as error:
                said = getattr(error, "stderr", None) or str(error)
                unavailable(f"{name} cannot be installed: {str(said)[-300:]}")
            ready.touch()
    return folder


@contextmanager
def _locked(name: str) -> Iterator[None]:
    """Tests run in several processes."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(*arguments: str) -> None:
    # Their caches stay where they are; nothing of ours may reach an interpreter of theirs.
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "PYTHONHOME")}
    subprocess.run(
        arguments,
        check=True,
        capture_output=True,
        text=True,
        timeout=_INSTALL_SECS,
        env=env,
        stdin=subprocess.DEVNULL,
    )
