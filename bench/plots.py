"""Plots of the reports, as SVG (matplotlib; the extra `[bench]`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

_OURS, _OTHER, _GOAL, _LIMIT = "#2b6cb0", "#a0aec0", "#2f855a", "#c53030"


def draw(name: str, report: Mapping[str, Any], folder: Path) -> Path | None:
    """Draw `folder/name.svg`; None when there is no plot for this report. Raises ImportError
    without matplotlib."""
    drawing = _DRAWINGS.get(name)
    if drawing is None:
        return None
    import matplotlib

    matplotlib.use("Agg")
    # The same figures give the same file: no time in it, and ids that do not change.
    matplotlib.rcParams.update(
        {
            "svg.hashsalt": "squall", "font.size": 9, "axes.spines.top": False,
            "axes.spines.right": False, "axes.grid": True, "grid.alpha": 0.25,
            "axes.axisbelow": True, "figure.constrained_layout.use": True,
        }
    )  # fmt: skip
    figure = drawing(report)
    path = folder / f"{name}.svg"
    figure.savefig(path, metadata={"Date": None})
    from matplotlib import pyplot

    pyplot.close(figure)
    return path


def _bars(labels: list[str], values: list[float], xlabel: str, colours: list[str]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 0.8 + 0.32 * len(labels)))
    axes.barh(labels[::-1], values[::-1], color=colours[::-1])
    for at, value in enumerate(values[::-1]):
        axes.text(value, at, f" {value:.3g}", va="center", fontsize=8)
    axes.set_xlabel(xlabel)
    axes.grid(axis="y", visible=False)
    return figure


def _headline(report: Mapping[str, Any]) -> Any:
    rows = list(report["cases"].values())
    labels = [row["title"].replace("`", "") for row in rows]
    figure = _bars(
        labels, [row["cpu_us_a_tuple"] for row in rows], "CPU, µs a tuple", [_OURS] * len(rows)
    )
    axes = figure.axes[0]
    plain = report.get("plain_us_a_word")
    for at, row in enumerate(reversed(rows)):
        for key, colour in (("goal_ratio", _GOAL), ("limit_ratio", _LIMIT)):
            if key in row and plain:
                axes.plot([row[key] * plain] * 2, [at - 0.4, at + 0.4], color=colour, lw=2)
        if "goal_millions" in row:
            axes.plot([1 / row["goal_millions"]] * 2, [at - 0.4, at + 0.4], color=_GOAL, lw=2)
    if plain:
        axes.axvline(plain, color=_OTHER, lw=1, ls="--", label="plain Python loop, a word")
    axes.plot([], [], color=_GOAL, lw=2, label="goal")
    axes.plot([], [], color=_LIMIT, lw=2, label="limit")
    axes.legend(loc="lower right")
    axes.set_xscale("log")
    return figure


def _features(report: Mapping[str, Any]) -> Any:
    rows = [row for row in report["cases"].values() if "cost_us" in row]
    figure = _bars(
        [row["title"].replace("`", "") for row in rows],
        [row["cost_us"] for row in rows],
        "CPU that the feature costs, µs a word",
        [_OURS] * len(rows),
    )
    axes = figure.axes[0]
    for at, row in enumerate(reversed(rows)):
        axes.plot(row["cost_us_range"], [at, at], color="black", lw=1)
    return figure


_DRAWINGS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "headline": _headline,
    "features": _features,
}
