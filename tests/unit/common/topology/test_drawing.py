"""Drawings of topologies: every component and stream is there, whatever their names."""

from __future__ import annotations

import time
import xml.etree.ElementTree as ElementTree
from itertools import pairwise

import pytest

from squall_common.topology.drawing import Edge, Node, mermaid, svg


def node(name: str, is_spout: bool = False) -> Node:
    return Node(name, is_spout, name.title(), "×2")


WORDS = [node("lines", True), node("split"), node("count")]
EDGES = [Edge("lines", "split", "shuffle"), Edge("split", "count", "fields: word")]


def boxes(drawing: str) -> dict[str, tuple[float, float]]:
    """Left and top of each component's box: the box is just before its name."""
    found: dict[str, tuple[float, float]] = {}
    at = (0.0, 0.0)
    for element in ElementTree.fromstring(drawing).iter():
        tag = element.tag.rpartition("}")[2]
        if tag == "rect" and element.get("x"):
            at = float(element.get("x", "")), float(element.get("y", ""))
        if tag == "text" and element.get("font-weight"):
            found[element.text or ""] = at
    return found


def texts(drawing: str) -> list[str]:
    root = ElementTree.fromstring(drawing)
    return [e.text or "" for e in root.iter("{http://www.w3.org/2000/svg}text")]


def paths(drawing: str) -> int:
    found = ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}path")
    return sum(path.get("marker-end") is not None for path in found)


def test_mermaid_has_each_component_and_stream() -> None:
    assert mermaid(WORDS, EDGES).splitlines() == [
        "flowchart LR",
        '    n0(["lines<br>Lines<br>×2"])',
        '    n1["split<br>Split<br>×2"]',
        '    n2["count<br>Count<br>×2"]',
        '    n0 -- "shuffle" --> n1',
        '    n1 -- "fields: word" --> n2',
    ]


@pytest.mark.parametrize(
    ("what", "size", "shown"),
    [
        (
            "count over tumbling 60 s of event time, lag 5 s",
            "×2",
            "count over tumbling 60 s of event time, lag 5 s ×2",
        ),
        (
            "count over sliding 600 s every 60 s of processing time",
            "×2",
            "count over sliding 600 s every 60 s of… ×2",
        ),
        (
            "count over tumbling 600 s of event time, a lag 55 s",
            "×2",
            "count over tumbling 600 s of event time, a lag… ×2",
        ),
        ("A" * 60, "×2", "A" * 48 + "… ×2"),
    ],
)
def test_a_number_of_a_window_keeps_its_unit(what: str, size: str, shown: str) -> None:
    assert f">{shown}</text>" in svg([Node("windows", False, what, size)], [])


def test_a_component_stands_to_the_right_of_what_feeds_it() -> None:
    at = boxes(svg(WORDS, EDGES))
    assert at["lines"][0] < at["split"][0] < at["count"][0]


def test_components_of_a_column_do_not_overlap() -> None:
    many = [node("lines", True), *(node(f"b{n}") for n in range(5))]
    at = boxes(svg(many, [Edge("lines", f"b{n}", "all") for n in range(5)]))
    tops = sorted(top for name, (_, top) in at.items() if name != "lines")
    assert all(lower - upper >= 52 for upper, lower in pairwise(tops))


@pytest.mark.parametrize(
    "edges",
    [
        [*EDGES, Edge("count", "split", "shuffle")],
        [*EDGES, Edge("split", "split", "all")],
        [Edge("split", "count", "a"), Edge("count", "split", "b")],  # no way from the spout
    ],
)
def test_cycles_are_drawn(edges: list[Edge]) -> None:
    drawing = svg(WORDS, edges)
    assert set(boxes(drawing)) == {"lines", "split", "count"}
    assert paths(drawing) == len(edges)


def test_two_streams_between_the_same_components_share_a_line() -> None:
    drawing = svg(WORDS, [*EDGES, Edge("lines", "split", "bad · shuffle")])
    assert paths(drawing) == 2
    assert {"shuffle", "bad · shuffle"} <= set(texts(drawing))


def test_a_stream_that_skips_a_column_passes_below_it() -> None:
    drawing = svg(WORDS, [*EDGES, Edge("lines", "count", "late")])
    root = ElementTree.fromstring(drawing)
    label = next(e for e in root.iter("{http://www.w3.org/2000/svg}text") if e.text == "late")
    assert float(label.get("y", "")) > boxes(drawing)["split"][1] + 52


@pytest.mark.parametrize("name", ['<script>"&', "]]>", "a\x00b", "x" * 500, "日本", "\ud800"])
def test_hostile_names_stay_text(name: str) -> None:
    nodes, edges = [node(name, True), node("b")], [Edge(name, "b", name)]
    drawing = svg(nodes, edges, {name: name})
    ElementTree.fromstring(drawing)
    assert "<script" not in drawing
    assert '"' not in mermaid(nodes, edges).splitlines()[1].split('"', 1)[1].rsplit('"', 1)[0]


def test_an_unknown_source_is_left_out() -> None:
    assert paths(svg(WORDS, [Edge("nothing", "split", "shuffle")])) == 0
    assert "-->" not in mermaid(WORDS, [Edge("nothing", "split", "shuffle")])


def test_a_topology_without_components_is_drawn() -> None:
    ElementTree.fromstring(svg([], []))


def test_a_large_topology_is_drawn_quickly() -> None:
    nodes = [node(f"c{n}", n == 0) for n in range(500)]
    edges = [Edge(f"c{n}", f"c{n + 1}", "shuffle") for n in range(499)]
    start = time.process_time()
    svg(nodes, edges)
    assert time.process_time() - start < 2.0
