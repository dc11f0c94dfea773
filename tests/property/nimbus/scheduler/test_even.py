"""The rules that hold for every cluster and each of its histories."""

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.effort import examples

from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.scheduler.even import _deal_slots, _Topology, schedule
from squall_nimbus.scheduler.snapshot import ClusterSnapshot, Placement, Supervisor, TopologyNeed


def _executors(counts: list[int]) -> dict[Executor, str]:
    names = [f"c{i}" for i, count in enumerate(counts) for _ in range(count)]
    return {Executor(t, t): name for t, name in enumerate(names, start=1)}


_cluster = st.lists(st.integers(0, 4), max_size=4).map(
    lambda counts: tuple(
        Supervisor(f"s{i}", f"h{i}", tuple(range(6700, 6700 + n))) for i, n in enumerate(counts)
    )
)
_shapes = st.lists(
    st.tuples(st.integers(1, 5), st.lists(st.integers(1, 4), min_size=1, max_size=3)),
    min_size=1,
    max_size=3,
)


def _check(snapshot: ClusterSnapshot, result: dict[str, Placement]) -> None:
    users: dict[WorkerSlot, str] = {}
    offered = {slot for s in snapshot.supervisors for slot in s.slots}
    for need in snapshot.topologies:
        placement = result[need.id]
        live = need.live_placement()
        if offered.isdisjoint(placement.values()):  # only what stays where it is
            assert placement.items() <= live.items()
        else:
            assert placement.keys() == need.component_of.keys()
        assert len(set(placement.values())) <= need.num_workers
        for executor, slot in placement.items():
            assert users.setdefault(slot, need.id) == need.id
            assert slot in offered or live.get(executor) == slot
    free = offered - users.keys()
    if free:  # every topology is satisfied while there are free slots
        for need in snapshot.topologies:
            wanted = min(need.num_workers, len(need.component_of))
            assert len(set(result[need.id].values())) == wanted


@settings(max_examples=examples(60), deadline=None)
@given(_cluster, _shapes, st.data())
def test_any_history_keeps_the_rules(cluster, shapes, data) -> None:
    """Schedule; let slots die, supervisors come and go, users rebalance; schedule again."""
    needs = [
        TopologyNeed(f"t{i}", workers, _executors(counts))
        for i, (workers, counts) in enumerate(shapes)
    ]
    for _ in range(3):
        snapshot = ClusterSnapshot(cluster, tuple(needs))
        result = schedule(snapshot)
        _check(snapshot, result)
        assert schedule(snapshot) == result  # the same picture, the same answer
        settled = ClusterSnapshot(
            cluster,
            tuple(TopologyNeed(n.id, n.num_workers, n.component_of, result[n.id]) for n in needs),
        )
        assert schedule(settled) == result  # and then it rests
        cluster = data.draw(_cluster)
        needs = []
        for need in snapshot.topologies:
            placement = result[need.id]
            # Of a supervisor that is away, too, some workers are alive, or seem so for a while.
            lost = data.draw(st.sets(st.sampled_from(sorted(set(placement.values())) or [None])))
            dead = frozenset(e for e, s in placement.items() if s in lost)
            spread = data.draw(st.booleans())
            workers = data.draw(st.integers(1, 5)) if spread else need.num_workers
            needs.append(TopologyNeed(need.id, workers, need.component_of, placement, dead, spread))


