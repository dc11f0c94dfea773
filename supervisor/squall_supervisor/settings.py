"""The supervisor's configuration, read once, checked, and handed down."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.config.options.typed import SupervisorOptions, TopologyOptions
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

    worker_start_timeout_secs: float  # without a heartbeat after the launch
    worker_shutdown_secs: float  # from SIGTERM to SIGKILL, and between two SIGKILLs
    worker_min_uptime_secs: float  # a shorter time in RUNNING counts towards the back-off
    backoff_max_secs: float
    # A worker that dies at once is relaunched after 0, 1, 2, 4, 8, 16 s ...: 6 times in a minute.
    backoff_first_secs: float = 1.0
    localize_retry_max_secs: float = 10.0  # doubling from a quarter of a second

    @classmethod
    def of(cls, options: SupervisorOptions) -> SlotSettings:
        return cls(
            worker_start_timeout_secs=options.supervisor_worker_start_timeout_secs,
            worker_shutdown_secs=options.supervisor_worker_shutdown_sleep_secs,
            worker_min_uptime_secs=options.supervisor_worker_min_uptime_secs,
            backoff_max_secs=options.supervisor_worker_backoff_max_secs,
        )


@dataclass(frozen=True, slots=True)
class RetentionLimits:
    """How much of workers' logs is kept."""

    every_secs: float  # 0: nothing is ever deleted
    age_secs: float
    worker_bytes: int
    sum_bytes: int

    @classmethod
    def of(cls, options: SupervisorOptions) -> RetentionLimits:
        sum_bytes = int(options.logviewer_max_sum_worker_logs_size_mb * _MIB)
        worker_bytes = int(options.logviewer_max_per_worker_logs_size_mb * _MIB)
        return cls(
            every_secs=options.logviewer_cleanup_interval_secs,
            age_secs=60.0 * options.logviewer_cleanup_age_mins,
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
    report_secs: float  # workers report to Nimbus, over their supervisor, this often
    nimbus_frame_bytes_max: int  # of a call to Nimbus
    blob_update_secs: float
    credentials_poll_secs: float
    cache_clean_up_secs: float
    cache_bytes: int  # unused blobs are kept up to this size
    downloads_max: int  # at a time
    download_retries_max: int
    package_limits: Limits
    thrift_host: str
    thrift_port: int
    thrift_frame_bytes_max: int
    insecure: bool
    http_hosts: tuple[str, ...] | None  # None: the names that this machine goes by
    zookeeper_servers: tuple[str, ...]
    zookeeper_port: int
    health_check_dir: Path
    health_check_secs: float  # 0: the checks are not run
    health_check_timeout_secs: float
    health_check_fail_on_timeouts: bool
    profiler_enabled: bool
    profiler_command: str
    monitor_secs: float
    worker_memory_mb: float | None  # of a worker whose topology declares none
    worker_cpu_percent_min: float
    worker_memory_mb_max: float | None  # of any worker
    worker_cpu_percent_max: float | None
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

    def worker_timeout_of(self, topology: TopologyOptions) -> float:
        """How old the heartbeats of a topology's workers may get."""
        own = topology.topology_worker_timeout_secs
        return self.worker_timeout_secs if own is None else min(own, self.worker_timeout_max_secs)

    @classmethod
    def from_conf(cls, conf: Mapping[str, Any]) -> SupervisorSettings:
        """Raises ConfigError for a value of the wrong type or range."""
        return cls.of(SupervisorOptions.read(conf))

    @classmethod
    def of(cls, options: SupervisorOptions) -> SupervisorSettings:
        """Raises ConfigError for values that a supervisor cannot work with."""
        for key, least in _LEAST.items():
            value = getattr(options, key.replace(".", "_"))
            if value < least:
                raise ConfigError(f"{key} is {value:g}; a number of at least {least:g} is expected")
        local_dir = Path(options.storm_local_dir).absolute()
        log_dir = options.storm_log_dir
        logs = local_dir / "logs" if log_dir is None else Path(log_dir).absolute()
        return cls(
            local_dir=local_dir,
            log_dir=logs,
            artifacts_dir=logs / options.storm_workers_artifacts_dir,
            supervisor_id=_supervisor_id(options.storm_id),
            hostname=hostname_of(options),
            ports=_ports(options.supervisor_slots_ports) if options.supervisor_enable else (),
            slot=SlotSettings.of(options),
            worker_timeout_secs=options.supervisor_worker_timeout_secs,
            worker_timeout_max_secs=options.worker_max_timeout_secs,
            sync_secs=options.supervisor_assignment_sync_secs,
            heartbeat_secs=options.supervisor_heartbeat_frequency_secs,
            report_secs=options.task_heartbeat_frequency_secs,
            nimbus_frame_bytes_max=options.nimbus_thrift_max_buffer_size,
            credentials_poll_secs=options.task_credentials_poll_secs,
            blob_update_secs=options.supervisor_localizer_update_blob_interval_secs,
            cache_clean_up_secs=options.supervisor_localizer_cleanup_interval_ms / 1000,
            cache_bytes=int(options.supervisor_localizer_cache_target_size_mb * _MIB),
            downloads_max=options.supervisor_blobstore_download_thread_count,
            download_retries_max=options.supervisor_blobstore_download_max_retries,
            package_limits=Limits(),
            thrift_host=options.storm_bind_host,
            thrift_port=options.supervisor_thrift_port,
            thrift_frame_bytes_max=options.supervisor_thrift_max_buffer_size,
            insecure=options.storm_security_insecure,
            http_hosts=None
            if options.storm_http_hosts is None
            else tuple(options.storm_http_hosts),
            zookeeper_servers=options.storm_zookeeper_servers,
            zookeeper_port=options.storm_zookeeper_port,
            health_check_dir=local_dir / options.storm_health_check_dir,
            health_check_secs=options.supervisor_health_check_interval_secs,
            health_check_timeout_secs=options.storm_health_check_timeout_ms / 1000,
            health_check_fail_on_timeouts=options.storm_health_check_fail_on_timeouts,
            profiler_enabled=options.worker_profiler_enabled,
            profiler_command=options.worker_profiler_command,
            monitor_secs=options.supervisor_monitor_frequency_secs,
            worker_memory_mb=options.worker_heap_memory_mb,
            worker_cpu_percent_min=options.storm_worker_min_cpu_pcore_percent,
            worker_memory_mb_max=options.worker_max_memory_mb,
            worker_cpu_percent_max=options.worker_max_cpu_pcore_percent,
            memory_margin_mb=options.storm_supervisor_memory_limit_tolerance_margin_mb,
            memory_hard_multiplier=options.storm_supervisor_hard_memory_limit_multiplier,
            log_retention=RetentionLimits.of(options),
            users=UserRules.of(options),
            cgroups=_cgroups(options),
            rlimits=rlimits_of(options),
            scheduler_meta={
                **(options.supervisor_scheduler_meta or {}),
                META_KEY: str(this_platform()),
            },
            resources={
                "supervisor.memory.capacity.mb": options.supervisor_memory_capacity_mb,
                "supervisor.cpu.capacity": options.supervisor_cpu_capacity,
            },
        )


# Shorter times would keep the supervisor busy with nothing else.
_LEAST: Mapping[str, float] = {
    "supervisor.worker.timeout.secs": 0.1,
    "worker.max.timeout.secs": 0.1,
    "supervisor.assignment.sync.secs": 0.01,
    "supervisor.heartbeat.frequency.secs": 0.01,
    "supervisor.localizer.update.blob.interval.secs": 0.01,
    "supervisor.localizer.cleanup.interval.ms": 10.0,
    "supervisor.monitor.frequency.secs": 0.01,
}


def _cgroups(options: SupervisorOptions) -> CgroupSettings | None:
    if not options.storm_resource_isolation_plugin_enable:
        return None
    plugin = options.storm_resource_isolation_plugin
    if plugin is not None and not plugin.endswith("CgroupManager"):
        raise ConfigError(
            f"storm.resource.isolation.plugin is {plugin!r}; here it can only be cgroups",
            hint="Leave it out, or set Storm's org.apache.storm.container.cgroup.CgroupManager.",
        )
    folder = options.storm_cgroup_hierarchy_dir
    rootdir = options.storm_supervisor_cgroup_rootdir
    if rootdir.startswith("/") or ".." in Path(rootdir).parts or "\0" in rootdir:
        raise ConfigError(
            f"storm.supervisor.cgroup.rootdir is {rootdir!r}; a relative path is expected",
        )
    return CgroupSettings(
        None if folder is None else Path(folder).absolute(), rootdir, options.storm_cgroup_resources
    )


def hostname_of(options: SupervisorOptions) -> str:
    """The host name under which other nodes reach this one: `storm.local.hostname`; else, if
    everything listens on a single address, that address (a host's name need not lead to loopback);
    else the machine's host name."""
    if options.storm_local_hostname is not None:
        return options.storm_local_hostname
    host = options.storm_bind_host
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    return socket.gethostname() if address.is_unspecified else host


def _supervisor_id(text: str | None) -> str | None:
    if text is not None and ("/" in text or not text.isprintable() or text in (".", "..")):
        raise ConfigError(f"storm.id is {text!r}; it must be a valid name of a znode")
    return text


def _ports(ports: tuple[int, ...]) -> tuple[int, ...]:
    if len(set(ports)) < len(ports):
        raise ConfigError(f"supervisor.slots.ports has the same port twice: {list(ports)!r}")
    return tuple(sorted(ports))
