"""A Docker engine for tests, and images for it that need no registry.

    with engine(folder) as docker:
        docker.run("ps")

An engine that answers on this machine is used as it is. Else one is started by hand, all of it in a
temporary folder, and ended with what it changed on the machine (its bridges, firewall rules). That
takes root, and packages that .ci/run installs. Where neither can be had (also where the engine does
not start, or cannot run containers) the tests are skipped, and say why.

The images of deploy/compose build on python:3.11-slim-bookworm and zookeeper:3.9. Their place is
taken by stand-ins: Debian with its Python, and ZooKeeper's jars (`squall_cli.cluster.zookeeper`
finds them) on a Java runtime cut to size. The first is kept in `.tools/compose` of this checkout.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.leftovers import processes_of
from tests.support.devcluster import ROOT, wait_for

from squall_cli.cluster.zookeeper import find_classpath, find_java

TOOLS = ROOT / ".tools" / "compose"
PYTHON_IMAGE = "squall-test-python"
ZOOKEEPER_IMAGE = "squall-test-zookeeper"
SQUALL_IMAGE = "squall-test"
PROMETHEUS_IMAGE = "squall-test-prometheus"

_PACKAGES = "docker.io iptables mmdebstrap"
_COMMANDS = ("dockerd", "docker", "docker-init", "iptables-save", "mmdebstrap")
_MIRROR = "http://deb.debian.org/debian"
_BASE_PACKAGES = "python3,python3-venv,python3-pip,python3-dev,gcc,libc6-dev,ca-certificates"
# Networks of compose; far from what machines usually use.
_NETWORKS = "base=10.213.0.0/16,size=24"
_CA_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_JAVA_MODULES = (
    "java.base,java.management,java.naming,java.security.jgss,java.security.sasl,java.logging,"
    "jdk.unsupported"
)
_LOCK = Path("/run/lock/squall-test-engine.lock")
_IP_FORWARD = Path("/proc/sys/net/ipv4/ip_forward")

_PYTHON_DOCKERFILE = """\
FROM squall-test-base
COPY ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
RUN ln -sf /usr/bin/python3 /usr/local/bin/python3 && rm -f /usr/lib/python3*/EXTERNALLY-MANAGED
ENV PIP_CERT=/etc/ssl/certs/ca-certificates.crt SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt
# The image is tried, not measured: to optimise the core would take 35 s of CPU more.
RUN printf '#!/bin/sh\\nexec gcc "$@" -O0\\n' > /usr/bin/quick-cc && chmod +x /usr/bin/quick-cc
ENV CC=/usr/bin/quick-cc
"""
_ZOOKEEPER_DOCKERFILE = """\
FROM squall-test-base
COPY java /java
COPY jars /jars
COPY zoo.cfg /conf/zoo.cfg
VOLUME ["/data", "/datalog"]
CMD ["/java/bin/java", "-Xmx256m", "-cp", "/jars/*", \
"org.apache.zookeeper.server.ZooKeeperServerMain", "/conf/zoo.cfg"]
"""
_PROMETHEUS_DOCKERFILE = """\
FROM squall-test-base
COPY prometheus /bin/prometheus
RUN install -d -o nobody /prometheus
USER 65534
EXPOSE 9090
ENTRYPOINT ["/bin/prometheus", "--config.file=/etc/prometheus/prometheus.yml", \
"--storage.tsdb.path=/prometheus"]
"""
_ZOOKEEPER_CONF = """\
tickTime=2000
dataDir=/data
dataLogDir=/datalog
clientPort=2181
4lw.commands.whitelist=srvr
admin.enableServer=false
"""


class Docker:
    """The `docker` command against one engine. `own`: it was started by us."""

    def __init__(self, env: Mapping[str, str], *, own: bool) -> None:
        self.env = dict(env)
        self.own = own

    def run(
        self,
        *arguments: str | Path,
        timeout_secs: float = 120.0,
        check: bool = True,
        text: str = "",
    ) -> str:
        """One command to its end: what it wrote to stdout. AssertionError with all of it when it
        fails."""
        done = _bounded(
            ["docker", *map(str, arguments)],
            env=self.env,
            cwd=ROOT,
            text=text,
            timeout_secs=timeout_secs,
        )
        if check and done.returncode != 0:
            shown = " ".join(map(str, arguments))
            raise AssertionError(
                f"docker {shown}: status {done.returncode}\n"
                f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
            )
        return done.stdout


@contextlib.contextmanager
def engine() -> Iterator[Docker]:
    """An engine with the compose plugin: the machine's own, or one for this block."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("COMPOSE_", "SQUALL_"))}
    if _answers(env):
        yield Docker(_with_plugins(env), own=False)
        return
    if os.getuid() != 0:
        pytest.skip("no Docker engine answers here, and only root can start one")
    missing = [name for name in _COMMANDS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)} here; as root: apt-get install {_PACKAGES}")
    with _alone(), _own_engine(env) as docker:
        yield docker


