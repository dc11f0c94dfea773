"""`python -m tests.support.dying_nimbus`: Nimbus that kills itself at one step of a submit, a kill
or a rebalance.

SQUALL_TEST_DIE names the step: `module:Class.method:before` or `:after`, of a submit unless `kill|`
or `rebalance|` stands before it. The product knows nothing of it: the method is wrapped here, in
this process only.
"""

from __future__ import annotations

import functools
import importlib
import os
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

# Every step of a submit that leaves something behind, in order.
STEPS = tuple(
    f"{method}:{moment}"
    for method in (
        "squall_nimbus.store.topology_store:TopologyStore.store",
        "squall_nimbus.blobs.replication:Replication._write_records",
        "squall_nimbus.blobs.replication:Replication._settle",
        "squall_common.cluster.state:ClusterState.create_topology",
        "squall_nimbus.scheduler.assigner:Assigner._carry_out",
        "squall_nimbus.topologies.submit:Submitter._start",
    )
    for moment in ("before", "after")
)
KILL_STEPS = tuple(
    f"kill|{method}:{moment}"
    for method in (
        "squall_nimbus.topologies.lifecycle_shell:LifecycleShell._carry_out",
        "squall_nimbus.topologies.cleanup:Cleanup.remove",
    )
    for moment in ("before", "after")
)
REBALANCE_STEPS = (
    "rebalance|squall_nimbus.topologies.lifecycle_shell:LifecycleShell._carry_out:before",
    "rebalance|squall_nimbus.topologies.lifecycle_shell:LifecycleShell._carry_out:after",
    "rebalance|squall_nimbus.store.topology_store:TopologyStore.store_conf:after",
    "rebalance|squall_nimbus.scheduler.assigner:Assigner._carry_out:before",
    "rebalance|squall_nimbus.scheduler.assigner:Assigner._carry_out:after",
)


def arm(step: str) -> None:
    """Wrap the method that `step` names. It strikes only once what it is a step of is under way."""
    module, path, moment = step.split(":")
    class_name, method_name = path.split(".")
    owner = getattr(importlib.import_module(module), class_name)
    method: Callable[..., Coroutine[Any, Any, Any]] = getattr(owner, method_name)

    @functools.wraps(method)
    async def dying(*args: Any, **kwargs: Any) -> Any:
        if moment == "before" and _under_way:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await method(*args, **kwargs)
        if _under_way:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method_name, dying)


_under_way: list[str] = []


def main() -> int:
    from squall_nimbus.daemon import main as nimbus

    what, _, step = os.environ["SQUALL_TEST_DIE"].rpartition("|")
    if what:
        _note_event(what)
    else:
        _note_submit()
    arm(step)
    return nimbus()


def _note_submit() -> None:
    from squall_nimbus.topologies.submit import Submitter

    submit = Submitter.submit

    async def noted(self: Submitter, submission: Any) -> str:
        _under_way.append(submission.name)
        return await submit(self, submission)

    Submitter.submit = noted  # type: ignore[method-assign]


def _note_event(what: str) -> None:
    """`what`: "kill" or "rebalance"."""
    from squall_nimbus.topologies.lifecycle_shell import LifecycleShell

    handle = LifecycleShell.handle

    async def noted(self: LifecycleShell, name: str, event: Any) -> None:
        if type(event).__name__.lower() == what:
            _under_way.append(name)
        await handle(self, name, event)

    LifecycleShell.handle = noted  # type: ignore[method-assign]


if __name__ == "__main__":
    sys.exit(main())
