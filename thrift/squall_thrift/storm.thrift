/*
 * The Thrift interface of Squall: Apache Storm's names, field ids and types, so that
 * Storm's own clients, and any client generated for Storm 1.x to 3.x, can talk to it.
 *
 * Framed transport, binary protocol. A peer skips fields it does not know, so a field id
 * is never given a second meaning: Nimbus.beginFileDownload and field 2 of ClusterSummary
 * were removed and stay unused. Heartbeat times are i64, as in Storm 3; peers that send
 * i32 (2.x) are read by the type on the wire.
 */

namespace py squall_thrift.storm

// Topologies

union JavaObjectArg {
    1: i32 int_arg;
    2: i64 long_arg;
    3: string string_arg;
    4: bool bool_arg;
    5: binary binary_arg;
    6: double double_arg;
}

struct JavaObject {
    1: required string full_class_name;
    2: required list<JavaObjectArg> args_list;
}

struct NullStruct {}

struct GlobalStreamId {
    1: required string componentId;
    2: required string streamId;
}

union Grouping {
    1: list<string> fields;
    2: NullStruct shuffle;
    3: NullStruct all;
    4: NullStruct none;
    5: NullStruct direct;
    6: JavaObject custom_object;
    7: binary custom_serialized;
    8: NullStruct local_or_shuffle;
}

struct StreamInfo {
    1: required list<string> output_fields;
    2: required bool direct;
}

struct ShellComponent {
    1: string execution_command;
    2: string script;
}

union ComponentObject {
    1: binary serialized_java;
    2: ShellComponent shell;
    3: JavaObject java_object;
}

/* Squall's own: what a component does, for people. */
struct PlanStep {
    /* A call, such as "map(normalise)"; empty: the component's own code. */
    1: required string call;
    /* Import paths. */
    2: optional list<string> functions;
    3: optional string windows;
}

struct ComponentCommon {
    1: required map<GlobalStreamId, Grouping> inputs;
    2: required map<string, StreamInfo> streams;
    3: optional i32 parallelism_hint;
    4: optional string json_conf;
    10001: optional list<PlanStep> plan;
}

struct SpoutSpec {
    1: required ComponentObject spout_object;
    2: required ComponentCommon common;
}

struct Bolt {
    1: required ComponentObject bolt_object;
    2: required ComponentCommon common;
}

struct StateSpoutSpec {
    1: required ComponentObject state_spout_object;
    2: required ComponentCommon common;
}

struct SharedMemory {
    1: required string name;
    2: optional double on_heap;
    3: optional double off_heap_worker;
    4: optional double off_heap_node;
}

struct StormTopology {
    1: required map<string, SpoutSpec> spouts;
    2: required map<string, Bolt> bolts;
    3: required map<string, StateSpoutSpec> state_spouts;
    4: optional list<binary> worker_hooks;
    5: optional list<string> dependency_jars;
    6: optional list<string> dependency_artifacts;
    7: optional string storm_version;
    8: optional string jdk_version;
    9: optional map<string, set<string>> component_to_shared_memory;
    10: optional map<string, SharedMemory> shared_memory;
}

// Exceptions

exception AlreadyAliveException {
    1: required string msg;
}

exception NotAliveException {
    1: required string msg;
}

exception AuthorizationException {
    1: required string msg;
}

exception InvalidTopologyException {
    1: required string msg;
}

exception KeyNotFoundException {
    1: required string msg;
}

exception IllegalStateException {
    1: required string msg;
}

exception KeyAlreadyExistsException {
    1: required string msg;
}

// Summaries and statistics

/* Squall's own. */
struct WorkerExit {
    1: required i64 time_secs;
    2: required string host;
    3: required i32 port;
    4: required string reason;
    5: required string last_line;
}

struct TopologySummary {
    1: required string id;
    2: required string name;
    3: required i32 num_tasks;
    4: required i32 num_executors;
    5: required i32 num_workers;
    6: required i32 uptime_secs;
    7: required string status;
    8: optional string storm_version;
    9: optional string topology_version;
    513: optional string sched_status;
    514: optional string owner;
    515: optional i32 replication_count;
    521: optional double requested_memonheap;
    522: optional double requested_memoffheap;
    523: optional double requested_cpu;
    524: optional double assigned_memonheap;
    525: optional double assigned_memoffheap;
    526: optional double assigned_cpu;
    527: optional map<string, double> requested_generic_resources;
    528: optional map<string, double> assigned_generic_resources;
    /* Squall's own: what is the matter, "ok" when every task runs (squall_nimbus/views/health.py). */
    10001: optional string health;
    /* Squall's own: the last exit of a worker that was not asked for, of the last day. */
    10002: optional WorkerExit last_exit;
    /* Squall's own: how many workers ended without being asked to, within the last day. */
    10003: optional i32 restarts;
    /* Squall's own: as in TopologyPageInfo. Unset also while no worker has reported, and if this
       Nimbus does not lead and does not reach the one that does. */
    10004: optional bool finished;
}

struct SupervisorSummary {
    1: required string host;
    2: required i32 uptime_secs;
    3: required i32 num_workers;
    4: required i32 num_used_workers;
    5: required string supervisor_id;
    6: optional string version = "VERSION_NOT_PROVIDED";
    7: optional map<string, double> total_resources;
    8: optional double used_mem;
    9: optional double used_cpu;
    10: optional double fragmented_mem;
    11: optional double fragmented_cpu;
    12: optional bool blacklisted;
    13: optional map<string, double> used_generic_resources;
    // Why its health checks find the node unhealthy: it gets no work. Unset: it is healthy.
    10001: optional string unhealthy;
}

