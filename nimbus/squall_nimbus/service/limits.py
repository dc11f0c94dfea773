"""How many bytes a call to Nimbus may have.

A call is decoded before the caller's intent is known, and decoding hostile bytes costs as much as
honest ones. So each method may have as many bytes as its honest calls need, and a few more; only
calls that carry packages and topologies may fill a frame (`nimbus.thrift.max_buffer_size`).
"""

from __future__ import annotations

from typing import Final

from squall_thrift.protocol.frames import FRAME_BYTES_MAX
from squall_thrift.serving.server import FrameLimits

# A rebalance with a configuration, for example.
_LARGER_BYTES_MAX: Final = 262_144
# A worker's heartbeat with its statistics, which ZooKeeper takes up to 1 MB of, and its executors;
# supervisors send smaller ones together, up to 128 KiB (`squall_common.client.reporting`).
_HEARTBEAT_BYTES_MAX: Final = 1_048_576

LIMITS: Final = FrameLimits(
    otherwise=65_536,
    by_method={
        **dict.fromkeys(
            (
                "submitTopology",
                "submitTopologyWithOpts",
                "uploadBlobChunk",
                "uploadChunk",
                "uploadChunkAt",
            ),
            FRAME_BYTES_MAX,
        ),
        **dict.fromkeys(
            (
                "processWorkerMetrics",
                "rebalance",  # with a configuration
                "uploadNewCredentials",
            ),
            _LARGER_BYTES_MAX,
        ),
        **dict.fromkeys(
            ("sendSupervisorWorkerHeartbeat", "sendSupervisorWorkerHeartbeats"),
            _HEARTBEAT_BYTES_MAX,
        ),
    },
)
