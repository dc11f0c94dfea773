"""The even scheduler, in the spirit of Storm's DefaultScheduler and EvenScheduler.

1. What is alive stays. A topology that has as many workers as it wants, and all executors placed,
   is not touched, whatever else changes in the cluster.
2. Slots are dealt out one at a time, the topology with the fewest workers first, so that topologies
   share what is free. A topology takes its next slot on the supervisor that has the fewest of its
   workers (then the fewest workers of any topology): slots interleave over supervisors.
3. When there are fewer slots than wanted, a topology runs in fewer workers; if it has any slot of
   a connected supervisor, all of its executors are placed. Those of a supervisor that is away get
   no more: their workers may be alive, but no new one would start there.
4. Executors are dealt to slots in the order of their tasks, so that the executors of a component
   spread over workers. When the number of workers changes, or a rebalance asked for it, every slot
   gets an equal share, and only executors above a slot's share move. Otherwise only executors
   without a slot are placed.

Moving an executor restarts two workers, so nothing moves merely for a tidier layout.

A round costs about as much as there are executors and slots: `free_slots` finds the next slot
without a look at all supervisors, placing an executor compares the tops of two heaps rather than
all slots, and a topology that needs nothing is recognized at once. (Task numbers of a component are
contiguous, so in the order of tasks each component comes once.)
"""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import groupby

from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.scheduler.free_slots import Chooser, FreeSlots
from squall_nimbus.scheduler.snapshot import ClusterSnapshot, Placement, TopologyNeed


class _Topology:
    """One topology while slots are being dealt out."""

    def __init__(self, need: TopologyNeed, order: int, taken: Set[WorkerSlot]) -> None:
        self.need = need
        self.order = order
        # A worker without an executor would do nothing.
        self.wanted = min(max(need.num_workers, 1), len(need.component_of))
        before = set(need.placement.values())
        self.slots_before = len(before)
        self.is_settled = (
            not need.spread
            and not need.dead
            and len(before) == self.wanted
            and need.placement.keys() == need.component_of.keys()
            and before.isdisjoint(taken)
        )
        # A slot runs one topology: if two claim it, the earlier one keeps it.
        self.live = (
            need.placement
            if self.is_settled
            else {e: slot for e, slot in need.live_placement().items() if slot not in taken}
        )
        self.kept = before if self.is_settled else set(self.live.values())
        self.stays = not need.spread and len(self.kept) <= self.wanted
        self.slots: list[WorkerSlot] = sorted(self.kept) if self.stays else []

    @property
    def is_hungry(self) -> bool:
        return len(self.slots) < self.wanted


def schedule(snapshot: ClusterSnapshot) -> dict[str, Placement]:
    """Return a placement for every topology of the snapshot; an empty one if no slot was left."""
    topologies: list[_Topology] = []
    # Slots that topologies hold are not free, even if their supervisor is gone. The present slots
    # of a topology that is dealt again stay reserved for it until it has chosen.
    held: set[WorkerSlot] = set(snapshot.held)
    for order, need in enumerate(snapshot.topologies):
        topology = _Topology(need, order, held)
        topologies.append(topology)
        held |= topology.kept
    if all(topology.is_settled for topology in topologies):
        return {topology.need.id: dict(topology.live) for topology in topologies}
    offered = {slot for supervisor in snapshot.supervisors for slot in supervisor.slots}
    _deal_slots(snapshot, topologies, held, offered)
    return {topology.need.id: _place(topology, offered) for topology in topologies}


def _deal_slots(
    snapshot: ClusterSnapshot,
    topologies: Sequence[_Topology],
    held: Set[WorkerSlot],
    offered: Set[WorkerSlot],
) -> None:
    """Give slots to the topologies that want more, one at a time."""
    suspect = {
        need.placement[executor]
        for need in snapshot.topologies
        for executor in need.dead
        if executor in need.placement
    }
    free = FreeSlots(offered - held, suspect, Counter(slot.node for slot in held))
    choosers = {
        topology.order: Chooser(
            free,
            Counter(slot.node for slot in topology.slots),
            () if topology.stays else topology.kept,
            wanted=topology.wanted,
            supervisors=len(snapshot.supervisors),
        )
        for topology in topologies
        if topology.is_hungry
    }
    # The topology with the fewest workers first. Those that find no slot wait until one is given
    # back.
    turns = [(len(topologies[order].slots), order) for order in choosers]
    heapq.heapify(turns)
    waiting: list[tuple[int, int]] = []
    while turns:
        turn = heapq.heappop(turns)
        order = turn[1]
        topology, chooser = topologies[order], choosers[order]
        slot = chooser.take()
        if slot is None:
            waiting.append(turn)
            continue
        topology.slots.append(slot)
        if topology.is_hungry:
            heapq.heappush(turns, (len(topology.slots), order))
            continue
        for rest in list(chooser.reserved.rest()):
            free.give_back(rest, offered=rest in offered)
        if free:
            for turn in waiting:
                heapq.heappush(turns, turn)
            waiting.clear()


