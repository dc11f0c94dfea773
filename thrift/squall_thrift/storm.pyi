"""Generated from storm.thrift by `python -m squall_thrift.stubs`: do not edit."""

import enum

from squall_thrift.idl import Interface, Service

INTERFACE: Interface

class ComponentType(enum.IntEnum):
    BOLT = 1
    SPOUT = 2

class TopologyInitialStatus(enum.IntEnum):
    ACTIVE = 1
    INACTIVE = 2

class NumErrorsChoice(enum.IntEnum):
    ALL = 0
    NONE = 1
    ONE = 2

class ProfileAction(enum.IntEnum):
    JPROFILE_STOP = 0
    JPROFILE_START = 1
    JPROFILE_DUMP = 2
    JMAP_DUMP = 3
    JSTACK_DUMP = 4
    JVM_RESTART = 5
    SAMPLE_TASKS = 10001
    SAMPLE_NATIVE = 10002
    SAMPLE_NATIVE_IDLE = 10003

class LogLevelAction(enum.IntEnum):
    UNCHANGED = 1
    UPDATE = 2
    REMOVE = 3

class WorkerTokenServiceType(enum.IntEnum):
    NIMBUS = 0
    DRPC = 1
    SUPERVISOR = 2

class AccessControlType(enum.IntEnum):
    OTHER = 1
    USER = 2

class TopologyStatus(enum.IntEnum):
    ACTIVE = 1
    INACTIVE = 2
    REBALANCING = 3
    KILLED = 4

class DRPCExceptionType(enum.IntEnum):
    INTERNAL_ERROR = 0
    SERVER_SHUTDOWN = 1
    SERVER_TIMEOUT = 2
    FAILED_REQUEST = 3

class HBServerMessageType(enum.IntEnum):
    CREATE_PATH = 0
    CREATE_PATH_RESPONSE = 1
    EXISTS = 2
    EXISTS_RESPONSE = 3
    SEND_PULSE = 4
    SEND_PULSE_RESPONSE = 5
    GET_ALL_PULSE_FOR_PATH = 6
    GET_ALL_PULSE_FOR_PATH_RESPONSE = 7
    GET_ALL_NODES_FOR_PATH = 8
    GET_ALL_NODES_FOR_PATH_RESPONSE = 9
    GET_PULSE = 10
    GET_PULSE_RESPONSE = 11
    DELETE_PATH = 12
    DELETE_PATH_RESPONSE = 13
    DELETE_PULSE_ID = 14
    DELETE_PULSE_ID_RESPONSE = 15
    CONTROL_MESSAGE = 16
    SASL_MESSAGE_TOKEN = 17
    NOT_AUTHORIZED = 18

class JavaObject:
    full_class_name: str
    args_list: list[JavaObjectArg]
    def __init__(
        self,
        full_class_name: str,
        args_list: list[JavaObjectArg],
    ) -> None: ...

class NullStruct:
    def __init__(self) -> None: ...

class GlobalStreamId:
    componentId: str
    streamId: str
    def __init__(
        self,
        componentId: str,
        streamId: str,
    ) -> None: ...

class StreamInfo:
    output_fields: list[str]
    direct: bool
    def __init__(
        self,
        output_fields: list[str],
        direct: bool,
    ) -> None: ...

class ShellComponent:
    execution_command: str | None
    script: str | None
    def __init__(
        self,
        execution_command: str | None = ...,
        script: str | None = ...,
    ) -> None: ...

class PlanStep:
    call: str
    functions: list[str] | None
    windows: str | None
    def __init__(
        self,
        call: str,
        functions: list[str] | None = ...,
        windows: str | None = ...,
    ) -> None: ...

class ComponentCommon:
    inputs: dict[GlobalStreamId, Grouping]
    streams: dict[str, StreamInfo]
    parallelism_hint: int | None
    json_conf: str | None
    plan: list[PlanStep] | None
    def __init__(
        self,
        inputs: dict[GlobalStreamId, Grouping],
        streams: dict[str, StreamInfo],
        parallelism_hint: int | None = ...,
        json_conf: str | None = ...,
        plan: list[PlanStep] | None = ...,
    ) -> None: ...

class SpoutSpec:
    spout_object: ComponentObject
    common: ComponentCommon
    def __init__(
        self,
        spout_object: ComponentObject,
        common: ComponentCommon,
    ) -> None: ...

class Bolt:
    bolt_object: ComponentObject
    common: ComponentCommon
    def __init__(
        self,
        bolt_object: ComponentObject,
        common: ComponentCommon,
    ) -> None: ...

class StateSpoutSpec:
    state_spout_object: ComponentObject
    common: ComponentCommon
    def __init__(
        self,
        state_spout_object: ComponentObject,
        common: ComponentCommon,
    ) -> None: ...

class SharedMemory:
    name: str
    on_heap: float | None
    off_heap_worker: float | None
    off_heap_node: float | None
    def __init__(
        self,
        name: str,
        on_heap: float | None = ...,
        off_heap_worker: float | None = ...,
        off_heap_node: float | None = ...,
    ) -> None: ...

class StormTopology:
    spouts: dict[str, SpoutSpec]
    bolts: dict[str, Bolt]
    state_spouts: dict[str, StateSpoutSpec]
    worker_hooks: list[bytes] | None
    dependency_jars: list[str] | None
    dependency_artifacts: list[str] | None
    storm_version: str | None
    jdk_version: str | None
    component_to_shared_memory: dict[str, set[str]] | None
    shared_memory: dict[str, SharedMemory] | None
    def __init__(
        self,
        spouts: dict[str, SpoutSpec],
        bolts: dict[str, Bolt],
        state_spouts: dict[str, StateSpoutSpec],
        worker_hooks: list[bytes] | None = ...,
        dependency_jars: list[str] | None = ...,
        dependency_artifacts: list[str] | None = ...,
        storm_version: str | None = ...,
        jdk_version: str | None = ...,
        component_to_shared_memory: dict[str, set[str]] | None = ...,
        shared_memory: dict[str, SharedMemory] | None = ...,
    ) -> None: ...