struct NimbusSummary {
    1: required string host;
    2: required i32 port;
    3: required i32 uptime_secs;
    4: required bool isLeader;
    5: required string version;
    6: optional i32 tlsPort;
    // Squall's own, in ZooKeeper only: the key with which secrets are sealed for this Nimbus.
    1001: optional string sealingKey;
}

struct ClusterSummary {
    1: required list<SupervisorSummary> supervisors;
    3: required list<TopologySummary> topologies;
    4: required list<NimbusSummary> nimbuses;
}

struct ErrorInfo {
    1: required string error;
    2: required i32 error_time_secs;
    3: optional string host;
    4: optional i32 port;
    // Squall's own: how many errors it stands for, with those held back before it; unset: one.
    10001: optional i32 count;
}

struct BoltStats {
    1: required map<string, map<GlobalStreamId, i64>> acked;
    2: required map<string, map<GlobalStreamId, i64>> failed;
    3: required map<string, map<GlobalStreamId, double>> process_ms_avg;
    4: required map<string, map<GlobalStreamId, i64>> executed;
    5: required map<string, map<GlobalStreamId, double>> execute_ms_avg;
    /* Squall's own: window -> input -> histogram (squall_common/history/histogram.py). */
    10001: optional map<string, map<GlobalStreamId, binary>> process_histograms;
    10002: optional map<string, map<GlobalStreamId, binary>> execute_histograms;
}

struct SpoutStats {
    1: required map<string, map<string, i64>> acked;
    2: required map<string, map<string, i64>> failed;
    3: required map<string, map<string, double>> complete_ms_avg;
    /* Squall's own: window -> stream -> histogram (squall_common/history/histogram.py). */
    10001: optional map<string, map<string, binary>> complete_histograms;
}

union ExecutorSpecificStats {
    1: BoltStats bolt;
    2: SpoutStats spout;
}

struct ExecutorStats {
    1: required map<string, map<string, i64>> emitted;
    2: required map<string, map<string, i64>> transferred;
    3: required ExecutorSpecificStats specific;
    4: required double rate;
    /* Squall's own: what waits in the inboxes of its tasks; for a spout its pending messages. */
    10001: optional i64 queue_tuples;
    10002: optional i64 queue_bytes;
    /* window -> component downstream -> seconds that it was blocked, a spout throttled, by it. */
    10003: optional map<string, map<string, double>> blocked_secs;
    /* component downstream -> the bytes that its tasks on other workers still take: the least. */
    10004: optional map<string, i64> credit_bytes;
    /* component downstream -> the bytes sent to its tasks on other workers since the worker began;
       of executors that share their edges, under the first. */
    10005: optional map<string, i64> sent_bytes;
    /* Of tasks with state: the entries that they hold, and the bytes, as packed in the store, of
       what is read if they start again; unset without state, or without a store. */
    10007: optional i64 state_keys;
    10008: optional i64 state_bytes;
    /* Of a spout that says whether its source ends: how many of its tasks say that it has ended. */
    10006: optional i32 exhausted_tasks;
    /* Of a bolt whose calls do not take the worker's thread for as long as they last (async def,
       blocking): how many its tasks have under way at most; and whether each task has one, on a
       thread of its own. */
    10009: optional i64 calls_max;
    10010: optional bool on_threads;
}

struct ExecutorInfo {
    1: required i32 task_start;
    2: required i32 task_end;
}

struct ExecutorSummary {
    1: required ExecutorInfo executor_info;
    2: required string component_id;
    3: required string host;
    4: required i32 port;
    5: required i32 uptime_secs;
    7: optional ExecutorStats stats;
    /* Squall's own: since its worker began until the statistics were read. */
    10001: optional i64 stats_ms;
}

struct DebugOptions {
    1: optional bool enable;
    2: optional double samplingpct;
}

struct TopologyInfo {
    1: required string id;
    2: required string name;
    3: required i32 uptime_secs;
    4: required list<ExecutorSummary> executors;
    5: required string status;
    6: required map<string, list<ErrorInfo>> errors;
    7: optional map<string, DebugOptions> component_debug;
    8: optional string storm_version;
    513: optional string sched_status;
    514: optional string owner;
    515: optional i32 replication_count;
    521: optional double requested_memonheap;
    522: optional double requested_memoffheap;
    523: optional double requested_cpu;
    524: optional double assigned_memonheap;
    525: optional double assigned_memoffheap;
    526: optional double assigned_cpu;
}

/* Squall's own: the events of a histogram's bucket that took up to `upper_ms`, and more than the
   bucket before it. */
struct LatencyBucket {
    1: required double upper_ms;
    2: required i64 count;
}

/* Squall's own: how a latency is distributed. A percentile is within 4.5 % of the exact one. The
   buckets are set only on the page of a component. */
struct LatencyDistribution {
    1: required i64 count;
    2: required double p50_ms;
    3: required double p95_ms;
    4: required double p99_ms;
    5: optional list<LatencyBucket> buckets;
}

