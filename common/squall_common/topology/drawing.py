"""Drawings of a topology: as SVG for pages and notebooks, as Mermaid for Markdown.

The layout is layered: a component stands to the right of everything that feeds it (the edges that
close a cycle do not count), and in its column near the middle of its sources. It is a pure function
of the components and their streams, so that the same topology is always drawn the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

_CHAR_WIDTH = 7.2
_NODE_HEIGHT = 52
_ROW_GAP = 34
_COLUMN_GAP = 150
_MARGIN = 24
_PASSING = 74
_LABEL_CHARS_MAX = 28
_BELOW_CHARS_MAX = 52  # of what a component is, with its size: windows take many words
_SPOUT, _BOLT, _LINE, _TEXT, _SOFT = "#dff1fb", "#ffffff", "#0b5f8a", "#14212b", "#4c5d6b"


@dataclass(frozen=True, slots=True)
class Node:
    """A component: what it is (a class, a program), how many executors and tasks it has."""

    id: str
    is_spout: bool
    what: str
    size: str


@dataclass(frozen=True, slots=True)
class Edge:
    """A stream from one component to another; `label` says which, and how it is grouped."""

    source: str
    target: str
    label: str


def mermaid(nodes: Sequence[Node], edges: Sequence[Edge]) -> str:
    """The text of a Mermaid flowchart, which many viewers of Markdown draw."""
    numbers = {node.id: f"n{number}" for number, node in enumerate(nodes)}
    lines = ["flowchart LR"]
    for node in nodes:
        text = "<br>".join(_quoted(part) for part in (node.id, node.what, node.size) if part)
        opening, closing = ("([", "])") if node.is_spout else ("[", "]")
        lines.append(f'    {numbers[node.id]}{opening}"{text}"{closing}')
    for edge in edges:
        if edge.source in numbers and edge.target in numbers:
            label = _quoted(edge.label)
            lines.append(f'    {numbers[edge.source]} -- "{label}" --> {numbers[edge.target]}')
    return "\n".join(lines) + "\n"


def svg(
    nodes: Sequence[Node], edges: Sequence[Edge], notes: Mapping[str, str] | None = None
) -> str:
    """An SVG drawing. `notes` are lines below components, by id: counts of a running topology."""
    notes = notes or {}
    known = {node.id for node in nodes}
    edges = [edge for edge in edges if edge.source in known and edge.target in known]
    columns = _columns(nodes, edges)
    boxes = _boxes(columns, notes)
    width = max((x + w for x, _, w in boxes.values()), default=0) + _MARGIN
    height = max((y for _, y, _ in boxes.values()), default=0) + _NODE_HEIGHT + _MARGIN + 24
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'width="{width:.0f}" role="img" font-family="sans-serif" font-size="13">',
        f"<title>{escape(_title(nodes))}</title>",
        f'<rect width="{width:.0f}" height="{height:.0f}" rx="8" fill="#f7f9fb"/>',
        '<defs><marker id="squall-arrow" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" '
        f'markerHeight="7" orient="auto"><path d="M0 0 8 4 0 8z" fill="{_LINE}"/></marker></defs>',
    ]
    rank = {node.id: number for number, column in enumerate(columns) for node in column}
    drawn: dict[tuple[str, str], int] = {}  # how many edges there are already between the two
    for edge in edges:
        before = drawn.get((edge.source, edge.target), 0)
        drawn[edge.source, edge.target] = before + 1
        parts.append(_svg_edge(edge, boxes, rank, height, before))
    for node in nodes:
        parts.append(_svg_node(node, boxes[node.id], notes.get(node.id, "")))
    parts.append("</svg>")
    return "\n".join(parts) + "\n"


def _title(nodes: Sequence[Node]) -> str:
    spouts = sum(node.is_spout for node in nodes)
    return f"A topology of {spouts} spout(s) and {len(nodes) - spouts} bolt(s)"


def _columns(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[list[Node]]:
    """The nodes, column by column from left to right."""
    sources: dict[str, list[str]] = {node.id: [] for node in nodes}
    for edge in _without_cycles(nodes, edges):
        sources[edge.target].append(edge.source)
    rank: dict[str, int] = {}
    # Each pass settles at least the next column.
    for _ in nodes:
        before = dict(rank)
        for node in nodes:
            rank[node.id] = max((rank.get(s, 0) + 1 for s in sources[node.id]), default=0)
        if rank == before:
            break
    columns: list[list[Node]] = [[] for _ in range(max(rank.values(), default=-1) + 1)]
    for node in nodes:
        columns[rank[node.id]].append(node)
    place = {node.id: float(n) for column in columns for n, node in enumerate(column)}
    for column in columns[1:]:

        def middle(node: Node) -> float:
            above = [place[s] for s in sources[node.id]]
            return sum(above) / len(above) if above else place[node.id]

        column.sort(key=middle)
        place.update({node.id: float(n) for n, node in enumerate(column)})
    return columns


def _without_cycles(nodes: Sequence[Node], edges: Sequence[Edge]) -> list[Edge]:
    """The edges, but for those that lead back to where a walk from the spouts came from."""
    outgoing: dict[str, list[Edge]] = {}
    for edge in edges:
        outgoing.setdefault(edge.source, []).append(edge)
    kept: list[Edge] = []
    state: dict[str, str] = {}
    for start in sorted(nodes, key=lambda node: not node.is_spout):
        if start.id in state:
            continue
        state[start.id] = "open"
        stack = [(start.id, iter(outgoing.get(start.id, ())))]
        while stack:
            here, left = stack[-1]
            following = next(left, None)
            if following is None:
                state[here] = "done"
                stack.pop()
            elif state.get(following.target) != "open":
                kept.append(following)
                if following.target not in state:
                    state[following.target] = "open"
                    stack.append((following.target, iter(outgoing.get(following.target, ()))))
    return kept


def _boxes(
    columns: Sequence[Sequence[Node]], notes: Mapping[str, str]
) -> dict[str, tuple[float, float, float]]:
    """Left, top and width of each node's box."""
    step = _NODE_HEIGHT + _ROW_GAP + (16 if notes else 0)
    tallest = max((len(column) for column in columns), default=0) * step
    boxes = {}
    x = float(_MARGIN)
    for column in columns:
        texts = [
            text
            for node in column
            for text in (_cut(node.id), _below(node), _cut(notes.get(node.id, "")))
        ]
        width = max(96.0, max(map(len, texts)) * _CHAR_WIDTH + 24)
        y = _MARGIN + (tallest - len(column) * step) / 2
        for node in column:
            boxes[node.id] = (x, y, width)
            y += step
        x += width + _COLUMN_GAP
    return boxes


