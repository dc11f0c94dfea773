"""Typed options: one class for each program, and one for topologies.

Written by `python -m squall_common.config.options` from the declarations beside it: a change here
has no effect. A field is named after its key, and a comment names its unit.

    >>> NimbusOptions.read({"nimbus.thrift.port": 7000}).nimbus_thrift_port
    7000
    >>> TopologyOptions().topology_workers
    1
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from squall_common.config.options.reading import Options


class NimbusOptions(Options, frozen=True, kw_only=True):
    """What Nimbus reads of its configuration."""

    storm_local_dir: str = "storm-local"
    storm_log_dir: str | None = None
    storm_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    storm_log_format: Literal["text", "json"] = "text"
    storm_daemon_metrics_reporters: tuple[Mapping[str, Any], ...] = ()
    storm_daemon_metrics_reporter_plugins: tuple[str, ...] = ()
    storm_daemon_metrics_reporter_interval_secs: float = 10.0  # s
    storm_daemon_metrics_reporter_csv_log_dir: str | None = None
    storm_history_dir: str | None = None
    storm_history_retention_hours: float = 168.0  # hours
    storm_local_hostname: str | None = None
    storm_bind_host: str = "127.0.0.1"
    storm_security_insecure: bool = False
    storm_http_hosts: tuple[str, ...] | None = None
    storm_messaging_curve: bool | Literal["auto"] = "auto"
    storm_security_ca: str | None = None
    storm_security_certificate: str | None = None
    storm_security_key: str | None = None
    storm_security_revoked: str | None = None
    storm_identity_issuer: str | None = None
    nimbus_identity_audiences: tuple[str, ...] | None = None
    nimbus_legacy_thrift_port: int | None = None
    storm_thrift_transport: str = "org.apache.storm.security.auth.SimpleTransportPlugin"
    java_security_auth_login_config: str | None = None
    storm_principal_tolocal: str = "org.apache.storm.security.auth.DefaultPrincipalToLocal"
    nimbus_users: tuple[str, ...] | None = None
    nimbus_groups: tuple[str, ...] | None = None
    logs_users: tuple[str, ...] = ()
    logs_groups: tuple[str, ...] = ()
    metrics_users: tuple[str, ...] = ()
    metrics_groups: tuple[str, ...] = ()
    nimbus_admins_groups: tuple[str, ...] | None = None
    nimbus_impersonation_acl: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    nimbus_quotas: Mapping[str, Mapping[str, int]] | None = None
    storm_group_mapping_service: str = "org.apache.storm.security.auth.ShellBasedGroupsMapping"
    storm_group_mapping_service_params: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    nimbus_autocredential_plugins_classes: tuple[str, ...] | None = None
    nimbus_credential_renewers_classes: tuple[str, ...] | None = None
    nimbus_credential_renewers_freq_secs: float = 600.0  # seconds
    storm_oidc_issuer: str | None = None
    storm_oidc_audience: str | None = None
    storm_oidc_algorithms: tuple[Literal["RS256", "PS256", "ES256", "EdDSA"], ...] = ("RS256",)
    storm_oidc_claim_user: str = "sub"
    storm_oidc_claim_groups: str | None = None
    storm_oidc_ca: str | None = None
    storm_zookeeper_servers: tuple[str, ...] = ("localhost",)
    storm_zookeeper_port: int = 2181
    storm_zookeeper_root: str = "/storm"
    storm_zookeeper_session_timeout: int = 20000  # milliseconds
    storm_zookeeper_connection_timeout: int = 15000  # milliseconds
    storm_zookeeper_operation_timeout_ms: int = 10000  # milliseconds
    storm_zookeeper_auth_payload: str | None = None
    storm_zookeeper_auth_payload_file: str | None = None
    storm_zookeeper_super_acl: str | None = None
    nimbus_seeds: tuple[str, ...] = ("localhost",)
    nimbus_thrift_port: int = 6627
    nimbus_metrics_port: int | None = None
    nimbus_thrift_max_buffer_size: int = 1048576  # bytes
    nimbus_task_timeout_secs: float = 45.0  # seconds
    nimbus_task_launch_secs: float = 120.0  # seconds
    nimbus_monitor_freq_secs: float = 10.0  # seconds
    nimbus_cleanup_inbox_freq_secs: float = 600.0  # seconds
    nimbus_inbox_jar_expiration_secs: float = 3600.0  # seconds
    nimbus_upload_bytes_max: int = 2147483648  # bytes
    nimbus_disk_reserve_mb: int = 512  # MiB
    nimbus_file_copy_expiration_secs: float = 600.0  # seconds
    nimbus_blobstore_expiration_secs: float = 600.0  # seconds
    nimbus_topology_blobstore_deletion_delay_ms: int = 300000  # milliseconds
    nimbus_code_sync_freq_secs: float = 120.0  # seconds
    nimbus_admins: tuple[str, ...] | None = None
    nimbus_supervisor_users: tuple[str, ...] | None = None
    nimbus_executors_per_topology: int | None = 11000
    nimbus_slots_per_topology: int | None = None
    blobstore_dir: str | None = None
    storm_blobstore_inputstream_buffer_size_bytes: int = 262144  # bytes
    logviewer_cleanup_age_mins: float = 10080.0  # minutes
    topology_min_replication_count: int = 1
    topology_max_replication_wait_time_sec: float = 60.0  # seconds


class SupervisorOptions(Options, frozen=True, kw_only=True):
    """What a supervisor reads of its configuration."""

    storm_local_dir: str = "storm-local"
    storm_log_dir: str | None = None
    storm_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    storm_log_format: Literal["text", "json"] = "text"
    storm_daemon_metrics_reporters: tuple[Mapping[str, Any], ...] = ()
    storm_daemon_metrics_reporter_plugins: tuple[str, ...] = ()
    storm_daemon_metrics_reporter_interval_secs: float = 10.0  # s
    storm_daemon_metrics_reporter_csv_log_dir: str | None = None
    storm_workers_artifacts_dir: str = "workers-artifacts"
    storm_history_dir: str | None = None
    storm_history_retention_hours: float = 168.0  # hours
    storm_local_hostname: str | None = None
    storm_bind_host: str = "127.0.0.1"
    storm_security_insecure: bool = False
    storm_http_hosts: tuple[str, ...] | None = None
    storm_messaging_curve: bool | Literal["auto"] = "auto"
    storm_security_ca: str | None = None
    storm_security_certificate: str | None = None
    storm_security_key: str | None = None
    storm_security_revoked: str | None = None
    supervisor_workers_share_user: bool = False
    metrics_users: tuple[str, ...] = ()
    metrics_groups: tuple[str, ...] = ()
    nimbus_admins_groups: tuple[str, ...] | None = None
    storm_group_mapping_service: str = "org.apache.storm.security.auth.ShellBasedGroupsMapping"
    storm_group_mapping_service_params: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    storm_oidc_issuer: str | None = None
    storm_oidc_audience: str | None = None
    storm_oidc_algorithms: tuple[Literal["RS256", "PS256", "ES256", "EdDSA"], ...] = ("RS256",)
    storm_oidc_claim_user: str = "sub"
    storm_oidc_claim_groups: str | None = None
    storm_oidc_ca: str | None = None
    storm_zookeeper_servers: tuple[str, ...] = ("localhost",)
    storm_zookeeper_port: int = 2181
    storm_zookeeper_root: str = "/storm"
    storm_zookeeper_session_timeout: int = 20000  # milliseconds
    storm_zookeeper_connection_timeout: int = 15000  # milliseconds
    storm_zookeeper_operation_timeout_ms: int = 10000  # milliseconds
    storm_zookeeper_auth_payload: str | None = None
    storm_zookeeper_auth_payload_file: str | None = None
    storm_zookeeper_super_acl: str | None = None
    nimbus_thrift_max_buffer_size: int = 1048576  # bytes
    nimbus_admins: tuple[str, ...] | None = None
    storm_id: str | None = None
    supervisor_slots_ports: tuple[int, ...] = (6700, 6701, 6702, 6703)
    storm_health_check_dir: str = "healthchecks"
    storm_health_check_timeout_ms: float = 5000.0  # milliseconds
    storm_health_check_fail_on_timeouts: bool = True
    supervisor_health_check_interval_secs: float = 30.0  # seconds
    supervisor_thrift_port: int = 6628
    supervisor_metrics_port: int | None = None
    supervisor_thrift_max_buffer_size: int = 1048576  # bytes
    supervisor_enable: bool = True
    supervisor_worker_start_timeout_secs: float = 120.0  # seconds
    supervisor_worker_timeout_secs: float = 30.0  # seconds
    supervisor_worker_shutdown_sleep_secs: float = 3.0  # seconds
    supervisor_monitor_frequency_secs: float = 3.0  # seconds
    supervisor_heartbeat_frequency_secs: float = 5.0  # seconds
    supervisor_assignment_sync_secs: float = 10.0  # seconds
    supervisor_worker_min_uptime_secs: float = 10.0  # seconds
    supervisor_worker_backoff_max_secs: float = 60.0  # seconds
    supervisor_blobstore_download_thread_count: int = 5
    supervisor_blobstore_download_max_retries: int = 3
    supervisor_localizer_update_blob_interval_secs: float = 30.0  # seconds
    supervisor_localizer_cleanup_interval_ms: float = 30000.0  # milliseconds
    supervisor_localizer_cache_target_size_mb: float = 10240.0  # MiB
    supervisor_memory_capacity_mb: float = 4096.0  # MiB
    supervisor_cpu_capacity: float = 400.0  # percent of a core
    worker_heap_memory_mb: float | None = None  # MiB
    worker_max_memory_mb: float | None = None  # MiB
    worker_max_cpu_pcore_percent: float | None = None  # percent of a core
    storm_supervisor_memory_limit_tolerance_margin_mb: float = 128.0  # MiB
    storm_supervisor_hard_memory_limit_multiplier: float = 2.0
    storm_worker_min_cpu_pcore_percent: float = 50.0  # percent of a core
    supervisor_run_worker_as_user: bool = False
    supervisor_run_worker_as_user_default: str | None = None
    supervisor_run_worker_as_user_choices: tuple[str, ...] = ()
    supervisor_run_worker_as_user_min_uid: int = 1000
    storm_resource_isolation_plugin_enable: bool = False
    storm_resource_isolation_plugin: str | None = None
    storm_cgroup_hierarchy_dir: str | None = None
    storm_supervisor_cgroup_rootdir: str = "storm"
    storm_cgroup_resources: tuple[Literal["cpu", "memory"], ...] = ("cpu", "memory")
    supervisor_worker_conf_keys: tuple[str, ...] = ()
    supervisor_worker_limit_open_files: int | None = None
    supervisor_worker_limit_processes: int | None = None
    supervisor_worker_limit_core_mb: int | None = 0  # MiB
    supervisor_worker_limit_file_mb: int | None = None  # MiB
    supervisor_worker_limit_address_space_mb: int | None = None  # MiB
    supervisor_scheduler_meta: Mapping[str, str] | None = None
    worker_profiler_enabled: bool = True
    worker_profiler_command: str = "py-spy"
    worker_max_timeout_secs: float = 600.0  # seconds
    task_heartbeat_frequency_secs: float = 3.0  # seconds
    task_credentials_poll_secs: float = 30.0  # seconds
    logviewer_cleanup_interval_secs: float = 600.0  # seconds
    logviewer_cleanup_age_mins: float = 10080.0  # minutes
    logviewer_max_sum_worker_logs_size_mb: float = 4096.0  # MiB
    logviewer_max_per_worker_logs_size_mb: float = 2048.0  # MiB


class WorkerOptions(Options, frozen=True, kw_only=True):
    """What a worker process reads of its node's configuration, which the supervisor passes on."""

    storm_local_dir: str = "storm-local"
    storm_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    storm_log_format: Literal["text", "json"] = "text"
    storm_history_dir: str | None = None
    storm_bind_host: str = "127.0.0.1"
    storm_security_insecure: bool = False
    storm_messaging_curve: bool | Literal["auto"] = "auto"
    storm_messaging_ring_bytes: int = 1048576  # bytes
    storm_zookeeper_servers: tuple[str, ...] = ("localhost",)
    storm_zookeeper_port: int = 2181
    storm_zookeeper_root: str = "/storm"
    storm_zookeeper_session_timeout: int = 20000  # milliseconds
    storm_zookeeper_connection_timeout: int = 15000  # milliseconds
    storm_zookeeper_operation_timeout_ms: int = 10000  # milliseconds
    nimbus_thrift_max_buffer_size: int = 1048576  # bytes
    supervisor_metrics_port: int | None = None
    supervisor_worker_timeout_secs: float = 30.0  # seconds
    supervisor_worker_shutdown_sleep_secs: float = 3.0  # seconds
    worker_heartbeat_frequency_secs: float = 1.0  # seconds
    task_heartbeat_frequency_secs: float = 3.0  # seconds
    task_refresh_poll_secs: float = 10.0  # seconds