struct CommonAggregateStats {
    1: optional i32 num_executors;
    2: optional i32 num_tasks;
    3: optional i64 emitted;
    4: optional i64 transferred;
    5: optional i64 acked;
    6: optional i64 failed;
    7: optional map<string, double> resources_map;
    /* Squall's own: sums of what the executors report, see ExecutorStats. */
    10001: optional i64 queue_tuples;
    10002: optional i64 queue_bytes;
    /* component downstream -> the share of their time (0 to 1) that the executors waited for it. */
    10003: optional map<string, double> blocked_share;
    /* component downstream -> the least credit of an executor. */
    10004: optional map<string, i64> credit_bytes;
    10005: optional i64 state_keys;
    10006: optional i64 state_bytes;
}

struct SpoutAggregateStats {
    1: optional double complete_latency_ms;
    /* Squall's own; unset when nothing was measured. */
    10001: optional LatencyDistribution complete_latency;
    /* The sum of what the executors report, see ExecutorStats; 0 until they do. */
    10002: optional i32 exhausted_tasks;
}

struct BoltAggregateStats {
    1: optional double execute_latency_ms;
    2: optional double process_latency_ms;
    3: optional i64 executed;
    4: optional double capacity;
    /* Squall's own; unset when nothing was measured. */
    10001: optional LatencyDistribution execute_latency;
    10002: optional LatencyDistribution process_latency;
    /* Of the executors that report `calls_max`, see ExecutorStats: the mean number of calls that
       were under way in the last ten minutes, and the sum of their limits. `capacity` is the share
       of its limit that the busiest of them had. */
    10003: optional double calls;
    10004: optional i64 calls_max;
    10005: optional bool on_threads;
}

union SpecificAggregateStats {
    1: BoltAggregateStats bolt;
    2: SpoutAggregateStats spout;
}

enum ComponentType {
    BOLT = 1,
    SPOUT = 2,
}

struct ComponentAggregateStats {
    1: optional ComponentType type;
    2: optional CommonAggregateStats common_stats;
    3: optional SpecificAggregateStats specific_stats;
    4: optional ErrorInfo last_error;
}

struct TopologyStats {
    1: optional map<string, i64> window_to_emitted;
    2: optional map<string, i64> window_to_transferred;
    3: optional map<string, double> window_to_complete_latencies_ms;
    4: optional map<string, i64> window_to_acked;
    5: optional map<string, i64> window_to_failed;
    /* Squall's own; without the windows in which nothing was measured. */
    10001: optional map<string, LatencyDistribution> window_to_complete_latency;
}

struct WorkerSummary {
    1: optional string supervisor_id;
    2: optional string host;
    3: optional i32 port;
    4: optional string topology_id;
    5: optional string topology_name;
    6: optional i32 num_executors;
    7: optional map<string, i64> component_to_num_tasks;
    8: optional i32 time_secs;
    9: optional i32 uptime_secs;
    521: optional double requested_memonheap;
    522: optional double requested_memoffheap;
    523: optional double requested_cpu;
    524: optional double assigned_memonheap;
    525: optional double assigned_memoffheap;
    526: optional double assigned_cpu;
    527: optional string owner;
    /* Squall's own; unset until it has reported. */
    10001: optional WorkerUsage usage;
}

struct SupervisorPageInfo {
    1: optional list<SupervisorSummary> supervisor_summaries;
    2: optional list<WorkerSummary> worker_summaries;
}

struct TopologyPageInfo {
    1: required string id;
    2: optional string name;
    3: optional i32 uptime_secs;
    4: optional string status;
    5: optional i32 num_tasks;
    6: optional i32 num_workers;
    7: optional i32 num_executors;
    8: optional string topology_conf;
    9: optional map<string, ComponentAggregateStats> id_to_spout_agg_stats;
    10: optional map<string, ComponentAggregateStats> id_to_bolt_agg_stats;
    11: optional string sched_status;
    12: optional TopologyStats topology_stats;
    13: optional string owner;
    14: optional DebugOptions debug_options;
    15: optional i32 replication_count;
    16: optional list<WorkerSummary> workers;
    17: optional string storm_version;
    18: optional string topology_version;
    521: optional double requested_memonheap;
    522: optional double requested_memoffheap;
    523: optional double requested_cpu;
    524: optional double assigned_memonheap;
    525: optional double assigned_memoffheap;
    526: optional double assigned_cpu;
    527: optional double requested_regular_on_heap_memory;
    528: optional double requested_shared_on_heap_memory;
    529: optional double requested_regular_off_heap_memory;
    530: optional double requested_shared_off_heap_memory;
    531: optional double assigned_regular_on_heap_memory;
    532: optional double assigned_shared_on_heap_memory;
    533: optional double assigned_regular_off_heap_memory;
    534: optional double assigned_shared_off_heap_memory;
    535: optional map<string, double> requested_generic_resources;
    536: optional map<string, double> assigned_generic_resources;
    /* Squall's own: of a topology with checkpoints, as its worker reported it last. */
    10001: optional CheckpointReport checkpoints;
    /* Whether all spouts say that their sources have ended, nothing is in flight, and, with
       checkpoints, sinks have written their rows. Unset: a spout does not say whether it ends, or
       this Nimbus does not lead and does not reach the one that does. */
    10002: optional bool finished;
}

struct ExecutorAggregateStats {
    1: optional ExecutorSummary exec_summary;
    2: optional ComponentAggregateStats stats;
}