def _answers(env: Mapping[str, str]) -> bool:
    if shutil.which("docker") is None:
        return False
    try:
        return _bounded(["docker", "info"], env=env, timeout_secs=20).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _bounded(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    text: str = "",
    timeout_secs: float,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end. One that takes longer is killed with all that it started (compose
    is a child of `docker`), and raises TimeoutExpired, which has what it wrote until then."""
    process = subprocess.Popen(
        [str(word) for word in command],
        env=env,
        cwd=cwd,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        output, errors = process.communicate(text, timeout_secs)
    except BaseException as error:
        os.killpg(process.pid, signal.SIGKILL)
        left = process.communicate()
        if isinstance(error, subprocess.TimeoutExpired):
            print("\n".join(part[-4000:] for part in left))
        raise
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def _command(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout_secs: float = 60.0,
) -> str:
    done = _bounded(command, env=env, cwd=cwd, timeout_secs=timeout_secs)
    assert done.returncode == 0, f"{command}: {done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@contextlib.contextmanager
def _or_skip(what: str) -> Iterator[None]:
    """Where this machine cannot do what the block does, the test is skipped, with the reason."""
    try:
        yield
    except (AssertionError, OSError, subprocess.SubprocessError) as error:
        why = " ".join(str(error).split())
        pytest.skip(f"{what}: ... {why[-300:]}")


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """One engine of ours at a time: they share the machine's firewall."""
    with _LOCK.open("w") as file:

        def locked() -> bool:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

        wait_for("another test's engine to end", locked, 400, 0.5)
        yield


@contextlib.contextmanager
def _own_engine(env: Mapping[str, str]) -> Iterator[Docker]:
    # Short: a socket's path has 107 bytes at most.
    folder = Path(tempfile.mkdtemp(prefix="squall-engine-"))
    socket = folder / "docker.sock"
    own = {**env, "DOCKER_HOST": f"unix://{socket}"}
    own.pop("DOCKER_CONTEXT", None)
    with _or_skip("the firewall rules cannot be read here"):
        rules = _command(["iptables-save"])
    forward = _IP_FORWARD.read_text()
    log = folder / "dockerd.log"
    # Asked to end, pytest ends what it started, as with Ctrl-C.
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                "dockerd",
                f"--data-root={folder}/root",
                f"--exec-root={folder}/exec",
                f"--host=unix://{socket}",
                f"--pidfile={folder}/pid",
                "--bridge=none",
                f"--default-address-pool={_NETWORKS}",
            ],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        with _or_skip("a Docker engine does not start here"):
            wait_for(
                "dockerd to answer",
                lambda: process.poll() is not None or _answers(own),
                60,
                0.3,
            )
            assert process.poll() is None, log.read_text()
        yield Docker(_with_plugins(own), own=True)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        _end_below(folder)
        _unmount_below(folder)
        # What was before; where there were no rules, the chains of Docker's are gone too.
        restored = _bounded(["iptables-restore"], text=_rules(rules), timeout_secs=30)
        _IP_FORWARD.write_text(forward)
        shutil.rmtree(folder)
        signal.signal(signal.SIGTERM, before)
        assert restored.returncode == 0, restored.stderr