class WorkerExit:
    time_secs: int
    host: str
    port: int
    reason: str
    last_line: str
    def __init__(
        self,
        time_secs: int,
        host: str,
        port: int,
        reason: str,
        last_line: str,
    ) -> None: ...

class TopologySummary:
    id: str
    name: str
    num_tasks: int
    num_executors: int
    num_workers: int
    uptime_secs: int
    status: str
    storm_version: str | None
    topology_version: str | None
    sched_status: str | None
    owner: str | None
    replication_count: int | None
    requested_memonheap: float | None
    requested_memoffheap: float | None
    requested_cpu: float | None
    assigned_memonheap: float | None
    assigned_memoffheap: float | None
    assigned_cpu: float | None
    requested_generic_resources: dict[str, float] | None
    assigned_generic_resources: dict[str, float] | None
    health: str | None
    last_exit: WorkerExit | None
    restarts: int | None
    finished: bool | None
    def __init__(
        self,
        id: str,
        name: str,
        num_tasks: int,
        num_executors: int,
        num_workers: int,
        uptime_secs: int,
        status: str,
        storm_version: str | None = ...,
        topology_version: str | None = ...,
        sched_status: str | None = ...,
        owner: str | None = ...,
        replication_count: int | None = ...,
        requested_memonheap: float | None = ...,
        requested_memoffheap: float | None = ...,
        requested_cpu: float | None = ...,
        assigned_memonheap: float | None = ...,
        assigned_memoffheap: float | None = ...,
        assigned_cpu: float | None = ...,
        requested_generic_resources: dict[str, float] | None = ...,
        assigned_generic_resources: dict[str, float] | None = ...,
        health: str | None = ...,
        last_exit: WorkerExit | None = ...,
        restarts: int | None = ...,
        finished: bool | None = ...,
    ) -> None: ...

class SupervisorSummary:
    host: str
    uptime_secs: int
    num_workers: int
    num_used_workers: int
    supervisor_id: str
    version: str
    total_resources: dict[str, float] | None
    used_mem: float | None
    used_cpu: float | None
    fragmented_mem: float | None
    fragmented_cpu: float | None
    blacklisted: bool | None
    used_generic_resources: dict[str, float] | None
    unhealthy: str | None
    def __init__(
        self,
        host: str,
        uptime_secs: int,
        num_workers: int,
        num_used_workers: int,
        supervisor_id: str,
        version: str = ...,
        total_resources: dict[str, float] | None = ...,
        used_mem: float | None = ...,
        used_cpu: float | None = ...,
        fragmented_mem: float | None = ...,
        fragmented_cpu: float | None = ...,
        blacklisted: bool | None = ...,
        used_generic_resources: dict[str, float] | None = ...,
        unhealthy: str | None = ...,
    ) -> None: ...

class NimbusSummary:
    host: str
    port: int
    uptime_secs: int
    isLeader: bool
    version: str
    tlsPort: int | None
    sealingKey: str | None
    def __init__(
        self,
        host: str,
        port: int,
        uptime_secs: int,
        isLeader: bool,
        version: str,
        tlsPort: int | None = ...,
        sealingKey: str | None = ...,
    ) -> None: ...

class ClusterSummary:
    supervisors: list[SupervisorSummary]
    topologies: list[TopologySummary]
    nimbuses: list[NimbusSummary]
    def __init__(
        self,
        supervisors: list[SupervisorSummary],
        topologies: list[TopologySummary],
        nimbuses: list[NimbusSummary],
    ) -> None: ...

class ErrorInfo:
    error: str
    error_time_secs: int
    host: str | None
    port: int | None
    count: int | None
    def __init__(
        self,
        error: str,
        error_time_secs: int,
        host: str | None = ...,
        port: int | None = ...,
        count: int | None = ...,
    ) -> None: ...

class BoltStats:
    acked: dict[str, dict[GlobalStreamId, int]]
    failed: dict[str, dict[GlobalStreamId, int]]
    process_ms_avg: dict[str, dict[GlobalStreamId, float]]
    executed: dict[str, dict[GlobalStreamId, int]]
    execute_ms_avg: dict[str, dict[GlobalStreamId, float]]
    process_histograms: dict[str, dict[GlobalStreamId, bytes]] | None
    execute_histograms: dict[str, dict[GlobalStreamId, bytes]] | None
    def __init__(
        self,
        acked: dict[str, dict[GlobalStreamId, int]],
        failed: dict[str, dict[GlobalStreamId, int]],
        process_ms_avg: dict[str, dict[GlobalStreamId, float]],
        executed: dict[str, dict[GlobalStreamId, int]],
        execute_ms_avg: dict[str, dict[GlobalStreamId, float]],
        process_histograms: dict[str, dict[GlobalStreamId, bytes]] | None = ...,
        execute_histograms: dict[str, dict[GlobalStreamId, bytes]] | None = ...,
    ) -> None: ...

class SpoutStats:
    acked: dict[str, dict[str, int]]
    failed: dict[str, dict[str, int]]
    complete_ms_avg: dict[str, dict[str, float]]
    complete_histograms: dict[str, dict[str, bytes]] | None
    def __init__(
        self,
        acked: dict[str, dict[str, int]],
        failed: dict[str, dict[str, int]],
        complete_ms_avg: dict[str, dict[str, float]],
        complete_histograms: dict[str, dict[str, bytes]] | None = ...,
    ) -> None: ...