def _place(topology: _Topology, offered: Set[WorkerSlot]) -> Placement:
    """Spread executors over the slots that the topology got and that are `offered`."""
    need, slots = topology.need, topology.slots
    if topology.is_settled:
        return dict(topology.live)
    chosen = set(slots)
    stay = {executor: slot for executor, slot in topology.live.items() if slot in chosen}
    missing = sorted(need.component_of.keys() - stay.keys())
    if not chosen & offered:
        return stay
    if need.spread or len(slots) != topology.slots_before:
        for executor in _above_share(need, stay, slots):
            del stay[executor]
            missing.append(executor)
    else:
        # As many workers as before: new ones take over from the lost ones, the others keep running.
        in_use = set(stay.values())
        slots = [slot for slot in slots if slot not in in_use] or slots
    # An executor dealt to a supervisor that is away would count as alive until its launch is
    # overdue, and keep others there for as long.
    slots = [slot for slot in slots if slot in offered]
    stay.update(_deal(sorted(missing), need.component_of, stay, slots))
    return dict(sorted(stay.items()))


def _deal(
    executors: Sequence[Executor],
    component_of: Mapping[Executor, str],
    stay: Placement,
    slots: Sequence[WorkerSlot],
) -> Placement:
    """Put each executor on the slot that holds the fewest; of those, the one with the fewest of its
    component; of those, the first."""
    number = {slot: n for n, slot in enumerate(slots)}
    load = [0] * len(slots)
    same: defaultdict[str, dict[int, int]] = defaultdict(dict)  # component -> slot -> executors
    for executor, slot in stay.items():
        if (n := number.get(slot)) is not None:
            load[n] += 1
            mine = same[component_of[executor]]
            mine[n] = mine.get(n, 0) + 1
    # Slots without the current component. An entry counts while its load is up to date; slots with
    # the component are in `with_it`, and come back here when the next component begins.
    without = [(count, n) for n, count in enumerate(load)]
    heapq.heapify(without)
    placed: Placement = {}
    for component, run in groupby(executors, key=component_of.__getitem__):
        counts = same[component]
        with_it = [(load[n], count, n) for n, count in counts.items()]
        heapq.heapify(with_it)
        for executor in run:
            while without and (without[0][1] in counts or without[0][0] != load[without[0][1]]):
                heapq.heappop(without)
            if without and (not with_it or (without[0][0], 0) <= with_it[0][:2]):
                n = heapq.heappop(without)[1]
            else:
                n = heapq.heappop(with_it)[2]
            load[n] += 1
            counts[n] = counts.get(n, 0) + 1
            heapq.heappush(with_it, (load[n], counts[n], n))
            placed[executor] = slots[n]
        for n in counts:
            heapq.heappush(without, (load[n], n))
    return placed


def _above_share(
    need: TopologyNeed, stay: Placement, slots: Sequence[WorkerSlot]
) -> list[Executor]:
    """Return the executors to take from slots that hold more than an equal share, as few as
    possible: if the number does not divide evenly, the fullest slots keep one more."""
    by_slot: dict[WorkerSlot, list[Executor]] = {slot: [] for slot in slots}
    for executor in sorted(stay):
        by_slot[stay[executor]].append(executor)
    share, more = divmod(len(need.component_of), len(slots))
    fullest = sorted(slots, key=lambda slot: (-len(by_slot[slot]), slot))
    moving: list[Executor] = []
    for rank, slot in enumerate(fullest):
        too_many = len(by_slot[slot]) - (share + (1 if rank < more else 0))
        if too_many > 0:
            moving += _commonest(by_slot[slot], need.component_of, too_many)
    return moving


def _commonest(
    here: Sequence[Executor], component_of: Mapping[Executor, str], wanted: int
) -> list[Executor]:
    """Take this many of these executors (sorted): each time the last one of the component that has
    the most here."""
    of: defaultdict[str, list[Executor]] = defaultdict(list)
    for executor in here:
        of[component_of[executor]].append(executor)

    def entry(component: str) -> tuple[int, int, str]:
        # No two executors start with the same task.
        return -len(of[component]), -of[component][-1].task_start, component

    heap = [entry(component) for component in of]
    heapq.heapify(heap)
    taken = []
    for _ in range(wanted):
        component = heapq.heappop(heap)[2]
        taken.append(of[component].pop())
        if of[component]:
            heapq.heappush(heap, entry(component))
    return taken
