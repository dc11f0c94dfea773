"""Reads the cluster to answer calls: topologies with their assignments, heartbeats and errors."""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace

from squall_common.cluster.state import ClusterState, UndecodedBeat
from squall_common.cluster.values import Assignment, ErrorInfo, StormBase, SupervisorInfo
from squall_common.daemon.clock import Clock
from squall_common.errors import SquallError
from squall_common.names import code_blob_key
from squall_common.topology.model import WorkerSlot
from squall_nimbus.all_topologies import read_topologies
from squall_nimbus.blobs.store import BlobNotFoundError
from squall_nimbus.leader import LeaderElector
from squall_nimbus.scheduler.heartbeats import ReportedEnd
from squall_nimbus.store.topology_store import StoredTopology, TopologyStore
from squall_nimbus.topologies.lifecycle_shell import TopologyNotAliveError
from squall_nimbus.views import rest, views
from squall_nimbus.views.health import Slots
from squall_nimbus.views.views import TopologyView
from squall_thrift import storm
from squall_thrift.serving.off_loop import off_loop_if

Ends = Callable[[Collection[str]], Awaitable[Mapping[str, Mapping[WorkerSlot, ReportedEnd]]]]


class Errors(enum.Enum):
    """How many errors of each component are wanted."""

    ALL = "all"
    ONE = "one"
    NONE = "none"


