"""The supervisor's configuration, read once, checked, and handed down."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.errors import ConfigError
from squall_common.packaging.archive.members import Limits
from squall_common.packaging.platforms import META_KEY, this_platform
from squall_supervisor.confine.cgroups import CgroupSettings
from squall_supervisor.confine.rlimits import rlimits_of
from squall_supervisor.confine.users import UserRules

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class SlotSettings:
    """Times of a slot, in seconds; each is a key of the configuration, except for the last two."""

    worker_start_timeout_secs: float = 120.0  # without a heartbeat after the launch
    worker_shutdown_secs: float = 3.0  # from SIGTERM to SIGKILL, and between two SIGKILLs
    worker_min_uptime_secs: float = 10.0  # a shorter time in RUNNING counts towards the back-off
    backoff_max_secs: float = 60.0
    # A worker that dies at once is relaunched after 0, 1, 2, 4, 8, 16 s ...: 6 times in a minute.
    backoff_first_secs: float = 1.0
    localize_retry_max_secs: float = 10.0  # doubling from a quarter of a second


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How much of workers' logs is kept."""

    every_secs: float  # 0: nothing is ever deleted
    age_secs: float
    worker_bytes: int
    sum_bytes: int

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> RetentionLimits:
        def value(key: str, default: float) -> float:
            found = conf.get(key)
            return default if found is None else float(found)

        sum_bytes = int(value("logviewer.max.sum.worker.logs.size.mb", 4096) * _MIB)
        worker_bytes = int(value("logviewer.max.per.worker.logs.size.mb", 2048) * _MIB)
        return cls(
            every_secs=value("logviewer.cleanup.interval.secs", 600),
            age_secs=60.0 * value("logviewer.cleanup.age.mins", 10_080),
            # As in Storm: no worker gets more than half of all.
            worker_bytes=min(worker_bytes, sum_bytes // 2),
            sum_bytes=sum_bytes,
        )


@dataclass(frozen=True, slots=True)
class SupervisorSettings:
    """Times are in seconds, paths absolute."""

    local_dir: Path
    log_dir: Path
    artifacts_dir: Path  # of all workers
    supervisor_id: str | None  # None: the one in the local state, or a new one
    hostname: str
    ports: tuple[int, ...]
    slot: SlotSettings
    worker_timeout_secs: float
    worker_timeout_max_secs: float
    sync_secs: float
    heartbeat_secs: float
    blob_update_secs: float
    cache_clean_up_secs: float
    cache_bytes: int  # unused blobs are kept up to this size
    downloads_max: int  # at a time
    download_retries_max: int
    package_limits: Limits
    thrift_host: str
    thrift_port: int
    thrift_frame_bytes_max: int
    insecure: bool
    profiler_enabled: bool
    profiler_command: str
    monitor_secs: float
    worker_memory_mb: float | None  # of a worker whose topology declares none
    worker_cpu_percent_min: float
    memory_margin_mb: float
    memory_hard_multiplier: float
    log_retention: RetentionLimits
    users: UserRules | None  # None: workers run as the supervisor's user
    cgroups: CgroupSettings | None  # None: none are made
    rlimits: Mapping[str, int]  # of workers, by their names in the module resource
    scheduler_meta: Mapping[str, str]
    resources: Mapping[str, float]

    @property
    def supervisor_dir(self) -> Path:
        return self.local_dir / "supervisor"

    @property
    def stormdist_dir(self) -> Path:
        return self.supervisor_dir / "stormdist"

    @property
    def environments_dir(self) -> Path:
        return self.supervisor_dir / "environments"

    @property
    def blobs_dir(self) -> Path:
        return self.supervisor_dir / "blobs"

    @property
    def temporary_dir(self) -> Path:
        """Folder of downloads under way; emptied at every start."""
        return self.supervisor_dir / "tmp"

    @property
    def last_known_dir(self) -> Path:
        """Topologies of this node as last read."""
        return self.supervisor_dir / "last-known"

    @property
    def state_file(self) -> Path:
        return self.supervisor_dir / "localstate"

    @property
    def lock_file(self) -> Path:
        return self.supervisor_dir / "lock"

    @property
    def workers_dir(self) -> Path:
        return self.local_dir / "workers"

    def worker_timeout_of(self, topology_conf: Mapping[str, Any]) -> float:
        """How old the heartbeats of a topology's workers may get."""
        own = topology_conf.get("topology.worker.timeout.secs")
        if not isinstance(own, int | float) or isinstance(own, bool) or own <= 0:
            return self.worker_timeout_secs
        return min(float(own), self.worker_timeout_max_secs)

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> SupervisorSettings:
        """Raises ConfigError for a value of the wrong type or range."""

        def number(key: str, default: float, *, least: float = 0.0) -> float:
            value = conf.get(key)
            if value is None:
                return default
            if isinstance(value, bool) or not isinstance(value, int | float) or value < least:
                raise ConfigError(f"{key} is {value!r}; a number of at least {least:g} is expected")
            return float(value)

        local_dir = Path(str(conf.get("storm.local.dir") or "storm-local")).absolute()
        log_dir = conf.get("storm.log.dir")
        logs = Path(str(log_dir)).absolute() if log_dir else local_dir / "logs"
        artifacts = conf.get("storm.workers.artifacts.dir") or "workers-artifacts"
        host = str(conf.get("storm.bind.host") or "127.0.0.1")
        thrift_port = conf.get("supervisor.thrift.port", 6628)
        if (
            not isinstance(thrift_port, int)
            or isinstance(thrift_port, bool)
            or not 0 <= thrift_port < 65536
        ):
            raise ConfigError(f"supervisor.thrift.port is {thrift_port!r}; a port is expected")
        supervisor_id = conf.get("storm.id")
        return cls(
            local_dir=local_dir,
            log_dir=logs,
            artifacts_dir=logs / str(artifacts),
            supervisor_id=None if supervisor_id is None else _supervisor_id(supervisor_id),
            hostname=hostname_of(conf),
            ports=_ports(conf.get("supervisor.slots.ports", (6700, 6701, 6702, 6703)))
            if conf.get("supervisor.enable", True)
            else (),
            slot=SlotSettings(
                worker_start_timeout_secs=number("supervisor.worker.start.timeout.secs", 120.0),
                worker_shutdown_secs=number("supervisor.worker.shutdown.sleep.secs", 3.0),
                worker_min_uptime_secs=number("supervisor.worker.min.uptime.secs", 10.0),
                backoff_max_secs=number("supervisor.worker.backoff.max.secs", 60.0),
            ),
            worker_timeout_secs=number("supervisor.worker.timeout.secs", 30.0, least=0.1),
            worker_timeout_max_secs=number("worker.max.timeout.secs", 600.0, least=0.1),
            sync_secs=number("supervisor.assignment.sync.secs", 10.0, least=0.01),
            heartbeat_secs=number("supervisor.heartbeat.frequency.secs", 5.0, least=0.01),
            blob_update_secs=number(
                "supervisor.localizer.update.blob.interval.secs", 30.0, least=0.01
            ),
            cache_clean_up_secs=number(
                "supervisor.localizer.cleanup.interval.ms", 30_000.0, least=10.0
            )
            / 1000,
            cache_bytes=int(
                number("supervisor.localizer.cache.target.size.mb", 10_240.0) * 1024 * 1024
            ),
            downloads_max=int(number("supervisor.blobstore.download.thread.count", 5.0, least=1.0)),
            download_retries_max=int(number("supervisor.blobstore.download.max_retries", 3.0)),
            package_limits=Limits(),
            thrift_host=host,
            thrift_port=thrift_port,
            thrift_frame_bytes_max=int(
                number("supervisor.thrift.max_buffer_size", 1048576.0, least=1024.0)
            ),
            insecure=conf.get("storm.security.insecure") is True,
            profiler_enabled=conf.get("worker.profiler.enabled") is not False,
            profiler_command=str(conf.get("worker.profiler.command") or "py-spy"),
            monitor_secs=number("supervisor.monitor.frequency.secs", 3.0, least=0.01),
            worker_memory_mb=number("worker.heap.memory.mb", 0.0) or None,
            worker_cpu_percent_min=number("storm.worker.min.cpu.pcore.percent", 50.0),
            memory_margin_mb=number("storm.supervisor.memory.limit.tolerance.margin.mb", 128.0),
            memory_hard_multiplier=number(
                "storm.supervisor.hard.memory.limit.multiplier", 2.0, least=1.0
            ),
            log_retention=RetentionLimits.from_conf(conf),
            users=UserRules.from_conf(conf),
            cgroups=_cgroups(conf),
            rlimits=rlimits_of(conf),
            scheduler_meta={
                **{
                    str(k): str(v) for k, v in (conf.get("supervisor.scheduler.meta") or {}).items()
                },
                META_KEY: str(this_platform()),
            },
            resources={
                "supervisor.memory.capacity.mb": number("supervisor.memory.capacity.mb", 4096.0),
                "supervisor.cpu.capacity": number("supervisor.cpu.capacity", 400.0),
            },
        )


def _cgroups(conf: Mapping[str, Any]) -> CgroupSettings | None:
    if conf.get("storm.resource.isolation.plugin.enable") is not True:
        return None
    plugin = conf.get("storm.resource.isolation.plugin")
    if plugin is not None and not str(plugin).endswith("CgroupManager"):
        raise ConfigError(
            f"storm.resource.isolation.plugin is {plugin!r}; here it can only be cgroups",
            hint="Leave it out, or set Storm's org.apache.storm.container.cgroup.CgroupManager.",
        )
    folder = conf.get("storm.cgroup.hierarchy.dir")
    rootdir = str(conf.get("storm.supervisor.cgroup.rootdir") or "storm")
    if rootdir.startswith("/") or ".." in Path(rootdir).parts or "\0" in rootdir:
        raise ConfigError(
            f"storm.supervisor.cgroup.rootdir is {rootdir!r}; a relative path is expected",
        )
    controllers = conf.get("storm.cgroup.resources") or ["cpu", "memory"]
    if not isinstance(controllers, list) or not set(controllers) <= {"cpu", "memory"}:
        raise ConfigError(
            f"storm.cgroup.resources is {controllers!r}; only cpu and memory are supported"
        )
    return CgroupSettings(
        None if folder is None else Path(str(folder)).absolute(), rootdir, tuple(controllers)
    )


def hostname_of(conf: Mapping[str, Any]) -> str:
    """The host name under which other nodes reach this one: `storm.local.hostname`; else, if
    everything listens on a single address, that address (a host's name need not lead to loopback);
    else the machine's host name."""
    own = conf.get("storm.local.hostname")
    if own:
        return str(own)
    host = str(conf.get("storm.bind.host") or "127.0.0.1")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return socket.gethostname() if address.is_unspecified else host


def _supervisor_id(value: object) -> str:
    text = str(value)
    if not text or "/" in text or not text.isprintable() or text in (".", ".."):
        raise ConfigError(f"storm.id is {value!r}; it must be a valid name of a znode")
    return text


def _ports(value: object) -> tuple[int, ...]:
    key = "supervisor.slots.ports"
    if not isinstance(value, list | tuple):
        raise ConfigError(f"{key} is {value!r}; a list of ports is expected")
    for port in value:
        if not isinstance(port, int) or isinstance(port, bool) or not 0 < port < 65536:
            raise ConfigError(
                f"{key} has {port!r}; a port between 1 and 65535 is expected",
                hint="A slot is a real port: other workers must know it before its worker runs.",
            )
    if len(set(value)) < len(value):
        raise ConfigError(f"{key} has the same port twice: {list(value)!r}")
    return tuple(sorted(value))
