"""The files of stateful bolts' states: where they are, which are needed, how large they are.

Batch N reads what N-1 left, and N may run again until N+1 begins. So when N is done, the files that
belong to neither N nor N-1 can go.
"""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass

from squall_common.config.options.typed import TopologyOptions
from squall_common.daemon.folders import Folder
from squall_common.names import encode_znode
from squall_common.topology.model import PythonObject
from squall_common.topology.serialization import Registry, load_class
from squall_engine.embed import value_codec
from squall_spark.plan import SparkPlan
from squall_spark.state.owner import CurrentOwner
from squall_spark.state.segment import Footer, read_footer
from squall_spark.state.store import SCRATCH, DurableState, file_name

_FILE = re.compile(r"(?P<batch>\d{12})\.\d+-\d+\.state")


def state_folder(checkpoint: str, component: str) -> Folder:
    return Folder(f"{checkpoint}/state/{encode_znode(component)}")


@dataclass(frozen=True, slots=True)
class StateAt:
    """Where the state of a component's tasks is, for one micro-batch. Sent to Spark's workers."""

    checkpoint: str
    component: str
    batch: int
    tasks: int
    tasks_before: int  # in the batch before; 0: there is no state yet
    max_parallelism: int = 128  # key groups
    now_secs: int = 0  # the time of the batch: when entries are put, and expire

    def open(self, plan: SparkPlan, index: int) -> tuple[DurableState, CurrentOwner]:
        """The state of a task after the previous batch, and what finds the owners of its entries
        once it follows the bolt. Raises StateDamagedError."""
        registry = Registry.of(TopologyOptions.read(plan.conf))
        component = plan.topology.components[self.component]
        owner = CurrentOwner(plan.topology, component, registry)
        state = DurableState(
            state_folder(self.checkpoint, self.component),
            value_codec(plan.topology, plan.conf, allow_pickle=False),
            batch=self.batch,
            task=index,
            tasks=self.tasks,
            tasks_before=self.tasks_before,
            max_parallelism=self.max_parallelism,
            now_secs=self.now_secs,
            ttl_secs=_ttl_secs(component.object),
            registry=registry,
            owner=owner,
        )
        return state, owner


def _ttl_secs(made_of: object) -> float | None:
    if not isinstance(made_of, PythonObject):
        return None
    ttl: float | None = getattr(load_class(made_of.class_path), "state_ttl_secs", None)
    return ttl


@dataclass(frozen=True, slots=True)
class StateSize:
    """The state of a component after a batch."""

    keys: int
    bound: int  # keys that belong to their task: the number of tasks cannot change
    size: int  # bytes, of all files
    names: frozenset[str]  # of these files

    @classmethod
    def of(cls, folder: Folder, batch: int, tasks: int) -> StateSize:
        """Raises StateDamagedError, FileNotFoundError."""
        names = [file_name(batch, task, tasks) for task in range(tasks)]
        return _size_of({name: read_footer(folder, name) for name in names})


def _size_of(footers: dict[str, Footer]) -> StateSize:
    sizes = {name: footer.size for name, footer in footers.items()}
    for footer in footers.values():
        sizes |= {older.name: older.size for older in footer.older}
    return StateSize(
        keys=sum(footer.keys for footer in footers.values()),
        bound=sum(footer.bound for footer in footers.values()),
        size=sum(sizes.values()),
        names=frozenset(sizes),
    )


def last_batch(checkpoint: str, components: Iterable[str]) -> int | None:
    """The newest batch that any of the states has a file of."""
    found = (
        int(match["batch"])
        for component in components
        for name in state_folder(checkpoint, component).names()
        if (match := _FILE.fullmatch(name)) is not None
    )
    return max(found, default=None)


def clean(folder: Folder, batch: int, needed: frozenset[str]) -> None:
    """Delete the files up to `batch` that are not needed. What cannot be deleted now is later."""
    for name in folder.names():
        match = _FILE.fullmatch(name)
        if match is not None and int(match["batch"]) <= batch and name not in needed:
            with contextlib.suppress(OSError):
                folder.delete(name)


def clean_scratch(folder: Folder) -> None:
    """Delete what a killed task left on its way to a file."""
    if folder.is_local:
        for name in folder.names():
            if name.startswith(SCRATCH):
                shutil.rmtree(f"{folder.url}/{name}", ignore_errors=True)
