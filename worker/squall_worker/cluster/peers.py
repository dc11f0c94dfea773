"""The other workers: keeps links to them that follow the assignment, and reports those that are
lost."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping

from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.daemon.resolver import Resolver
from squall_common.topology.model import WorkerSlot
from squall_worker.cluster.membership import Membership
from squall_worker.cluster.placement import Placement
from squall_worker.transport.link_table import Event, Replaced
from squall_worker.transport.push import Address
from squall_worker.transport.zmq import ZmqTransport

log = get_logger(__name__)

# Spouts wait for the greetings of all peers, but not for a dead one: its link queues.
_READY_SECS_MAX = 10.0
# An unknown worker's greeting causes a new reading of the assignment, this soon and then more and
# more rarely: a replaced worker that cannot be stopped greets forever.
_STRANGER_SECS = 0.5
_STRANGER_MAX_SECS = 60.0
# How often silent peers are checked, and how long a machine may take to refuse.
LOOK_SECS = 1.0
_REFUSE_SECS = 1.0
# A lookup that takes longer is left for the next reading of the assignment.
_RESOLVE_SECS = 5.0


class Addresses:
    """Host names of assignments as numeric addresses: the last known one of each worker.

    ZeroMQ would look names up in the one thread that serves all connections, and again at each
    attempt: a name that does not resolve would hold up the traffic of every peer. Names are looked
    up again at each reading, so that a host that came back elsewhere is found; one that no longer
    resolves keeps its address.
    """

    def __init__(self) -> None:
        self._resolver = Resolver()
        self._known: dict[WorkerSlot, Address] = {}

    async def resolve(self, hosts: Mapping[WorkerSlot, str]) -> None:
        """Look up the hosts of these workers."""
        found = await self._resolver.resolve(set(hosts.values()), _RESOLVE_SECS)
        for slot, host in hosts.items():
            if host in found:
                self._known[slot] = (found[host], slot.port)

    def of(self, slots: Iterable[WorkerSlot]) -> dict[WorkerSlot, Address]:
        """The addresses of the workers in `slots` that are known; all others are forgotten."""
        wanted = set(slots)
        self._known = {slot: known for slot, known in self._known.items() if slot in wanted}
        return dict(self._known)

    def close(self) -> None:
        """Stop waiting for lookups."""
        self._resolver.close()


async def refuses(address: Address, secs: float) -> bool:
    """Whether a machine answers that nothing listens there: the worker that did has ended. No
    answer means that it is not known."""
    try:
        async with asyncio.timeout(secs):
            _, writer = await asyncio.open_connection(*address)
    except ConnectionRefusedError:
        return True
    except (OSError, TimeoutError):
        return False
    writer.close()
    return False


class Peers:
    """Keeps the transport's links in line with the assignment.

    `on_lost` gets the tasks of a worker that was lost, on the loop and never from within a call
    into this object; `on_change` is called for anything that makes `update` worth calling.
    """

    def __init__(
        self,
        *,
        grace_secs: float,
        clock: Clock,
        on_lost: Callable[[frozenset[int]], None],
        on_change: Callable[[], None],
        refuses: Callable[[Address, float], Awaitable[bool]] = refuses,
    ) -> None:
        self._clock = clock
        self._refuses = refuses
        self._on_lost = on_lost
        self._on_change = on_change
        self._membership = Membership(grace_secs)
        self._addresses = Addresses()
        self._transport: ZmqTransport | None = None
        self._zxid: int | None = None  # of the current assignment
        self._linked = asyncio.Event()
        self._stranger_at = 0.0
        self._stranger_secs = _STRANGER_SECS

    def attach(self, transport: ZmqTransport) -> None:
        """Serve this transport; its callbacks are `happened` and `met_stranger`."""
        self._transport = transport

    async def follow(self, placement: Placement) -> None:
        """Have a link to every other worker of the topology."""
        if placement.hosts.keys() != self._membership.present:
            self._stranger_secs = _STRANGER_SECS
        self._membership.assigned(placement.tasks_by_slot(), self._clock.monotonic())
        self._zxid = placement.zxid
        await self._addresses.resolve(placement.hosts)
        self.update()
        self._linked.set()

    def update(self) -> None:
        """Close the links to workers that are gone."""
        transport = self._transport
        assert transport is not None
        lost = self._membership.expire(self._clock.monotonic(), transport.backlog_bytes)
        transport.set_peers(self._addresses.of(self._membership.slots), self._zxid)
        self._lose(lost)

    async def look_for_ended(self) -> None:
        """Find the workers that have ended and whose successor has not greeted: it may be unable to
        start, or be waiting for its turn. Trees that went through them must not wait for that."""
        assert self._transport is not None
        for slot, address in self._transport.silent().items():
            if await self._refuses(address, _REFUSE_SECS):
                self._lose(self._membership.ended(slot))

    def close(self) -> None:
        """Stop waiting for host names; the transport closes the links."""
        self._addresses.close()

    def deadline(self) -> float:
        """When `update` is next due."""
        return self._membership.deadline()

    def happened(self, event: Event) -> None:
        """Take an event of the transport."""
        self._lose(self._membership.happened(event))
        self._linked.set()
        if not isinstance(event, Replaced):
            self._on_change()  # a leaving peer may go now

    def met_stranger(self, slot: WorkerSlot) -> None:
        """A worker, or a session of one, that was not in the last reading has greeted."""
        now = self._clock.monotonic()
        if now >= self._stranger_at:
            self._stranger_at = now + self._stranger_secs
            self._stranger_secs = min(2 * self._stranger_secs, _STRANGER_MAX_SECS)
            log.info("unknown_worker_greets", slot=slot)
            self._on_change()

    async def wait_linked(self) -> bool:
        """Wait until every peer has greeted; False if some had not after _READY_SECS_MAX."""
        assert self._transport is not None
        deadline = self._clock.monotonic() + _READY_SECS_MAX
        while missing := self._membership.present - self._transport.greeted():
            self._linked.clear()
            left = deadline - self._clock.monotonic()
            if left <= 0:
                log.warning("peers_missing", peers=sorted(map(str, missing)))
                return False
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._linked.wait(), left)
        return True

    def _lose(self, tasks: frozenset[int]) -> None:
        if tasks:
            log.warning("worker_lost", tasks=sorted(tasks))
            asyncio.get_running_loop().call_soon(self._on_lost, tasks)