@settings(max_examples=examples(50), deadline=None)
@given(_cluster, st.integers(1, 6), st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_a_fresh_topology_is_spread_evenly_over_workers_and_supervisors(
    cluster, workers, counts
) -> None:
    result = schedule(ClusterSnapshot(cluster, (TopologyNeed("t", workers, _executors(counts)),)))
    loads = Counter(result["t"].values())
    if loads:
        assert max(loads.values()) - min(loads.values()) <= 1
        per_node = Counter(slot.node for slot in loads)
        room = {s.id: len(s.ports) for s in cluster}
        for node, used in per_node.items():
            for other, ports in room.items():
                assert used <= per_node[other] + 1 or per_node[other] == ports, (node, other)


@settings(max_examples=examples(50), deadline=None)
@given(_cluster, st.integers(1, 4), st.lists(st.integers(1, 4), min_size=1, max_size=3), st.data())
def test_live_workers_are_untouched_when_lost_ones_can_be_replaced(
    cluster, workers, counts, data
) -> None:
    need = TopologyNeed("t", workers, _executors(counts))
    before = schedule(ClusterSnapshot(cluster, (need,)))["t"]
    slots = sorted(set(before.values()))
    if not slots:
        return
    lost = data.draw(st.sampled_from(slots))
    dead = frozenset(e for e, s in before.items() if s == lost)
    after = schedule(
        ClusterSnapshot(cluster, (TopologyNeed("t", workers, need.component_of, before, dead),))
    )["t"]
    for executor, slot in before.items():
        if executor not in dead:
            assert after[executor] == slot


def _slots_by_the_rules(snapshot: ClusterSnapshot) -> list[list[WorkerSlot]]:
    """The slots of each topology, in the order in which it took them: every choice looks at all
    topologies and all slots."""
    topologies, held = _topologies(snapshot)
    offered = {slot for supervisor in snapshot.supervisors for slot in supervisor.slots}
    free = offered - held
    suspect = {n.placement[e] for n in snapshot.topologies for e in n.dead if e in n.placement}
    load = Counter(slot.node for slot in held)
    slots = [list(t.slots) for t in topologies]
    reserved = [set() if t.stays else set(t.kept) for t in topologies]
    hungry = [i for i, t in enumerate(topologies) if len(slots[i]) < t.wanted]
    while served := [i for i in hungry if free or reserved[i]]:
        one = min(served, key=lambda i: (len(slots[i]), i))
        own = Counter(slot.node for slot in slots[one])

        def key(slot: WorkerSlot, one: int = one, own: Counter[str] = own) -> tuple:
            others = slot not in reserved[one]
            return others and slot in suspect, own[slot.node], others, load[slot.node], slot

        slot = min(free | reserved[one], key=key)
        if slot in reserved[one]:
            reserved[one].remove(slot)
        else:
            free.remove(slot)
            load[slot.node] += 1
        slots[one].append(slot)
        if len(slots[one]) == topologies[one].wanted:
            hungry.remove(one)
            for back in reserved[one]:
                load[back.node] -= 1
            free |= reserved[one] & offered
    return slots


def _topologies(snapshot: ClusterSnapshot) -> tuple[list[_Topology], set[WorkerSlot]]:
    held = set(snapshot.held)
    topologies = []
    for order, need in enumerate(snapshot.topologies):
        topologies.append(_Topology(need, order, held))
        held |= topologies[-1].kept
    return topologies, held


@settings(max_examples=examples(100), deadline=None)
@given(st.integers(1, 12), st.lists(st.integers(1, 14), min_size=1, max_size=6), st.data())
def test_slots_are_those_of_the_written_rules(nodes, workers, data) -> None:
    """Topologies with workers on few supervisors and on nearly all, slots in use, given back, held
    by others, and suspect."""

    def cluster() -> tuple[Supervisor, ...]:
        ports = data.draw(st.lists(st.integers(0, 3), min_size=nodes, max_size=nodes))
        return tuple(
            Supervisor(f"s{i:02}", f"h{i}", tuple(range(6700, 6700 + n)))
            for i, n in enumerate(ports)
        )

    needs = [TopologyNeed(f"t{i}", n, _executors([n, 2])) for i, n in enumerate(workers)]
    for _ in range(3):
        supervisors = cluster()
        slots = [slot for supervisor in supervisors for slot in supervisor.slots]
        held = data.draw(st.sets(st.sampled_from(slots), max_size=3)) if slots else set()
        snapshot = ClusterSnapshot(supervisors, tuple(needs), frozenset(held))
        topologies, in_use = _topologies(snapshot)
        _deal_slots(snapshot, topologies, in_use, set(slots))
        assert [t.slots for t in topologies] == _slots_by_the_rules(snapshot)
        placements = schedule(snapshot)
        needs = []
        for need in snapshot.topologies:
            placement = placements[need.id]
            lost = data.draw(st.sets(st.sampled_from(sorted(set(placement.values())) or [None])))
            dead = frozenset(e for e, slot in placement.items() if slot in lost)
            wanted = data.draw(st.integers(1, 14))
            spread = data.draw(st.booleans())
            needs.append(TopologyNeed(need.id, wanted, need.component_of, placement, dead, spread))