class ExecutorStats:
    emitted: dict[str, dict[str, int]]
    transferred: dict[str, dict[str, int]]
    specific: ExecutorSpecificStats
    rate: float
    queue_tuples: int | None
    queue_bytes: int | None
    blocked_secs: dict[str, dict[str, float]] | None
    credit_bytes: dict[str, int] | None
    sent_bytes: dict[str, int] | None
    state_keys: int | None
    state_bytes: int | None
    exhausted_tasks: int | None
    calls_max: int | None
    on_threads: bool | None
    def __init__(
        self,
        emitted: dict[str, dict[str, int]],
        transferred: dict[str, dict[str, int]],
        specific: ExecutorSpecificStats,
        rate: float,
        queue_tuples: int | None = ...,
        queue_bytes: int | None = ...,
        blocked_secs: dict[str, dict[str, float]] | None = ...,
        credit_bytes: dict[str, int] | None = ...,
        sent_bytes: dict[str, int] | None = ...,
        state_keys: int | None = ...,
        state_bytes: int | None = ...,
        exhausted_tasks: int | None = ...,
        calls_max: int | None = ...,
        on_threads: bool | None = ...,
    ) -> None: ...

class ExecutorInfo:
    task_start: int
    task_end: int
    def __init__(
        self,
        task_start: int,
        task_end: int,
    ) -> None: ...

class ExecutorSummary:
    executor_info: ExecutorInfo
    component_id: str
    host: str
    port: int
    uptime_secs: int
    stats: ExecutorStats | None
    stats_ms: int | None
    def __init__(
        self,
        executor_info: ExecutorInfo,
        component_id: str,
        host: str,
        port: int,
        uptime_secs: int,
        stats: ExecutorStats | None = ...,
        stats_ms: int | None = ...,
    ) -> None: ...

class DebugOptions:
    enable: bool | None
    samplingpct: float | None
    def __init__(
        self,
        enable: bool | None = ...,
        samplingpct: float | None = ...,
    ) -> None: ...

class TopologyInfo:
    id: str
    name: str
    uptime_secs: int
    executors: list[ExecutorSummary]
    status: str
    errors: dict[str, list[ErrorInfo]]
    component_debug: dict[str, DebugOptions] | None
    storm_version: str | None
    sched_status: str | None
    owner: str | None
    replication_count: int | None
    requested_memonheap: float | None
    requested_memoffheap: float | None
    requested_cpu: float | None
    assigned_memonheap: float | None
    assigned_memoffheap: float | None
    assigned_cpu: float | None
    def __init__(
        self,
        id: str,
        name: str,
        uptime_secs: int,
        executors: list[ExecutorSummary],
        status: str,
        errors: dict[str, list[ErrorInfo]],
        component_debug: dict[str, DebugOptions] | None = ...,
        storm_version: str | None = ...,
        sched_status: str | None = ...,
        owner: str | None = ...,
        replication_count: int | None = ...,
        requested_memonheap: float | None = ...,
        requested_memoffheap: float | None = ...,
        requested_cpu: float | None = ...,
        assigned_memonheap: float | None = ...,
        assigned_memoffheap: float | None = ...,
        assigned_cpu: float | None = ...,
    ) -> None: ...

class LatencyBucket:
    upper_ms: float
    count: int
    def __init__(
        self,
        upper_ms: float,
        count: int,
    ) -> None: ...

class LatencyDistribution:
    count: int
    p50_ms: float
    p95_ms: float
    p99_ms: float
    buckets: list[LatencyBucket] | None
    def __init__(
        self,
        count: int,
        p50_ms: float,
        p95_ms: float,
        p99_ms: float,
        buckets: list[LatencyBucket] | None = ...,
    ) -> None: ...

class CommonAggregateStats:
    num_executors: int | None
    num_tasks: int | None
    emitted: int | None
    transferred: int | None
    acked: int | None
    failed: int | None
    resources_map: dict[str, float] | None
    queue_tuples: int | None
    queue_bytes: int | None
    blocked_share: dict[str, float] | None
    credit_bytes: dict[str, int] | None
    state_keys: int | None
    state_bytes: int | None
    def __init__(
        self,
        num_executors: int | None = ...,
        num_tasks: int | None = ...,
        emitted: int | None = ...,
        transferred: int | None = ...,
        acked: int | None = ...,
        failed: int | None = ...,
        resources_map: dict[str, float] | None = ...,
        queue_tuples: int | None = ...,
        queue_bytes: int | None = ...,
        blocked_share: dict[str, float] | None = ...,
        credit_bytes: dict[str, int] | None = ...,
        state_keys: int | None = ...,
        state_bytes: int | None = ...,
    ) -> None: ...

class SpoutAggregateStats:
    complete_latency_ms: float | None
    complete_latency: LatencyDistribution | None
    exhausted_tasks: int | None
    def __init__(
        self,
        complete_latency_ms: float | None = ...,
        complete_latency: LatencyDistribution | None = ...,
        exhausted_tasks: int | None = ...,
    ) -> None: ...

class BoltAggregateStats:
    execute_latency_ms: float | None
    process_latency_ms: float | None
    executed: int | None
    capacity: float | None
    execute_latency: LatencyDistribution | None
    process_latency: LatencyDistribution | None
    calls: float | None
    calls_max: int | None
    on_threads: bool | None
    def __init__(
        self,
        execute_latency_ms: float | None = ...,
        process_latency_ms: float | None = ...,
        executed: int | None = ...,
        capacity: float | None = ...,
        execute_latency: LatencyDistribution | None = ...,
        process_latency: LatencyDistribution | None = ...,
        calls: float | None = ...,
        calls_max: int | None = ...,
        on_threads: bool | None = ...,
    ) -> None: ...

class ComponentAggregateStats:
    type: ComponentType | None
    common_stats: CommonAggregateStats | None
    specific_stats: SpecificAggregateStats | None
    last_error: ErrorInfo | None
    def __init__(
        self,
        type: ComponentType | None = ...,
        common_stats: CommonAggregateStats | None = ...,
        specific_stats: SpecificAggregateStats | None = ...,
        last_error: ErrorInfo | None = ...,
    ) -> None: ...

