"""`python -m tests.support.dying_nimbus`: Nimbus that kills itself at one step of a submit.

SQUALL_TEST_DIE names the step: `module:Class.method:before` or `:after`. The product knows nothing
of it: the method is wrapped here, in this process only.
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
        "squall_nimbus.catalog:Catalog.store",
        "squall_nimbus.replication:Replication._write_records",
        "squall_nimbus.replication:Replication._settle",
        "squall.cluster.state:ClusterState.create_topology",
        "squall_nimbus.assigner:Assigner._carry_out",
        "squall_nimbus.submit:Submitter._start",
    )
    for moment in ("before", "after")
)


def arm(step: str) -> None:
    """Wrap the method that `step` names. It strikes only once a submit is under way."""
    module, path, moment = step.split(":")
    class_name, method_name = path.split(".")
    owner = getattr(importlib.import_module(module), class_name)
    method: Callable[..., Coroutine[Any, Any, Any]] = getattr(owner, method_name)

    @functools.wraps(method)
    async def dying(*args: Any, **kwargs: Any) -> Any:
        if moment == "before" and _submitting:
            os.kill(os.getpid(), signal.SIGKILL)
        result = await method(*args, **kwargs)
        if _submitting:
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, method_name, dying)


_submitting: list[str] = []


def main() -> int:
    from squall_nimbus.daemon import main as nimbus
    from squall_nimbus.submit import Submitter

    submit = Submitter.submit

    async def noted(self: Submitter, submission: Any) -> str:
        _submitting.append(submission.name)
        return await submit(self, submission)

    Submitter.submit = noted  # type: ignore[method-assign]
    arm(os.environ["SQUALL_TEST_DIE"])
    return nimbus()


if __name__ == "__main__":
    sys.exit(main())
