"""Two Nimbus daemons: the follower asks the leader over a socket."""

from pathlib import Path

import pytest
from tests.support.nimbus_service import LocalNimbus, topology

from squall_thrift.protocol.messages import ThriftApplicationError


@pytest.fixture
async def nimbus(tmp_path: Path):
    async with LocalNimbus(tmp_path) as nimbus:
        await nimbus.leads()
        supervisor = await nimbus.supervisor("sup-a", host="host-a")
        yield nimbus
        await supervisor.close()


async def test_a_nimbus_that_does_not_lead_names_the_leader(nimbus, tmp_path) -> None:
    topology_id = await nimbus.submit()
    async with LocalNimbus(tmp_path / "b", ensemble=nimbus.ensemble, port=6628) as other:
        for method, args in (
            ("beginFileUpload", ()),
            ("submitTopology", ("x", "y", "{}", topology())),
            ("killTopology", ("wordcount",)),
            ("rebalance", ("wordcount", None)),
            ("deleteBlob", ("x",)),
            ("getUserTopology", (topology_id,)),
        ):
            with pytest.raises(ThriftApplicationError) as caught:
                await other.call(method, *args)
            assert caught.value.message == "not the leader; the leader is 127.0.0.1:6627"
        leader = await other.call("getLeader")
        assert (leader.host, leader.port, leader.isLeader) == ("127.0.0.1", 6627, True)
        (summary,) = (await other.call("getClusterInfo")).topologies
        assert summary.id == topology_id
