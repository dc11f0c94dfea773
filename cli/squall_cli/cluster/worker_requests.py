"""Requests to a single worker through Nimbus' setWorkerProfiler, and their outcome.

The worker's supervisor carries a request out and removes it; a failed request leaves an error of
the topology that begins with the request's file (`squall_supervisor.watch.profiling`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from squall_cli.cluster.nimbus import call_nimbus
from squall_common.config.options.typed import ClientOptions

if TYPE_CHECKING:
    from squall_thrift import storm


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """One request to one worker."""

    topology_id: str
    topology_name: str
    supervisor_id: str
    host: str
    port: int
    component: str  # one that runs there: Nimbus lists pending requests by component
    action: storm.ProfileAction
    file: str

    @property
    def worker(self) -> str:
        return f"{self.host}:{self.port}"


def send(
    client: ClientOptions, worker: Any, action: storm.ProfileAction, stamp_ms: int
) -> WorkerRequest:
    """Send a request to `worker` (a WorkerSummary; Any: Thrift has every field optional, Nimbus
    sets them). The stamp makes the request unique; a profile lasts until then."""
    from squall_thrift import storm

    node = storm.NodeInfo(node=worker.supervisor_id, port={worker.port})
    profile = storm.ProfileRequest(nodeInfo=node, action=action, time_stamp=stamp_ms)
    call_nimbus(client, "setWorkerProfiler", worker.topology_id, profile)
    file = {
        storm.ProfileAction.JPROFILE_START: f"flamegraph-{stamp_ms}.svg",
        storm.ProfileAction.SAMPLE_TASKS: f"samples-{stamp_ms}.txt",
        storm.ProfileAction.JSTACK_DUMP: f"stacks-{stamp_ms}.txt",
        storm.ProfileAction.JMAP_DUMP: f"heap-{stamp_ms}.txt",
        storm.ProfileAction.JVM_RESTART: f"restart-{stamp_ms}",
    }[action]
    return WorkerRequest(
        topology_id=worker.topology_id,
        topology_name=worker.topology_name,
        supervisor_id=worker.supervisor_id,
        host=worker.host,
        port=worker.port,
        component=min(worker.component_to_num_tasks or {"__system": 1}),
        action=action,
        file=file,
    )


def is_pending(client: ClientOptions, request: WorkerRequest) -> bool:
    """Whether the supervisor has neither carried it out nor refused it yet."""
    pending = call_nimbus(
        client,
        "getComponentPendingProfileActions",
        request.topology_id,
        request.component,
        request.action,
    )
    return any(
        one.nodeInfo.node == request.supervisor_id and request.port in one.nodeInfo.port
        for one in pending
    )


def failures(client: ClientOptions, topology_name: str) -> list[str]:
    """The latest errors of requests to workers of the topology, among other errors."""
    from squall_thrift import storm

    options = storm.GetInfoOptions(num_err_choice=storm.NumErrorsChoice.ALL)
    info = call_nimbus(client, "getTopologyInfoByNameWithOpts", topology_name, options)
    return [error.error for error in (info.errors or {}).get("__system", ())]


def reason_of(request: WorkerRequest, failures: list[str]) -> str | None:
    """Why the request failed, if it did."""
    head = f"{request.file} of worker {request.worker}: "
    return next((text.removeprefix(head) for text in failures if text.startswith(head)), None)
