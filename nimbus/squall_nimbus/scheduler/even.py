"""The even scheduler, in the spirit of Storm's DefaultScheduler and EvenScheduler.

1. What lives stays. A topology that has as many workers as it wants, and all executors placed, is
   not touched, whatever else changes in the cluster.
2. Slots are dealt out one at a time, the topology with the fewest workers first, so that topologies
   share what is free. A topology takes its next slot on the supervisor that has the fewest of its
   workers (then the fewest workers of any topology): slots interleave over supervisors.
3. When there are fewer slots than wanted, a topology runs in fewer workers; none of its executors
   is left without one as long as it has any slot.
4. Executors are dealt to slots in the order of their tasks, so that the executors of a component
   spread over workers. When the number of workers changes, or a rebalance asked for it, every slot
   gets an equal share, and only what is above a slot's share moves. Otherwise only executors
   without a slot are placed.

Moving an executor restarts two workers: that is why nothing moves for the beauty of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence, Set

from squall.model import Executor, WorkerSlot
from squall_nimbus.scheduler.snapshot import ClusterSnapshot, Placement, TopologyNeed


class _Topology:
    """One topology while slots are dealt out."""

    def __init__(self, need: TopologyNeed, order: int, taken: Collection[WorkerSlot]) -> None:
        self.need = need
        self.order = order
        # A slot runs one topology: should two claim one, the earlier has it.
        self.live = {e: slot for e, slot in need.live_placement().items() if slot not in taken}
        self.kept: list[WorkerSlot] = sorted(set(self.live.values()))
        # A worker without an executor would do nothing.
        self.wanted = min(max(need.num_workers, 1), len(need.component_of))
        self.slots_before = len(set(need.placement.values()))
        self.slots: list[WorkerSlot] = []
        if not need.spread and len(self.kept) <= self.wanted:
            self.slots = list(self.kept)

    @property
    def reserved(self) -> set[WorkerSlot]:
        """What it holds now and may choose again."""
        return set(self.kept) - set(self.slots)


def schedule(snapshot: ClusterSnapshot) -> dict[str, Placement]:
    """A placement for every topology of the snapshot; an empty one where no slot was left."""
    topologies: list[_Topology] = []
    # Slots that topologies hold are not to be had, be their supervisor there or not. What a
    # topology that is dealt anew holds now stays reserved for it until it has chosen.
    held: set[WorkerSlot] = set()
    for order, need in enumerate(snapshot.topologies):
        topology = _Topology(need, order, held)
        topologies.append(topology)
        held.update(topology.kept)
    free = {slot for supervisor in snapshot.supervisors for slot in supervisor.slots} - held
    suspect = {
        need.placement[executor]
        for need in snapshot.topologies
        for executor in need.dead
        if executor in need.placement
    }
    load = Counter(slot.node for slot in held)

    while True:
        hungry = [t for t in topologies if len(t.slots) < t.wanted and (free or t.reserved)]
        if not hungry:
            break
        topology = min(hungry, key=lambda t: (len(t.slots), t.order))
        slot = _next_slot(topology, free, load, suspect)
        if slot in free:
            free.remove(slot)
            load[slot.node] += 1
        topology.slots.append(slot)
        if len(topology.slots) == topology.wanted:  # the rest is free for others
            for given_back in topology.reserved:
                load[given_back.node] -= 1
                if any(given_back in s.slots for s in snapshot.supervisors):
                    free.add(given_back)
    return {topology.need.id: _place(topology) for topology in topologies}


def _next_slot(
    topology: _Topology,
    free: Set[WorkerSlot],
    load: Mapping[str, int],
    suspect: Set[WorkerSlot],
) -> WorkerSlot:
    """The best next slot: one where nothing died just now; on the supervisor with the fewest of
    this topology's workers; then one of its own; then on the least loaded supervisor."""
    reserved = topology.reserved
    per_node = Counter(slot.node for slot in topology.slots)
    return min(
        free | reserved,
        key=lambda slot: (
            slot in suspect and slot not in reserved,
            per_node[slot.node],
            slot not in reserved,
            load.get(slot.node, 0),
            slot,
        ),
    )


def _place(topology: _Topology) -> Placement:
    """Executors over the slots that the topology got."""
    need, slots = topology.need, topology.slots
    if not slots:
        return {}
    stay = {executor: slot for executor, slot in topology.live.items() if slot in set(slots)}
    missing = sorted(need.component_of.keys() - stay.keys())
    if need.spread or len(slots) != topology.slots_before:
        for executor in _above_share(need, stay, slots):
            del stay[executor]
            missing.append(executor)
    else:
        # As many workers as before: new ones take what the lost ones ran, the others run on.
        slots = [slot for slot in slots if slot not in set(stay.values())] or slots
    load = Counter(stay.values())
    same = Counter((slot, need.component_of[executor]) for executor, slot in stay.items())
    for executor in sorted(missing):
        component = need.component_of[executor]
        _, slot = min(
            enumerate(slots), key=lambda item: (load[item[1]], same[item[1], component], item[0])
        )
        stay[executor] = slot
        load[slot] += 1
        same[slot, component] += 1
    return dict(sorted(stay.items()))


def _above_share(
    need: TopologyNeed, stay: Placement, slots: Sequence[WorkerSlot]
) -> list[Executor]:
    """Executors to take from slots that hold more than an equal share, as few as possible: the
    slots that hold most keep one more when the number does not divide."""
    by_slot: dict[WorkerSlot, list[Executor]] = {slot: [] for slot in slots}
    for executor in sorted(stay):
        by_slot[stay[executor]].append(executor)
    share, more = divmod(len(need.component_of), len(slots))
    fullest = sorted(slots, key=lambda slot: (-len(by_slot[slot]), slot))
    moving: list[Executor] = []
    for rank, slot in enumerate(fullest):
        here = by_slot[slot]
        count = Counter(need.component_of[executor] for executor in here)
        for _ in range(len(here) - (share + (1 if rank < more else 0))):
            # Of the component that is here most often, the last one.
            executor = max(here, key=lambda e: (count[need.component_of[e]], e))
            here.remove(executor)
            count[need.component_of[executor]] -= 1
            moving.append(executor)
    return moving