def _end_below(folder: Path) -> None:
    """Kill what an engine that ended badly left: containerd and its shims, which name the folder,
    and the processes in containers, whose root lies in it."""

    def left() -> set[int]:
        found = set(processes_of(folder))
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal() and _root_is_below(folder, entry):
                found.add(int(entry.name))
        return found

    deadline = time.monotonic() + 20
    while (pids := left()) and time.monotonic() < deadline:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)


def _root_is_below(folder: Path, process: Path) -> bool:
    try:
        mounts = (process / "mountinfo").read_text()
    except OSError:  # it has ended
        return False
    return any(line.split()[4] == "/" and f"={folder}/" in line for line in mounts.splitlines())


def _rules(saved: str) -> str:
    """What restores saved rules: tables that had none are emptied."""
    for table, chains in (
        ("filter", ("INPUT", "FORWARD", "OUTPUT")),
        ("nat", ("PREROUTING", "INPUT", "OUTPUT", "POSTROUTING")),
    ):
        if f"*{table}\n" not in saved:
            lines = [f"*{table}", *(f":{chain} ACCEPT [0:0]" for chain in chains), "COMMIT"]
            saved += "\n".join(lines) + "\n"
    return saved


def _unmount_below(folder: Path) -> None:
    mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in sorted((m for m in mounts if m.startswith(f"{folder}/")), reverse=True):
        _bounded(["umount", "--lazy", mount], timeout_secs=30)


def _with_plugins(env: dict[str, str]) -> dict[str, str]:
    """The environment of a `docker` that knows compose and buildx; Debian's of trixie, which run
    on bookworm too, are fetched where they are missing."""
    if all(
        _bounded(["docker", name, "version"], env=env, timeout_secs=30).returncode == 0
        for name in ("compose", "buildx")
    ):
        return env
    config = TOOLS / "docker-config"
    env = {**env, "DOCKER_CONFIG": str(config)}
    plugins = config / "cli-plugins"
    if plugins.is_dir():
        return env
    if shutil.which("apt-get") is None or os.getuid() != 0:
        pytest.skip("docker has no compose and buildx here")
    with tempfile.TemporaryDirectory(prefix="squall-plugins-") as name:
        folder = Path(name)
        (folder / "lists" / "partial").mkdir(parents=True)
        (folder / "cache" / "archives" / "partial").mkdir(parents=True)
        keys = "/usr/share/keyrings/debian-archive-keyring.gpg"
        (folder / "sources.list").write_text(f"deb [signed-by={keys}] {_MIRROR} trixie main\n")
        options = [
            f"-oDir::Etc::sourcelist={folder}/sources.list",
            "-oDir::Etc::sourceparts=-",
            f"-oDir::State::lists={folder}/lists",
            f"-oDir::Cache={folder}/cache",
            "-oAPT::Sandbox::User=root",
        ]
        wanted = ("docker-compose", "docker-buildx")
        with _or_skip("docker has no compose and buildx here, and Debian's cannot be fetched"):
            _command(["apt-get", "-q", *options, "update"], timeout_secs=120)
            _command(["apt-get", "-q", *options, "download", *wanted], cwd=folder, timeout_secs=120)
        for package in folder.glob("*.deb"):
            _command(["dpkg-deb", "-x", package, folder / "unpacked"])
        config.mkdir(parents=True, exist_ok=True)
        partial = config / f"cli-plugins.{os.getpid()}"
        shutil.copytree(folder / "unpacked/usr/libexec/docker/cli-plugins", partial)
        os.replace(partial, plugins)
    return env


# Images -------------------------------------------------------------------------------------------


def build_images(docker: Docker) -> dict[str, float]:
    """Build the stand-ins and deploy/compose/Dockerfile; the seconds that each took."""
    took = {}

    def timed(name: str, build: Callable[[Docker], None]) -> None:
        start = time.monotonic()
        build(docker)
        took[name] = round(time.monotonic() - start, 1)

    timed("base", _build_base)
    # Beside it: it waits for the disk while the other compiles.
    with ThreadPoolExecutor() as threads:
        beside = threads.submit(timed, "zookeeper", _build_zookeeper)
        timed("squall", _build_squall)
        beside.result()
    return took


