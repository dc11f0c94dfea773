"""Layers, cycles and the slowest path."""

from __future__ import annotations

import itertools
import random

from squall_ui.live.graph import layers, slowest_path, without_cycles

DIAMOND = [("a", "b"), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "e"), ("a", "e")]


def test_a_layer_is_the_longest_way_from_a_source() -> None:
    assert layers("abcde", DIAMOND) == {"a": 0, "b": 1, "c": 1, "d": 2, "e": 3}


def test_a_cycle_is_cut_once() -> None:
    edges = [("a", "b"), ("b", "c"), ("c", "b"), ("c", "c"), ("c", "d")]
    assert without_cycles("abcd", edges) == {"a": ["b"], "b": ["c"], "c": ["d"], "d": []}
    assert layers("abcd", edges)["d"] == 3


def test_any_graph_ends_up_without_cycles() -> None:
    chooser = random.Random(1)
    for _ in range(50):
        names = [str(one) for one in range(30)]
        edges = [(chooser.choice(names), chooser.choice(names)) for _ in range(90)]
        kept = without_cycles(names, edges)
        depth = layers(names, edges)
        assert all(depth[s] < depth[t] for s, targets in kept.items() for t in targets)


def test_a_long_chain_is_no_problem() -> None:
    names = [str(one) for one in range(5_000)]
    chain = list(itertools.pairwise(names))
    assert layers(names, chain)["4999"] == 4_999
    assert slowest_path(names, ["0"], chain, dict.fromkeys(names, 1.0)) == names


def test_the_slowest_path_begins_at_a_spout() -> None:
    cost = {"b": 1.0, "c": 5.0, "d": 1.0, "e": 0.1}
    assert slowest_path("abcde", "a", DIAMOND, cost) == ["a", "c", "d", "e"]
    assert slowest_path("abcdef", "a", DIAMOND, {**cost, "f": 100.0}) == ["a", "c", "d", "e"]


def test_without_latencies_there_is_none() -> None:
    assert slowest_path("abcde", "a", DIAMOND, {}) == []
    assert slowest_path([], [], [], {}) == []
