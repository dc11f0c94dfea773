"""Calls that ask about the cluster as a whole."""

from __future__ import annotations

import asyncio

from squall_common.daemon import fast_json
from squall_common.packaging.platforms import platform_texts
from squall_common.security.access import caller_of
from squall_common.security.identity import LEGACY_CHANNELS
from squall_nimbus.service.base import Calls, needed, operation, refused
from squall_nimbus.topologies.lifecycle_shell import TopologyNotAliveError
from squall_nimbus.views import views
from squall_nimbus.views.redact import redact
from squall_thrift import storm
from squall_thrift.serving.authorization import Call
from squall_thrift.serving.off_loop import off_loop_if


class ClusterCalls(Calls):
    """Every Nimbus answers these from ZooKeeper."""

    @operation("getNimbusConf")
    async def getNimbusConf(self, call: Call) -> str:
        return fast_json.dumps(redact(self.nimbus.conf), sort_keys=True).decode()

    @operation("getClusterInfo")
    async def getClusterInfo(self, call: Call) -> storm.ClusterSummary:
        reader = self.nimbus.reader
        supervisors, topologies, nimbuses = await asyncio.gather(
            reader.supervisor_summaries(), reader.summaries(), reader.nimbus_summaries()
        )
        return storm.ClusterSummary(
            supervisors=list(supervisors.values()),
            topologies=self._shown(call, topologies),
            nimbuses=self._as_reached(call, nimbuses),
        )

    @operation("getClusterInfo")
    async def getSupervisorPlatforms(self, call: Call) -> dict[str, str]:
        infos = (await self.nimbus.reader.supervisors()).items()
        return platform_texts((info.hostname, name, info.scheduler_meta) for name, info in infos)

    @operation("getLeader")
    async def getLeader(self, call: Call) -> storm.NimbusSummary:
        found = await self.nimbus.reader.leader_summary()
        if found is None:
            raise refused("no Nimbus leads right now; try again in a few seconds")
        self._as_reached(call, [found])
        return found

    def _as_reached(
        self, call: Call, nimbuses: list[storm.NimbusSummary]
    ) -> list[storm.NimbusSummary]:
        """With the port on which the caller can go on: Storm's Java clients connect to the leader
        that they are told, by the mechanism that they have."""
        caller, port = caller_of(call), self.nimbus.options.nimbus_legacy_thrift_port
        if port is not None and caller is not None and caller.channel in LEGACY_CHANNELS:
            for one in nimbuses:
                one.port = port
        return nimbuses

    @operation("getSupervisorPageInfo")
    async def getSupervisorPageInfo(
        self, call: Call, id: str | None, host: str | None, is_include_sys: bool | None
    ) -> storm.SupervisorPageInfo:
        """One supervisor by id, else all supervisors of a host."""
        reader = self.nimbus.reader
        summaries = [
            one
            for supervisor_id, one in (await reader.supervisor_summaries()).items()
            if (supervisor_id == id if id else one.host == host)
        ]
        nodes = {one.supervisor_id for one in summaries}
        workers: list[storm.WorkerSummary] = []
        for topology_id, assignment in sorted((await reader.assignments()).items()):
            if not await self._may_look(call, topology_id):
                continue
            if nodes & {slot.node for slot in assignment.executor_slot.values()}:
                view = await reader.view_without_errors(topology_id)
                for node in sorted(nodes):
                    workers += await off_loop_if(
                        view.is_large, views.worker_summaries, view, bool(is_include_sys), node
                    )
        return storm.SupervisorPageInfo(supervisor_summaries=summaries, worker_summaries=workers)

    @operation("getFinishedTopologies")
    async def getFinishedTopologies(self, call: Call) -> dict[str, bool]:
        if not self.nimbus.leader_elector.leading:  # do not ask on: the caller does not lead either
            raise refused("this Nimbus is not the leader")
        return await self.nimbus.reader.finished_topologies()

    @operation("getOwnerResourceSummaries")
    async def getOwnerResourceSummaries(
        self, call: Call, owner: str | None
    ) -> list[storm.OwnerResourceSummary]:
        """Sums over one owner's topologies, or for every owner if none is named."""
        by_owner: dict[str, list[storm.TopologySummary]] = {}
        for summary in self._shown(call, await self.nimbus.reader.summaries()):
            by_owner.setdefault(summary.owner or "", []).append(summary)
        if owner:
            by_owner = {owner: by_owner.get(owner, [])}
        return [
            storm.OwnerResourceSummary(
                owner=name,
                total_topologies=len(topologies),
                total_executors=sum(one.num_executors for one in topologies),
                total_workers=sum(one.num_workers for one in topologies),
                total_tasks=sum(one.num_tasks for one in topologies),
            )
            for name, topologies in sorted(by_owner.items())
        ]

    @operation("getTopologyHistory")
    async def getTopologyHistory(self, call: Call, user: str | None) -> storm.TopologyHistoryInfo:
        """Live topologies and those that this Nimbus removed; in an open cluster, every user sees
        all. `user` is never used for anything else (CVE-2021-38294)."""
        live = await self.nimbus.state.topology_ids()
        now = int(self.nimbus.clock.time())
        if not self.nimbus.access.secured:
            past_ids = self.nimbus.finished.ids(now)
            return storm.TopologyHistoryInfo(topo_ids=sorted({*live, *past_ids}))
        seen = {one for one in live if await self._may_look(call, one)}
        # Of one that has ended, only its owner is known.
        seen.update(
            one.topology_id
            for one in self.nimbus.access.shown(
                call,
                "getTopologySummary",
                self.nimbus.finished.entries(now),
                lambda one: self.nimbus.objects.topology(one.topology_id, one.owner),
            )
        )
        return storm.TopologyHistoryInfo(topo_ids=sorted(seen))

    async def _may_look(self, call: Call, topology_id: str) -> bool:
        nimbus = self.nimbus
        if not nimbus.access.secured:
            return True
        try:
            base = await nimbus.reader.base(topology_id)
        except TopologyNotAliveError:
            return False
        thing = nimbus.objects.topology(topology_id, base.owner)
        return nimbus.access.may(call, "getTopologySummary", thing)

    @operation("isTopologyNameAllowed")
    async def isTopologyNameAllowed(self, call: Call, name: str | None) -> bool:
        return await self.nimbus.submitter.is_name_allowed(needed(name, "name"))