def build_prometheus(docker: Docker) -> str | None:
    """The image of a stand-in for prom/prometheus, of this machine's; None without one."""
    program = shutil.which("prometheus")
    if program is None:
        return None
    with tempfile.TemporaryDirectory(prefix="squall-image-") as name:
        folder = Path(name)
        shutil.copy(program, folder / "prometheus")
        (folder / "Dockerfile").write_text(_PROMETHEUS_DOCKERFILE)
        docker.run("build", "--network", "host", "-t", PROMETHEUS_IMAGE, folder)
    return PROMETHEUS_IMAGE


def remove_images(docker: Docker) -> None:
    docker.run("image", "rm", PROMETHEUS_IMAGE, check=False)
    for image in (SQUALL_IMAGE, ZOOKEEPER_IMAGE, PYTHON_IMAGE, "squall-test-base"):
        docker.run("image", "rm", image, check=False)


def _build_base(docker: Docker) -> None:
    recipe = hashlib.sha256(f"{_BASE_PACKAGES} {_MIRROR} bookworm".encode()).hexdigest()[:16]
    base = TOOLS / f"base-{recipe}.tar"
    if not base.exists():
        if shutil.which("mmdebstrap") is None or os.getuid() != 0:
            pytest.skip("no mmdebstrap here, which makes the base of the images, or not root")
        TOOLS.mkdir(parents=True, exist_ok=True)
        partial = base.with_name(f"{os.getpid()}.tar")
        command = [
            "mmdebstrap",
            "--variant=apt",
            f"--include={_BASE_PACKAGES}",
            "--dpkgopt=force-unsafe-io",
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            "bookworm",
            partial,
            f"deb {_MIRROR} bookworm main",
        ]
        try:
            with _or_skip("the base of the images cannot be made here"):
                _command(command, timeout_secs=240)
            os.replace(partial, base)
        finally:
            partial.unlink(missing_ok=True)
    docker.run("import", base, "squall-test-base", timeout_secs=240)
    with _or_skip("containers cannot run here"):
        _run_one(docker)
    with tempfile.TemporaryDirectory(prefix="squall-image-") as name:
        folder = Path(name)
        (folder / "Dockerfile").write_text(_PYTHON_DOCKERFILE)
        shutil.copy(_CA_BUNDLE, folder)
        docker.run("build", "--network", "host", "-t", PYTHON_IMAGE, folder)


def _run_one(docker: Docker) -> None:
    """A container on a network of its own, as compose makes them."""
    network = f"squall-test-{os.getpid()}"
    try:
        docker.run("network", "create", network)
        docker.run("run", "--rm", "--init", "--network", network, "squall-test-base", "true")
    finally:
        docker.run("network", "rm", network, check=False)


def _build_zookeeper(docker: Docker) -> None:
    with tempfile.TemporaryDirectory(prefix="squall-image-") as name:
        folder = Path(name)
        java = Path(find_java()).resolve()
        jlink = java.with_name("jlink")
        if jlink.exists() and (java.parents[1] / "jmods").is_dir():
            cut = ["--add-modules", _JAVA_MODULES, "--no-header-files", "--no-man-pages"]
            _command([jlink, *cut, "--output", folder / "java"], timeout_secs=200)
        else:
            shutil.copytree(java.parents[1], folder / "java", ignore_dangling_symlinks=True)
        (folder / "jars").mkdir()
        for jar in find_classpath().split(os.pathsep):
            if jar.endswith(".jar") and "log4j" not in jar:
                shutil.copy(jar, folder / "jars")
        (folder / "zoo.cfg").write_text(_ZOOKEEPER_CONF)
        (folder / "Dockerfile").write_text(_ZOOKEEPER_DOCKERFILE)
        build = ("build", "--network", "host", "-t", ZOOKEEPER_IMAGE, folder)
        docker.run(*build, timeout_secs=400)  # (beside that of the other image)


def _build_squall(docker: Docker) -> None:
    docker.run(
        "build",
        "--network",
        "host",
        "--build-arg",
        f"PYTHON_IMAGE={PYTHON_IMAGE}",
        "-t",
        SQUALL_IMAGE,
        "-f",
        ROOT / "deploy" / "compose" / "Dockerfile",
        ROOT,
        timeout_secs=700,
    )