class TopologyStats:
    window_to_emitted: dict[str, int] | None
    window_to_transferred: dict[str, int] | None
    window_to_complete_latencies_ms: dict[str, float] | None
    window_to_acked: dict[str, int] | None
    window_to_failed: dict[str, int] | None
    window_to_complete_latency: dict[str, LatencyDistribution] | None
    def __init__(
        self,
        window_to_emitted: dict[str, int] | None = ...,
        window_to_transferred: dict[str, int] | None = ...,
        window_to_complete_latencies_ms: dict[str, float] | None = ...,
        window_to_acked: dict[str, int] | None = ...,
        window_to_failed: dict[str, int] | None = ...,
        window_to_complete_latency: dict[str, LatencyDistribution] | None = ...,
    ) -> None: ...

class WorkerSummary:
    supervisor_id: str | None
    host: str | None
    port: int | None
    topology_id: str | None
    topology_name: str | None
    num_executors: int | None
    component_to_num_tasks: dict[str, int] | None
    time_secs: int | None
    uptime_secs: int | None
    requested_memonheap: float | None
    requested_memoffheap: float | None
    requested_cpu: float | None
    assigned_memonheap: float | None
    assigned_memoffheap: float | None
    assigned_cpu: float | None
    owner: str | None
    usage: WorkerUsage | None
    def __init__(
        self,
        supervisor_id: str | None = ...,
        host: str | None = ...,
        port: int | None = ...,
        topology_id: str | None = ...,
        topology_name: str | None = ...,
        num_executors: int | None = ...,
        component_to_num_tasks: dict[str, int] | None = ...,
        time_secs: int | None = ...,
        uptime_secs: int | None = ...,
        requested_memonheap: float | None = ...,
        requested_memoffheap: float | None = ...,
        requested_cpu: float | None = ...,
        assigned_memonheap: float | None = ...,
        assigned_memoffheap: float | None = ...,
        assigned_cpu: float | None = ...,
        owner: str | None = ...,
        usage: WorkerUsage | None = ...,
    ) -> None: ...

class SupervisorPageInfo:
    supervisor_summaries: list[SupervisorSummary] | None
    worker_summaries: list[WorkerSummary] | None
    def __init__(
        self,
        supervisor_summaries: list[SupervisorSummary] | None = ...,
        worker_summaries: list[WorkerSummary] | None = ...,
    ) -> None: ...

class TopologyPageInfo:
    id: str
    name: str | None
    uptime_secs: int | None
    status: str | None
    num_tasks: int | None
    num_workers: int | None
    num_executors: int | None
    topology_conf: str | None
    id_to_spout_agg_stats: dict[str, ComponentAggregateStats] | None
    id_to_bolt_agg_stats: dict[str, ComponentAggregateStats] | None
    sched_status: str | None
    topology_stats: TopologyStats | None
    owner: str | None
    debug_options: DebugOptions | None
    replication_count: int | None
    workers: list[WorkerSummary] | None
    storm_version: str | None
    topology_version: str | None
    requested_memonheap: float | None
    requested_memoffheap: float | None
    requested_cpu: float | None
    assigned_memonheap: float | None
    assigned_memoffheap: float | None
    assigned_cpu: float | None
    requested_regular_on_heap_memory: float | None
    requested_shared_on_heap_memory: float | None
    requested_regular_off_heap_memory: float | None
    requested_shared_off_heap_memory: float | None
    assigned_regular_on_heap_memory: float | None
    assigned_shared_on_heap_memory: float | None
    assigned_regular_off_heap_memory: float | None
    assigned_shared_off_heap_memory: float | None
    requested_generic_resources: dict[str, float] | None
    assigned_generic_resources: dict[str, float] | None
    checkpoints: CheckpointReport | None
    finished: bool | None
    def __init__(
        self,
        id: str,
        name: str | None = ...,
        uptime_secs: int | None = ...,
        status: str | None = ...,
        num_tasks: int | None = ...,
        num_workers: int | None = ...,
        num_executors: int | None = ...,
        topology_conf: str | None = ...,
        id_to_spout_agg_stats: dict[str, ComponentAggregateStats] | None = ...,
        id_to_bolt_agg_stats: dict[str, ComponentAggregateStats] | None = ...,
        sched_status: str | None = ...,
        topology_stats: TopologyStats | None = ...,
        owner: str | None = ...,
        debug_options: DebugOptions | None = ...,
        replication_count: int | None = ...,
        workers: list[WorkerSummary] | None = ...,
        storm_version: str | None = ...,
        topology_version: str | None = ...,
        requested_memonheap: float | None = ...,
        requested_memoffheap: float | None = ...,
        requested_cpu: float | None = ...,
        assigned_memonheap: float | None = ...,
        assigned_memoffheap: float | None = ...,
        assigned_cpu: float | None = ...,
        requested_regular_on_heap_memory: float | None = ...,
        requested_shared_on_heap_memory: float | None = ...,
        requested_regular_off_heap_memory: float | None = ...,
        requested_shared_off_heap_memory: float | None = ...,
        assigned_regular_on_heap_memory: float | None = ...,
        assigned_shared_on_heap_memory: float | None = ...,
        assigned_regular_off_heap_memory: float | None = ...,
        assigned_shared_off_heap_memory: float | None = ...,
        requested_generic_resources: dict[str, float] | None = ...,
        assigned_generic_resources: dict[str, float] | None = ...,
        checkpoints: CheckpointReport | None = ...,
        finished: bool | None = ...,
    ) -> None: ...

class ExecutorAggregateStats:
    exec_summary: ExecutorSummary | None
    stats: ComponentAggregateStats | None
    def __init__(
        self,
        exec_summary: ExecutorSummary | None = ...,
        stats: ComponentAggregateStats | None = ...,
    ) -> None: ...