struct ComponentPageInfo {
    1: required string component_id;
    2: required ComponentType component_type;
    3: optional string topology_id;
    4: optional string topology_name;
    5: optional i32 num_executors;
    6: optional i32 num_tasks;
    7: optional map<string, ComponentAggregateStats> window_to_stats;
    8: optional map<GlobalStreamId, ComponentAggregateStats> gsid_to_input_stats;
    9: optional map<string, ComponentAggregateStats> sid_to_output_stats;
    10: optional list<ExecutorAggregateStats> exec_stats;
    11: optional list<ErrorInfo> errors;
    12: optional string eventlog_host;
    13: optional i32 eventlog_port;
    14: optional DebugOptions debug_options;
    15: optional string topology_status;
    16: optional map<string, double> resources_map;
}

struct TopologyHistoryInfo {
    1: list<string> topo_ids;
}

struct OwnerResourceSummary {
    1: required string owner;
    2: optional i32 total_topologies;
    3: optional i32 total_executors;
    4: optional i32 total_workers;
    5: optional double memory_usage;
    6: optional double cpu_usage;
    7: optional double memory_guarantee;
    8: optional double cpu_guarantee;
    9: optional double memory_guarantee_remaining;
    10: optional double cpu_guarantee_remaining;
    11: optional i32 isolated_node_guarantee;
    12: optional i32 total_tasks;
    13: optional double requested_on_heap_memory;
    14: optional double requested_off_heap_memory;
    15: optional double requested_total_memory;
    16: optional double requested_cpu;
    17: optional double assigned_on_heap_memory;
    18: optional double assigned_off_heap_memory;
}

// Options of calls

struct KillOptions {
    1: optional i32 wait_secs;
}

struct RebalanceOptions {
    1: optional i32 wait_secs;
    2: optional i32 num_workers;
    3: optional map<string, i32> num_executors;
    4: optional map<string, map<string, double>> topology_resources_overrides;
    5: optional string topology_conf_overrides;
    6: optional string principal;
}

enum TopologyInitialStatus {
    ACTIVE = 1,
    INACTIVE = 2,
}

struct Credentials {
    1: required map<string, string> creds;
    2: optional string topoOwner;
}

struct SubmitOptions {
    1: required TopologyInitialStatus initial_status;
    2: optional Credentials creds;
}

enum NumErrorsChoice {
    ALL,
    NONE,
    ONE,
}

enum ProfileAction {
    JPROFILE_STOP,
    JPROFILE_START,
    JPROFILE_DUMP,
    JMAP_DUMP,
    JSTACK_DUMP,
    JVM_RESTART,
    // Squall's own: raw stacks, sampled until the request's time stamp.
    SAMPLE_TASKS = 10001,
    SAMPLE_NATIVE = 10002,
    SAMPLE_NATIVE_IDLE = 10003,
}

struct NodeInfo {
    1: required string node;
    2: required set<i64> port;
}

struct ProfileRequest {
    1: required NodeInfo nodeInfo;
    2: required ProfileAction action;
    3: optional i64 time_stamp;
}

struct GetInfoOptions {
    1: optional NumErrorsChoice num_err_choice;
}

enum LogLevelAction {
    UNCHANGED = 1,
    UPDATE = 2,
    REMOVE = 3,
}

struct LogLevel {
    1: required LogLevelAction action;
    2: optional string target_log_level;
    3: optional i32 reset_log_level_timeout_secs;
    4: optional i64 reset_log_level_timeout_epoch;
    5: optional string reset_log_level;
}

struct LogConfig {
    2: optional map<string, LogLevel> named_logger_level;
}

// Credentials

enum WorkerTokenServiceType {
    NIMBUS,
    DRPC,
    SUPERVISOR,
}

struct WorkerTokenInfo {
    1: required string userName;
    2: required string topologyId;
    3: required i64 secretVersion;
    4: required i64 expirationTimeMillis;
}

struct WorkerToken {
    1: required WorkerTokenServiceType serviceType;
    2: required binary info;
    3: required binary signature;
}

struct PrivateWorkerKey {
    1: required binary key;
    2: required string userName;
    3: required i64 expirationTimeMillis;
}

// Blob store

enum AccessControlType {
    OTHER = 1,
    USER = 2,
}

struct AccessControl {
    1: required AccessControlType type;
    2: optional string name;
    3: required i32 access;
}

struct SettableBlobMeta {
    1: required list<AccessControl> acl;
    2: optional i32 replication_factor;
}

struct ReadableBlobMeta {
    1: required SettableBlobMeta settable;
    2: required i64 version;
}

struct ListBlobsResult {
    1: required list<string> keys;
    2: required string session;
}

struct BeginDownloadResult {
    1: required i64 version;
    2: required string session;
    3: optional i64 data_size;
}

// Cluster state

struct SupervisorInfo {
    1: required i64 time_secs;
    2: required string hostname;
    3: optional string assignment_id;
    4: optional list<i64> used_ports;
    5: optional list<i64> meta;
    6: optional map<string, string> scheduler_meta;
    7: optional i64 uptime_secs;
    8: optional string version;
    9: optional map<string, double> resources_map;
    10: optional i32 server_port;
}

struct WorkerResources {
    1: optional double mem_on_heap;
    2: optional double mem_off_heap;
    3: optional double cpu;
    4: optional double shared_mem_on_heap;
    5: optional double shared_mem_off_heap;
    6: optional map<string, double> resources;
    7: optional map<string, double> shared_resources;
}

struct Assignment {
    1: required string master_code_dir;
    2: optional map<string, string> node_host = {};
    3: optional map<list<i64>, NodeInfo> executor_node_port = {};
    4: optional map<list<i64>, i64> executor_start_time_secs = {};
    5: optional map<NodeInfo, WorkerResources> worker_resources = {};
    6: optional map<string, double> total_shared_off_heap = {};
    7: optional string owner;
}

