"""Squall: Apache Storm for Python. This package holds everything that topologies import.

from squall import Bolt, Spout, TopologyBuilder, submit_topology
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall._builder import TopologyBuilder as TopologyBuilder
    from squall._submit import submit_topology as submit_topology
    from squall.local import LocalCluster as LocalCluster
    from squall.streams.builder import StreamBuilder as StreamBuilder
    from squall.windows.bolt import AggregateBolt as AggregateBolt
    from squall.windows.bolt import WindowedBolt as WindowedBolt
    from squall.windows.tuple_window import TupleWindow as TupleWindow
    from squall_common.component.columns.arrow import ArrowBolt as ArrowBolt
    from squall_common.component.columns.columns import Columns as Columns
    from squall_common.component.columns.fan_out import FanOut as FanOut
    from squall_common.component.component import Bolt as Bolt
    from squall_common.component.component import ShellBolt as ShellBolt
    from squall_common.component.component import ShellSpout as ShellSpout
    from squall_common.component.component import Spout as Spout
    from squall_common.component.component import Stream as Stream
    from squall_common.component.context import TopologyContext as TopologyContext
    from squall_common.component.context import WorkerTopologyContext as WorkerTopologyContext
    from squall_common.component.delivery.replaying import ReplayingSpout as ReplayingSpout
    from squall_common.component.delivery.rewinding import RewindableSpout as RewindableSpout
    from squall_common.component.delivery.transactional import RowBatch as RowBatch
    from squall_common.component.delivery.transactional import (
        TransactionalSink as TransactionalSink,
    )
    from squall_common.component.groupings import CustomGrouping as CustomGrouping
    from squall_common.component.hooks import TaskHook as TaskHook
    from squall_common.component.hooks import WorkerHook as WorkerHook
    from squall_common.component.state import CounterState as CounterState
    from squall_common.component.state import KeyValueState as KeyValueState
    from squall_common.component.state import ListState as ListState
    from squall_common.component.stateful import StatefulBolt as StatefulBolt
    from squall_common.component.tuples import Tuple as Tuple
    from squall_common.errors import ConfigError as ConfigError
    from squall_common.errors import IdentityTokenError as IdentityTokenError
    from squall_common.errors import InvalidTopologyError as InvalidTopologyError
    from squall_common.errors import NimbusError as NimbusError
    from squall_common.errors import PackageError as PackageError
    from squall_common.errors import SquallError as SquallError

# The module that defines each name. A module is imported when one of its names is first used: a
# component needs neither the client nor local mode.
_EXPORTS = {
    "ArrowBolt": "squall_common.component.columns.arrow",
    "AggregateBolt": "squall.windows.bolt",
    "Bolt": "squall_common.component.component",
    "Columns": "squall_common.component.columns.columns",
    "ConfigError": "squall_common.errors",
    "CounterState": "squall_common.component.state",
    "CustomGrouping": "squall_common.component.groupings",
    "FanOut": "squall_common.component.columns.fan_out",
    "IdentityTokenError": "squall_common.errors",
    "InvalidTopologyError": "squall_common.errors",
    "KeyValueState": "squall_common.component.state",
    "ListState": "squall_common.component.state",
    "LocalCluster": "squall.local",
    "NimbusError": "squall_common.errors",
    "PackageError": "squall_common.errors",
    "ReplayingSpout": "squall_common.component.delivery.replaying",
    "RewindableSpout": "squall_common.component.delivery.rewinding",
    "RowBatch": "squall_common.component.delivery.transactional",
    "ShellBolt": "squall_common.component.component",
    "ShellSpout": "squall_common.component.component",
    "Spout": "squall_common.component.component",
    "SquallError": "squall_common.errors",
    "StatefulBolt": "squall_common.component.stateful",
    "Stream": "squall_common.component.component",
    "StreamBuilder": "squall.streams.builder",
    "TaskHook": "squall_common.component.hooks",
    "TopologyBuilder": "squall._builder",
    "TopologyContext": "squall_common.component.context",
    "TransactionalSink": "squall_common.component.delivery.transactional",
    "Tuple": "squall_common.component.tuples",
    "TupleWindow": "squall.windows.tuple_window",
    "WindowedBolt": "squall.windows.bolt",
    "WorkerHook": "squall_common.component.hooks",
    "WorkerTopologyContext": "squall_common.component.context",
    "submit_topology": "squall._submit",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'squall' has no attribute {name!r}")
    value = getattr(importlib.import_module(module), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
