"""Waits until the parts of a development cluster answer. The caller sets the time limits."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from squall_cli.dev.plan import DevPlan
from squall_common.daemon.ports import LOOPBACK

if TYPE_CHECKING:
    from squall_thrift.serving.authentication import Credentials

_POLL_SECS = 0.05


async def wait_zookeeper(port: int) -> None:
    """Wait until ZooKeeper serves: then `srvr` has a `Mode:` line; `ruok` answers too early."""
    while True:
        if await _serves(port):
            return
        await asyncio.sleep(_POLL_SECS)


async def wait_listening(port: int) -> None:
    """Wait until something accepts connections on this port."""
    while True:
        try:
            _, writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            await asyncio.sleep(_POLL_SECS)
        else:
            writer.close()
            return


async def _serves(port: int) -> bool:
    try:
        reader, writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        return False
    try:
        writer.write(b"srvr")
        answer = await asyncio.wait_for(reader.read(), 2.0)
    except (OSError, TimeoutError):
        return False
    finally:
        writer.close()
    return b"Mode:" in answer


async def registered_supervisors(plan: DevPlan) -> dict[int, tuple[str, int | None]]:
    """Wait until every supervisor of the plan is registered in ZooKeeper; return id and Thrift
    port by the supervisor's number. Their slots distinguish them."""
    from squall_common.cluster.connecting import connect

    by_slots = {supervisor.slots: supervisor.number for supervisor in plan.supervisors}
    state = connected = await connect(plan.nimbus_conf())
    if plan.secure:
        from squall_common.authentication.files import trust_of
        from squall_common.cluster.state import ClusterState
        from squall_common.cluster.stores.verified import VerifiedStore
        from squall_common.config.options.typed import ClientOptions

        trust = trust_of(str(ClientOptions.read(plan.nimbus_conf()).storm_security_ca))
        state = ClusterState(VerifiedStore(connected.store, trust, now=time.time))
    try:
        while True:
            found = {
                by_slots[tuple(sorted(info.meta))]: (supervisor_id, info.server_port)
                for supervisor_id, info in (await state.supervisors()).items()
                if tuple(sorted(info.meta)) in by_slots
            }
            if len(found) == len(plan.supervisors):
                return found
            await asyncio.sleep(_POLL_SECS)
    finally:
        await connected.close()


async def wait_nimbus(
    port: int, supervisor_ids: set[str], credentials: Credentials | None = None
) -> None:
    """Wait until Nimbus leads and knows these supervisors."""
    from squall_thrift import storm
    from squall_thrift.client import ThriftApplicationError, ThriftClient, ThriftTransportError

    while True:
        try:
            async with ThriftClient(
                storm.Nimbus, LOOPBACK, port, timeout_secs=5.0, credentials=credentials
            ) as client:
                cluster = await client.call("getClusterInfo")
        except (ThriftTransportError, ThriftApplicationError):
            cluster = None
        if (
            cluster is not None
            and any(nimbus.isLeader for nimbus in cluster.nimbuses)
            and supervisor_ids <= {summary.supervisor_id for summary in cluster.supervisors}
        ):
            return
        await asyncio.sleep(_POLL_SECS)
