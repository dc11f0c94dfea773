"""What `pip install squall` puts on a machine that has no checkout: a wheel, built from the sdist,
is installed into a fresh environment and used from a folder that knows nothing of this one.

The tests run in the order in which they are written, on the same environment: Spark comes last.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.leftovers import processes_of
from tests.support.devcluster import ROOT, wait_empty
from tests.support.pages import Session, blocks, commands, reader_environment

from squall_cli.cluster.zookeeper import find_classpath
from squall_common.daemon.compiled_modules import (
    FOLDER,
    HOME,
    LIBRARY,
    MADE_OF,
    MODULES,
    file_name,
)

pytestmark = [pytest.mark.install, pytest.mark.timeout(400)]

PACKAGES = (
    "squall", "squall_cli", "squall_common", "squall_drpc", "squall_engine", "squall_nimbus",
    "squall_spark", "squall_supervisor", "squall_thrift", "squall_ui",
    "squall_worker",
)  # fmt: skip
DATA_FILES = {
    "squall_common/config/defaults.yaml",
    "squall_drpc/batches.thrift",
    "squall_thrift/storm.thrift",
    "squall_ui/static/app.css",
    "squall_ui/static/app.js",
    "squall_ui/static/pages/topology.js",
    *(f"{package}/py.typed" for package in PACKAGES),
    *(
        path.relative_to(ROOT / "cli").as_posix()
        for path in (ROOT / "cli" / "squall_cli" / "template").rglob("*.tmpl")
    ),
}
VERSIONS = (ROOT / "constraints.txt").as_uri()
# Long enough for what pip has to fetch when its cache is empty.
INSTALL_SECS = 300
FIRST_RESULT_SECS_MAX = 90

# Imports every module; prints where each lies, and those that could not be imported, with the
# module that was missing.
_IMPORT_ALL = """\
import importlib, json, pkgutil, sys
found, missing = {}, {}
names = [n for p in sys.argv[1:] for n in [p] + [
    m.name for m in pkgutil.walk_packages(importlib.import_module(p).__path__, p + ".",
                                          onerror=lambda name: None)]]
for name in names:
    if name.endswith("__main__"):
        continue
    try:
        found[name] = importlib.import_module(name).__file__
    except ModuleNotFoundError as error:
        missing[name] = error.name
print(json.dumps({"found": found, "missing": missing}))
"""

TOPOLOGY = """\
from squall import Bolt, Spout, TopologyBuilder, submit_topology


class Numbers(Spout):
    outputs = ["number"]

    def open(self, conf, context):
        self.numbers = iter(range(100))

    def next_tuple(self):
        for number in self.numbers:
            self.emit([number], message_id=number)
            return

    def exhausted(self):
        return self.numbers.__length_hint__() == 0


class Write(Bolt):
    outputs = ["number"]

    def execute(self, tup):
        with open("numbers.txt", "a") as file:
            file.write(f"{tup['number']}\\n")
        self.emit([tup["number"]])


if __name__ == "__main__":
    builder = TopologyBuilder()
    builder.spout("numbers", Numbers())
    builder.bolt("write", Write()).shuffle("numbers")
    submit_topology("numbers", {}, builder.build())
"""


class Installation:
    """An environment with squall, and a working folder far from the checkout."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "env" / "bin" / "python"
        self.work = folder / "work"
        self.work.mkdir(parents=True)
        (folder / "tmp").mkdir()
        (self.work / "package").mkdir()
        (self.work / "package" / "topology.py").write_text(TOPOLOGY)

    def env(self) -> dict[str, str]:
        return clean_environment(self.folder / "tmp", self.folder / "env" / "bin")

    def run(
        self, *command: str | Path, timeout_secs: float = 60, **more: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            cwd=self.work, env={**self.env(), **more}, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=timeout_secs, check=False,
        )  # fmt: skip

    def storm(
        self, *arguments: str, timeout_secs: float = 60, **more: str
    ) -> subprocess.CompletedProcess[str]:
        program = self.folder / "env" / "bin" / "storm"
        return self.run(program, *arguments, timeout_secs=timeout_secs, **more)

    def modules(self) -> tuple[dict[str, str], dict[str, str]]:
        """Every module of ours: where it lies, and by name those for which another was missing."""
        done = self.run(self.python, "-c", _IMPORT_ALL, *PACKAGES)
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        return told["found"], told["missing"]


