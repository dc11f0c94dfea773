"""Distributed RPC over topologies: the server, its clients, and the parts of topologies.

from squall_drpc import DRPCClient, LinearDRPCTopologyBuilder
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall_drpc.batched.batch import BatchBolt as BatchBolt
    from squall_drpc.batched.batch import BatchBoltExecutor as BatchBoltExecutor
    from squall_drpc.batched.coordinated import AsyncCoordinatedBolt as AsyncCoordinatedBolt
    from squall_drpc.batched.coordinated import CoordinatedBolt as CoordinatedBolt
    from squall_drpc.batched.coordinated import FinishedCallback as FinishedCallback
    from squall_drpc.batched.coordinated import TimeoutCallback as TimeoutCallback
    from squall_drpc.batched.subtopology import BatchSubtopologyBuilder as BatchSubtopologyBuilder
    from squall_drpc.bolts import JoinResult as JoinResult
    from squall_drpc.bolts import PrepareRequest as PrepareRequest
    from squall_drpc.bolts import ReturnResults as ReturnResults
    from squall_drpc.client import AsyncDRPCClient as AsyncDRPCClient
    from squall_drpc.client import DRPCClient as DRPCClient
    from squall_drpc.client import DRPCError as DRPCError
    from squall_drpc.fair import KeyedFairBolt as KeyedFairBolt
    from squall_drpc.linear import LinearDRPCTopologyBuilder as LinearDRPCTopologyBuilder
    from squall_drpc.local import LocalDRPC as LocalDRPC
    from squall_drpc.local import drpc_client as drpc_client
    from squall_drpc.requests import Reason as Reason
    from squall_drpc.spout import DRPCSpout as DRPCSpout

# Each name with its module, which is imported on first use: a worker does not need a client, and a
# client does not need the parts of a worker.
_EXPORTS = {
    "AsyncCoordinatedBolt": "batched.coordinated",
    "AsyncDRPCClient": "client",
    "BatchBolt": "batched.batch",
    "BatchBoltExecutor": "batched.batch",
    "BatchSubtopologyBuilder": "batched.subtopology",
    "CoordinatedBolt": "batched.coordinated",
    "DRPCClient": "client",
    "DRPCError": "client",
    "DRPCSpout": "spout",
    "FinishedCallback": "batched.coordinated",
    "JoinResult": "bolts",
    "KeyedFairBolt": "fair",
    "LinearDRPCTopologyBuilder": "linear",
    "LocalDRPC": "local",
    "PrepareRequest": "bolts",
    "Reason": "requests",
    "ReturnResults": "bolts",
    "TimeoutCallback": "batched.coordinated",
    "drpc_client": "local",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'squall_drpc' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"squall_drpc.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