class DrpcOptions(Options, frozen=True, kw_only=True):
    """What a DRPC server reads of its configuration."""

    storm_local_dir: str = "storm-local"
    storm_log_dir: str | None = None
    storm_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    storm_log_format: Literal["text", "json"] = "text"
    storm_daemon_metrics_reporters: tuple[Mapping[str, Any], ...] = ()
    storm_daemon_metrics_reporter_plugins: tuple[str, ...] = ()
    storm_daemon_metrics_reporter_interval_secs: float = 10.0  # s
    storm_daemon_metrics_reporter_csv_log_dir: str | None = None
    storm_local_hostname: str | None = None
    storm_bind_host: str = "127.0.0.1"
    storm_security_insecure: bool = False
    storm_http_hosts: tuple[str, ...] | None = None
    storm_security_ca: str | None = None
    storm_security_certificate: str | None = None
    storm_security_key: str | None = None
    storm_security_revoked: str | None = None
    nimbus_users: tuple[str, ...] | None = None
    nimbus_groups: tuple[str, ...] | None = None
    nimbus_admins_groups: tuple[str, ...] | None = None
    nimbus_impersonation_acl: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    storm_group_mapping_service: str = "org.apache.storm.security.auth.ShellBasedGroupsMapping"
    storm_group_mapping_service_params: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    drpc_authorizer_acl_filename: str | None = None
    drpc_authorizer_acl_strict: bool = True
    storm_oidc_issuer: str | None = None
    storm_oidc_audience: str | None = None
    storm_oidc_algorithms: tuple[Literal["RS256", "PS256", "ES256", "EdDSA"], ...] = ("RS256",)
    storm_oidc_claim_user: str = "sub"
    storm_oidc_claim_groups: str | None = None
    storm_oidc_ca: str | None = None
    nimbus_admins: tuple[str, ...] | None = None
    drpc_servers: tuple[str, ...] | None = None
    drpc_port: int = 3772
    drpc_invocations_port: int = 3773
    drpc_http_port: int = 3774
    drpc_max_buffer_size: int = 1048576  # bytes
    drpc_request_timeout_secs: float = 600.0  # seconds
    drpc_requests_max: int = 4096
    drpc_function_requests_max: int = 1000
    drpc_requests_bytes_max: int = 268435456  # bytes
    drpc_peer_percent_max: int = 50
    drpc_worker_timeout_secs: float = 10.0  # seconds