class ComponentPageInfo:
    component_id: str
    component_type: ComponentType
    topology_id: str | None
    topology_name: str | None
    num_executors: int | None
    num_tasks: int | None
    window_to_stats: dict[str, ComponentAggregateStats] | None
    gsid_to_input_stats: dict[GlobalStreamId, ComponentAggregateStats] | None
    sid_to_output_stats: dict[str, ComponentAggregateStats] | None
    exec_stats: list[ExecutorAggregateStats] | None
    errors: list[ErrorInfo] | None
    eventlog_host: str | None
    eventlog_port: int | None
    debug_options: DebugOptions | None
    topology_status: str | None
    resources_map: dict[str, float] | None
    def __init__(
        self,
        component_id: str,
        component_type: ComponentType,
        topology_id: str | None = ...,
        topology_name: str | None = ...,
        num_executors: int | None = ...,
        num_tasks: int | None = ...,
        window_to_stats: dict[str, ComponentAggregateStats] | None = ...,
        gsid_to_input_stats: dict[GlobalStreamId, ComponentAggregateStats] | None = ...,
        sid_to_output_stats: dict[str, ComponentAggregateStats] | None = ...,
        exec_stats: list[ExecutorAggregateStats] | None = ...,
        errors: list[ErrorInfo] | None = ...,
        eventlog_host: str | None = ...,
        eventlog_port: int | None = ...,
        debug_options: DebugOptions | None = ...,
        topology_status: str | None = ...,
        resources_map: dict[str, float] | None = ...,
    ) -> None: ...

class TopologyHistoryInfo:
    topo_ids: list[str] | None
    def __init__(
        self,
        topo_ids: list[str] | None = ...,
    ) -> None: ...

class OwnerResourceSummary:
    owner: str
    total_topologies: int | None
    total_executors: int | None
    total_workers: int | None
    memory_usage: float | None
    cpu_usage: float | None
    memory_guarantee: float | None
    cpu_guarantee: float | None
    memory_guarantee_remaining: float | None
    cpu_guarantee_remaining: float | None
    isolated_node_guarantee: int | None
    total_tasks: int | None
    requested_on_heap_memory: float | None
    requested_off_heap_memory: float | None
    requested_total_memory: float | None
    requested_cpu: float | None
    assigned_on_heap_memory: float | None
    assigned_off_heap_memory: float | None
    def __init__(
        self,
        owner: str,
        total_topologies: int | None = ...,
        total_executors: int | None = ...,
        total_workers: int | None = ...,
        memory_usage: float | None = ...,
        cpu_usage: float | None = ...,
        memory_guarantee: float | None = ...,
        cpu_guarantee: float | None = ...,
        memory_guarantee_remaining: float | None = ...,
        cpu_guarantee_remaining: float | None = ...,
        isolated_node_guarantee: int | None = ...,
        total_tasks: int | None = ...,
        requested_on_heap_memory: float | None = ...,
        requested_off_heap_memory: float | None = ...,
        requested_total_memory: float | None = ...,
        requested_cpu: float | None = ...,
        assigned_on_heap_memory: float | None = ...,
        assigned_off_heap_memory: float | None = ...,
    ) -> None: ...

class KillOptions:
    wait_secs: int | None
    def __init__(
        self,
        wait_secs: int | None = ...,
    ) -> None: ...

class RebalanceOptions:
    wait_secs: int | None
    num_workers: int | None
    num_executors: dict[str, int] | None
    topology_resources_overrides: dict[str, dict[str, float]] | None
    topology_conf_overrides: str | None
    principal: str | None
    def __init__(
        self,
        wait_secs: int | None = ...,
        num_workers: int | None = ...,
        num_executors: dict[str, int] | None = ...,
        topology_resources_overrides: dict[str, dict[str, float]] | None = ...,
        topology_conf_overrides: str | None = ...,
        principal: str | None = ...,
    ) -> None: ...

class Credentials:
    creds: dict[str, str]
    topoOwner: str | None
    def __init__(
        self,
        creds: dict[str, str],
        topoOwner: str | None = ...,
    ) -> None: ...

class SubmitOptions:
    initial_status: TopologyInitialStatus
    creds: Credentials | None
    def __init__(
        self,
        initial_status: TopologyInitialStatus,
        creds: Credentials | None = ...,
    ) -> None: ...

class NodeInfo:
    node: str
    port: set[int]
    def __init__(
        self,
        node: str,
        port: set[int],
    ) -> None: ...

class ProfileRequest:
    nodeInfo: NodeInfo
    action: ProfileAction
    time_stamp: int | None
    def __init__(
        self,
        nodeInfo: NodeInfo,
        action: ProfileAction,
        time_stamp: int | None = ...,
    ) -> None: ...

class GetInfoOptions:
    num_err_choice: NumErrorsChoice | None
    def __init__(
        self,
        num_err_choice: NumErrorsChoice | None = ...,
    ) -> None: ...

class LogLevel:
    action: LogLevelAction
    target_log_level: str | None
    reset_log_level_timeout_secs: int | None
    reset_log_level_timeout_epoch: int | None
    reset_log_level: str | None
    def __init__(
        self,
        action: LogLevelAction,
        target_log_level: str | None = ...,
        reset_log_level_timeout_secs: int | None = ...,
        reset_log_level_timeout_epoch: int | None = ...,
        reset_log_level: str | None = ...,
    ) -> None: ...

class LogConfig:
    named_logger_level: dict[str, LogLevel] | None
    def __init__(
        self,
        named_logger_level: dict[str, LogLevel] | None = ...,
    ) -> None: ...

class WorkerTokenInfo:
    userName: str
    topologyId: str
    secretVersion: int
    expirationTimeMillis: int
    def __init__(
        self,
        userName: str,
        topologyId: str,
        secretVersion: int,
        expirationTimeMillis: int,
    ) -> None: ...

