"""The even scheduler: the expectations of a Storm user, case by case."""

import sys
from collections import Counter
from dataclasses import replace

from squall_common.topology.model import Executor, WorkerSlot
from squall_nimbus.scheduler.even import schedule
from squall_nimbus.scheduler.snapshot import ClusterSnapshot, Placement, Supervisor, TopologyNeed


def supervisors(*port_counts: int) -> tuple[Supervisor, ...]:
    """Supervisors a, b, c ... with this many ports each."""
    return tuple(
        Supervisor(chr(ord("a") + i), f"host-{i}", tuple(range(6700, 6700 + n)))
        for i, n in enumerate(port_counts)
    )


def executors(*counts: int) -> dict[Executor, str]:
    """This many one-task executors of components c0, c1 ..."""
    result: dict[Executor, str] = {}
    task = 1
    for index, count in enumerate(counts):
        for _ in range(count):
            result[Executor(task, task)] = f"c{index}"
            task += 1
    return result


def run(there: tuple[Supervisor, ...], *needs: TopologyNeed) -> dict[str, Placement]:
    return schedule(ClusterSnapshot(there, needs))


def loads(placement: Placement) -> list[int]:
    return sorted(Counter(placement.values()).values())


def slot(text: str) -> WorkerSlot:
    """`a1` is port 6701 of supervisor a."""
    return WorkerSlot(text[0], 6700 + int(text[1:]))


def test_slots_interleave_over_supervisors() -> None:
    placed = run(supervisors(4, 4), TopologyNeed("t", 4, executors(8)))["t"]
    assert Counter(s.node for s in set(placed.values())) == {"a": 2, "b": 2}
    assert loads(placed) == [2, 2, 2, 2]


def test_executors_of_a_component_spread_over_workers() -> None:
    need = TopologyNeed("t", 2, executors(2, 4, 4))
    placed = run(supervisors(4, 4), need)["t"]
    by_component = Counter((need.component_of[e], s) for e, s in placed.items())
    assert sorted(by_component.values()) == [1, 1, 2, 2, 2, 2]


def test_no_more_workers_than_executors() -> None:
    assert len(set(run(supervisors(9), TopologyNeed("t", 5, executors(2)))["t"].values())) == 2


def test_too_few_slots_mean_fewer_workers_and_all_executors() -> None:
    placed = run(supervisors(1), TopologyNeed("t", 3, executors(7)))["t"]
    assert loads(placed) == [7]


def test_no_slot_means_no_placement() -> None:
    assert run((), TopologyNeed("t", 3, executors(7))) == {"t": {}}


def test_a_complete_topology_is_left_alone_even_if_it_is_uneven() -> None:
    now = {e: slot("a0") for e in executors(3)} | {Executor(4, 4): slot("a1")}
    need = TopologyNeed("t", 2, executors(4), now)
    assert run(supervisors(4, 4, 4), need)["t"] == now


def test_slots_that_appear_are_used_by_a_topology_with_too_few_workers() -> None:
    now = {e: slot("a0") for e in executors(4)}
    placed = run(supervisors(1, 1), TopologyNeed("t", 2, executors(4), now))["t"]
    assert loads(placed) == [2, 2]
    assert sum(placed[e] == slot("a0") for e in now) == 2  # half of them did not move


def test_a_lost_worker_is_replaced_and_the_others_keep_running() -> None:
    now = dict(zip(executors(4), map(slot, ["a0", "a0", "a0", "b0"]), strict=True))
    dead = frozenset({Executor(1, 1), Executor(2, 2), Executor(3, 3)})
    placed = run(supervisors(0, 1, 1), TopologyNeed("t", 2, executors(4), now, dead))["t"]
    assert placed[Executor(4, 4)] == slot("b0")
    assert {placed[e] for e in dead} == {slot("c0")}


def test_a_lost_worker_without_a_free_slot_leaves_its_executors_to_the_others() -> None:
    now = dict(zip(executors(4), map(slot, ["a0", "b0", "a0", "b0"]), strict=True))
    dead = frozenset({Executor(1, 1), Executor(3, 3)})
    placed = run(supervisors(0, 1), TopologyNeed("t", 2, executors(4), now, dead))["t"]
    assert set(placed.values()) == {slot("b0")}


def test_the_slot_where_a_worker_died_is_the_last_choice() -> None:
    now = {e: slot("a0") for e in executors(2)}
    dead = frozenset(now)
    need = TopologyNeed("t", 1, executors(2), now, dead)
    assert set(run(supervisors(2), need)["t"].values()) == {slot("a1")}
    assert set(run(supervisors(1), need)["t"].values()) == {slot("a0")}


def test_live_workers_of_a_supervisor_that_is_away_stay() -> None:
    now = {e: slot("a0") for e in executors(2)}
    need = TopologyNeed("t", 1, executors(2), now)
    assert run(supervisors(0, 4), need)["t"] == now


def test_workers_of_a_lost_node_that_seem_alive_get_no_more_executors() -> None:
    """Its workers are found dead one by one. Were executors moved from one to the other, each would
    be new there and seem alive in turn, and none of them would ever leave the node."""
    slots = map(slot, ["a0", "a0", "a1", "b0", "b0", "b1", "b1"])
    now = dict(zip(executors(7), slots, strict=True))
    need = TopologyNeed("t", 4, executors(7), now, frozenset({Executor(1, 1), Executor(2, 2)}))
    first = run(supervisors(0, 2), need)["t"]
    assert {e for e in first if first[e].node == "a"} == {Executor(3, 3)}
    need = TopologyNeed("t", 4, executors(7), first, frozenset({Executor(3, 3)}))
    assert {s.node for s in run(supervisors(0, 2), need)["t"].values()} == {"b"}


