"""The servers that these tests run on: in memory and real."""

from collections.abc import AsyncIterator

import pytest
from tests.support.stores import Ensemble, MemoryServers, RealServers
from tests.support.zookeeper import fresh_root, own_zookeeper, zookeeper

from squall_cli.cluster.zookeeper import DevZooKeeper

__all__ = ["own_zookeeper", "zookeeper"]


@pytest.fixture(params=["memory", pytest.param("zookeeper", marks=pytest.mark.integration)])
async def servers(request: pytest.FixtureRequest) -> AsyncIterator[Ensemble]:
    made: Ensemble
    if request.param == "memory":
        made = MemoryServers()
    else:
        server: DevZooKeeper = request.getfixturevalue("zookeeper")
        made = RealServers(server.address, fresh_root())
    yield made
    await made.close()
