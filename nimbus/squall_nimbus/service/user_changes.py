"""Calls that change the user settings of a running topology."""

from __future__ import annotations

from squall_common.cluster import convert
from squall_common.cluster.values import DebugOptions, ProfileAction
from squall_common.topology.model import WorkerSlot
from squall_nimbus.service.base import Calls, needed, operation
from squall_nimbus.views.cluster_reader import Errors
from squall_thrift import storm
from squall_thrift.serving.authorization import Call


class UserChangesCalls(Calls):
    """Sampling, log levels, profiling, credentials."""

    @operation("debug", by_name="name")
    async def debug(
        self,
        call: Call,
        name: str | None,
        component: str | None,
        enable: bool | None,
        samplingPercentage: float | None,
    ) -> None:
        await self.nimbus.leader_elector.require()
        options = DebugOptions(
            bool(enable), 10.0 if samplingPercentage is None else samplingPercentage
        )
        await self.nimbus.user_changes.debug(needed(name, "name"), component or "", options)

    @operation("setLogConfig", by_either="name")
    async def setLogConfig(
        self, call: Call, name: str | None, config: storm.LogConfig | None
    ) -> None:
        await self.nimbus.leader_elector.require()
        changes = convert.from_log_config(needed(config, "config")).levels
        await self.nimbus.user_changes.set_log_levels(needed(name, "name"), changes)

    @operation("getLogConfig", by_either="name")
    async def getLogConfig(self, call: Call, name: str | None) -> storm.LogConfig:
        return convert.to_log_config(
            await self.nimbus.user_changes.log_config(needed(name, "name"))
        )

    @operation("setWorkerProfiler", by_either="id")
    async def setWorkerProfiler(
        self, call: Call, id: str | None, profileRequest: storm.ProfileRequest | None
    ) -> None:
        await self.nimbus.leader_elector.require()
        request = needed(profileRequest, "profileRequest")
        node = request.nodeInfo
        await self.nimbus.user_changes.profile(
            needed(id, "id"),
            [WorkerSlot(node.node, port) for port in sorted(node.port)],
            ProfileAction(int(request.action)),
            request.time_stamp,
        )

    @operation("getComponentPendingProfileActions", by_id="id")
    async def getComponentPendingProfileActions(
        self,
        call: Call,
        id: str | None,
        component_id: str | None,
        action: storm.ProfileAction | None,
    ) -> list[storm.ProfileRequest]:
        view = await self.nimbus.reader.view(needed(id, "id"), Errors.NONE)
        slots = {
            slot
            for executor, slot in view.placed.executor_slot.items()
            if view.component_of.get(executor) == component_id
        }
        # Clients name a worker by its supervisor's id or by its host.
        slots |= {WorkerSlot(view.host(slot), slot.port) for slot in slots}
        pending = await self.nimbus.user_changes.pending_profiles(
            view.id, slots, ProfileAction(int(needed(action, "action")))
        )
        return [convert.to_profile_request(one) for one in pending]

    @operation("uploadNewCredentials", by_name="name")
    async def uploadNewCredentials(
        self, call: Call, name: str | None, creds: storm.Credentials | None
    ) -> None:
        await self.nimbus.leader_elector.require()
        creds = needed(creds, "creds")
        await self.nimbus.user_changes.put_credentials(
            needed(name, "name"), creds.creds, creds.topoOwner
        )
