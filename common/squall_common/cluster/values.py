"""The contents of the cluster state as Python values. `cluster.codec` turns them into the bytes of
Storm's Thrift structs and back; nothing else in the project knows those bytes."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from squall_common.topology.model import Executor, WorkerSlot


class TopologyStatus(enum.Enum):
    ACTIVE = 1
    INACTIVE = 2
    REBALANCING = 3
    KILLED = 4


@dataclass(frozen=True, slots=True)
class KillOptions:
    wait_secs: int | None = None


@dataclass(frozen=True, slots=True)
class RebalanceOptions:
    wait_secs: int | None = None
    num_workers: int | None = None
    num_executors: Mapping[str, int] = field(default_factory=dict)
    topology_conf_overrides: str | None = None  # JSON
    # Component -> resource -> amount
    topology_resources_overrides: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    principal: str | None = None


@dataclass(frozen=True, slots=True)
class DebugOptions:
    """The percentage of a component's tuples that go to the event logger (0 to 100)."""

    enable: bool
    sampling_pct: float = 10.0


@dataclass(frozen=True, slots=True)
class SavepointRequest:
    """A savepoint that a user asks for."""

    name: str
    asked_ms: int  # since 1970; distinguishes two requests of one name
    folder: str | None = None  # where it is to be; None: in the topology's own folder
    stop: bool = False  # no epoch begins after it


@dataclass(frozen=True, slots=True)
class SavepointResult:
    """What has become of a request: it was taken, or `error` says why not."""

    name: str
    asked_ms: int
    place: str
    epoch: int | None = None
    size_bytes: int | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class StormBase:
    """/storms/ID: a topology's status and size. `action_options` is not None only in KILLED and
    REBALANCING; `prev_status` only in REBALANCING and while the start is pending."""

    name: str
    status: TopologyStatus
    num_workers: int
    component_executors: Mapping[str, int] = field(default_factory=dict)
    launch_time_secs: int = 0
    owner: str | None = None
    action_options: KillOptions | RebalanceOptions | None = None
    prev_status: TopologyStatus | None = None
    # By component; the whole topology's under its own id.
    component_debug: Mapping[str, DebugOptions] = field(default_factory=dict)
    principal: str | None = None
    topology_version: str | None = None
    savepoint: SavepointRequest | None = None  # the last that was asked for


@dataclass(frozen=True, slots=True)
class Assignment:
    """/assignments/ID: where each executor runs."""

    master_code_dir: str
    node_host: Mapping[str, str] = field(default_factory=dict)  # supervisor id -> host
    executor_slot: Mapping[Executor, WorkerSlot] = field(default_factory=dict)
    executor_start_time_secs: Mapping[Executor, int] = field(default_factory=dict)
    owner: str | None = None

    def slots(self) -> dict[WorkerSlot, list[Executor]]:
        """Executors by slot, sorted."""
        slots: dict[WorkerSlot, list[Executor]] = {}
        for executor in sorted(self.executor_slot):
            slots.setdefault(self.executor_slot[executor], []).append(executor)
        return slots


# Of a supervisor's scheduler meta: why its node is unhealthy.
UNHEALTHY_KEY = "squall.unhealthy"


@dataclass(frozen=True, slots=True)
class SupervisorInfo:
    """/supervisors/SID (ephemeral): `meta` is the list of its slots' ports."""

    time_secs: int
    hostname: str
    assignment_id: str
    used_ports: tuple[int, ...] = ()
    meta: tuple[int, ...] = ()
    scheduler_meta: Mapping[str, str] = field(default_factory=dict)
    uptime_secs: int = 0
    version: str = ""
    resources: Mapping[str, float] = field(default_factory=dict)
    server_port: int | None = None


@dataclass(frozen=True, slots=True)
class NimbusInfo:
    """/nimbuses/HOST:PORT (ephemeral)."""

    host: str
    port: int
    uptime_secs: int
    is_leader: bool
    version: str
    sealing_key: str = ""  # public: with it others seal what only this Nimbus may read


# Counts and averages by time window ("600", "10800", "86400", ":all-time") and stream; a bolt's
# inputs are keyed by (component, stream).
ByStream = Mapping[str, Mapping[str, int]]
ByInput = Mapping[str, Mapping[tuple[str, str], int]]
AverageByInput = Mapping[str, Mapping[tuple[str, str], float]]
HistogramByInput = Mapping[str, Mapping[tuple[str, str], bytes]]  # packed: history.histogram


