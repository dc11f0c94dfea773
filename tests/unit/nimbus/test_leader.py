"""Who leads, as calls are told."""

from __future__ import annotations

from typing import Any

from squall_common.cluster.store import ConnectionState
from squall_nimbus.leader import LeaderElector


class _Store:
    state = ConnectionState.CONNECTED


class _Leading:
    """A term that is under way, while ZooKeeper does not answer."""

    class leadership:
        @staticmethod
        def active(now: float) -> bool:
            return True

    async def leader(self) -> str:
        raise AssertionError("ZooKeeper was asked")


async def test_a_leader_names_itself_without_asking_zookeeper() -> None:
    """Its question waited behind its own writes: on a disk whose fsync takes two seconds, every
    command failed with "it did not answer within 1.5 s"."""
    elector: Any = LeaderElector.__new__(LeaderElector)
    elector.participant, elector._store, elector._election = "[::1]:6627", _Store(), _Leading()
    elector._clock = type("Clock", (), {"monotonic": staticmethod(lambda: 0.0)})
    assert await elector.leader(wait=True) == ("[::1]", 6627)
