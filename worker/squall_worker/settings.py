"""The configuration keys that the worker process itself reads, each with its unit in the name."""

from __future__ import annotations

from dataclasses import dataclass

from squall_common.config.options.typed import TopologyOptions, WorkerOptions
from squall_common.errors import ConfigError
from squall_common.security.curve import is_loopback

# How much of supervisor.worker.shutdown.sleep.secs a graceful stop leaves unused: the supervisor
# kills at its end, and the process must be gone before.
_STOP_MARGIN_SECS = 0.5
# A ring takes more than one of the largest frames (288 KiB), so that its two ends work at once.
_RING_BYTES_MIN = 512 * 1024


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """How this worker process behaves. Times in seconds."""

    bind_host: str  # storm.bind.host
    beat_secs: float  # worker.heartbeat.frequency.secs: to the local file
    report_secs: float  # task.heartbeat.frequency.secs: to Nimbus
    refresh_secs: float  # task.refresh.poll.secs: assignment and status are read again
    away_secs: float  # after a sleep of this long, its tasks may have been moved
    stop_secs: float  # a graceful stop takes at most this long
    silent_secs: float  # without a heartbeat, until all stacks are written to worker.err

    @classmethod
    def of(cls, options: WorkerOptions, *, secured: bool = False) -> WorkerSettings:
        """The options are the supervisor's: a topology decides neither where its workers listen
        nor how they are watched. In a secured cluster they may listen everywhere: they have a key
        (`keys.own_key`). Raises ConfigError for a refused listener."""
        host = options.storm_bind_host
        if not (secured or is_loopback(host) or options.storm_security_insecure):
            raise ConfigError(
                f"a worker may not listen on {host}: this cluster's daemons and clients are not "
                "authenticated",
                hint="On a private network set storm.security.insecure: true, else leave "
                "storm.bind.host on loopback.",
            )
        timeout_secs = options.supervisor_worker_timeout_secs
        sleep_secs = options.supervisor_worker_shutdown_sleep_secs
        return cls(
            bind_host=host,
            beat_secs=options.worker_heartbeat_frequency_secs,
            report_secs=options.task_heartbeat_frequency_secs,
            refresh_secs=options.task_refresh_poll_secs,
            away_secs=min(options.storm_zookeeper_session_timeout / 1000, timeout_secs),
            stop_secs=max(0.5, sleep_secs - _STOP_MARGIN_SECS),
            silent_secs=timeout_secs / 2,  # before the supervisor ends it
        )

    @staticmethod
    def backlog_bytes_max(topology: TopologyOptions) -> int:
        """Unacknowledged bytes to one peer above which acks and the like are dropped. The engine
        stops feeding a peer at topology.worker.buffer.bytes; this limit lies behind that one."""
        return 8 * topology.topology_worker_buffer_bytes

    @staticmethod
    def ring_bytes(topology: TopologyOptions) -> int:
        """The capacity in bytes of rings in shared memory between workers of one host; 0: none.
        With `storm.messaging.curve: true` all bytes between workers are encrypted, so there are
        none."""
        if topology.storm_messaging_curve is True or not topology.storm_messaging_ring_bytes:
            return 0
        return max(_RING_BYTES_MIN, topology.storm_messaging_ring_bytes)

    @staticmethod
    def busy_poll_secs(topology: TopologyOptions) -> float:
        """How long a worker does not sleep after it exchanged tuples with others."""
        return topology.topology_worker_busy_poll_ms / 1000