class UiOptions(Options, frozen=True, kw_only=True):
    """What the UI reads of its configuration."""

    storm_local_dir: str = "storm-local"
    storm_log_dir: str | None = None
    storm_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    storm_log_format: Literal["text", "json"] = "text"
    storm_history_dir: str | None = None
    storm_local_hostname: str | None = None
    storm_bind_host: str = "127.0.0.1"
    storm_security_insecure: bool = False
    storm_http_hosts: tuple[str, ...] | None = None
    storm_security_ca: str | None = None
    storm_security_certificate: str | None = None
    storm_security_key: str | None = None
    storm_security_revoked: str | None = None
    storm_identity_issuer: str | None = None
    storm_oidc_issuer: str | None = None
    storm_oidc_audience: str | None = None
    storm_oidc_algorithms: tuple[Literal["RS256", "PS256", "ES256", "EdDSA"], ...] = ("RS256",)
    storm_oidc_claim_user: str = "sub"
    storm_oidc_claim_groups: str | None = None
    storm_oidc_ca: str | None = None
    ui_host: str | None = None
    ui_port: int = 8080
    ui_title: str = "Squall UI"
    ui_actions_enabled: bool = True
    logviewer_port: int = 8000


class LogviewerOptions(Options, frozen=True, kw_only=True):
    """What a logviewer reads of its configuration."""

    storm_local_dir: str = "storm-local"
    storm_log_dir: str | None = None
    storm_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    storm_log_format: Literal["text", "json"] = "text"
    storm_workers_artifacts_dir: str = "workers-artifacts"
    storm_local_hostname: str | None = None
    storm_bind_host: str = "127.0.0.1"
    storm_security_insecure: bool = False
    storm_http_hosts: tuple[str, ...] | None = None
    storm_security_ca: str | None = None
    storm_security_certificate: str | None = None
    storm_security_key: str | None = None
    storm_security_revoked: str | None = None
    logs_users: tuple[str, ...] = ()
    logs_groups: tuple[str, ...] = ()
    nimbus_admins_groups: tuple[str, ...] | None = None
    nimbus_impersonation_acl: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    storm_group_mapping_service: str = "org.apache.storm.security.auth.ShellBasedGroupsMapping"
    storm_group_mapping_service_params: Mapping[str, Mapping[str, tuple[str, ...]]] | None = None
    storm_oidc_issuer: str | None = None
    storm_oidc_audience: str | None = None
    storm_oidc_algorithms: tuple[Literal["RS256", "PS256", "ES256", "EdDSA"], ...] = ("RS256",)
    storm_oidc_claim_user: str = "sub"
    storm_oidc_claim_groups: str | None = None
    storm_oidc_ca: str | None = None
    nimbus_admins: tuple[str, ...] | None = None
    logviewer_port: int = 8000
    logviewer_log_dirs: tuple[str, ...] = ()