class WorkerToken:
    serviceType: WorkerTokenServiceType
    info: bytes
    signature: bytes
    def __init__(
        self,
        serviceType: WorkerTokenServiceType,
        info: bytes,
        signature: bytes,
    ) -> None: ...

class PrivateWorkerKey:
    key: bytes
    userName: str
    expirationTimeMillis: int
    def __init__(
        self,
        key: bytes,
        userName: str,
        expirationTimeMillis: int,
    ) -> None: ...

class AccessControl:
    type: AccessControlType
    name: str | None
    access: int
    def __init__(
        self,
        type: AccessControlType,
        name: str | None = ...,
        access: int = ...,
    ) -> None: ...

class SettableBlobMeta:
    acl: list[AccessControl]
    replication_factor: int | None
    def __init__(
        self,
        acl: list[AccessControl],
        replication_factor: int | None = ...,
    ) -> None: ...

class ReadableBlobMeta:
    settable: SettableBlobMeta
    version: int
    def __init__(
        self,
        settable: SettableBlobMeta,
        version: int,
    ) -> None: ...

class ListBlobsResult:
    keys: list[str]
    session: str
    def __init__(
        self,
        keys: list[str],
        session: str,
    ) -> None: ...

class BeginDownloadResult:
    version: int
    session: str
    data_size: int | None
    def __init__(
        self,
        version: int,
        session: str,
        data_size: int | None = ...,
    ) -> None: ...

class SupervisorInfo:
    time_secs: int
    hostname: str
    assignment_id: str | None
    used_ports: list[int] | None
    meta: list[int] | None
    scheduler_meta: dict[str, str] | None
    uptime_secs: int | None
    version: str | None
    resources_map: dict[str, float] | None
    server_port: int | None
    def __init__(
        self,
        time_secs: int,
        hostname: str,
        assignment_id: str | None = ...,
        used_ports: list[int] | None = ...,
        meta: list[int] | None = ...,
        scheduler_meta: dict[str, str] | None = ...,
        uptime_secs: int | None = ...,
        version: str | None = ...,
        resources_map: dict[str, float] | None = ...,
        server_port: int | None = ...,
    ) -> None: ...

class WorkerResources:
    mem_on_heap: float | None
    mem_off_heap: float | None
    cpu: float | None
    shared_mem_on_heap: float | None
    shared_mem_off_heap: float | None
    resources: dict[str, float] | None
    shared_resources: dict[str, float] | None
    def __init__(
        self,
        mem_on_heap: float | None = ...,
        mem_off_heap: float | None = ...,
        cpu: float | None = ...,
        shared_mem_on_heap: float | None = ...,
        shared_mem_off_heap: float | None = ...,
        resources: dict[str, float] | None = ...,
        shared_resources: dict[str, float] | None = ...,
    ) -> None: ...

class Assignment:
    master_code_dir: str
    node_host: dict[str, str]
    executor_node_port: dict[tuple[int, ...], NodeInfo]
    executor_start_time_secs: dict[tuple[int, ...], int]
    worker_resources: dict[NodeInfo, WorkerResources]
    total_shared_off_heap: dict[str, float]
    owner: str | None
    def __init__(
        self,
        master_code_dir: str,
        node_host: dict[str, str] = ...,
        executor_node_port: dict[tuple[int, ...], NodeInfo] = ...,
        executor_start_time_secs: dict[tuple[int, ...], int] = ...,
        worker_resources: dict[NodeInfo, WorkerResources] = ...,
        total_shared_off_heap: dict[str, float] = ...,
        owner: str | None = ...,
    ) -> None: ...

class SavepointRequest:
    name: str
    asked_ms: int
    folder: str | None
    stop: bool | None
    def __init__(
        self,
        name: str,
        asked_ms: int,
        folder: str | None = ...,
        stop: bool | None = ...,
    ) -> None: ...

class SavepointResult:
    name: str
    asked_ms: int
    place: str
    epoch: int | None
    size_bytes: int | None
    error: str | None
    def __init__(
        self,
        name: str,
        asked_ms: int,
        place: str,
        epoch: int | None = ...,
        size_bytes: int | None = ...,
        error: str | None = ...,
    ) -> None: ...

class StormBase:
    name: str
    status: TopologyStatus
    num_workers: int
    component_executors: dict[str, int] | None
    launch_time_secs: int | None
    owner: str | None
    topology_action_options: TopologyActionOptions | None
    prev_status: TopologyStatus | None
    component_debug: dict[str, DebugOptions] | None
    principal: str | None
    topology_version: str | None
    savepoint: SavepointRequest | None
    def __init__(
        self,
        name: str,
        status: TopologyStatus,
        num_workers: int,
        component_executors: dict[str, int] | None = ...,
        launch_time_secs: int | None = ...,
        owner: str | None = ...,
        topology_action_options: TopologyActionOptions | None = ...,
        prev_status: TopologyStatus | None = ...,
        component_debug: dict[str, DebugOptions] | None = ...,
        principal: str | None = ...,
        topology_version: str | None = ...,
        savepoint: SavepointRequest | None = ...,
    ) -> None: ...

class WorkerDrained:
    status_zxid: int
    run: str
    work: int
    def __init__(
        self,
        status_zxid: int,
        run: str,
        work: int,
    ) -> None: ...

class WorkerUsage:
    cpu_cores: float
    memory_bytes: int
    loop_lag_ms: float
    def __init__(
        self,
        cpu_cores: float,
        memory_bytes: int,
        loop_lag_ms: float,
    ) -> None: ...

