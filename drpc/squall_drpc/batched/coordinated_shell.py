"""A shell bolt as a step of a linear DRPC topology.

The child works as it does anywhere; the worker feeds it and reads its commands (see
`squall_engine.multilang`). Coordination stands between the two: reports of the previous step never
reach the child, and everything that the child emits, acks and fails is counted. Like any other
step, the child has to emit the request's id as the first value.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from squall import ShellBolt, TopologyContext, Tuple
from squall_common.component.component import Outputs, ShellWrapper
from squall_drpc.batched.coordinated import Collector, CoordinatedBolt


class CoordinatedShellBolt(CoordinatedBolt, ShellWrapper):
    """Wraps a shell bolt of one step (see `LinearDRPCTopologyBuilder`)."""

    def __init__(
        self,
        command: str,
        script: str,
        outputs: Outputs,
        source: str | Mapping[str, bool] | None = None,
        *,
        all_report: bool = False,
        ticks: bool = False,
    ) -> None:
        """Like CoordinatedBolt. The rest of a ShellBolt is in the component's configuration."""
        self.shell = ShellBolt(command, script, outputs=outputs)
        self._set_up(self.shell, source, all_report=all_report, id_source=None, ticks=ticks)

    def _prepare_delegate(self, conf: Mapping[str, Any], context: TopologyContext) -> Any:
        return None  # the worker starts the child

    def cleanup(self) -> Any:
        return None  # and stops it

    def calls_of_child(self) -> Collector:
        return Collector(self)

    def admits(self, tup: Tuple) -> bool:
        return self._takes(tup)