class ClientOptions(Options, frozen=True, kw_only=True):
    """What commands and clients of Nimbus and of DRPC servers read."""

    storm_local_dir: str = "storm-local"
    storm_log_dir: str | None = None
    storm_log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    storm_history_dir: str | None = None
    storm_thrift_socket_timeout_ms: float = 600000.0  # milliseconds
    storm_nimbus_retry_times: int = 3
    storm_nimbus_retry_interval_millis: int = 500  # milliseconds
    storm_nimbus_retry_intervalceiling_millis: int = 60000  # milliseconds
    storm_security_ca: str | None = None
    storm_security_certificate: str | None = None
    storm_security_key: str | None = None
    storm_security_token_file: str | None = None
    storm_do_as_user: str | None = None
    storm_zookeeper_servers: tuple[str, ...] = ("localhost",)
    storm_zookeeper_port: int = 2181
    storm_zookeeper_root: str = "/storm"
    storm_zookeeper_session_timeout: int = 20000  # milliseconds
    storm_zookeeper_connection_timeout: int = 15000  # milliseconds
    storm_zookeeper_auth_payload: str | None = None
    storm_zookeeper_auth_payload_file: str | None = None
    storm_zookeeper_super_acl: str | None = None
    dev_zookeeper_path: str = "/tmp/dev-storm-zookeeper"
    nimbus_seeds: tuple[str, ...] = ("localhost",)
    nimbus_thrift_port: int = 6627
    nimbus_thrift_max_buffer_size: int = 1048576  # bytes
    storm_health_check_dir: str = "healthchecks"
    storm_health_check_timeout_ms: float = 5000.0  # milliseconds
    storm_health_check_fail_on_timeouts: bool = True
    logviewer_port: int = 8000
    drpc_servers: tuple[str, ...] | None = None
    drpc_port: int = 3772
    drpc_request_timeout_secs: float = 600.0  # seconds


