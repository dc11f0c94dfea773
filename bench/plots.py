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
            "svg.hashsalt": "squall", "svg.fonttype": "none", "font.size": 9,
            "axes.spines.top": False,
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


def _latency(report: Mapping[str, Any]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 3.2))
    for name, row in report["cases"].items():
        curve = row["curve_us"]
        share = [100.0 * at / (len(curve) - 1) for at in range(len(curve))]
        bare = name == "echo"
        axes.plot(
            curve,
            share,
            label=row["title"],
            ls=":" if bare else "-",
            color=_OTHER if bare else None,
        )
    axes.set_xscale("log")
    axes.set_xlabel("µs from emit to ack")
    axes.set_ylabel("% of messages")
    axes.legend(loc="lower right")
    return figure


def _memory(report: Mapping[str, Any]) -> Any:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.5, 3.2))
    for row in report["cases"].values():
        workers = [name for name in row["peaks_mb"] if name.startswith("worker")]
        most = max(workers, key=lambda name: row["peaks_mb"][name])
        curve = row["curve"]
        axes.plot([p["secs"] for p in curve], [p[most] for p in curve], label=row["title"])
        axes.axvspan(row["stuck_at_secs"], row["freed_at_secs"], color=_OTHER, alpha=0.06)
    axes.axhline(max(row["goal_mb"] for row in report["cases"].values()), color=_GOAL, lw=1)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds; the bolt is stuck where it is grey")
    axes.set_ylabel("RSS of the larger worker, MB")
    axes.legend(loc="lower right", fontsize=7)
    return figure


def _scale(report: Mapping[str, Any]) -> Any:
    from matplotlib import pyplot

    axes_of: dict[str, list[Mapping[str, Any]]] = {}
    for row in report["cases"].values():
        axes_of.setdefault(row["axis"], []).append(row)
    figure, plots = pyplot.subplots(
        1, len(axes_of), figsize=(2.6 * len(axes_of), 2.8), squeeze=False
    )
    for axes, (axis, rows) in zip(plots[0], axes_of.items(), strict=True):
        values = [row["value"] for row in rows]
        axes.plot(values, [row["cpu_us_a_tuple"] for row in rows], "o-", color=_OURS, ms=3)
        for row in rows:
            at = (row["value"], row["cpu_us_a_tuple"])
            axes.annotate(f"{at[1]:.2g}", at, fontsize=6, color=_OURS)
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set_xticks(values, [f"{value:g}" for value in values], fontsize=7)
        axes.set_xlabel(axis.replace("_", " "))
        right = axes.twinx()
        right.plot(values, [row["wall_millions_sec"] for row in rows], "s--", color=_OTHER, ms=3)
        right.set_yscale("log")
        right.grid(visible=False)
        for vertical in (axes.yaxis, right.yaxis):
            vertical.set_major_formatter("{x:g}")
        for both in (axes, right):
            both.minorticks_off()
    plots[0][0].set_ylabel("CPU, µs a tuple (blue)")
    right.set_ylabel("M tuples/s of time (grey)")
    return figure


def _peers(report: Mapping[str, Any]) -> Any:
    rows = [row for row in report["cases"].values() if "cpu_us_a_word" in row]
    figure = _bars(
        [row["title"] for row in rows],
        [row["cpu_us_a_word"] for row in rows],
        "CPU, µs a word",
        [_OURS if row["ours"] else _OTHER for row in rows],
    )
    figure.axes[0].set_xscale("log")
    return figure


_DRAWINGS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "headline": _headline,
    "features": _features,
    "latency": _latency,
    "memory": _memory,
    "scale": _scale,
    "peers": _peers,
}
