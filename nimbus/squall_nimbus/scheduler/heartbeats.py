"""The last heartbeat of each worker that reports to this Nimbus, while it leads.

Workers report over Thrift, most of them through their supervisors. Nothing of that is stored; but
the leader writes who reports into one small node a topology, at most once in `WRITE_SECS`, so that
the next leader knows which workers have been launched (see `monitor`). Workers that do not reach
Nimbus, and those of older versions, write their heartbeats to ZooKeeper: readers get both
(`merged`), and a node that its worker no longer writes is removed (`superseded`).

Who may report: a heartbeat counts for executors that are assigned to the slot that it names, and a
worker that was replaced on its slot is not listened to (its *run* is older), unless its successor
has been silent for a while: a made-up run must not silence a worker forever. A heartbeat may unfold
to a size that follows from the number of its executors; without that room, only its signs of life
count.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Set
from dataclasses import dataclass, field

from squall_common.cluster import codec, paths
from squall_common.cluster.codec import UNZIPPED_BYTES_MAX, CorruptStateError, plain_size
from squall_common.cluster.slot_reports import digest
from squall_common.cluster.state import UndecodedBeat
from squall_common.cluster.values import (
    Assignment,
    HeardWorker,
    SumsReport,
    TopologyHeartbeats,
    WorkerEnd,
    WorkerReport,
)
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.telemetry.sums import SUMS_BYTES_MAX
from squall_common.topology.model import WorkerSlot
from squall_nimbus.scheduler.monitor import Beats, Monitor
from squall_thrift.serving.off_loop import off_loop_if
from squall_thrift.serving.throttle import Throttle

log = get_logger(__name__)

# At most this often a topology's node is written.
WRITE_SECS = 30.0
# A heartbeat that came over Thrift is the one to show, whatever is in ZooKeeper.
_FRESH_SECS = 10.0
# How large a heartbeat may be, unfolded. Four windows of a bolt with a few inputs take 12 KB.
_PLAIN_BYTES = 256 * 1024
_PLAIN_BYTES_A_EXECUTOR = 128 * 1024
# Reading the end of sources in heartbeats of this size, unfolded, takes some 10 ms at worst: they
# are decoded as a whole.
_END_BYTES_ON_LOOP_MAX = 100_000
# Of the sums of one topology, of which each worker has an equal share: some 100 bytes a component.
TOPOLOGY_SUMS_BYTES_MAX = 16 * 1024 * 1024


@dataclass(slots=True)
class _Heard:
    """The last report from a slot, and when it came (monotonic seconds)."""

    report: WorkerReport
    digest: int  # of its executors
    at: float
    sums: bytes | None = None
    sums_at: float = float("-inf")
    end: WorkerEnd | None = None  # what it says about the end of its sources, once it was read

    def read_end(self) -> None:
        """Off the loop, too: nothing else is written."""
        try:
            beat = self.report.heartbeat
            self.end = codec.decode_worker_end("", beat) if beat else WorkerEnd()
        except CorruptStateError:  # its worker writes another within seconds
            self.end = WorkerEnd()


@dataclass(frozen=True, slots=True)
class ReportedEnd:
    """What a worker reported last about the end of its sources, and how long ago."""

    age_secs: float
    end: WorkerEnd


@dataclass(slots=True)
class _OfTopology:
    workers: dict[WorkerSlot, _Heard] = field(default_factory=dict)
    nodes: dict[WorkerSlot, tuple[int, float]] = field(default_factory=dict)  # zxid, first seen
    written_at: float = float("-inf")
    heard_since: bool = False  # something was heard since it was written


def plain_bytes_max(executors: int) -> int:
    """How large a heartbeat of this many executors may be, unfolded."""
    return min(_PLAIN_BYTES + _PLAIN_BYTES_A_EXECUTOR * executors, UNZIPPED_BYTES_MAX)


class Heartbeats:
    """`now` is monotonic seconds, as the monitor's."""

    def __init__(self, monitor: Monitor) -> None:
        self._monitor = monitor
        self._topologies: dict[str, _OfTopology] = {}
        self._throttle = Throttle()

    def take(self, report: WorkerReport, now: float) -> bool:
        """Take in a report. Returns whether any of its executors is assigned to its slot; if not,
        it changes nothing."""
        of_topology = self._topologies.get(report.topology_id)
        before = None if of_topology is None else of_topology.workers.get(report.slot)
        if before is not None and report.run < before.report.run and now - before.at < _FRESH_SECS:
            return False
        if not self._monitor.heard(
            report.topology_id,
            report.slot.node,
            report.executors,
            report.time_secs,
            now,
            port=report.slot.port,
        ):
            return False
        if of_topology is None:
            of_topology = self._topologies[report.topology_id] = _OfTopology()
        same = before is not None and before.report.executors == report.executors
        executors_digest = before.digest if same and before else digest(report.executors)
        heard = _Heard(self._bounded(report), executors_digest, now)
        if before is not None and before.report.run == report.run:
            heard.sums, heard.sums_at = before.sums, before.sums_at
        of_topology.workers[report.slot] = heard
        of_topology.heard_since = True
        return True

    def take_sums(self, report: SumsReport, now: float) -> bool:
        """Take in the sums by component of a worker whose heartbeat was taken in, for pages alone:
        they are no sign of life. Returns whether they were; those of another run change nothing,
        and instead of too many bytes there are none."""
        of_topology = self._topologies.get(report.topology_id)
        heard = None if of_topology is None else of_topology.workers.get(report.slot)
        if (
            of_topology is None
            or heard is None
            or heard.report.run != report.run
            or report.sums is None
        ):
            return False
        share = TOPOLOGY_SUMS_BYTES_MAX // len(of_topology.workers)
        if len(report.sums) > min(SUMS_BYTES_MAX, share):
            heard.sums = None
            return False
        heard.sums, heard.sums_at = report.sums, now
        return True

    def sums(self, topology_id: str, now: float) -> list[SumsReport]:
        """The last sums of each worker; None of one that reported none lately."""
        return [
            SumsReport(
                topology_id,
                slot,
                heard.report.run,
                heard.sums if now - heard.sums_at < _FRESH_SECS else None,
            )
            for slot, heard in self._of(topology_id).workers.items()
        ]

    def _bounded(self, report: WorkerReport) -> WorkerReport:
        """The report, without a heartbeat that unfolds to too much."""
        size = plain_size(report.heartbeat)
        if size <= plain_bytes_max(len(report.executors)):
            return report
        left_out = self._throttle.left_out(report.topology_id)
        if left_out is not None:
            log.warning(
                "statistics_too_large",
                topology_id=report.topology_id,
                slot=report.slot,
                bytes=size,
                left_out=left_out,
            )
        return WorkerReport(
            report.topology_id, report.slot, report.executors, report.time_secs, report.run, b""
        )

    def reports(self, topology_id: str) -> list[WorkerReport]:
        """The last report of each worker."""
        return [one.report for one in self._of(topology_id).workers.values()]

    async def ends(
        self, topology_ids: Collection[str], clock: Clock
    ) -> dict[str, dict[WorkerSlot, ReportedEnd]]:
        """What the last report of each worker says about the end of its sources, by topology. A
        report is read once, when this is asked for the first time."""
        unread = [
            heard
            for topology_id in topology_ids
            for heard in self._of(topology_id).workers.values()
            if heard.end is None
        ]
        size = sum(plain_size(one.report.heartbeat) for one in unread)
        await off_loop_if(size > _END_BYTES_ON_LOOP_MAX, _read_ends, unread)
        now = clock.monotonic()
        return {
            topology_id: {
                slot: ReportedEnd(now - heard.at, heard.end)
                for slot, heard in self._of(topology_id).workers.items()
                if heard.end is not None  # one that came meanwhile is read the next time
            }
            for topology_id in topology_ids
        }

    def merged(
        self, topology_id: str, nodes: Mapping[WorkerSlot, UndecodedBeat], now: float
    ) -> dict[WorkerSlot, UndecodedBeat]:
        """The newest heartbeat of each worker: as reported, or as in ZooKeeper (`nodes`)."""
        found = dict(nodes)
        for slot, heard in self._of(topology_id).workers.items():
            if heard.report.heartbeat and (slot not in found or now - heard.at < _FRESH_SECS):
                found[slot] = UndecodedBeat(
                    paths.workerbeat(topology_id, slot), heard.report.heartbeat, now - heard.at
                )
        return found

    def superseded(self, topology_id: str, nodes: Beats, now: float) -> set[WorkerSlot]:
        """Of the heartbeats in ZooKeeper, those that did not change while their workers reported
        over Thrift. Called in each round with all that there are."""
        of_topology = self._topologies.get(topology_id)
        if of_topology is None:
            return set()  # no worker of it reports
        known = of_topology.nodes
        of_topology.nodes = {
            slot: (zxid, known[slot][1] if known.get(slot, (None,))[0] == zxid else now)
            for slot, (_, zxid) in nodes.items()
        }
        return {
            slot
            for slot, (_, since) in of_topology.nodes.items()
            if since < now
            and (heard := of_topology.workers.get(slot)) is not None
            and heard.at > since
        }

    def keep(self, topology_id: str, slots: Set[WorkerSlot]) -> None:
        """Forget the workers of other slots."""
        of_topology = self._of(topology_id)
        for slot in of_topology.workers.keys() - slots:
            del of_topology.workers[slot]

    def forget_others(self, topology_ids: Set[str]) -> None:
        """Forget the topologies that are not among these."""
        for topology_id in self._topologies.keys() - topology_ids:
            del self._topologies[topology_id]

    def clear(self) -> None:
        """Another Nimbus leads: nothing is known any more."""
        self._topologies.clear()

    def due(self, topology_id: str, time_secs: int, now: float) -> TopologyHeartbeats | None:
        """What is to be written about a topology now, or None."""
        of_topology = self._of(topology_id)
        if not of_topology.heard_since or now - of_topology.written_at < WRITE_SECS:
            return None
        of_topology.written_at, of_topology.heard_since = now, False
        return TopologyHeartbeats(
            time_secs,
            tuple(
                HeardWorker(slot, heard.digest, int(now - heard.at), heard.report.run)
                for slot, heard in sorted(of_topology.workers.items())
            ),
        )

    def _of(self, topology_id: str) -> _OfTopology:
        return self._topologies.get(topology_id) or _OfTopology()


def _read_ends(some: Iterable[_Heard]) -> None:
    for one in some:
        one.read_end()


def launched(written: TopologyHeartbeats, assignment: Assignment) -> set[WorkerSlot]:
    """The slots whose workers reported to the last leader with the executors that they have now."""
    digests = {one.slot: one.executors for one in written.workers}
    return {
        slot
        for slot, executors in assignment.slots().items()
        if digests.get(slot) == digest(executors)
    }
