"""The options of a topology and of its components, which may override some of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall_common.config.load import component_conf
from squall_common.config.options.typed import TopologyOptions
from squall_common.topology.model import Topology


class EngineOptions:
    """The options of one topology, read once, and those of each component, read at the first
    use. Raises ConfigError for values that are not valid."""

    def __init__(self, topology: Topology, conf: Mapping[str, Any]) -> None:
        """`conf` is the topology's configuration over the daemons'."""
        self.topology = TopologyOptions.read(conf)
        self._components = topology.components
        self._conf = conf
        self._of: dict[str, TopologyOptions] = {}

    def of(self, component: str) -> TopologyOptions:
        """The options of a component: its own over the topology's."""
        options = self._of.get(component)
        if options is None:
            own = self._components[component].conf
            options = self.topology
            if own:
                conf, where = component_conf(self._conf, own), f"component {component!r}"
                options = TopologyOptions.read(conf, where=where)
            self._of[component] = options
        return options
