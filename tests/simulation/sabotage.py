"""Bugs put into the product on purpose: what the simulation must find.

Each is a context manager that breaks one thing in this process. A bug that no seed finds would mean
that the simulation looks away.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest import mock

from tests.simulation.disk import Disk
from tests.simulation.machine import SimMachine
from tests.simulation.network import SimAlone

from squall_common.client.reporting import ReportSender, Way
from squall_common.cluster.leader import Leadership
from squall_engine.acking.coordinator import AckCoordinator
from squall_engine.core.sections import parse_acks
from squall_engine.core.values import Outcome
from squall_nimbus.scheduler.assigner import Assigner
from squall_nimbus.scheduler.monitor import Monitor
from squall_supervisor.node.isolation import Isolation
from squall_supervisor.records.processes import ProcessIdentity
from squall_worker.cluster.placement import Ownership
from squall_worker.transport.link import Link


@contextlib.contextmanager
def missing_fence() -> Iterator[None]:
    """A leader's writes no longer check that nobody else has won, nor that it heard of ZooKeeper
    lately."""

    async def unfenced(self: Leadership, ops: Sequence[Any]) -> None:
        if ops:
            await self._store.transaction(ops)

    with (
        mock.patch.object(Leadership, "transaction", unfenced),
        mock.patch.object(Leadership, "active", lambda self, now: not self._ended),
    ):
        yield


@contextlib.contextmanager
def early_ack() -> Iterator[None]:
    """An acker completes a tree as soon as another worker tells it of one."""

    def receive_acks(self: AckCoordinator, section: bytes) -> None:
        done: dict[int, list[int]] = {}
        for root, task in parse_acks(section).inits.items():
            done.setdefault(task, []).append(root)
        self._notify(Outcome(done=done))

    with mock.patch.object(AckCoordinator, "receive_acks", receive_acks):
        yield


@contextlib.contextmanager
def dropped_acks() -> Iterator[None]:
    """Acks from other workers are dropped."""
    with mock.patch.object(AckCoordinator, "receive_acks"):
        yield


@contextlib.contextmanager
def no_grant() -> Iterator[None]:
    """Nimbus counts the time in which it saw nothing."""

    def resume(self: Monitor, now: float) -> None:
        self._granted_at = float("-inf")

    def pause(self: Monitor) -> None:
        pass

    with (
        mock.patch.object(Monitor, "resume", resume),
        mock.patch.object(Monitor, "pause", pause),
        mock.patch.object(Assigner, "_begin_term"),
    ):
        yield


@contextlib.contextmanager
def no_report_alone() -> Iterator[None]:
    """A worker leaves its reports to a supervisor that is dead."""
    with mock.patch.object(SimAlone, "send"):
        yield


@contextlib.contextmanager
def no_way_around() -> Iterator[None]:
    """Reports that Nimbus does not take are lost."""

    async def nowhere(self: ReportSender, reports: Any) -> Way:
        return Way.NOWHERE

    with mock.patch.object(ReportSender, "_to_zookeeper", nowhere):
        yield


@contextlib.contextmanager
def adoption_by_pid() -> Iterator[None]:
    """A worker is known by the number of its process alone."""

    def process_of(self: SimMachine, identity: ProcessIdentity) -> Any:
        return self._host.processes.get(identity.pid)

    def lives(self: SimMachine, identity: ProcessIdentity) -> bool:
        return identity.pid in self._host.processes

    def opened(self: SimMachine, identity: ProcessIdentity, **more: Any) -> Any:
        process = self._host.processes.get(identity.pid)
        if process is None:
            return None
        return real(self, self._host.identity(process), **more)

    real = SimMachine.open
    with (
        mock.patch.object(SimMachine, "lives", lives),
        mock.patch.object(SimMachine, "open", opened),
    ):
        yield


@contextlib.contextmanager
def no_isolation() -> Iterator[None]:
    """A node that is cut off runs on."""
    with mock.patch.object(Isolation, "probed"):
        yield


@contextlib.contextmanager
def no_self_stop() -> Iterator[None]:
    """A worker goes on although its slot is another's."""
    with mock.patch.object(Ownership, "deadline", property(lambda self: float("inf"))):
        yield


@contextlib.contextmanager
def forgetful_link() -> Iterator[None]:
    """What a peer reports missing is not sent again."""
    with mock.patch.object(Link, "_resend"):
        yield


@contextlib.contextmanager
def skipped_fsync() -> Iterator[None]:
    """Files are renamed into their place before they are on the disk."""
    with mock.patch.object(Disk, "skip_fsync", True):
        yield


BUGS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "missing fence": missing_fence,
    "no grant": no_grant,
    "no report alone": no_report_alone,
    "no way around": no_way_around,
    "adoption by pid": adoption_by_pid,
    "no isolation": no_isolation,
    "no self-stop": no_self_stop,
    "forgetful link": forgetful_link,
    "early ack": early_ack,
    "dropped acks": dropped_acks,
    "skipped fsync": skipped_fsync,
}
