"""Distributed RPC over topologies: the server, its clients, and what topologies are made of.

from squall_drpc import DRPCClient, LinearDRPCTopologyBuilder
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall_drpc.client import AsyncDRPCClient as AsyncDRPCClient
    from squall_drpc.client import DRPCClient as DRPCClient
    from squall_drpc.client import DRPCError as DRPCError
    from squall_drpc.requests import Reason as Reason

# Each name with the module that has it, imported when it is first used: a worker needs no client,
# and a client no worker's parts.
_EXPORTS = {
    "AsyncDRPCClient": "client",
    "DRPCClient": "client",
    "DRPCError": "client",
    "Reason": "requests",
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