@dataclass(frozen=True, slots=True)
class SpoutStats:
    acked: ByStream = field(default_factory=dict)
    failed: ByStream = field(default_factory=dict)
    complete_ms_avg: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    complete_histograms: Mapping[str, Mapping[str, bytes]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BoltStats:
    acked: ByInput = field(default_factory=dict)
    failed: ByInput = field(default_factory=dict)
    executed: ByInput = field(default_factory=dict)
    process_ms_avg: AverageByInput = field(default_factory=dict)
    execute_ms_avg: AverageByInput = field(default_factory=dict)
    process_histograms: HistogramByInput = field(default_factory=dict)
    execute_histograms: HistogramByInput = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ExecutorStats:
    """Statistics of one executor; `specific` says which kind of component it is. What an older
    worker does not report is None, or empty."""

    specific: SpoutStats | BoltStats
    emitted: ByStream = field(default_factory=dict)
    transferred: ByStream = field(default_factory=dict)
    rate: float = 1.0  # sampling rate; ours counts every tuple
    queue_tuples: int | None = None  # in the inboxes of its tasks; a spout's pending messages
    queue_bytes: int | None = None
    # Window -> component downstream -> seconds that its tasks, added up, waited for it.
    blocked_secs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    # Component downstream -> the least credit in bytes for its tasks on other workers.
    credit_bytes: Mapping[str, int] = field(default_factory=dict)
    # Component downstream -> bytes sent to its tasks on other workers since the worker began.
    sent_bytes: Mapping[str, int] = field(default_factory=dict)
    state_keys: int | None = None  # entries that its tasks hold; None: they have no state
    state_bytes: int | None = None  # that are read if they start again; None: not stored
    # How many of its tasks say that their source has ended; None: a bolt, or a spout that does not
    # say whether it ends.
    exhausted_tasks: int | None = None
    # How many calls its tasks have under way at most, of a bolt whose calls do not take the
    # worker's thread for as long as they last; and whether each task has one, on its own thread.
    calls_max: int | None = None
    on_threads: bool = False


@dataclass(frozen=True, slots=True)
class WorkerDrained:
    """A worker whose spouts are off has nothing in flight."""

    status_zxid: int  # of the writing of /storms/ID that switched its spouts off
    run: str  # the worker's incarnation
    work: int  # what it has done since it began: equal in two reports if nothing came between


@dataclass(frozen=True, slots=True)
class WorkerUsage:
    """What a worker's process uses."""

    cpu_cores: float  # the mean since the report before
    memory_bytes: int  # resident
    loop_lag_ms: float  # the worst since the report before


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointReport:
    """What has become of a topology's checkpoints, as the worker that coordinates them knows it."""

    epoch: int  # the last complete one; 0: none
    interval_ms: int
    completed: int = 0  # since the worker began to coordinate, as `given_up`
    given_up: int = 0
    waiting_ms: int = 0  # since one was completed, or the topology was submitted
    duration_ms: int | None = None  # of the last complete one, as the next three
    size_bytes: int | None = None
    longest_task: str | None = None  # COMPONENT (INDEX)
    longest_ms: int | None = None
    waited_for: str | None = None  # the tasks for which the last that was given up has waited
    failure: str | None = None  # of the store, the last one since a checkpoint was completed
    rollbacks: int = 0  # since the topology was submitted
    rollback_reason: str | None = None  # of the last one
    rollback_time_ms: int | None = None  # since 1970
    bound_components: tuple[str, ...] = ()  # whose number of tasks cannot change
    savepoint: SavepointResult | None = None  # of the last request


@dataclass(frozen=True, slots=True)
class WorkerHeartbeat:
    """/workerbeats/ID/NODE-PORT: a worker is alive, and what its executors did (None: one that has
    nothing to tell yet)."""

    topology_id: str
    executor_stats: Mapping[Executor, ExecutorStats | None]
    time_secs: int
    uptime_secs: int
    drained: WorkerDrained | None = None  # None: something may be in flight
    usage: WorkerUsage | None = None
    # When the statistics were read, since the worker began; None from earlier versions.
    stats_ms: int | None = None
    checkpoints: CheckpointReport | None = None  # of the worker that coordinates them
    # Of the other workers: the store's last error, since they have heard of a complete checkpoint.
    store_failure: str | None = None
    # How long it has had nothing in flight, while its spouts say that their sources have ended;
    # None: something is in flight, or a source has not ended.
    rest_ms: int | None = None
    says_end: bool = False  # all of its spouts say whether their sources have ended


@dataclass(frozen=True, slots=True)
class WorkerEnd:
    """What a worker's heartbeat says about the end of its sources; see there."""

    rest_ms: int | None = None
    says_end: bool = False


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """A worker's heartbeat on its way to Nimbus: who reports, and the heartbeat's bytes as they
    would be in ZooKeeper (empty if they do not fit)."""

    topology_id: str
    slot: WorkerSlot
    executors: tuple[Executor, ...]
    time_secs: int  # by the worker's clock
    run: tuple[int, int]  # its incarnation: orders the workers of a slot
    heartbeat: bytes


@dataclass(frozen=True, slots=True)
class SumsReport:
    """A worker's sums by component on their way to Nimbus, and from there to a page."""

    topology_id: str
    slot: WorkerSlot
    run: tuple[int, int]  # as of a WorkerReport
    sums: bytes | None  # telemetry.sums; None: the worker reports none


@dataclass(frozen=True, slots=True)
class HeardWorker:
    """A worker that reports to the leader, as the next leader gets to know it."""

    slot: WorkerSlot
    executors: int  # their digest (slot_reports.digest)
    silent_secs: int  # since its last report
    run: tuple[int, int]


@dataclass(frozen=True, slots=True)
class TopologyHeartbeats:
    """/workerbeats/ID: the workers that report to the leader, written by it from time to time."""

    time_secs: int
    workers: tuple[HeardWorker, ...] = ()


@dataclass(frozen=True, slots=True)
class ErrorInfo:
    """/errors/ID/COMPONENT/eSEQ: an error that a component reported."""

    error: str
    time_secs: int
    host: str | None = None
    port: int | None = None
    count: int = 1  # errors that it stands for, with those held back before it


@dataclass(frozen=True, slots=True)
class Credentials:
    """/credentials/ID: secrets of a topology. Never logged."""

    creds: Mapping[str, str] = field(repr=False)
    owner: str | None = None


class LogLevelAction(enum.Enum):
    UNCHANGED = 1
    UPDATE = 2
    REMOVE = 3


@dataclass(frozen=True, slots=True)
class LogLevel:
    """What to do with one logger's level, and until when (`reset_epoch_ms`)."""

    action: LogLevelAction
    target_level: str | None = None
    reset_timeout_secs: int | None = None
    reset_epoch_ms: int | None = None
    reset_level: str | None = None


@dataclass(frozen=True, slots=True)
class LogConfig:
    """/logconfigs/ID: log levels by logger name."""

    levels: Mapping[str, LogLevel] = field(default_factory=dict)


class ProfileAction(enum.Enum):
    JPROFILE_STOP = 0
    JPROFILE_START = 1
    JPROFILE_DUMP = 2
    JMAP_DUMP = 3
    JSTACK_DUMP = 4
    JVM_RESTART = 5
    SAMPLE_TASKS = 10001  # Squall's own, like those below
    SAMPLE_NATIVE = 10002
    SAMPLE_NATIVE_IDLE = 10003


@dataclass(frozen=True, slots=True)
class ProfileRequest:
    """/profilerconfigs/ID/NODE_PORT_ACTION: something that one worker is asked to do."""

    slot: WorkerSlot
    action: ProfileAction
    time_stamp: int | None = None  # ms since the epoch until which it holds


@dataclass(frozen=True, slots=True)
class TopologyHistory:
    """A topology that once ran (Nimbus' local state)."""

    topology_id: str
    time_stamp: int  # ms since the epoch
    users: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LocalAssignment:
    """The work of one port of a supervisor (local state)."""

    topology_id: str
    executors: tuple[Executor, ...]
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Access:
    """One entry of a blob's access list: type 1 OTHER, 2 USER; access bits READ 1, WRITE 2,
    ADMIN 4."""

    type: int
    name: str | None
    access: int


@dataclass(frozen=True, slots=True)
class BlobMeta:
    """The metadata of a blob: everything but its content."""

    key: str
    version: int  # grows with every write, also over a deletion: epoch milliseconds at least
    size: int
    sha256: str
    acl: tuple[Access, ...] = ()
    replication: int = 1
    owner: str | None = None  # the user whose quota it counts towards, if any


@dataclass(frozen=True, slots=True)
class BlobRecord:
    """/blobstore/KEY: the version of a blob that counts, whatever lies on anybody's disk.

    `pending`: its writer has not been answered, since not enough Nimbus nodes have it yet. When it
    gets lost now, the blob goes back to `previous` (None: it was to be a new blob).
    """

    meta: BlobMeta
    pending: bool = False
    previous: BlobMeta | None = None


@dataclass(frozen=True, slots=True)
class BlobHolder:
    """/blobstore/KEY/HOST:PORT-VERSION: a Nimbus that has a version of a blob on its disk."""

    host: str
    port: int
    version: int
