"""The settings of an embedded engine, and the callbacks through which it reports. See `embed`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from squall_common.outside.held import HeldTokens
from squall_common.topology.arguments import instantiate
from squall_common.topology.model import Component, Executor, PythonObject, WorkerSlot
from squall_common.topology.prepared import PreparedTopology
from squall_engine.loading import make_user_object

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

    from squall_common.component.state import KeyValueState
    from squall_engine.epochs.parts import EpochSettings


@dataclass(frozen=True, kw_only=True)
class EngineSettings:
    """What an engine runs, and as which worker."""

    prepared: PreparedTopology
    topology_id: str
    slot: WorkerSlot  # its own
    executors: Sequence[Executor]  # of this worker
    daemon_conf: Mapping[str, Any] = field(default_factory=dict)  # beneath the topology's
    near: frozenset[int] = frozenset()
    """Tasks elsewhere that local-or-shuffle groupings treat like those of this worker."""
    seed: int | None = None  # makes ids and shuffles repeatable; None: from os.urandom
    code_dir: Path | None = None  # the unpacked package
    pid_dir: Path | None = None  # where shell components note their children
    log_dir: Path | None = None  # for dead letters that no bolt consumes; None: only the log
    worker: str = ""  # host:port, named in reasons of failures; "": the slot
    epochs: EpochSettings | None = None  # with topology.checkpoint.interval.secs
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    identity_tokens: HeldTokens = field(default_factory=HeldTokens)  # for foreign parties
    marks: bool = True  # of event time; False: whoever drives the windows knows how far it is
    tracer_provider: TracerProvider | None = None  # OpenTelemetry's; None: no tuple is traced

    @cached_property
    def conf(self) -> Mapping[str, Any]:
        """The topology's configuration over the daemons'."""
        return {**self.daemon_conf, **self.prepared.conf}


def _ignore(*_: object) -> None:
    """The default of callbacks that an embedder does not need."""


def _always() -> bool:
    return True


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCallbacks:
    """The functions that an engine calls, all but `on_reported` on its event loop."""

    on_reported: Callable[[str, int, BaseException], None] | None = None
    """(component, task, error): an error of a component, whatever its cause; from any thread. The
    callee has to limit how many it passes on. None: errors are only logged."""
    on_fatal: Callable[[BaseException], None] | None = None
    """(error), once: the engine takes no more turns, because of `topology.bolt.die.on.error` or a
    fault of its own. A worker process then exits with a status other than 0. None: logged."""
    on_rejected: Callable[[str, int, Exception], None] = _ignore
    """(component, task, error): a tuple could not be delivered. The error is reported as well."""
    on_asking_raised: Callable[[str, int, BaseException], None] = _ignore
    """(component, task, error): a spout's next_tuple raised; from its thread if it has one. The
    error is reported as well, and the spout is asked again later."""
    may_turn: Callable[[], bool] = _always
    """Called before each turn. Once it returns False, turns are put off until `resume`."""
    make_object: Callable[[Component, int], Any] = make_user_object
    """(component, task): creates a user's spout or bolt. Raises ComponentStartError."""
    make_hook: Callable[[PythonObject], Any] = instantiate
    """(description): creates a worker hook. Raises what its constructor raises."""
    wrap_collector: Callable[[str, Any], Any] | None = None
    """(component, collector): the collector, a spout's or a bolt's, to which the component is bound
    in place of the given one, whose calls it must make. None: the given one."""
    open_state: Callable[[str, int], KeyValueState | None] | None = None
    """(component, task): the state of a StatefulBolt. None: in memory."""
