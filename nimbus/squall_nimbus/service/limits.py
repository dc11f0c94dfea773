"""How many bytes a call of Nimbus may have.

A call is decoded before anything is known of its caller's intent, and decoding costs the same for
honest bytes and others. So each method has what its honest calls need, and a little more; only what
carries packages and topologies may have a whole frame (`nimbus.thrift.max_buffer_size`).
"""

from __future__ import annotations

from typing import Final

from squall_thrift.frames import FRAME_BYTES_MAX
from squall_thrift.server import FrameLimits

# A heartbeat has 15 bytes for each executor: 10,000 executors on one supervisor, and some more.
_HEARTBEAT_BYTES_MAX: Final = 262_144

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
                "sendSupervisorWorkerHeartbeat",
                "sendSupervisorWorkerHeartbeats",
                "uploadNewCredentials",
            ),
            _HEARTBEAT_BYTES_MAX,
        ),
    },
)
