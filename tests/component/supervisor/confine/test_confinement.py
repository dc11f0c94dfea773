"""Workers' processes seen from outside: their inheritance, their rights, their files' modes."""

import errno
import json
import os
import resource
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from squall_common.packaging.blob_map import parse_blob_map
from squall_common.topology.model import Executor
from squall_common.worker_files.dump_request import DumpKind
from squall_common.worker_files.launch_spec import Incarnation, LaunchSpec
from squall_common.worker_files.report_file import REPORT_FILE
from squall_supervisor.blobs.cache import LINKS_FILE
from squall_supervisor.confine.confinement import UNCONFINED, Confinement
from squall_supervisor.launch import memory_use
from squall_supervisor.launch.environment import worker_environment
from squall_supervisor.launch.launcher import start_worker
from squall_supervisor.launch.machine import Machine
from squall_supervisor.launch.worker_process import WORKER_ID_VARIABLE, WorkerProcess
from squall_supervisor.records import processes
from squall_supervisor.records.assignments import PortAssignment
from squall_supervisor.records.worker_dir import remove_worker_dir
from squall_supervisor.records.worker_record import WorkerRecord

CANARY = "canary-7f3a"

# Says what it is, in its folder, and stays.
REPORT = """
import json, os, resource, sys, time
umask = os.umask(0); os.umask(umask)
names = [n for n in dir(resource) if n.startswith("RLIMIT_")]
found = {
    "environ": dict(os.environ), "umask": umask, "cwd": os.getcwd(),
    "fds": [f for f in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + f)],
    "session": os.getsid(0) == os.getpid(), "stdin": os.readlink("/proc/self/fd/0"),
    "limits": {n: resource.getrlimit(getattr(resource, n)) for n in names},
}
print("said by the worker")
with open("said.part", "w") as file:
    json.dump(found, file)
os.rename("said.part", "said")
time.sleep(600)
"""

