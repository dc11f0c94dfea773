"""The launch file from a supervisor to a worker that it starts: JSON, mode 0600, in the worker's
folder.

    python -m squall_worker TOPOLOGY_ID SUPERVISOR_ID PORT WORKER_ID LAUNCH_FILE

The first four arguments are Storm's and only for people who read `ps`; the file is what counts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.daemon.files import write_atomic
from squall_common.security.credentials import CREDENTIALS_FILE
from squall_common.security.curve import KEY_FILE
from squall_common.worker_files.zookeeper_file import ZOOKEEPER_FILE

IDENTITY_FILE = "identity.json"
IN_HAND_FILE = "in_hand"
LAST_KNOWN_FILE = "last-known.json"


@dataclass(frozen=True, slots=True, order=True)
class Incarnation:
    """Orders the workers that have run on a slot: the mzxid of the topology's assignment when the
    slot got its work, then the number of the launch, kept by the supervisor and never reset."""

    assignment_zxid: int
    launch: int

    def __str__(self) -> str:
        return f"{self.assignment_zxid:x}.{self.launch}"


@dataclass(frozen=True, slots=True)
class LaunchSpec:
    """Everything a worker needs to start.

    `stormdist` holds stormcode.ser, stormconf.ser, code/ (the unpacked package, first on sys.path)
    and resources/. `worker_dir` is the working directory and holds `heartbeat` (see
    `squall_common.worker_files.heartbeat_file`), perhaps `curve.key` (see
    `squall_common.security.curve`) and `credentials.json` (see
    `squall_common.security.credentials`), and `pids/` (one empty file named by pid for
    each shell child).
    `daemon_conf` is what the supervisor's configuration has for workers
    (`squall_common.config.for_workers`). `ca` is the certificate of the cluster's CA in PEM, by
    which a worker of a secured cluster tells what Nimbus has signed; None in an open one.
    `shows_digest`: this version's workers show ZooKeeper the digest in their `zookeeper_file`, as
    soon as they have one; those of earlier versions do not.
    """

    topology_id: str
    supervisor_id: str
    hostname: str
    port: int
    worker_id: str
    incarnation: Incarnation
    stormdist: Path
    worker_dir: Path
    artifacts_dir: Path  # logs of this worker: worker.log, worker.log.err ...
    daemon_conf: dict[str, Any]
    secured: bool = False  # whether the worker proves who it is, by its `identity_file`
    ca: str | None = None
    shows_digest: bool = True

    @property
    def heartbeat_file(self) -> Path:
        return self.worker_dir / "heartbeat"

    @property
    def last_known_file(self) -> Path:
        """The supervisor's last reading of the topology (`last_known`), if it has one."""
        return self.worker_dir / LAST_KNOWN_FILE

    @property
    def key_file(self) -> Path:
        return self.worker_dir / KEY_FILE

    @property
    def credentials_file(self) -> Path:
        return self.worker_dir / CREDENTIALS_FILE

    @property
    def identity_file(self) -> Path:
        """By which it proves who it is (`squall_common.authentication.worker_identity`); comes
        some moments after the start."""
        return self.worker_dir / IDENTITY_FILE

    @property
    def zookeeper_file(self) -> Path:
        """By which it proves to ZooKeeper which topology it belongs to, if the cluster's daemons
        do (`zookeeper_file`)."""
        return self.worker_dir / ZOOKEEPER_FILE

    @property
    def in_hand_file(self) -> Path:
        """Where the worker notes what it has in hand."""
        return self.worker_dir / IN_HAND_FILE

    @property
    def before_file(self) -> Path:
        """What the worker before it on its port noted: a line of JSON about how that one ended
        (`counts`: unexpectedly, `why`, `worker`: host:port), then its `in_hand_file`."""
        return self.worker_dir / "in_hand.before"

    @property
    def pid_dir(self) -> Path:
        return self.worker_dir / "pids"

    def write(self, path: Path) -> None:
        """Write the launch file, readable by its owner only."""
        value = {
            "topology_id": self.topology_id,
            "supervisor_id": self.supervisor_id,
            "hostname": self.hostname,
            "port": self.port,
            "worker_id": self.worker_id,
            "incarnation": [self.incarnation.assignment_zxid, self.incarnation.launch],
            "stormdist": str(self.stormdist),
            "worker_dir": str(self.worker_dir),
            "artifacts_dir": str(self.artifacts_dir),
            "daemon_conf": self.daemon_conf,
            "secured": self.secured,
            "ca": self.ca,
            "shows_digest": self.shows_digest,
        }
        write_atomic(path, json.dumps(value, indent=1).encode(), mode=0o600)

    @classmethod
    def read(cls, path: Path) -> LaunchSpec:
        """Raises OSError, ValueError or KeyError when the file is not one of ours."""
        return cls.parse(path.read_bytes())

    @classmethod
    def parse(cls, data: bytes) -> LaunchSpec:
        """The inverse of `write`. Raises ValueError, KeyError or TypeError for anything else."""
        value = json.loads(data)
        zxid, launch = value["incarnation"]
        return cls(
            topology_id=value["topology_id"],
            supervisor_id=value["supervisor_id"],
            hostname=value["hostname"],
            port=value["port"],
            worker_id=value["worker_id"],
            incarnation=Incarnation(zxid, launch),
            stormdist=Path(value["stormdist"]),
            worker_dir=Path(value["worker_dir"]),
            artifacts_dir=Path(value["artifacts_dir"]),
            daemon_conf=value["daemon_conf"],
            secured=value.get("secured", False),
            ca=value.get("ca"),
            shows_digest=value.get("shows_digest", False),
        )