enum TopologyStatus {
    ACTIVE = 1,
    INACTIVE = 2,
    REBALANCING = 3,
    KILLED = 4,
}

union TopologyActionOptions {
    1: optional KillOptions kill_options;
    2: optional RebalanceOptions rebalance_options;
}

/* Squall's own: a savepoint that a user asks for. `asked_ms` (since 1970) tells two of one name
   apart. Without a folder it goes into the topology's own. With `stop` no checkpoint begins after
   it. One without a name withdraws the request of that time. */
struct SavepointRequest {
    1: required string name;
    2: required i64 asked_ms;
    3: optional string folder;
    4: optional bool stop;
}

/* Squall's own: what has become of the last request. With an error it was not taken. */
struct SavepointResult {
    1: required string name;
    2: required i64 asked_ms;
    3: required string place;
    4: optional i64 epoch;
    5: optional i64 size_bytes;
    6: optional string error;
}

struct StormBase {
    1: required string name;
    2: required TopologyStatus status;
    3: required i32 num_workers;
    4: optional map<string, i32> component_executors;
    5: optional i32 launch_time_secs;
    6: optional string owner;
    7: optional TopologyActionOptions topology_action_options;
    8: optional TopologyStatus prev_status;
    9: optional map<string, DebugOptions> component_debug;
    10: optional string principal;
    11: optional string topology_version;
    /* Squall's own: the last that was asked for. */
    10001: optional SavepointRequest savepoint;
}

/* Squall's own: a worker whose spouts are off has nothing in flight. `status_zxid` is the writing of
   /storms/ID that switched them off, `run` the worker's incarnation, and `work` how much it has done
   since it began: two reports with the same value have nothing between them. */
struct WorkerDrained {
    1: required i64 status_zxid;
    2: required string run;
    3: required i64 work;
}

/* Squall's own: what a worker's process uses. */
struct WorkerUsage {
    /* Cores, the mean since the report before. */
    1: required double cpu_cores;
    /* Resident. */
    2: required i64 memory_bytes;
    /* The worst since the report before: how late its event loop ran a timer. */
    3: required double loop_lag_ms;
}

/* Squall's own: what has become of a topology's checkpoints, as the worker that coordinates them
   knows it. Times are in milliseconds; counts are since that worker began to coordinate. */
struct CheckpointReport {
    /* The last complete one; 0: none. */
    1: required i64 epoch;
    2: required i64 interval_ms;
    3: required i64 completed;
    4: required i64 given_up;
    /* Since a checkpoint was completed, or, with none yet, since the topology was submitted. */
    5: required i64 waiting_ms;
    /* Of the last one: from its begin to its completion, and what it needs in the store. */
    6: optional i64 duration_ms;
    7: optional i64 size_bytes;
    /* The task whose snapshot was durable last: COMPONENT (INDEX). */
    8: optional string longest_task;
    9: optional i64 longest_ms;
    /* The tasks for which the last one that was given up has waited. */
    10: optional string waited_for;
    /* Since the topology was submitted, and why and when (since 1970) the last one was. */
    11: required i64 rollbacks;
    12: optional string rollback_reason;
    13: optional i64 rollback_time_ms;
    /* Components with state that belongs to their tasks, whose number cannot change. */
    14: optional list<string> bound_components;
    15: optional SavepointResult savepoint;
    /* Of the store, as the worker knows it: the last one since a checkpoint was completed. Nimbus
       adds those of the other workers (ClusterWorkerHeartbeat), and names the workers. */
    16: optional string failure;
}

struct ClusterWorkerHeartbeat {
    1: required string storm_id;
    2: required map<ExecutorInfo, ExecutorStats> executor_stats;
    3: required i64 time_secs;
    4: required i32 uptime_secs;
    /* Squall's own. */
    10001: optional WorkerDrained drained;
    10002: optional WorkerUsage usage;
    /* When the statistics were read, since the worker began. */
    10003: optional i64 stats_ms;
    /* Only of the worker that coordinates the topology's checkpoints. */
    10004: optional CheckpointReport checkpoints;
    /* Of any other worker of a topology with checkpoints: the last error of the store, since it
       has heard of a complete checkpoint. */
    10005: optional string store_failure;
    /* How long it has had nothing in flight, while its spouts say that their sources have ended. */
    10006: optional i64 rest_ms;
    /* Whether all of its spouts say whether their sources have ended; also if it runs none. */
    10007: optional bool says_end;
}

/* What a ClusterWorkerHeartbeat says about the end of sources: these fields of it are read alone,
   and all others are skipped. */
struct WorkerEnd {
    10006: optional i64 rest_ms;
    10007: optional bool says_end;
}

// Local state

struct ThriftSerializedObject {
    1: required string name;
    2: required binary bits;
}

struct LocalStateData {
    1: required map<string, ThriftSerializedObject> serialized_parts;
}

struct LocalAssignment {
    1: required string topology_id;
    2: required list<ExecutorInfo> executors;
    3: optional WorkerResources resources;
    4: optional double total_node_shared;
    5: optional string owner;
}

struct LSSupervisorId {
    1: required string supervisor_id;
}

struct LSApprovedWorkers {
    1: required map<string, i32> approved_workers;
}

struct LSSupervisorAssignments {
    1: required map<i32, LocalAssignment> assignments;
}

struct LSWorkerHeartbeat {
    1: required i64 time_secs;
    2: required string topology_id;
    3: required list<ExecutorInfo> executors;
    4: required i32 port;
}

