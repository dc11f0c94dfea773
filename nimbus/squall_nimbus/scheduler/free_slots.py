"""Free slots, and which of them a topology takes next.

The best next slot of a topology is one where nothing died just now; on the supervisor with the
fewest of the topology's own workers; then one that the topology held before; then on the supervisor
with the fewest workers of any topology; then by the supervisor's id and the port.

Two structures find it without a look at every supervisor. Most topologies take the least loaded
supervisor of the cluster, and pass over those where they run already: few, since their own workers
make those more loaded. A topology with workers on most supervisors would pass over too many. It
ranks all supervisors for itself once; keeping that up to date costs something for each slot that
others take.

Heaps here are corrected when they are read: loads only grow while slots are dealt out, so an entry
that is out of date stands too early, never too late. The exception is a slot that is given back; it
gets a new entry, and rankings are made again.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable
from enum import IntEnum

from squall_common.topology.model import WorkerSlot

# A topology that wants more workers than this part of the supervisors ranks them for itself. (With
# a half or more, 1 to 200 topologies took 3,000 to 12,000 slots of 3,000 supervisors in at most
# 0.2 s; with a twentieth, 200 topologies took 7 s.)
_RANKS_FROM = 0.5


class Source(IntEnum):
    """Where a slot comes from, in the order of preference for slots of one supervisor."""

    RESERVED = 0  # the topology held it before, and may choose again
    GOOD = 1
    SUSPECT = 2  # something died there just now


class SlotsByNode:
    """Slots of which the one with the lowest port of each supervisor can be taken."""

    def __init__(self, slots: Iterable[WorkerSlot] = ()) -> None:
        self._ports: dict[str, list[int]] = {}  # heaps, none of them empty
        for slot in slots:
            self.add(slot)

    def __bool__(self) -> bool:
        return bool(self._ports)

    def __contains__(self, node: str) -> bool:
        return node in self._ports

    @property
    def nodes(self) -> Collection[str]:
        return self._ports.keys()

    def add(self, slot: WorkerSlot) -> None:
        heapq.heappush(self._ports.setdefault(slot.node, []), slot.port)

    def take(self, node: str) -> WorkerSlot:
        """Remove and return the first slot of a supervisor that has one."""
        ports = self._ports[node]
        port = heapq.heappop(ports)
        if not ports:
            del self._ports[node]
        return WorkerSlot(node, port)

    def rest(self) -> Iterable[WorkerSlot]:
        return (WorkerSlot(node, port) for node, ports in self._ports.items() for port in ports)


class FreeSlots:
    """The slots that every topology may have, and the number of workers of each supervisor."""

    def __init__(
        self, slots: Iterable[WorkerSlot], suspect: Collection[WorkerSlot], load: Counter[str]
    ) -> None:
        self.load = load
        self.returns = 0  # how often a slot was given back: loads fell then
        self._suspect = suspect
        self.parts = {Source.GOOD: SlotsByNode(), Source.SUSPECT: SlotsByNode()}
        for slot in slots:
            self.parts[self._source(slot)].add(slot)
        self._by_load = {
            source: [(load[node], node) for node in part.nodes]
            for source, part in self.parts.items()
        }
        for heap in self._by_load.values():
            heapq.heapify(heap)

    def __bool__(self) -> bool:
        return any(self.parts.values())

    def _source(self, slot: WorkerSlot) -> Source:
        return Source.SUSPECT if slot in self._suspect else Source.GOOD

    def take(self, source: Source, node: str) -> WorkerSlot:
        self.load[node] += 1
        return self.parts[source].take(node)

    def give_back(self, slot: WorkerSlot, *, offered: bool) -> None:
        """Take a slot back from a topology that has chosen others; `offered`: its supervisor is
        connected, so that others may have it."""
        node = slot.node
        self.load[node] -= 1
        self.returns += 1
        if offered:
            self.parts[self._source(slot)].add(slot)
        for source, part in self.parts.items():
            if node in part:
                heapq.heappush(self._by_load[source], (self.load[node], node))

    def least_loaded(self, source: Source, avoid: Collection[str]) -> str | None:
        """Return the supervisor with the fewest workers that has a slot, not one of `avoid`."""
        part, heap = self.parts[source], self._by_load[source]
        passed_over = []
        found = None
        while heap and found is None:
            load, node = heap[0]
            if node not in part:
                heapq.heappop(heap)
            elif load != self.load[node]:
                heapq.heapreplace(heap, (self.load[node], node))
            elif node in avoid:
                passed_over.append(heapq.heappop(heap))
            else:
                found = node
        for entry in passed_over:
            heapq.heappush(heap, entry)
        return found


# The order of slots for one topology: suspect, its workers on the supervisor, source, the
# supervisor's load, and its id.
_Key = tuple[bool, int, Source, int, str]


class Chooser:
    """Takes slots for one topology: from those it held before (`reserved`) and from the free ones.
    `per_node`: the workers it has on each supervisor."""

    def __init__(
        self,
        free: FreeSlots,
        per_node: Counter[str],
        reserved: Iterable[WorkerSlot],
        *,
        wanted: int,
        supervisors: int,
    ) -> None:
        self._free = free
        self._per_node = per_node
        self.reserved = SlotsByNode(reserved)
        self._parts = {Source.RESERVED: self.reserved, **free.parts}
        self._ranks_all = wanted > _RANKS_FROM * supervisors
        self._ranking: list[_Key] = []
        self._ranked_at: int | None = None  # the returns of free slots then

    def take(self) -> WorkerSlot | None:
        """Return the best next slot, or None if there is none."""
        key = self._best_ranked() if self._ranks_all else self._best()
        if key is None:
            return None
        _, _, source, _, node = key
        self._per_node[node] += 1
        if source is Source.RESERVED:
            return self.reserved.take(node)
        return self._free.take(source, node)

    def _key(self, source: Source, node: str) -> _Key:
        suspect = source is Source.SUSPECT
        return suspect, self._per_node[node], source, self._free.load[node], node

    def _best(self) -> _Key | None:
        keys = [self._key(Source.RESERVED, node) for node in self.reserved.nodes]
        for source, part in self._free.parts.items():
            if part and not (keys and source is Source.SUSPECT):
                node = self._free.least_loaded(source, avoid=self._per_node)
                nodes = [n for n in self._per_node if n in part] if node is None else [node]
                keys += [self._key(source, n) for n in nodes]
        return min(keys, default=None)

    def _best_ranked(self) -> _Key | None:
        heap = self._ranking
        if self._ranked_at != self._free.returns:
            self._ranked_at = self._free.returns
            heap[:] = [self._key(s, node) for s, part in self._parts.items() for node in part.nodes]
            heapq.heapify(heap)
        while heap:
            _, _, source, _, node = key = heap[0]
            if node not in self._parts[source]:
                heapq.heappop(heap)
            elif (now := self._key(source, node)) != key:
                heapq.heapreplace(heap, now)
            else:
                return key
        return None
