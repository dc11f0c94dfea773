"""Starting a worker: its folders, its two files, its process.

The process leads a session and process group of its own, reads no input and writes to files, so
that nothing ties it to the supervisor, which it outlives. `launch_step` confines it before any code
of the topology runs.

    {storm.local.dir}/workers/WORKER_ID/      0700; the worker's working folder, owned by its user
        launch.json   what the worker reads (squall_common.worker_files.launch_spec)
        last-known.json   for a worker that starts without ZooKeeper
                          (squall_common.worker_files.last_known)
        curve.key     0600: the topology's key, if it has one (squall_common.security.curve)
        credentials.json   0600: its credentials, if it has any
                      (squall_common.security.credentials)
        zookeeper.json   0600: its digest for ZooKeeper, if the cluster has one
                      (squall_common.worker_files.zookeeper_file)
        worker.json   the supervisor's notes (worker_record)
        heartbeat     written by the worker (squall_common.worker_files.heartbeat_file)
        in_hand       written by the worker, for the one that replaces it
        in_hand.before   the same file of the worker before it
        pids/         one empty file for each process that the worker starts
        tmp/          its TMPDIR
        artifacts, resources   links to its logs, and to the package's resources/
        blobs.json, LOCALNAME ...   links to the blobs that it was given (blob_cache)
    {storm.log.dir}/workers-artifacts/TOPOLOGY_ID/PORT/    0700
        worker.log    written by the worker
        worker.log.out, worker.log.err   what it prints
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from squall_common.daemon.files import make_dirs, write_atomic
from squall_common.daemon.logs import get_logger
from squall_common.security.credentials import CREDENTIALS_FILE
from squall_common.worker_files.launch_spec import LAST_KNOWN_FILE, LaunchSpec
from squall_common.worker_files.zookeeper_file import ZOOKEEPER_FILE
from squall_supervisor.blobs.cache import LINKS_FILE
from squall_supervisor.confine.confinement import UNCONFINED, Confinement
from squall_supervisor.confine.ownership import give_away, make_own
from squall_supervisor.launch.environment import worker_interpreter
from squall_supervisor.launch.machine import Machine
from squall_supervisor.launch.worker_process import WorkerProcess
from squall_supervisor.records.worker_dir import remove_worker_dir
from squall_supervisor.records.worker_record import LAUNCH_FILE, RECORD_FILE, WorkerRecord

log = get_logger(__name__)

# Files in a worker's folder that stay the supervisor's, whichever user the worker runs as: those
# that the supervisor reads again and trusts.
_OURS = frozenset(
    {
        LAUNCH_FILE,
        RECORD_FILE,
        LINKS_FILE,
        LAST_KNOWN_FILE,
        CREDENTIALS_FILE,
        ZOOKEEPER_FILE,
    }
)

WorkerCommand = Callable[[LaunchSpec, Path], list[str]]


def worker_command(spec: LaunchSpec, launch_file: Path) -> list[str]:
    """The command of a worker: see `squall_common.worker_files.launch_spec`."""
    return [
        *worker_interpreter(),
        "-m",
        "squall_worker",
        spec.topology_id,
        spec.supervisor_id,
        str(spec.port),
        spec.worker_id,
        str(launch_file),
    ]


def start_worker(
    machine: Machine,
    spec: LaunchSpec,
    record: WorkerRecord,
    environment: dict[str, str],
    command: WorkerCommand = worker_command,
    *,
    confinement: Confinement = UNCONFINED,
    link_blobs: Callable[[Path], None] | None = None,
    key_file: Path | None = None,
    credentials_file: Path | None = None,
    zookeeper_file: bytes | None = None,
    before: bytes | None = None,
    last_known: bytes | None = None,
) -> WorkerProcess:
    """Make a worker's folders and files and start it; `link_blobs` puts its blobs into its folder,
    `key_file` and `credentials_file` are its topology's, `zookeeper_file` is the content of its
    own (`ZOOKEEPER_FILE`), `before` is what the worker before it
    left, `last_known` is what it starts from without ZooKeeper. Blocks for some fsyncs: call it in
    a thread.

    Raises OSError if any step fails (a full disk, no more processes ...); nothing of the worker is
    left then. A worker starts without `before` and `last_known` if the disk has no room for them.
    """
    worker_dir = spec.worker_dir
    launch_file = worker_dir / LAUNCH_FILE
    process: WorkerProcess | None = None
    try:
        make_dirs(worker_dir, mode=0o700)
        for folder in (spec.pid_dir, worker_dir / "tmp"):
            folder.mkdir(mode=0o700)
        make_own(spec.artifacts_dir, confinement.user)
        (worker_dir / "artifacts").symlink_to(spec.artifacts_dir)
        (worker_dir / "resources").symlink_to(spec.stormdist / "resources")
        if link_blobs is not None:
            link_blobs(worker_dir)
        if key_file is not None:
            write_atomic(spec.key_file, key_file.read_bytes(), mode=0o600)
        if credentials_file is not None:
            write_atomic(spec.credentials_file, credentials_file.read_bytes(), mode=0o600)
        if zookeeper_file is not None:
            write_atomic(spec.zookeeper_file, zookeeper_file, mode=0o600)
        spec.write(launch_file)
        record.write(worker_dir)
        # Last, and only if there is room: on a full disk a worker that starts matters more.
        for file, data in ((spec.last_known_file, last_known), (spec.before_file, before)):
            if data is not None:
                _write_if_possible(file, data)
        if confinement.user is not None:
            give_away(worker_dir, confinement.user, keep=_OURS)
        process = machine.start(spec, command(spec, launch_file), environment, confinement)
    except BaseException:
        remove_worker_dir(worker_dir)
        raise
    process.record = record.with_process(process.identity)
    try:
        process.record.write(worker_dir)
    except OSError as error:
        # It is running; the next supervisor finds it by its arguments.
        log.error("worker_record_not_written", worker_id=spec.worker_id, error=error)
    return process


def _write_if_possible(file: Path, data: bytes) -> None:
    try:
        file.touch(mode=0o600)
        file.write_bytes(data)
    except OSError as error:
        log.warning("launch_file_left_out", path=file, error=error)
        file.unlink(missing_ok=True)