class TopologyOptions(Options, frozen=True, kw_only=True):
    """What programs read of the configuration of a topology, or of one of its components."""

    storm_messaging_curve: bool | Literal["auto"] = "auto"
    storm_messaging_ring_bytes: int = 1048576  # bytes
    topology_identity_audiences: tuple[str, ...] = ()
    logs_users: tuple[str, ...] = ()
    logs_groups: tuple[str, ...] = ()
    drpc_servers: tuple[str, ...] | None = None
    drpc_port: int = 3772
    drpc_invocations_port: int = 3773
    drpc_http_port: int = 3774
    drpc_max_buffer_size: int = 1048576  # bytes
    drpc_request_timeout_secs: float = 600.0  # seconds
    topology_workers: int = 1
    topology_tasks: int | None = None
    topology_component_tasks: Mapping[str, int] | None = None
    topology_max_task_parallelism: int | None = None
    topology_acker_executors: int | None = None
    topology_eventlogger_executors: int | None = 0
    topology_version: str | None = None
    topology_users: tuple[str, ...] = ()
    topology_groups: tuple[str, ...] = ()
    topology_readonly_users: tuple[str, ...] = ()
    topology_readonly_groups: tuple[str, ...] = ()
    topology_component_resources_onheap_memory_mb: float = 128.0  # MiB
    topology_component_resources_offheap_memory_mb: float = 0.0  # MiB
    topology_component_cpu_pcore_percent: float = 10.0  # percent of a core
    topology_run_as_user: str | None = None
    topology_worker_max_heap_size_mb: float | None = None  # MiB
    topology_message_timeout_secs: float = 30.0  # seconds
    topology_checkpoint_interval_secs: float | None = None  # seconds
    topology_checkpoint_savepoint: str | None = None
    topology_checkpoint_allow_non_restored_state: bool = False
    topology_checkpoint_tries: int = 3
    topology_enable_message_timeouts: bool = True
    topology_max_spout_pending: int | None = None
    topology_max_error_report_per_interval: int = 5
    topology_error_throttle_interval_secs: float = 10.0  # seconds
    topology_tick_tuple_freq_secs: float | None = None  # seconds
    topology_sleep_spout_wait_strategy_time_ms: float = 1.0  # milliseconds
    topology_worker_timeout_secs: float | None = None  # seconds
    topology_shellbolt_max_pending: int = 100
    topology_subprocess_timeout_secs: float | None = None  # seconds
    topology_multilang_serializer: str = "json"
    topology_multilang_change_child_cwd: bool = True
    topology_multilang_environment: Mapping[str, str | float | bool] | None = None
    topology_multilang_linger_micros: int = 50  # microseconds
    topology_multilang_log_handler: str | None = None
    topology_multilang_message_bytes_max: int = 33554432  # bytes
    topology_disable_loadaware_messaging: bool = False
    topology_localityaware_higher_bound: float = 0.8
    topology_localityaware_lower_bound: float = 0.2
    topology_executor_receive_buffer_size: int = 32768
    topology_debug: bool = False
    topology_environment: Mapping[str, str | float | bool] | None = None
    topology_blobstore_map: Mapping[str, Mapping[str, Any]] | None = None
    topology_auto_task_hooks: tuple[str, ...] = ()
    topology_metrics_consumer_register: tuple[Mapping[str, Any], ...] = ()
    topology_metrics_reporters: tuple[Mapping[str, Any], ...] = ()
    topology_builtin_metrics_bucket_size_secs: float = 60.0  # seconds
    topology_history_enable: bool = False
    topology_history_interval_secs: float = 10.0  # seconds
    topology_history_rotation_secs: float = 60.0  # seconds
    topology_history_rotation_bytes: int = 4194304  # bytes
    topology_history_key_sampling_rate: float = 0.002
    topology_kryo_register: tuple[str | Mapping[str, str | None], ...] = ()
    topology_testing_always_try_serialize: bool = False
    topology_worker_shared_thread_pool_size: int = 4
    topology_skip_missing_kryo_registrations: bool = False
    topology_state_provider: str = "memory"
    topology_state_provider_config: str | Mapping[str, Any] | None = None
    topology_state_url: str | None = None
    topology_state_checkpoint_interval_ms: int = 1000  # milliseconds
    topology_state_backend: str = "memory"
    topology_state_backend_folder: str | None = None
    topology_state_backend_write_entries: int = 100000
    topology_state_max_parallelism: int | None = None
    topology_bolts_window_length_count: int | None = None
    topology_bolts_window_length_duration_ms: int | None = None  # milliseconds
    topology_bolts_window_sliding_interval_count: int | None = None
    topology_bolts_window_sliding_interval_duration_ms: int | None = None  # milliseconds
    topology_bolts_window_session_gap_ms: int | None = None  # milliseconds
    topology_bolts_window_key_fields: tuple[str, ...] | None = None
    topology_bolts_tuple_timestamp_field_name: str | None = None
    topology_bolts_tuple_timestamp_max_lag_ms: int = 0  # milliseconds
    topology_bolts_watermark_event_interval_ms: int = 1000  # milliseconds
    topology_bolts_watermark_idle_timeout_ms: int | None = None  # milliseconds
    topology_bolts_watermark_from: tuple[str, ...] | None = None
    topology_bolts_window_allowed_lateness_ms: int = 0  # milliseconds
    topology_bolts_late_tuple_stream: str | None = None
    topology_bolts_message_id_field_name: str | None = None
    topology_bolts_window_tuples_max: int = 1000000
    topology_bolts_window_tuples_in_memory_max: int | None = None
    topology_worker_stall_timeout_secs: float | None = 300.0  # seconds
    topology_worker_buffer_bytes: int = 33554432  # bytes
    topology_worker_busy_poll_ms: float = 0.0  # milliseconds
    topology_bolt_async_concurrency: int = 100
    topology_bolt_die_on_error: bool = False
    topology_fail_on_worker_loss: bool = True
    topology_max_replays: int | None = None
    topology_max_worker_kills: int | None = 3
    topology_fall_back_on_pickle: bool = False
    topology_spout_batch: int | None = None
    topology_run_turn_ms: float = 2.0  # milliseconds
    topology_tracing_enabled: bool = False
    topology_tracing_sample_rate: float = 0.01
    topology_tracing_exporter: str = "otlp"
    topology_tracing_otlp_endpoint: str = "http://127.0.0.1:4318/v1/traces"