def clean_environment(temporary: Path, *programs: Path) -> dict[str, str]:
    """No variable of the tests' own, and no program of the checkout's environment."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "SSL_", "LC_", "LANG", "HTTP", "NO_PROXY", "http", "no_proxy"))
        or name in ("HOME", "JAVA_HOME", "REQUESTS_CA_BUNDLE")
    }
    path = os.pathsep.join([*map(str, programs), "/usr/local/bin", "/usr/bin", "/bin"])
    return {**kept, "PATH": path, "TMPDIR": str(temporary), "COLUMNS": "200"}


def pip(*arguments: str | Path, cwd: Path, **more: str) -> str:
    """`python -m pip` of the interpreter that runs the tests: what it wrote, to both outputs."""
    env = {
        **clean_environment(cwd),
        "PIP_CONSTRAINT": VERSIONS,
        "PIP_NO_COMPILE": "1",  # most of what is installed is never imported here
        **more,
    }
    if "--no-build-isolation" not in arguments:
        env["PIP_BUILD_CONSTRAINT"] = VERSIONS
    done = subprocess.run(
        [sys.executable, "-P", "-m", "pip", "--disable-pip-version-check", *map(str, arguments)],
        cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=INSTALL_SECS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:]
    return done.stdout


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc")


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    done = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-d", str(folder)],
        cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (made,) = folder.iterdir()
    return made


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As pip makes it of the sdist, with what the build asks for fetched by pip. The compiler does
    not optimize, which would take half a minute; the core of .venv is optimized."""
    folder = tmp_path_factory.mktemp("wheel")
    more = {}
    if (program := compiler()) is not None:
        quick = folder / "cc"
        quick.write_text(f'#!/bin/sh\nexec {program} "$@" -O0\n')
        quick.chmod(0o755)
        more["CC"] = str(quick)
    pip("wheel", "--no-deps", "-w", folder, sdist, cwd=folder, **more)
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def pure_wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pure")
    options = ("--no-deps", "--no-build-isolation", "-w", folder)
    pip("wheel", *options, sdist, cwd=folder, SQUALL_BUILD="pure")
    (made,) = folder.glob("*.whl")
    return made


