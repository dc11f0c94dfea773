"""Squall: Apache Storm for Python. What users import.

from squall import Bolt, Spout, TopologyBuilder, submit_topology
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from squall.builder import TopologyBuilder as TopologyBuilder
    from squall.columns import Columns as Columns
    from squall.component import Bolt as Bolt
    from squall.component import ShellBolt as ShellBolt
    from squall.component import ShellSpout as ShellSpout
    from squall.component import Spout as Spout
    from squall.component import Stream as Stream
    from squall.context import TopologyContext as TopologyContext
    from squall.errors import ConfigError as ConfigError
    from squall.errors import InvalidTopologyError as InvalidTopologyError
    from squall.errors import NimbusError as NimbusError
    from squall.errors import PackageError as PackageError
    from squall.errors import SquallError as SquallError
    from squall.groupings import CustomGrouping as CustomGrouping
    from squall.local import LocalCluster as LocalCluster
    from squall.replaying import ReplayingSpout as ReplayingSpout
    from squall.state import KeyValueState as KeyValueState
    from squall.state import StatefulBolt as StatefulBolt
    from squall.submit import submit_topology as submit_topology
    from squall.tuples import Tuple as Tuple

# Each name with the module that has it, imported when it is first used: daemons import modules of
# this package all the time and need none of these.
_EXPORTS = {
    "Bolt": "component",
    "Columns": "columns",
    "ConfigError": "errors",
    "CustomGrouping": "groupings",
    "InvalidTopologyError": "errors",
    "KeyValueState": "state",
    "LocalCluster": "local",
    "NimbusError": "errors",
    "PackageError": "errors",
    "ReplayingSpout": "replaying",
    "ShellBolt": "component",
    "ShellSpout": "component",
    "Spout": "component",
    "SquallError": "errors",
    "StatefulBolt": "state",
    "Stream": "component",
    "TopologyBuilder": "builder",
    "TopologyContext": "context",
    "Tuple": "tuples",
    "submit_topology": "submit",
}

__all__ = sorted(_EXPORTS)


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'squall' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"squall.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