struct LSTopoHistory {
    1: required string topology_id;
    2: required i64 time_stamp;
    3: required list<string> users;
    4: required list<string> groups;
}

struct LSTopoHistoryList {
    1: required list<LSTopoHistory> topo_history;
}

// Between Nimbus and supervisors

struct SupervisorWorkerHeartbeat {
    1: required string storm_id;
    2: required list<ExecutorInfo> executors;
    3: required i64 time_secs;
    /* Squall's own. The worker's slot: its port, and its supervisor in a heartbeat that is sent alone. */
    10001: optional i32 port;
    10002: optional string supervisor_id;
    /* Orders the workers of a slot: the zxid of the assignment, and the launch. */
    10003: optional i64 assignment_zxid;
    10004: optional i64 launch;
    /* A ClusterWorkerHeartbeat, gzipped, as workers write it to ZooKeeper. */
    10005: optional binary report;
    /* Instead of a report, in between: sums by component (squall_common.telemetry.sums). */
    10006: optional binary sums;
}

struct SupervisorWorkerHeartbeats {
    1: required string supervisor_id;
    2: required list<SupervisorWorkerHeartbeat> worker_heartbeats;
}

// Squall's own: questions about the state of running tasks, on their way to workers and back. Their
// texts and the answers are JSON (squall_common.telemetry.live_state).

struct StateQuestion {
    1: required i64 number;
    2: required string topologyId;
    3: required i32 port;
    4: required string question;
    /* How long an answer is waited for. */
    5: required double secs;
}

struct StateAnswer {
    1: required i64 number;
    2: required i32 port;
    3: required binary answer;
}

struct WorkerStateAnswer {
    1: required string supervisor_id;
    2: required string host;
    3: required i32 port;
    /* One of both: what the worker answers, or why it does not. */
    4: optional binary answer;
    5: optional string trouble;
}

struct SupervisorAssignments {
    1: optional map<string, Assignment> storm_assignment = {};
}

// What Nimbus keeps in ZooKeeper about the heartbeats of a topology's workers. Squall's own.

struct HeardWorker {
    1: required string node;
    2: required i32 port;
    3: required i64 executors_digest;
    4: required i32 silent_secs;
    5: required i64 assignment_zxid;
    6: required i64 launch;
}

struct TopologyHeartbeats {
    1: required i64 time_secs;
    2: required list<HeardWorker> workers;
}

// Metrics

struct WorkerMetricPoint {
    1: required string metricName;
    2: required i64 timestamp;
    3: required double metricValue;
    4: required string componentId;
    5: required string executorId;
    6: required string streamId;
}

struct WorkerMetricList {
    1: list<WorkerMetricPoint> metrics;
}

struct WorkerMetrics {
    1: required string topologyId;
    2: required i32 port;
    3: required string hostname;
    4: required WorkerMetricList metricList;
}

// DRPC

struct DRPCRequest {
    1: required string func_args;
    2: required string request_id;
}

enum DRPCExceptionType {
    INTERNAL_ERROR,
    SERVER_SHUTDOWN,
    SERVER_TIMEOUT,
    FAILED_REQUEST,
}

exception DRPCExecutionException {
    1: required string msg;
    2: optional DRPCExceptionType type;
}

// Pacemaker

enum HBServerMessageType {
    CREATE_PATH,
    CREATE_PATH_RESPONSE,
    EXISTS,
    EXISTS_RESPONSE,
    SEND_PULSE,
    SEND_PULSE_RESPONSE,
    GET_ALL_PULSE_FOR_PATH,
    GET_ALL_PULSE_FOR_PATH_RESPONSE,
    GET_ALL_NODES_FOR_PATH,
    GET_ALL_NODES_FOR_PATH_RESPONSE,
    GET_PULSE,
    GET_PULSE_RESPONSE,
    DELETE_PATH,
    DELETE_PATH_RESPONSE,
    DELETE_PULSE_ID,
    DELETE_PULSE_ID_RESPONSE,
    CONTROL_MESSAGE,
    SASL_MESSAGE_TOKEN,
    NOT_AUTHORIZED,
}

// Squall's own: a token (docs/security.md). Times are seconds since the epoch. Lists that are not set
// limit nothing.
struct TokenInfo {
    1: optional string id;
    2: optional string user;
    3: optional i64 issued;
    4: optional i64 expires;
    5: optional string label;
    6: optional list<string> actions;
    7: optional list<string> topologies;
}

// Squall's own: who may read the logs of a topology, besides administrators.
struct LogAccess {
    1: optional string owner;
    2: optional list<string> users;
    3: optional list<string> groups;
    4: optional list<string> logUsers;
    5: optional list<string> logGroups;
}

struct HBPulse {
    1: required string id;
    2: binary details;
}

struct HBRecords {
    1: list<HBPulse> pulses;
}

struct HBNodes {
    1: list<string> pulseIds;
}

union HBMessageData {
    1: string path;
    2: HBPulse pulse;
    3: bool boolval;
    4: HBRecords records;
    5: HBNodes nodes;
    7: optional binary message_blob;
}

struct HBMessage {
    1: HBServerMessageType type;
    2: HBMessageData data;
    3: optional i32 message_id = -1;
}

exception HBAuthorizationException {
    1: required string msg;
}

exception HBExecutionException {
    1: required string msg;
}

// Services

