"""Keeps in touch with the other daemons, so that a node that is cut off notices it.

While ZooKeeper answers, this reads from time to time which other daemons there are. While it is
silent, it tries to connect to them. `isolation` decides.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from squall_common.cluster.codec import CorruptStateError
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import StoreError
from squall_common.cluster.values import NimbusInfo, SupervisorInfo
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.resolver import Resolver
from squall_supervisor.node.isolation import Isolation
from squall_supervisor.records.neighbours import Address, Neighbours

log = get_logger(__name__)

# How many are probed: a thousand nodes must not all call each other at once.
SAMPLE_MAX = 30
# The part of a look's period that a probe may take.
_PROBE_PART = 0.8

_Name = TypeVar("_Name", str, Address)

Probe = Callable[[Address, float], Awaitable[bool]]


async def connects(address: Address, secs: float) -> bool:
    """Whether a daemon can be reached. A refused connection counts: its machine answers."""
    try:
        async with asyncio.timeout(secs):
            _, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


class Neighbourhood:
    """`run` for the life of the supervisor. `on_isolated` is called when this node becomes
    isolated; `on_known` when the known daemons change (initially `known`, those that the previous
    supervisor knew)."""

    def __init__(
        self,
        cluster: ClusterState,
        *,
        supervisor_id: str,
        timeout_secs: float,
        known: Neighbours,
        on_known: Callable[[Neighbours], None],
        on_isolated: Callable[[], None],
        clock: Clock,
        probe: Probe = connects,
        rng: random.Random | None = None,
    ) -> None:
        self._cluster = cluster
        self._supervisor_id = supervisor_id
        self._on_known = on_known
        self._on_isolated = on_isolated
        self._clock = clock
        self._probe = probe
        self._rng = rng or random.Random()
        session_secs = cluster.store.session_timeout_secs
        self._decision = Isolation(timeout_secs, session_secs, clock.monotonic())
        self._decision.neighbours = known
        self._resolver = Resolver()
        self._read_at = float("-inf")

    @property
    def isolated(self) -> bool:
        """Whether this node is cut off now."""
        return self._decision.isolated

    async def run(self) -> None:
        """Look, read and probe until cancelled."""
        try:
            await self._run()
        finally:
            self._resolver.close()

    async def _run(self) -> None:
        decision = self._decision
        while True:
            await asyncio.sleep(decision.look_secs)
            was_isolated = decision.isolated
            now = self._clock.monotonic()
            if decision.look(self._cluster.store.last_answered_secs, now):
                await self._probe_all(now)
            elif self._reading_is_due(now):
                await self._read(now)
            if decision.isolated and not was_isolated:
                self._on_isolated()
            elif was_isolated and not decision.isolated:
                log.warning("node_no_longer_isolated")

    def _reading_is_due(self, now: float) -> bool:
        """At each look until another supervisor is known: a node that is cut off before that, soon
        after the whole cluster started, could never tell."""
        decision = self._decision
        return not decision.neighbours.supervisors or now - self._read_at >= decision.timeout_secs

    async def _probe_all(self, now: float) -> None:
        decision = self._decision
        secs = _PROBE_PART * decision.look_secs
        daemons = decision.neighbours.daemons
        answers = await asyncio.gather(*(self._probe(daemon, secs) for daemon in daemons))
        decision.probed(sum(answers), now, self._clock.monotonic())
        if not decision.isolated:
            log.info("zookeeper_silent", neighbours=len(daemons), reached=sum(answers))

    async def _read(self, now: float) -> None:
        """Read which other daemons there are, if ZooKeeper answers within a look's period."""
        try:
            async with asyncio.timeout(self._decision.look_secs):
                found = await self._neighbours()
        except (StoreError, TimeoutError) as error:
            log.info("neighbours_not_read", error=error)
            return
        self._read_at = now
        if found != self._decision.neighbours:
            self._decision.neighbours = found
            self._on_known(found)

    async def _neighbours(self) -> Neighbours:
        ids = [i for i in await self._cluster.supervisor_ids() if i != self._supervisor_id]
        sample = self._sample(ids)
        infos = await asyncio.gather(*(self._supervisor(i) for i in sample))
        supervisors = {(i.hostname, i.server_port) for i in infos if i is not None}
        nimbuses = {(i.host, i.port) for i in await self._nimbuses()}
        named = [(host, port) for host, port in supervisors | nimbuses if port]
        secs = self._decision.look_secs / 2
        found = await self._resolver.resolve({host for host, _ in named}, secs)
        daemons = self._sample({(found[host], port) for host, port in named if host in found})
        return Neighbours(tuple(sorted(daemons)), bool(supervisors))

    async def _supervisor(self, supervisor_id: str) -> SupervisorInfo | None:
        try:
            return await self._cluster.supervisor(supervisor_id)
        except CorruptStateError as error:  # its problem: we ask the others
            log.warning("neighbour_unreadable", error=error)
            return None

    async def _nimbuses(self) -> list[NimbusInfo]:
        try:
            return await self._cluster.nimbuses()
        except CorruptStateError as error:
            log.warning("neighbour_unreadable", error=error)
            return []

    def _sample(self, found: Iterable[_Name]) -> list[_Name]:
        """At most SAMPLE_MAX of them."""
        ordered = sorted(found)
        if len(ordered) <= SAMPLE_MAX:
            return ordered
        return self._rng.sample(ordered, SAMPLE_MAX)