Start = Callable[..., tuple[LaunchSpec, WorkerProcess]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    running: list[WorkerProcess] = []

    def start(
        code: str = REPORT,
        *,
        confinement: Confinement = UNCONFINED,
        environ: dict[str, str] | None = None,
        topology: dict[str, object] | None = None,
        key_file: Path | None = None,
    ) -> tuple[LaunchSpec, WorkerProcess]:
        worker_id = f"w{len(running)}"
        spec = LaunchSpec(
            topology_id="t-1", supervisor_id="s", hostname="h", port=6700, worker_id=worker_id,
            incarnation=Incarnation(1, 1), stormdist=tmp_path / "dist",
            worker_dir=tmp_path / "workers" / worker_id,
            artifacts_dir=tmp_path / "logs" / "t-1" / "6700", daemon_conf={},
        )  # fmt: skip
        assignment = PortAssignment("t-1", (Executor(1, 1),), zxid=1, owner=None)
        process = start_worker(
            Machine(),
            spec,
            WorkerRecord(worker_id, 6700, assignment, launch=1, timeout_secs=30),
            worker_environment(
                os.environ if environ is None else environ,
                topology or {},
                import_path=[],
                temporary_dir=spec.worker_dir / "tmp",
                marks={WORKER_ID_VARIABLE: worker_id},
            ),
            lambda spec, file: [sys.executable, "-c", code, str(file)],
            confinement=confinement,
            key_file=key_file,
        )
        running.append(process)
        return spec, process

    yield start
    for process in running:
        process.kill()
        process.clean_up()


def said(spec: LaunchSpec) -> dict[str, Any]:
    """What a worker that runs REPORT has said."""
    deadline = time.monotonic() + 30
    while not (spec.worker_dir / "said").exists():
        assert time.monotonic() < deadline, (spec.artifacts_dir / "worker.log.err").read_text()
        time.sleep(0.02)
    found: dict[str, Any] = json.loads((spec.worker_dir / "said").read_bytes())
    return found


def test_no_secret_of_the_supervisor_reaches_a_worker(start: Start) -> None:
    environ = {
        **os.environ, "AWS_SECRET_ACCESS_KEY": CANARY, "STORM_PASSWORD": CANARY,
        "PYTHONSTARTUP": CANARY, "LD_PRELOAD": "", "SQUALL_TOKEN": CANARY, "LC_ALL": "C.UTF-8",
    }  # fmt: skip
    spec, process = start(environ=environ, topology={"OF_TOPOLOGY": "yes"})
    environment = said(spec)["environ"]
    assert environment["OF_TOPOLOGY"] == "yes"
    assert environment["LC_ALL"] == "C.UTF-8"
    assert environment[WORKER_ID_VARIABLE] == spec.worker_id
    # Nor in what others can read of the process.
    for name in ("environ", "cmdline"):
        assert CANARY.encode() not in Path(f"/proc/{process.pid}/{name}").read_bytes()
    assert CANARY not in json.dumps(environment)
    allowed = {
        "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR",
        "LD_LIBRARY_PATH", "JAVA_HOME", "SSL_CERT_FILE", "SSL_CERT_DIR", "STORM_CONF_DIR",
        "STORM_HOME", "VIRTUAL_ENV", "PYTHONUNBUFFERED", "OF_TOPOLOGY", WORKER_ID_VARIABLE,
    }  # fmt: skip
    assert {name for name in environment if not name.startswith("LC_")} <= allowed


def test_a_worker_has_a_session_of_its_own_and_no_file_of_the_supervisors(
    start: Start, tmp_path: Path
) -> None:
    with (tmp_path / "open").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        spec, _ = start()
        found = said(spec)
    assert found["session"]
    assert found["stdin"] == os.devnull
    assert sorted(map(int, found["fds"])) == [0, 1, 2]
    assert found["cwd"] == str(spec.worker_dir)
    assert found["umask"] == 0o077


def test_files_of_a_worker_are_for_its_user_only(start: Start) -> None:
    before = os.umask(0)  # the supervisor's own umask does not protect
    try:
        spec, _ = start()
        said(spec)
    finally:
        os.umask(before)
    folders = [spec.worker_dir, spec.pid_dir, spec.worker_dir / "tmp", spec.artifacts_dir]
    assert {stat.S_IMODE(folder.stat().st_mode) for folder in folders} == {0o700}
    logs = [spec.artifacts_dir / "worker.log.out", spec.artifacts_dir / "worker.log.err"]
    files = [*logs, spec.worker_dir / "launch.json", spec.worker_dir / "worker.json"]
    files.append(spec.worker_dir / "said")
    assert {stat.S_IMODE(file.stat().st_mode) for file in files} == {0o600}


def test_no_blob_can_have_the_name_of_a_file_in_a_workers_folder(
    start: Start, tmp_path: Path
) -> None:
    (tmp_path / "curve.key").write_bytes(b"key")
    spec, _ = start(key_file=tmp_path / "curve.key")
    said(spec)
    names = {path.name for path in spec.worker_dir.iterdir()} - {"said"}
    assert {"curve.key", "worker.json", "launch.json", "tmp"} <= names
    names |= {kind.value for kind in DumpKind} | {
        LINKS_FILE,
        "heartbeat",
        REPORT_FILE,
        f"{REPORT_FILE}.new",
    }
    for name in names:
        _, problems = parse_blob_map({"key": {"localname": name}})
        assert problems, name


def test_no_program_gives_a_worker_or_its_children_more_rights(start: Start) -> None:
    spec, process = start(
        "import json, os, subprocess, sys, time\n"
        "line = subprocess.run(['grep', 'NoNewPrivs', '/proc/self/status'], capture_output=True)\n"
        "open('said.part', 'w').write(json.dumps({'child': line.stdout.decode()}))\n"
        "os.rename('said.part', 'said')\n"
        "time.sleep(600)\n"
    )
    assert said(spec)["child"].split() == ["NoNewPrivs:", "1"]
    status = Path(f"/proc/{process.pid}/status").read_text()
    assert "NoNewPrivs:\t1" in status


def test_what_a_topology_puts_into_the_environment_runs_confined(
    start: Start, tmp_path: Path
) -> None:
    """An interpreter runs code of `topology.environment` before its first line. It is the worker's
    by then, and no more: the step before it reads nothing of it."""
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    hooks.joinpath("sitecustomize.py").write_text(
        "import json, os, resource\n"
        "status = open('/proc/self/status').read()\n"
        "with open(os.environ['SAYS'], 'a') as file:\n"
        "    print(json.dumps([os.getuid(), resource.getrlimit(resource.RLIMIT_NOFILE),"
        " 'NoNewPrivs:\\t1' in status]), file=file)\n"
    )
    says = tmp_path / "says"
    spec, _ = start(
        topology={"PYTHONPATH": hooks, "PYTHONSTARTUP": hooks, "SAYS": says},
        confinement=Confinement(limits={"RLIMIT_NOFILE": 300}),
    )
    said(spec)
    found = [json.loads(line) for line in says.read_text().splitlines()]
    assert found == [[os.getuid(), [300, 300], True]]


def test_limits_are_soft_and_hard_before_the_worker_runs(start: Start) -> None:
    wanted = {
        "RLIMIT_NOFILE": 300,
        "RLIMIT_CORE": 0,
        "RLIMIT_FSIZE": 64 << 20,
        "RLIMIT_AS": 1 << 33,
    }
    spec, _ = start(confinement=Confinement(limits=wanted))
    found = said(spec)["limits"]
    assert {name: found[name] for name in wanted} == {n: [v, v] for n, v in wanted.items()}
    own = resource.getrlimit(resource.RLIMIT_STACK)
    assert tuple(found["RLIMIT_STACK"]) == own  # what is not named stays


@pytest.mark.parametrize(
    ("confinement", "expected"),
    [
        (Confinement(cgroups=(Path("/no/such/cgroup"),)), "enter the cgroup /no/such/cgroup"),
        (Confinement(limits={"RLIMIT_NOFILE": 2**40}), "set RLIMIT_NOFILE"),
        (Confinement(limits={"RLIMIT_NONSENSE": 1}), "set RLIMIT_NONSENSE"),
    ],
)
def test_a_step_that_fails_is_named_and_leaves_nothing(
    start: Start, tmp_path: Path, confinement: Confinement, expected: str
) -> None:
    with pytest.raises(OSError, match=expected):
        start(confinement=confinement)
    assert list((tmp_path / "workers").iterdir()) == []


def test_a_process_that_could_not_be_watched_is_not_left_running(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor has run out of descriptors just then."""
    children: list[int] = []

    def out_of_files(pid: int) -> int:
        children.append(pid)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(os, "pidfd_open", out_of_files)
    with pytest.raises(OSError, match="Too many open files"):
        start()
    assert len(children) == 1
    assert processes.identify(children[0]) is None
    assert list((tmp_path / "workers").iterdir()) == []


LENT = """
import sys
from pathlib import Path
from squall_supervisor.confine.confinement import UNCONFINED, start_confined

folder = Path(sys.argv[1])
child = start_confined(
    ["/bin/cat", "/proc/self/status"], {}, UNCONFINED, cwd=Path("/"), out=folder / "out",
    err=folder / "err", launch_file=folder, marks={},
)
sys.exit(child.wait())
"""

POWERFUL = """
import sys
from pathlib import Path
from squall_supervisor.confine.confinement import Confinement, WorkerUser, start_confined

folder = Path(sys.argv[1])
user = WorkerUser("other", 61001, 61001, (), "/")
try:
    child = start_confined(
        [sys.executable, "-c", ""], {}, Confinement(user=user), cwd=Path("/"), out=folder / "out",
        err=folder / "err", launch_file=folder, marks={},
    )
except OSError as error:
    print(error)
else:
    print("it has run:", child.wait())
"""


def run_with_powers(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """As a user that is not root and has capabilities to pass on (systemd: AmbientCapabilities)."""
    powers = "+setuid,+setgid,+dac_override,+kill,+sys_ptrace"
    became = ["--reuid", "61000", "--regid", "61000", "--clear-groups"]
    return subprocess.run(
        ["setpriv", *became, "--inh-caps", powers, "--ambient-caps", powers,
         sys.executable, "-c", code, str(folder)],
        capture_output=True, text=True, check=False, timeout=60,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


gives_powers = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("setpriv") is None, reason="only root can give capabilities"
)


@gives_powers
def test_no_worker_inherits_the_ambient_capabilities_of_a_supervisor(tmp_path: Path) -> None:
    """That is for py-spy."""
    said = run_with_powers(LENT, tmp_path)
    assert said.returncode == 0, said
    sets = dict(line.split(":") for line in (tmp_path / "out").read_text().splitlines())
    for kind in ("CapPrm", "CapEff", "CapAmb"):
        assert int(sets[kind], 16) == 0, sets


@gives_powers
def test_only_root_runs_workers_of_other_users(tmp_path: Path) -> None:
    said = run_with_powers(POWERFUL, tmp_path)
    assert "would keep capabilities" in said.stdout, (said.stdout, said.stderr)


@pytest.mark.parametrize("kind", ["link", "fifo", "folder"])
def test_a_workers_output_goes_to_a_file_and_nowhere_else(
    start: Start, tmp_path: Path, kind: str
) -> None:
    logs = tmp_path / "logs" / "t-1" / "6700"
    logs.mkdir(parents=True)
    victim = tmp_path / "victim"
    victim.write_text("before")
    if kind == "link":
        (logs / "worker.log.out").symlink_to(victim)
    elif kind == "fifo":
        os.mkfifo(logs / "worker.log.out")
    else:
        (logs / "worker.log.out").mkdir()
    with pytest.raises(OSError, match=r"open .*worker\.log\.out"):
        start()
    assert victim.read_text() == "before"


def test_earlier_output_is_kept_and_rotated_when_it_is_long(start: Start, tmp_path: Path) -> None:
    spec, _ = start()
    said(spec)
    start()
    out = spec.artifacts_dir / "worker.log.out"
    deadline = time.monotonic() + 30
    while out.read_text().count("said by the worker") < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    with out.open("ab") as file:
        file.truncate(11 * 1024 * 1024)
    start()
    assert (spec.artifacts_dir / "worker.log.out.1").stat().st_size == 11 * 1024 * 1024


def test_a_folder_nested_deeper_than_our_stack_is_removed(tmp_path: Path) -> None:
    here = os.getcwd()
    (tmp_path / "w1").mkdir()
    os.chdir(tmp_path / "w1")
    try:
        for _ in range(1500):
            os.mkdir("d")
            os.chdir("d")
    finally:
        os.chdir(here)
    remove_worker_dir(tmp_path / "w1")
    assert list(tmp_path.iterdir()) == []


def test_children_and_grandchildren_count_and_shared_pages_count_once(start: Start) -> None:
    code = """
import os, time
held = bytearray(os.urandom(1) * (48 << 20))  # shared by all that are forked from here on
if os.fork() == 0:
    own = bytearray(os.urandom(1) * (32 << 20))
    if os.fork() == 0:
        os.setsid()  # no longer in the worker's session, but its descendant
        open(f"pids/{os.getpid()}", "w").close()  # so that it is ended with the worker
        own2 = bytearray(os.urandom(1) * (16 << 20))
        open("ready", "w").close()
    time.sleep(600)
time.sleep(600)
"""
    spec, process = start(code)
    _, other = start(REPORT)
    deadline = time.monotonic() + 30
    while not (spec.worker_dir / "ready").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    use = memory_use.memory_of_workers([process.identity, other.identity])
    mib = 1024 * 1024
    shared_by_three = 48 + 48 + 48 + 32 + 32 + 16
    assert shared_by_three * mib < use[process.pid] < (shared_by_three + 120) * mib
    assert use[other.pid] < 60 * mib
    exact = memory_use.exact_memory_of_worker(process.identity)
    assert exact is not None
    assert (48 + 32 + 16) * mib < exact < (48 + 32 + 16 + 60) * mib


def test_a_process_that_has_ended_uses_no_memory() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        identity = processes.identify(child.pid)
        assert identity is not None
        another = processes.ProcessIdentity(
            identity.pid, identity.start_ticks - 5, identity.boot_id
        )
        assert memory_use.memory_of_workers([another]) == {}
        assert memory_use.memory_of_workers([identity])[child.pid] > 0
        child.communicate(b"\n", timeout=30)
    assert memory_use.memory_of_workers([identity]) == {}
    assert memory_use.exact_memory_of_worker(identity) is None