class CheckpointReport:
    epoch: int
    interval_ms: int
    completed: int
    given_up: int
    waiting_ms: int
    duration_ms: int | None
    size_bytes: int | None
    longest_task: str | None
    longest_ms: int | None
    waited_for: str | None
    rollbacks: int
    rollback_reason: str | None
    rollback_time_ms: int | None
    bound_components: list[str] | None
    savepoint: SavepointResult | None
    failure: str | None
    def __init__(
        self,
        epoch: int,
        interval_ms: int,
        completed: int,
        given_up: int,
        waiting_ms: int,
        duration_ms: int | None = ...,
        size_bytes: int | None = ...,
        longest_task: str | None = ...,
        longest_ms: int | None = ...,
        waited_for: str | None = ...,
        rollbacks: int = ...,
        rollback_reason: str | None = ...,
        rollback_time_ms: int | None = ...,
        bound_components: list[str] | None = ...,
        savepoint: SavepointResult | None = ...,
        failure: str | None = ...,
    ) -> None: ...

class ClusterWorkerHeartbeat:
    storm_id: str
    executor_stats: dict[ExecutorInfo, ExecutorStats]
    time_secs: int
    uptime_secs: int
    drained: WorkerDrained | None
    usage: WorkerUsage | None
    stats_ms: int | None
    checkpoints: CheckpointReport | None
    store_failure: str | None
    rest_ms: int | None
    says_end: bool | None
    def __init__(
        self,
        storm_id: str,
        executor_stats: dict[ExecutorInfo, ExecutorStats],
        time_secs: int,
        uptime_secs: int,
        drained: WorkerDrained | None = ...,
        usage: WorkerUsage | None = ...,
        stats_ms: int | None = ...,
        checkpoints: CheckpointReport | None = ...,
        store_failure: str | None = ...,
        rest_ms: int | None = ...,
        says_end: bool | None = ...,
    ) -> None: ...

class WorkerEnd:
    rest_ms: int | None
    says_end: bool | None
    def __init__(
        self,
        rest_ms: int | None = ...,
        says_end: bool | None = ...,
    ) -> None: ...

class ThriftSerializedObject:
    name: str
    bits: bytes
    def __init__(
        self,
        name: str,
        bits: bytes,
    ) -> None: ...

class LocalStateData:
    serialized_parts: dict[str, ThriftSerializedObject]
    def __init__(
        self,
        serialized_parts: dict[str, ThriftSerializedObject],
    ) -> None: ...

class LocalAssignment:
    topology_id: str
    executors: list[ExecutorInfo]
    resources: WorkerResources | None
    total_node_shared: float | None
    owner: str | None
    def __init__(
        self,
        topology_id: str,
        executors: list[ExecutorInfo],
        resources: WorkerResources | None = ...,
        total_node_shared: float | None = ...,
        owner: str | None = ...,
    ) -> None: ...

class LSSupervisorId:
    supervisor_id: str
    def __init__(
        self,
        supervisor_id: str,
    ) -> None: ...

class LSApprovedWorkers:
    approved_workers: dict[str, int]
    def __init__(
        self,
        approved_workers: dict[str, int],
    ) -> None: ...

class LSSupervisorAssignments:
    assignments: dict[int, LocalAssignment]
    def __init__(
        self,
        assignments: dict[int, LocalAssignment],
    ) -> None: ...

class LSWorkerHeartbeat:
    time_secs: int
    topology_id: str
    executors: list[ExecutorInfo]
    port: int
    def __init__(
        self,
        time_secs: int,
        topology_id: str,
        executors: list[ExecutorInfo],
        port: int,
    ) -> None: ...

class LSTopoHistory:
    topology_id: str
    time_stamp: int
    users: list[str]
    groups: list[str]
    def __init__(
        self,
        topology_id: str,
        time_stamp: int,
        users: list[str],
        groups: list[str],
    ) -> None: ...

class LSTopoHistoryList:
    topo_history: list[LSTopoHistory]
    def __init__(
        self,
        topo_history: list[LSTopoHistory],
    ) -> None: ...

class SupervisorWorkerHeartbeat:
    storm_id: str
    executors: list[ExecutorInfo]
    time_secs: int
    port: int | None
    supervisor_id: str | None
    assignment_zxid: int | None
    launch: int | None
    report: bytes | None
    sums: bytes | None
    def __init__(
        self,
        storm_id: str,
        executors: list[ExecutorInfo],
        time_secs: int,
        port: int | None = ...,
        supervisor_id: str | None = ...,
        assignment_zxid: int | None = ...,
        launch: int | None = ...,
        report: bytes | None = ...,
        sums: bytes | None = ...,
    ) -> None: ...

class SupervisorWorkerHeartbeats:
    supervisor_id: str
    worker_heartbeats: list[SupervisorWorkerHeartbeat]
    def __init__(
        self,
        supervisor_id: str,
        worker_heartbeats: list[SupervisorWorkerHeartbeat],
    ) -> None: ...

class StateQuestion:
    number: int
    topologyId: str
    port: int
    question: str
    secs: float
    def __init__(
        self,
        number: int,
        topologyId: str,
        port: int,
        question: str,
        secs: float,
    ) -> None: ...

class StateAnswer:
    number: int
    port: int
    answer: bytes
    def __init__(
        self,
        number: int,
        port: int,
        answer: bytes,
    ) -> None: ...

class WorkerStateAnswer:
    supervisor_id: str
    host: str
    port: int
    answer: bytes | None
    trouble: str | None
    def __init__(
        self,
        supervisor_id: str,
        host: str,
        port: int,
        answer: bytes | None = ...,
        trouble: str | None = ...,
    ) -> None: ...

class SupervisorAssignments:
    storm_assignment: dict[str, Assignment]
    def __init__(
        self,
        storm_assignment: dict[str, Assignment] = ...,
    ) -> None: ...

class HeardWorker:
    node: str
    port: int
    executors_digest: int
    silent_secs: int
    assignment_zxid: int
    launch: int
    def __init__(
        self,
        node: str,
        port: int,
        executors_digest: int,
        silent_secs: int,
        assignment_zxid: int,
        launch: int,
    ) -> None: ...

class TopologyHeartbeats:
    time_secs: int
    workers: list[HeardWorker]
    def __init__(
        self,
        time_secs: int,
        workers: list[HeardWorker],
    ) -> None: ...

