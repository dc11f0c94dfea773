"""Calls that start, change and end topologies."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Collection, Mapping
from dataclasses import replace

from squall_common.cluster import convert
from squall_common.cluster.values import RebalanceOptions, TopologyStatus
from squall_common.config.options.typed import TopologyOptions
from squall_common.names import ANONYMOUS
from squall_nimbus.service.base import Calls, needed, operation, refused
from squall_nimbus.topologies.lifecycle import Activate, Deactivate, Kill, Rebalance
from squall_nimbus.topologies.limits import size_problems
from squall_nimbus.topologies.quotas import size_of
from squall_nimbus.topologies.rebalance import check_rebalance
from squall_nimbus.topologies.submit import Submission
from squall_thrift import storm
from squall_thrift.serving.authorization import Call


class LifecycleCalls(Calls):
    """submit, kill, activate, deactivate, rebalance."""

    async def _submit(
        self,
        call: Call,
        name: str | None,
        location: str | None,
        conf: str | None,
        topology: storm.StormTopology | None,
        options: storm.SubmitOptions | None,
    ) -> None:
        await self.nimbus.leader_elector.require()
        self.nimbus.access.require_name(call, "submitTopology", needed(name, "name"))
        inactive = (
            options is not None and options.initial_status == storm.TopologyInitialStatus.INACTIVE
        )
        creds = options.creds.creds if options is not None and options.creds is not None else {}
        await self.nimbus.submitter.submit(
            Submission(
                name=needed(name, "name"),
                package=location or "",
                conf=conf or "",
                topology=needed(topology, "topology"),
                initial_status=TopologyStatus.INACTIVE if inactive else TopologyStatus.ACTIVE,
                credentials=creds,
                owner=call.principal or ANONYMOUS,
                principal=call.principal,
            )
        )

    @operation("submitTopology")
    async def submitTopology(
        self,
        call: Call,
        name: str | None,
        uploadedJarLocation: str | None,
        jsonConf: str | None,
        topology: storm.StormTopology | None,
    ) -> None:
        await self._submit(call, name, uploadedJarLocation, jsonConf, topology, None)

    @operation("submitTopology")
    async def submitTopologyWithOpts(
        self,
        call: Call,
        name: str | None,
        uploadedJarLocation: str | None,
        jsonConf: str | None,
        topology: storm.StormTopology | None,
        options: storm.SubmitOptions | None,
    ) -> None:
        await self._submit(call, name, uploadedJarLocation, jsonConf, topology, options)

    @operation("killTopology", by_name="name")
    async def killTopology(self, call: Call, name: str | None) -> None:
        await self.nimbus.leader_elector.require()
        await self.nimbus.lifecycle.handle(needed(name, "name"), Kill())

    @operation("killTopology", by_name="name")
    async def killTopologyWithOpts(
        self, call: Call, name: str | None, options: storm.KillOptions | None
    ) -> None:
        await self.nimbus.leader_elector.require()
        wait_secs = options.wait_secs if options is not None else None
        if wait_secs is not None and wait_secs < 0:
            raise refused(f"wait time {wait_secs} s is negative")
        await self.nimbus.lifecycle.handle(needed(name, "name"), Kill(wait_secs))

    @operation("activate", by_name="name")
    async def activate(self, call: Call, name: str | None) -> None:
        await self.nimbus.leader_elector.require()
        await self.nimbus.lifecycle.handle(needed(name, "name"), Activate())

    @operation("deactivate", by_name="name")
    async def deactivate(self, call: Call, name: str | None) -> None:
        await self.nimbus.leader_elector.require()
        await self.nimbus.lifecycle.handle(needed(name, "name"), Deactivate())

    @operation("rebalance", by_name="name")
    async def rebalance(
        self, call: Call, name: str | None, options: storm.RebalanceOptions | None
    ) -> None:
        await self.nimbus.leader_elector.require()
        name = needed(name, "name")
        asked = RebalanceOptions()
        if options is not None:
            if options.topology_resources_overrides:
                raise storm.InvalidTopologyException(
                    msg="topology_resources_overrides: this cluster schedules by slots, "
                    "not by memory and CPU"
                )
            asked = RebalanceOptions(
                wait_secs=options.wait_secs,
                num_workers=options.num_workers,
                num_executors=options.num_executors or {},
                topology_conf_overrides=options.topology_conf_overrides,
            )
        topology_id, base = await self.nimbus.lifecycle.find(name)

        def problems_of(workers: int | None, executors: Mapping[str, int]) -> list[str]:
            wanted = {**base.component_executors, **executors}
            return size_problems(
                self.nimbus.options,
                base.num_workers if workers is None else workers,
                sum(wanted.values()),
            )

        checked = await asyncio.to_thread(
            check_rebalance,
            await self.nimbus.reader.stored(topology_id),
            asked,
            functools.partial(self._conf_problems, base.owner, name),
            problems_of,
            await self._bound(topology_id) if asked.num_executors else (),
        )
        size = size_of(replace(base, action_options=checked))
        async with self.nimbus.submitter.quotas.granted(base.owner or ANONYMOUS, topology_id, size):
            await self.nimbus.lifecycle.handle(name, Rebalance(checked))

    def _conf_problems(self, owner: str | None, name: str, overrides: TopologyOptions) -> list[str]:
        """What is wrong with what a configuration names elsewhere."""
        submitter = self.nimbus.submitter
        return [
            *submitter.blob_problems(overrides, owner),
            *submitter.audience_problems(overrides, owner, name),
        ]

    @operation("savepoint", by_name="name")
    async def savepoint(
        self, call: Call, name: str | None, request: storm.SavepointRequest | None
    ) -> None:
        await self.nimbus.leader_elector.require()
        asked = convert.from_savepoint_request(needed(request, "request"))
        name = needed(name, "name")
        topology_id, _ = await self.nimbus.lifecycle.find(name)
        options = (await self.nimbus.reader.stored(topology_id)).options
        if options.topology_checkpoint_interval_secs is None:
            raise storm.InvalidTopologyException(
                msg=f"topology {name!r} takes no checkpoints, and so no savepoints: it needs "
                "topology.checkpoint.interval.secs and topology.state.url"
            )
        await self.nimbus.user_changes.ask_savepoint(name, asked)

    async def _bound(self, topology_id: str) -> Collection[str]:
        """The components whose number of tasks cannot change, as far as is known."""
        view = await self.nimbus.reader.view_without_errors(topology_id)
        return () if view.checkpoints is None else view.checkpoints.bound_components