def test_executors_wait_while_only_supervisors_that_are_away_are_left() -> None:
    now = dict(zip(executors(2), map(slot, ["a0", "a1"]), strict=True))
    need = TopologyNeed("t", 2, executors(2), now, frozenset({Executor(1, 1)}))
    left = run(supervisors(0), need)["t"]
    assert left == {Executor(2, 2): slot("a1")}
    back = run(supervisors(2), TopologyNeed("t", 2, executors(2), left))["t"]
    assert back == now


def test_a_rebalance_to_fewer_workers_frees_slots_and_spreads_evenly() -> None:
    now = dict(zip(executors(4), map(slot, ["a0", "b0", "a1", "b1"]), strict=True))
    placed = run(supervisors(2, 2), TopologyNeed("t", 2, executors(4), now, spread=True))["t"]
    assert loads(placed) == [2, 2]
    assert {s.node for s in placed.values()} == {"a", "b"}
    assert sum(placed[e] == now[e] for e in now) == 2


def test_a_rebalance_to_more_workers_moves_only_what_is_above_the_share() -> None:
    now = dict(zip(executors(8), map(slot, ["a0", "b0"] * 4), strict=True))
    placed = run(supervisors(2, 2), TopologyNeed("t", 4, executors(8), now, spread=True))["t"]
    assert loads(placed) == [2, 2, 2, 2]
    assert sum(placed[e] == now[e] for e in now) == 4


def test_a_rebalance_uses_a_supervisor_that_joined() -> None:
    now = dict(zip(executors(4), map(slot, ["a0", "a1"] * 2), strict=True))
    placed = run(supervisors(4, 4), TopologyNeed("t", 2, executors(4), now, spread=True))["t"]
    assert {s.node for s in placed.values()} == {"a", "b"}
    assert sum(placed[e] == now[e] for e in now) == 2


def test_a_rebalance_of_an_even_topology_changes_nothing() -> None:
    now = dict(zip(executors(4), map(slot, ["a0", "b0"] * 2), strict=True))
    assert run(supervisors(4, 4), TopologyNeed("t", 2, executors(4), now, spread=True))["t"] == now


def test_topologies_share_what_is_free() -> None:
    placed = run(
        supervisors(2, 2),
        TopologyNeed("first", 4, executors(4)),
        TopologyNeed("second", 4, executors(4)),
    )
    assert len(set(placed["first"].values())) == 2
    assert len(set(placed["second"].values())) == 2


def test_a_new_topology_gets_a_slot_before_another_grows() -> None:
    now = {e: slot("a0") for e in executors(4)}
    placed = run(
        supervisors(2),
        TopologyNeed("old", 2, executors(4), now),
        TopologyNeed("new", 1, executors(1)),
    )
    assert set(placed["new"].values()) == {slot("a1")}
    assert placed["old"] == now


def test_a_topology_that_shrinks_makes_room_at_once() -> None:
    now = dict(zip(executors(2), map(slot, ["a0", "a1"]), strict=True))
    placed = run(
        supervisors(2),
        TopologyNeed("shrinks", 1, executors(2), now, spread=True),
        TopologyNeed("waits", 1, executors(1)),
    )
    assert len(set(placed["shrinks"].values())) == 1
    assert len(set(placed["waits"].values())) == 1
    assert set(placed["waits"].values()) != set(placed["shrinks"].values())


def test_one_slot_never_runs_two_topologies() -> None:
    both = {e: slot("a0") for e in executors(1)}
    placed = run(
        supervisors(2),
        TopologyNeed("first", 1, executors(1), both),
        TopologyNeed("second", 1, executors(1), both),
    )
    assert set(placed["first"].values()) == {slot("a0")}
    assert set(placed["second"].values()) == {slot("a1")}


def test_the_busier_supervisor_is_spared() -> None:
    now = {e: slot("a0") for e in executors(1)}
    placed = run(
        supervisors(2, 2),
        TopologyNeed("old", 1, executors(1), now),
        TopologyNeed("new", 1, executors(1)),
    )
    assert {s.node for s in placed["new"].values()} == {"b"}


def _calls(snapshot: ClusterSnapshot) -> int:
    """How many functions a round calls: its work, the same on every machine."""
    calls = 0

    def count(frame: object, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        schedule(snapshot)
    finally:
        sys.setprofile(before)
    return calls


def test_work_grows_with_the_cluster_and_not_with_its_square() -> None:
    def fresh(n: int) -> ClusterSnapshot:
        there = tuple(Supervisor(f"s{i:04}", f"h{i}", (6700, 6701, 6702)) for i in range(n))
        return ClusterSnapshot(
            there, tuple(TopologyNeed(f"t{i}", 2, executors(3)) for i in range(n))
        )

    def settled(snapshot: ClusterSnapshot) -> ClusterSnapshot:
        placed = schedule(snapshot)
        needs = tuple(replace(need, placement=placed[need.id]) for need in snapshot.topologies)
        return replace(snapshot, topologies=needs)

    small, large = fresh(50), fresh(400)
    assert _calls(large) < 1.5 * 8 * _calls(small)
    assert _calls(settled(large)) < _calls(large) / 5  # nothing to do
