"""The configuration keys that the worker process itself reads, each with its unit in the name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from squall_common.errors import ConfigError
from squall_common.security.curve import is_loopback

# How much of supervisor.worker.shutdown.sleep.secs a graceful stop leaves unused: the supervisor
# kills at its end, and the process must be gone before.
_STOP_MARGIN_SECS = 0.5


@dataclass(frozen=True, slots=True)
class Settings:
    """How this worker process behaves. Times in seconds."""

    bind_host: str  # storm.bind.host
    beat_secs: float  # worker.heartbeat.frequency.secs: to the local file
    report_secs: float  # task.heartbeat.frequency.secs: to ZooKeeper
    refresh_secs: float  # task.refresh.poll.secs: assignment and status are read again
    away_secs: float  # after a sleep of this long, its tasks may have been moved
    stop_secs: float  # a graceful stop takes at most this long
    silent_secs: float  # without a heartbeat, until all stacks are written to worker.err

    @classmethod
    def of(cls, daemon_conf: Mapping[str, Any]) -> Settings:
        """`daemon_conf` is the supervisor's: a topology decides neither where its workers listen
        nor how they are watched. Raises ConfigError for a refused listener."""
        host = str(daemon_conf.get("storm.bind.host") or "127.0.0.1")
        if not is_loopback(host) and not daemon_conf.get("storm.security.insecure"):
            raise ConfigError(
                f"a worker may not listen on {host}: this cluster's daemons and clients are not "
                "authenticated",
                hint="On a private network set storm.security.insecure: true, else leave "
                "storm.bind.host on loopback.",
            )
        sleep_secs = float(daemon_conf.get("supervisor.worker.shutdown.sleep.secs", 3))
        return cls(
            bind_host=host,
            beat_secs=float(daemon_conf.get("worker.heartbeat.frequency.secs", 1)),
            report_secs=float(daemon_conf.get("task.heartbeat.frequency.secs", 3)),
            refresh_secs=float(daemon_conf.get("task.refresh.poll.secs", 10)),
            away_secs=min(
                float(daemon_conf.get("storm.zookeeper.session.timeout", 20_000)) / 1000,
                float(daemon_conf.get("supervisor.worker.timeout.secs", 30)),
            ),
            stop_secs=max(0.5, sleep_secs - _STOP_MARGIN_SECS),
            # Before the supervisor ends it.
            silent_secs=float(daemon_conf.get("supervisor.worker.timeout.secs", 30)) / 2,
        )

    @staticmethod
    def backlog_bytes_max(topology_conf: Mapping[str, Any]) -> int:
        """Unacknowledged bytes to one peer above which acks and the like are dropped. The engine
        stops feeding a peer at topology.worker.buffer.bytes; this limit lies behind that one."""
        return 8 * int(topology_conf.get("topology.worker.buffer.bytes") or 32 * 1024 * 1024)