class ClusterReader:
    """Every call reads again."""

    def __init__(
        self,
        state: ClusterState,
        topology_store: TopologyStore,
        leader_elector: LeaderElector,
        *,
        beats: Callable[[str], Awaitable[Mapping[WorkerSlot, UndecodedBeat]]],
        ends: Ends,
        finished_by_leader: Callable[[], Awaitable[Mapping[str, bool]]],
        copies: Callable[[str], Awaitable[int]],
        clock: Clock,
    ) -> None:
        """`beats` returns the last heartbeats of a topology's workers, `ends` what they say about
        the end of their sources, of many topologies, `finished_by_leader` what another Nimbus that
        leads makes of that, `copies` how many Nimbus nodes have a blob."""
        self.ends = ends
        self._finished_by_leader = finished_by_leader
        self._state = state
        self._topology_store = topology_store
        self._leader_elector = leader_elector
        self._beats = beats
        self._copies = copies
        self._clock = clock

    async def base(self, topology_id: str) -> StormBase:
        """Return a live topology's StormBase. Raises TopologyNotAliveError."""
        # An id is the name of one znode: anything else cannot be an id.
        base = None
        if topology_id and "/" not in topology_id and "\x00" not in topology_id:
            base = await self._state.storm_base(topology_id)
        if base is None:
            raise TopologyNotAliveError(topology_id)
        return base

    async def stored(self, topology_id: str) -> StoredTopology:
        """Return a live topology's code. Raises TopologyNotAliveError, and SquallError if this
        Nimbus does not have it."""
        await self.base(topology_id)
        await self._topology_store.have([topology_id], retry=True)
        try:
            return self._topology_store.get(topology_id)
        except BlobNotFoundError:
            await self._leader_elector.require()  # another Nimbus has it: name that one
            raise SquallError(f"Nimbus does not have the code of {topology_id}") from None

    async def summary(self, topology_id: str) -> storm.TopologySummary:
        """Return the summary of one topology. Raises TopologyNotAliveError."""
        base = await self.base(topology_id)
        return (await self._summaries({topology_id: base}))[0]

    async def summaries(self) -> list[storm.TopologySummary]:
        """Return the summaries of all topologies, oldest first."""
        return await self._summaries((await read_topologies(self._state)).bases)

    async def _summaries(self, bases: Mapping[str, StormBase]) -> list[storm.TopologySummary]:
        """Assignments are read after `bases`, so that a topology that has just been assigned does
        not look unassigned."""
        assignments, supervisors = await asyncio.gather(
            self.assignments(), self._state.supervisors()
        )
        slots = Slots.of(supervisors, assignments.values(), self._clock.time())
        copies = await asyncio.gather(*(self._copies(code_blob_key(i)) for i in bases))
        views_of_all = [
            self._view(i, base, assignments.get(i), count)
            for (i, base), count in zip(bases.items(), copies, strict=True)
        ]
        finished = await self._finished(bases, assignments)

        def summaries() -> list[storm.TopologySummary]:
            return [
                views.topology_summary(view, slots, finished.get(view.id)) for view in views_of_all
            ]

        return await off_loop_if(views.are_large(assignments.values()), summaries)

    async def finished_topologies(self) -> dict[str, bool]:
        """Whether topologies have finished, of those of which it is known, by id; as reported to
        this Nimbus, which leads."""
        bases = (await read_topologies(self._state)).bases
        return await self._finished_as_reported(bases, await self.assignments())

    async def finished(self, topology_id: str, as_reported: bool | None) -> bool | None:
        """What a page says of one topology, from `as_reported`, which is what follows from the
        reports that this Nimbus has."""
        if self._leader_elector.leading:
            return as_reported
        return (await self._finished_by_leader()).get(topology_id)

    async def _finished(
        self, bases: Mapping[str, StormBase], assignments: Mapping[str, Assignment]
    ) -> Mapping[str, bool]:
        if self._leader_elector.leading:
            return await self._finished_as_reported(bases, assignments)
        return await self._finished_by_leader()

    async def _finished_as_reported(
        self, bases: Mapping[str, StormBase], assignments: Mapping[str, Assignment]
    ) -> dict[str, bool]:
        ends = await self.ends(bases)
        none = Assignment("")

        def finished() -> dict[str, bool]:
            found = {
                i: rest.has_finished_as_reported(base, assignments.get(i) or none, ends.get(i, {}))
                for i, base in bases.items()
            }
            return {i: one for i, one in found.items() if one is not None}

        return await off_loop_if(views.are_large(assignments.values()), finished)

    def _view(
        self,
        topology_id: str,
        base: StormBase,
        assignment: Assignment | None,
        copies: int | None = None,
    ) -> TopologyView:
        stored = None
        try:
            stored = self._topology_store.get(topology_id)
        except (BlobNotFoundError, SquallError):
            pass
        now = int(self._clock.time())
        return TopologyView(topology_id, base, assignment, now, stored, replication_count=copies)

    async def view(self, topology_id: str, errors: Errors = Errors.ALL) -> TopologyView:
        """Return everything about a topology, with its code. Raises TopologyNotAliveError,
        SquallError."""
        stored = await self.stored(topology_id)
        base, found, beats, reported, copies = await asyncio.gather(
            self.base(topology_id),
            self._state.assignment(topology_id),
            self._beats(topology_id),
            self._errors(stored, errors),
            self._copies(code_blob_key(topology_id)),
        )
        return TopologyView(
            topology_id,
            base,
            found[0] if found else None,
            int(self._clock.time()),
            stored,
            beats,
            reported,
            copies,
        )

    async def _errors(
        self, stored: StoredTopology, wanted: Errors
    ) -> Mapping[str, Sequence[ErrorInfo]]:
        """Return errors by component; one without errors has an empty list, as in Storm."""
        components = sorted(stored.compiled.components)
        found: dict[str, Sequence[ErrorInfo]] = dict.fromkeys(components, ())
        if wanted is Errors.ALL:
            found.update(await self._state.all_errors(stored.id))
        elif wanted is Errors.ONE:
            last = await asyncio.gather(*(self._state.last_error(stored.id, c) for c in components))
            found.update({c: (one,) for c, one in zip(components, last, strict=True) if one})
        return found

    async def assignments(self) -> dict[str, Assignment]:
        """Return all assignments by topology id."""
        found = await self._state.all_assignments()
        return {topology_id: assignment for topology_id, (assignment, _) in found.items()}

    async def supervisors(self) -> dict[str, SupervisorInfo]:
        """Return the connected supervisors, by id."""
        return await self._state.supervisors()

    async def supervisor_summaries(self) -> dict[str, storm.SupervisorSummary]:
        """Return the summaries of the connected supervisors, by id."""
        supervisors, assignments = await asyncio.gather(self.supervisors(), self.assignments())
        large = views.are_large(assignments.values())
        return await off_loop_if(
            large, views.supervisor_summaries, supervisors, assignments.values()
        )

    async def view_without_errors(self, topology_id: str) -> TopologyView:
        """Return a topology with its heartbeats; without its code if this Nimbus lacks it."""
        base, found, beats = await asyncio.gather(
            self.base(topology_id),
            self._state.assignment(topology_id),
            self._beats(topology_id),
        )
        view = self._view(topology_id, base, found[0] if found else None)
        return replace(view, beats=beats)

    async def leader_summary(self) -> storm.NimbusSummary | None:
        """Return the leader, or None. One that has just won may not have announced itself yet."""
        leader = await self._leader_elector.leader(wait=True)
        if leader is None:
            return None
        for summary in await self.nimbus_summaries():
            if (summary.host, summary.port) == leader:
                summary.isLeader = True
                return summary
        return None

    async def nimbus_summaries(self) -> list[storm.NimbusSummary]:
        """Return every Nimbus; the election itself says which one leads."""
        leader, nimbuses = await asyncio.gather(
            self._leader_elector.leader(), self._state.nimbuses()
        )
        now = int(self._clock.time())
        return [
            storm.NimbusSummary(
                host=one.host,
                port=one.port,
                uptime_secs=max(0, now - one.uptime_secs),
                isLeader=(one.host, one.port) == leader,
                version=one.version,
            )
            for one in nimbuses
        ]