def _svg_node(node: Node, box: tuple[float, float, float], note: str) -> str:
    x, y, width = box
    radius = 26 if node.is_spout else 6
    middle = x + width / 2
    lines = [
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{_NODE_HEIGHT}" rx="{radius}" '
        f'fill="{_SPOUT if node.is_spout else _BOLT}" stroke="{_LINE}" stroke-width="1.4"/>',
        _text(middle, y + 22, _cut(node.id), _TEXT, "font-weight='600'"),
        _text(middle, y + 40, _below(node), _SOFT, "font-size='12'"),
    ]
    if note:
        lines.append(_text(middle, y + _NODE_HEIGHT + 15, _cut(note), _SOFT, "font-size='11'"))
    return "\n".join(lines)


def _svg_edge(
    edge: Edge,
    boxes: Mapping[str, tuple[float, float, float]],
    rank: Mapping[str, int],
    height: float,
    before: int,
) -> str:
    """A line with its label. A second edge between the same two adds only a label, above the
    first one's."""
    x1, y1, width = boxes[edge.source]
    x2, y2, target_width = boxes[edge.target]
    columns = rank[edge.target] - rank[edge.source]
    if columns > 0:
        x1, y1, y2 = x1 + width, y1 + _NODE_HEIGHT / 2, y2 + _NODE_HEIGHT / 2
        bend = max(40.0, (x2 - x1) / 2)
        # Below what stands in the columns between.
        low1, low2 = (y1, y2) if columns == 1 else (max(y1, y2) + _PASSING,) * 2
        curve = f"M{x1:.1f} {y1:.1f}C{x1 + bend:.1f} {low1:.1f} {x2 - bend:.1f} {low2:.1f} "
        curve += f"{x2 - 2:.1f} {y2:.1f}"
        at = (x1 + x2) / 2, (y1 + 3 * low1 + 3 * low2 + y2) / 8 - 6
    else:  # back, below everything
        start, end = x1 + width / 2, x2 + target_width / 2
        low = height - 14
        curve = f"M{start:.1f} {y1 + _NODE_HEIGHT:.1f}C{start:.1f} {low:.1f} {end:.1f} {low:.1f} "
        curve += f"{end:.1f} {y2 + _NODE_HEIGHT + 2:.1f}"
        at = (start + end) / 2, low - 8
    at = at[0], at[1] - 14 * before
    label = _text(at[0], at[1], _cut(edge.label), _SOFT, "font-size='12'")
    if before:
        return label
    line = f'<path d="{curve}" fill="none" stroke="{_LINE}" stroke-width="1.3" '
    return f'{line}marker-end="url(#squall-arrow)"/>\n{label}'


def _text(x: float, y: float, text: str, fill: str, more: str) -> str:
    shown = escape(text)
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" fill="{fill}" {more}>{shown}</text>'


def _below(node: Node) -> str:
    """What a node is, cut so that its size is seen."""
    most = max(1, _BELOW_CHARS_MAX - len(node.size) - 1)
    return " ".join(part for part in (_cut_between_words(node.what, most), _cut(node.size)) if part)


def _cut(text: str, most: int = _LABEL_CHARS_MAX) -> str:
    text = "".join(c if c.isprintable() else "?" for c in text)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cut_between_words(text: str, most: int) -> str:
    """At most `most` characters, without half a word and without a number that lacks its unit, if
    that leaves half of them."""
    cut = _cut(text, most)
    if len(text) <= most:
        return cut
    words = cut[:-1].split(" ")
    if text[most - 1] != " ":
        words.pop()
    if words and words[-1][:1].isdigit():
        words.pop()
    whole = " ".join(words).rstrip(", ")
    return f"{whole}…" if len(whole) >= most // 2 else cut


def _quoted(text: str) -> str:
    """Text inside the quotes of Mermaid: what has a meaning there is written as an entity."""
    return "".join(c if c.isalnum() or c in " _-.,:/()×·" else f"#{ord(c)};" for c in _cut(text))