service Nimbus {
    void submitTopology(1: string name, 2: string uploadedJarLocation, 3: string jsonConf, 4: StormTopology topology)
        throws (1: AlreadyAliveException e1, 2: InvalidTopologyException e2, 3: AuthorizationException e3);
    void submitTopologyWithOpts(1: string name, 2: string uploadedJarLocation, 3: string jsonConf, 4: StormTopology topology, 5: SubmitOptions options)
        throws (1: AlreadyAliveException e1, 2: InvalidTopologyException e2, 3: AuthorizationException e3);
    void killTopology(1: string name)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    void killTopologyWithOpts(1: string name, 2: KillOptions options)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    void activate(1: string name)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    void deactivate(1: string name)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    void rebalance(1: string name, 2: RebalanceOptions options)
        throws (1: NotAliveException e1, 2: InvalidTopologyException e2, 3: AuthorizationException e3);
    /* Squall's own: asks a topology with checkpoints for a savepoint. The page of the topology has
       the result. */
    void savepoint(1: string name, 2: SavepointRequest request)
        throws (1: NotAliveException e1, 2: InvalidTopologyException e2, 3: AuthorizationException e3);
    void setLogConfig(1: string name, 2: LogConfig config);
    LogConfig getLogConfig(1: string name);
    void debug(1: string name, 2: string component, 3: bool enable, 4: double samplingPercentage)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    void setWorkerProfiler(1: string id, 2: ProfileRequest profileRequest);
    list<ProfileRequest> getComponentPendingProfileActions(1: string id, 2: string component_id, 3: ProfileAction action);
    void uploadNewCredentials(1: string name, 2: Credentials creds)
        throws (1: NotAliveException e1, 2: InvalidTopologyException e2, 3: AuthorizationException e3);
    string beginCreateBlob(1: string key, 2: SettableBlobMeta meta)
        throws (1: AuthorizationException e1, 2: KeyAlreadyExistsException e2);
    string beginUpdateBlob(1: string key)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2);
    void uploadBlobChunk(1: string session, 2: binary chunk)
        throws (1: AuthorizationException e1);
    void finishBlobUpload(1: string session)
        throws (1: AuthorizationException e1);
    void cancelBlobUpload(1: string session)
        throws (1: AuthorizationException e1);
    ReadableBlobMeta getBlobMeta(1: string key)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2);
    void setBlobMeta(1: string key, 2: SettableBlobMeta meta)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2);
    BeginDownloadResult beginBlobDownload(1: string key)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2);
    binary downloadBlobChunk(1: string session)
        throws (1: AuthorizationException e1);
    void deleteBlob(1: string key)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2, 3: IllegalStateException e3);
    ListBlobsResult listBlobs(1: string session);
    i32 getBlobReplication(1: string key)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2);
    i32 updateBlobReplication(1: string key, 2: i32 replication)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2);
    void createStateInZookeeper(1: string key);
    string beginFileUpload()
        throws (1: AuthorizationException e1);
    void uploadChunk(1: string location, 2: binary chunk)
        throws (1: AuthorizationException e1);
    // Squall's own, for an upload that goes on after its connection broke: appends unless the bytes
    // at `offset` are there already; returns the size. uploadChunk is refused from then on, since a
    // chunk of the old connection may still be under way.
    i64 uploadChunkAt(1: string location, 2: i64 offset, 3: binary chunk)
        throws (1: AuthorizationException e1);
    void finishFileUpload(1: string location)
        throws (1: AuthorizationException e1);
    binary downloadChunk(1: string id)
        throws (1: AuthorizationException e1);
    // Squall's own: the platform of each node with a supervisor ("cp3.11 linux_x86_64 glibc2.36"), by
    // host name, for choosing wheels and for a package's requires-python.
    map<string, string> getSupervisorPlatforms()
        throws (1: AuthorizationException e1);
    string getNimbusConf()
        throws (1: AuthorizationException e1);
    ClusterSummary getClusterInfo()
        throws (1: AuthorizationException e1);
    list<TopologySummary> getTopologySummaries()
        throws (1: AuthorizationException e1);
    TopologySummary getTopologySummaryByName(1: string name)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    TopologySummary getTopologySummary(1: string id)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    NimbusSummary getLeader()
        throws (1: AuthorizationException e1);
    bool isTopologyNameAllowed(1: string name)
        throws (1: AuthorizationException e1);
    TopologyInfo getTopologyInfoByName(1: string name)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    TopologyInfo getTopologyInfo(1: string id)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    TopologyInfo getTopologyInfoByNameWithOpts(1: string name, 2: GetInfoOptions options)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    TopologyInfo getTopologyInfoWithOpts(1: string id, 2: GetInfoOptions options)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    TopologyPageInfo getTopologyPageInfo(1: string id, 2: string window, 3: bool is_include_sys)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    SupervisorPageInfo getSupervisorPageInfo(1: string id, 2: string host, 3: bool is_include_sys)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    ComponentPageInfo getComponentPageInfo(1: string topology_id, 2: string component_id, 3: string window, 4: bool is_include_sys)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    string getTopologyConf(1: string id)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    StormTopology getTopology(1: string id)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    StormTopology getUserTopology(1: string id)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    TopologyHistoryInfo getTopologyHistory(1: string user)
        throws (1: AuthorizationException e1);
    list<OwnerResourceSummary> getOwnerResourceSummaries(1: string owner)
        throws (1: AuthorizationException e1);
    SupervisorAssignments getSupervisorAssignments(1: string node)
        throws (1: AuthorizationException e1);
    // In Storm this returns nothing. Squall's: the topologies among them that somebody watches, with
    // the seconds between two heartbeats of their workers.
    map<string, double> sendSupervisorWorkerHeartbeats(1: SupervisorWorkerHeartbeats heartbeats)
        throws (1: AuthorizationException e1);
    void sendSupervisorWorkerHeartbeat(1: SupervisorWorkerHeartbeat heatbeat)
        throws (1: AuthorizationException e1, 2: NotAliveException e2);
    void processWorkerMetrics(1: WorkerMetrics metrics);
    bool isRemoteBlobExists(1: string blobKey)
        throws (1: AuthorizationException e1);
    // Squall's own: the last heartbeat of each worker of a topology that reports to the leader.
    list<SupervisorWorkerHeartbeat> getWorkerHeartbeats(1: string topologyId)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    // Squall's own: asks the workers of a topology about the state of its tasks, and waits for their
    // answers, some 15 s at most.
    list<WorkerStateAnswer> readState(1: string topologyId, 2: string question)
        throws (1: NotAliveException e1, 2: InvalidTopologyException e2, 3: AuthorizationException e3);
    // Squall's own: the questions for the workers of a node, each of which is handed out once; and
    // their answers. A supervisor asks when the answer to its heartbeats has a number under "?".
    list<StateQuestion> getStateQuestions(1: string node)
        throws (1: AuthorizationException e1);
    void sendStateAnswers(1: string node, 2: list<StateAnswer> answers)
        throws (1: AuthorizationException e1);
    // Squall's own: the last sums by component of each worker that reports to the leader; without
    // them of one that has reported none in the last seconds.
    list<SupervisorWorkerHeartbeat> getWorkerSums(1: string topologyId)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    // Squall's own: `finished` of the topologies of which it is known, by id. The leader alone
    // answers: workers report to it, and the other Nimbus nodes ask it.
    map<string, bool> getFinishedTopologies()
        throws (1: AuthorizationException e1);
    // Squall's own: somebody looks at a topology. For the next few seconds its workers report more
    // often than they do otherwise.
    void watchTopology(1: string topologyId)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    // Squall's own: the pair of keys with which a topology's workers encrypt, sealed for one daemon
    // ("supervisor/ID" or "nimbus/HOST:PORT"), which alone can open it.
    binary getTopologyKey(1: string topologyId, 2: string receiver)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2);
    // Squall's own: a topology's credentials, sealed in the same way. KeyNotFoundException: it has
    // none.
    binary getTopologyCredentials(1: string topologyId, 2: string receiver)
        throws (1: AuthorizationException e1, 2: KeyNotFoundException e2);
    // Squall's own: tokens. The caller's own user, if none is named; revokeTokens ends all that a
    // user has.
    string createToken(1: string user, 2: i64 lifetimeSecs, 3: string label, 4: list<string> actions, 5: list<string> topologies)
        throws (1: AuthorizationException e1);
    list<TokenInfo> listTokens(1: string user)
        throws (1: AuthorizationException e1);
    void revokeToken(1: string id)
        throws (1: AuthorizationException e1);
    void revokeTokens(1: string user)
        throws (1: AuthorizationException e1);
    // Squall's own: what daemons that authenticate users go by. The register of tokens as a Nimbus
    // has signed it, empty if its number is `known`; and who may read the logs of topologies, of
    // those that are alive.
    string getTokenRegister(1: i64 known)
        throws (1: AuthorizationException e1);
    map<string, LogAccess> getLogAccess(1: list<string> topologyIds)
        throws (1: AuthorizationException e1);
    // Squall's own: the tokens of a node's workers, by the port of the slot, for its supervisor. Only
    // slots that this Nimbus has assigned, of these topologies, have one.
    map<i32, string> getWorkerTokens(1: string node, 2: list<string> topologyIds)
        throws (1: AuthorizationException e1);
    // Squall's own: those of these slots, ID/NODE:PORT, that a topology has, for DRPC servers: the
    // tokens of workers on others have ended.
    list<string> getLiveSlots(1: list<string> slots)
        throws (1: AuthorizationException e1);
    // Squall's own: a token by which a topology proves to a foreign party who it is, for a worker of
    // it. The topology's configuration declares the audience.
    string getIdentityToken(1: string topologyId, 2: string audience)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    // Squall's own: the public keys by which foreign parties verify these tokens, as each Nimbus has
    // signed its own.
    list<string> getIdentityKeys()
        throws (1: AuthorizationException e1);
}

service Supervisor {
    void sendSupervisorAssignments(1: SupervisorAssignments assignments)
        throws (1: AuthorizationException e1);
    Assignment getLocalAssignmentForStorm(1: string id)
        throws (1: NotAliveException e1, 2: AuthorizationException e2);
    void sendSupervisorWorkerHeartbeat(1: SupervisorWorkerHeartbeat heartbeat)
        throws (1: AuthorizationException e1);
}

service DistributedRPC {
    string execute(1: string functionName, 2: string funcArgs)
        throws (1: DRPCExecutionException e1, 2: AuthorizationException e2);
}

service DistributedRPCInvocations {
    void result(1: string id, 2: string result)
        throws (1: AuthorizationException e1);
    DRPCRequest fetchRequest(1: string functionName)
        throws (1: AuthorizationException e1);
    void failRequest(1: string id)
        throws (1: AuthorizationException e1);
    void failRequestV2(1: string id, 2: DRPCExecutionException e)
        throws (1: AuthorizationException e1);
}