class WorkerMetricPoint:
    metricName: str
    timestamp: int
    metricValue: float
    componentId: str
    executorId: str
    streamId: str
    def __init__(
        self,
        metricName: str,
        timestamp: int,
        metricValue: float,
        componentId: str,
        executorId: str,
        streamId: str,
    ) -> None: ...

class WorkerMetricList:
    metrics: list[WorkerMetricPoint] | None
    def __init__(
        self,
        metrics: list[WorkerMetricPoint] | None = ...,
    ) -> None: ...

class WorkerMetrics:
    topologyId: str
    port: int
    hostname: str
    metricList: WorkerMetricList
    def __init__(
        self,
        topologyId: str,
        port: int,
        hostname: str,
        metricList: WorkerMetricList,
    ) -> None: ...

class DRPCRequest:
    func_args: str
    request_id: str
    def __init__(
        self,
        func_args: str,
        request_id: str,
    ) -> None: ...

class TokenInfo:
    id: str | None
    user: str | None
    issued: int | None
    expires: int | None
    label: str | None
    actions: list[str] | None
    topologies: list[str] | None
    def __init__(
        self,
        id: str | None = ...,
        user: str | None = ...,
        issued: int | None = ...,
        expires: int | None = ...,
        label: str | None = ...,
        actions: list[str] | None = ...,
        topologies: list[str] | None = ...,
    ) -> None: ...

class LogAccess:
    owner: str | None
    users: list[str] | None
    groups: list[str] | None
    logUsers: list[str] | None
    logGroups: list[str] | None
    def __init__(
        self,
        owner: str | None = ...,
        users: list[str] | None = ...,
        groups: list[str] | None = ...,
        logUsers: list[str] | None = ...,
        logGroups: list[str] | None = ...,
    ) -> None: ...

class HBPulse:
    id: str
    details: bytes | None
    def __init__(
        self,
        id: str,
        details: bytes | None = ...,
    ) -> None: ...

class HBRecords:
    pulses: list[HBPulse] | None
    def __init__(
        self,
        pulses: list[HBPulse] | None = ...,
    ) -> None: ...

class HBNodes:
    pulseIds: list[str] | None
    def __init__(
        self,
        pulseIds: list[str] | None = ...,
    ) -> None: ...

class HBMessage:
    type: HBServerMessageType | None
    data: HBMessageData | None
    message_id: int
    def __init__(
        self,
        type: HBServerMessageType | None = ...,
        data: HBMessageData | None = ...,
        message_id: int = ...,
    ) -> None: ...

class JavaObjectArg:
    int_arg: int | None
    long_arg: int | None
    string_arg: str | None
    bool_arg: bool | None
    binary_arg: bytes | None
    double_arg: float | None
    def __init__(
        self,
        int_arg: int | None = ...,
        long_arg: int | None = ...,
        string_arg: str | None = ...,
        bool_arg: bool | None = ...,
        binary_arg: bytes | None = ...,
        double_arg: float | None = ...,
    ) -> None: ...

class Grouping:
    fields: list[str] | None
    shuffle: NullStruct | None
    all: NullStruct | None
    none: NullStruct | None
    direct: NullStruct | None
    custom_object: JavaObject | None
    custom_serialized: bytes | None
    local_or_shuffle: NullStruct | None
    def __init__(
        self,
        fields: list[str] | None = ...,
        shuffle: NullStruct | None = ...,
        all: NullStruct | None = ...,
        none: NullStruct | None = ...,
        direct: NullStruct | None = ...,
        custom_object: JavaObject | None = ...,
        custom_serialized: bytes | None = ...,
        local_or_shuffle: NullStruct | None = ...,
    ) -> None: ...

class ComponentObject:
    serialized_java: bytes | None
    shell: ShellComponent | None
    java_object: JavaObject | None
    def __init__(
        self,
        serialized_java: bytes | None = ...,
        shell: ShellComponent | None = ...,
        java_object: JavaObject | None = ...,
    ) -> None: ...

class ExecutorSpecificStats:
    bolt: BoltStats | None
    spout: SpoutStats | None
    def __init__(
        self,
        bolt: BoltStats | None = ...,
        spout: SpoutStats | None = ...,
    ) -> None: ...

class SpecificAggregateStats:
    bolt: BoltAggregateStats | None
    spout: SpoutAggregateStats | None
    def __init__(
        self,
        bolt: BoltAggregateStats | None = ...,
        spout: SpoutAggregateStats | None = ...,
    ) -> None: ...

class TopologyActionOptions:
    kill_options: KillOptions | None
    rebalance_options: RebalanceOptions | None
    def __init__(
        self,
        kill_options: KillOptions | None = ...,
        rebalance_options: RebalanceOptions | None = ...,
    ) -> None: ...

class HBMessageData:
    path: str | None
    pulse: HBPulse | None
    boolval: bool | None
    records: HBRecords | None
    nodes: HBNodes | None
    message_blob: bytes | None
    def __init__(
        self,
        path: str | None = ...,
        pulse: HBPulse | None = ...,
        boolval: bool | None = ...,
        records: HBRecords | None = ...,
        nodes: HBNodes | None = ...,
        message_blob: bytes | None = ...,
    ) -> None: ...

class AlreadyAliveException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

class NotAliveException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

class AuthorizationException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

class InvalidTopologyException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

class KeyNotFoundException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

class IllegalStateException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

class KeyAlreadyExistsException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

class DRPCExecutionException(Exception):
    msg: str
    type: DRPCExceptionType | None
    def __init__(
        self,
        msg: str,
        type: DRPCExceptionType | None = ...,
    ) -> None: ...

class HBAuthorizationException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

class HBExecutionException(Exception):
    msg: str
    def __init__(
        self,
        msg: str,
    ) -> None: ...

Nimbus: Service
Supervisor: Service
DistributedRPC: Service
DistributedRPCInvocations: Service