@pytest.fixture(scope="module")
def installation(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """`pip install squall`, without Spark."""
    made = Installation(tmp_path_factory.mktemp("squall"))
    environment = [sys.executable, "-m", "venv", "--without-pip", str(made.folder / "env")]
    subprocess.run(environment, check=True, timeout=60)
    pip("--python", made.python, "install", wheel, cwd=made.work)
    yield made
    # Spark's JVM ends a moment after its driver.
    wait_empty("processes of the installation", lambda: processes_of(made.folder).values())


def test_the_sdist_and_the_checkout_make_the_same_wheel(
    sdist: Path, wheel: Path, pure_wheel: Path, tmp_path: Path
) -> None:
    """Byte for byte in Python; the compiled one has the extension modules besides."""
    options = ("--no-deps", "--no-build-isolation", "-w", tmp_path)
    pip("wheel", *options, ROOT, cwd=tmp_path, SQUALL_BUILD="pure")
    (of_checkout,) = tmp_path.glob("*.whl")
    assert (
        of_checkout.name
        == pure_wheel.name
        == f"{sdist.name.removesuffix('.tar.gz')}-py3-none-any.whl"
    )
    assert of_checkout.read_bytes() == pure_wheel.read_bytes()
    with zipfile.ZipFile(wheel) as compiled, zipfile.ZipFile(pure_wheel) as pure:
        extra = set(compiled.namelist()) - set(pure.namelist())
        assert set(pure.namelist()) <= set(compiled.namelist())
        assert set(pure.namelist()) >= DATA_FILES
        for name in pure.namelist():
            if not name.endswith(("/RECORD", "/WHEEL")):
                assert compiled.read(name) == pure.read(name), name
    if compiler() is None:
        assert not extra
    else:
        modules = {name for name in extra if name.startswith(f"{HOME}/{FOLDER}/")}
        assert {name.rpartition("/")[2] for name in modules} == {
            MADE_OF, *map(file_name, (*MODULES, LIBRARY))
        }  # fmt: skip
        core, ring = sorted(extra - modules)
        assert core.startswith("squall_engine/core/compiled.")
        assert ring.startswith("squall_worker/transport/ring/memory.")
        assert {core[-3:], ring[-3:]} == {".so"}


def test_the_sdist_has_what_a_packager_needs(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "hatch_build.py", "README.md", "CHANGELOG.md", "LICENSE"} <= names
    made = (".so", ".c", ".pyc")  # the tests' own C is a source
    assert not [n for n in names if n.endswith(made) and not n.startswith("tests/")]


def test_everything_is_installed_and_nothing_comes_from_the_checkout(
    installation: Installation,
) -> None:
    found, missing = installation.modules()
    # Only what runs on Spark, and what traces, needs more than `pip install squall`.
    of_spark = ("pyspark", "pyarrow", "pandas", "fsspec", "numpy")
    extras = {"squall_spark.": of_spark, "squall_engine.tracing.": ("opentelemetry",)}
    others = {
        name: what
        for name, what in missing.items()
        if not any(
            name.startswith(package) and what.split(".")[0] in modules
            for package, modules in extras.items()
        )
    }
    assert others == {}
    assert {name.split(".")[0] for name in found} == set(PACKAGES)
    environment = str(installation.folder / "env")
    assert {path for path in found.values() if not path.startswith(environment)} == set()
    said = json.loads(installation.storm("version", "--json").stdout)
    assert said["core"] == ("compiled" if compiler() else "pure")
    assert (
        said["squall"]
        in installation.run(
            installation.python,
            "-c",
            "from importlib.metadata import version; print(version('squall'))",
        ).stdout
    )


def test_what_is_missing_is_said(installation: Installation) -> None:
    """Spark, and where Debian's ZooKeeper is not there either, its jars."""
    spark = installation.storm("spark", "run", "package", "topology.py")
    assert spark.returncode == 1
    assert "squall[spark]" in spark.stderr
    assert "Traceback" not in spark.stderr
    if not Path("/usr/share/java/zookeeper.jar").exists():
        cluster = installation.storm("dev", "--free-ports", "--data-dir", "cluster")
        assert cluster.returncode == 1
        assert "pip install pyspark" in cluster.stderr
        assert "Traceback" not in cluster.stderr


def test_the_tutorial_reaches_its_first_result_in_90_seconds(wheel: Path, tmp_path: Path) -> None:
    """Typed by a script: a fresh environment, the installation, the first program, and what it
    prints. The wheel takes the place of the checkout, so nothing is compiled here. The bound is for
    a free core, so it is compared with the CPU time, and three seconds in which the topology runs;
    neighbours would make the clock say more."""
    page = ROOT / "docs" / "tutorials" / "first-topology.md"
    programs = tmp_path / ".venv" / "bin"  # what `. .venv/bin/activate` puts first
    env = {**reader_environment(programs, tmp_path), **clean_environment(tmp_path, programs)}
    install = next(block for block in blocks(page) if block.language == "console")
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
    terminal = Session(tmp_path, env)
    for command, _ in commands(install.text):
        typed = f"pip install {wheel}" if command == "pip install ." else command
        status, said = terminal.run(typed, timeout_secs=INSTALL_SECS)
        assert status == 0, said
    (tmp_path / "reader").mkdir()
    assert Session(tmp_path / "reader", env).follow(page, commands_max=1) > 0
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(f"the first result after {time.monotonic() - start:.0f} s, of which {cpu:.0f} s of CPU")
    assert cpu + 3.0 <= FIRST_RESULT_SECS_MAX


def test_a_cluster_of_the_installation_counts_exactly(installation: Installation) -> None:
    """`storm dev`, `storm jar`, the counts, `storm kill`: the demo, copied elsewhere. No process of
    it knows the checkout."""
    elsewhere = installation.folder / "elsewhere"
    (elsewhere / "deploy").mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "demo.py", elsewhere / "deploy")
    shutil.copytree(
        ROOT / "examples" / "wordcount",
        elsewhere / "examples" / "wordcount",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    # ZooKeeper's jars and nothing else of PySpark.
    jars = elsewhere / "jars" / "pyspark" / "jars"
    jars.mkdir(parents=True)
    for jar in find_classpath().split(os.pathsep):
        if jar.endswith(".jar"):
            shutil.copy(jar, jars)
    output = installation.work / "demo.txt"
    seen: set[str] = set()
    strangers: list[str] = []
    with output.open("w") as file:
        demo = subprocess.Popen(
            [installation.python, elsewhere / "deploy" / "demo.py"],
            cwd=installation.work, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
            env={**installation.env(), "PYTHONPATH": str(elsewhere / "jars")},
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 300
            while demo.poll() is None:
                assert time.monotonic() < deadline, output.read_text()
                for pid, command in processes_of(installation.folder).items():
                    seen.add(command)
                    strangers += [f"{command}: {place}" for place in _of_checkout(pid)]
                time.sleep(0.3)
            assert demo.returncode == 0, output.read_text()
        except BaseException:
            demo.kill()
            demo.wait()
            kill_all_of(installation.folder)
            raise
    said = output.read_text()
    assert "the counts are exact" in said
    assert re.search(r"lines (\d+), acked \1, failed 0", said)
    for daemon in ("squall_nimbus", "squall_supervisor", "squall_worker", "squall_drpc"):
        assert any(daemon in command for command in seen), (daemon, seen)
    assert strangers == []
    wait_empty("temporary files", lambda: os.listdir(installation.folder / "tmp"))


def kill_all_of(folder: Path) -> None:
    """End whatever is left of a demo that failed: daemons that it started, and what they did."""
    deadline = time.monotonic() + 20
    while (left := processes_of(folder)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)


def _of_checkout(pid: int) -> Iterator[str]:
    """What a process has of the checkout: words, variables, its working directory, mapped files."""
    process = Path("/proc") / str(pid)
    try:
        texts = [
            *(process / "cmdline").read_bytes().split(b"\0"),
            *(process / "environ").read_bytes().split(b"\0"),
            *(process / "maps").read_bytes().splitlines(),
            os.fsencode(os.readlink(process / "cwd")) + b"/",
        ]
    except OSError:  # it has ended
        return
    for text in texts:
        if os.fsencode(f"{ROOT}/") in text:
            yield text.decode(errors="replace")


def test_without_a_compiler_it_is_one_of_python_and_says_so(
    sdist: Path, installation: Installation
) -> None:
    target = installation.folder / "pure"
    options = ("--no-deps", "--no-build-isolation", "--target", target)
    said = pip("install", "-v", *options, sdist, cwd=installation.work, CC="/bin/false")
    assert "the core is not compiled" in said
    assert "its reference in Python will run" in said
    assert not list(target.rglob("*.so"))
    pure = {"PYTHONPATH": str(target)}
    version = installation.storm("version", **pure)
    assert "Core pure" in version.stdout
    ran = installation.storm("local", "--local-ttl", "3", "package", "topology.py", **pure)
    assert ran.returncode == 0, ran.stderr
    assert _numbers(installation) == list(range(100))


def _numbers(installation: Installation) -> list[int]:
    return sorted(map(int, (installation.work / "numbers.txt").read_text().split()))


def test_the_extra_adds_spark(installation: Installation, wheel: Path) -> None:
    pip("--python", installation.python, "install", f"{wheel}[spark]", cwd=installation.work)
    found, missing = installation.modules()
    assert {name for name in missing if not name.startswith("squall_engine.tracing.")} == set()
    assert "squall_spark" in found
    output = installation.work / "out"
    ran = installation.storm(
        "spark", "run", "--master", "local[2]", "--output", f"json:{output}",
        "package", "topology.py",
        timeout_secs=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    rows = [
        json.loads(line)
        for part in output.rglob("*.json")
        for line in part.read_text().splitlines()
    ]
    assert sorted(row["number"] for row in rows) == list(range(100))
