"""The report as one self-contained HTML page: it includes styles and plots, and its security policy
forbids everything else. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from squall_spark.report.choose import show_time
from squall_spark.report.confidence import KEY_SAMPLES_MIN, SAMPLES_MIN, SHARE_MIN
from squall_spark.report.plots import bar_plot, clock, line_plot, number, text_of

_STYLE = """
:root{color-scheme:light dark;--line:#8884;--soft:#8882}
body{font:15px/1.45 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.5rem;margin-bottom:.2rem}h2{font-size:1.15rem;margin-top:2.2rem}
h3{font-size:1rem;margin:1.2rem 0 .2rem}
p.sub,.none{opacity:.75}
.verdict{font-size:1.1rem;margin:1rem 0}.verdict p{margin:.3rem 0}
table{border-collapse:collapse;width:100%;margin:.6rem 0}
th,td{text-align:left;padding:.25rem .5rem;border-bottom:1px solid var(--line);vertical-align:top}
td.n,th.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
td.wrap{overflow-wrap:anywhere}
tr.change td{background:var(--soft);font-weight:600}
svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor}
svg .grid{stroke:var(--line)}svg .mark{stroke:#d00;stroke-dasharray:2 3}
svg polyline{fill:none;stroke-width:1.6}
svg .gap{fill:#8886}svg .hover{fill:transparent}svg .hover:hover{fill:var(--soft)}
svg .unit{font-style:italic}
ul.legend{list-style:none;padding:0;margin:.1rem 0 1rem;display:flex;flex-wrap:wrap;gap:.2rem 1rem}
ul.legend span{display:inline-block;width:.8rem;height:.8rem;margin-right:.35rem}
ul.notes{border-left:4px solid #e69f00;padding:.4rem 1rem .4rem 2rem;background:var(--soft)}
"""

Report = dict[str, Any]
_MARKED = ("worker exited", "killed", "rebalanced", "reassigned", "leader gained")
_EVENTS_SHOWN = 300


def page(report: Report) -> str:
    """The whole page."""
    name = text_of(report["topology"]["name"])
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" '
        "content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width">'
        f"<title>{name}: report</title><style>{_STYLE}</style></head><body>"
        + "".join(_sections(report))
        + "</body></html>\n"
    )


def _sections(report: Report) -> Iterable[str]:
    topology = report["topology"]
    yield f"<h1>{text_of(topology['name'])}</h1>"
    yield (
        f'<p class="sub">{text_of(topology["id"])} · {show_time(report["from_ms"] / 1000)} to '
        f"{show_time(report['to_ms'] / 1000)} · steps of {number(report['step_secs'])} s · made "
        f"{show_time(report['made_at_ms'] / 1000)}</p>"
    )
    sentences = "".join(f"<p>{text_of(sentence)}</p>" for sentence in report["verdict"])
    yield f'<div class="verdict">{sentences}</div>'
    if report["notes"]:
        notes = "".join(f"<li>{text_of(note)}</li>" for note in report["notes"])
        yield f'<ul class="notes">{notes}</ul>'
    yield _components(report)
    yield _advice(report)
    yield _over_time(report)
    yield _skew(report)
    yield _hot_keys(report)
    yield _failures(report)
    yield _metrics(report)


def table(
    head: Sequence[str], rows: Iterable[Sequence[object]], *, numbers: Iterable[int] = (),
    marked: Sequence[bool] = (),
) -> str:  # fmt: skip
    """A table; all text is escaped. `numbers` are the right-aligned columns."""
    right = set(numbers)

    def cells(tag: str, values: Sequence[object]) -> str:
        return "".join(
            f'<{tag} class="{"n" if i in right else "wrap"}">{text_of(value)}</{tag}>'
            for i, value in enumerate(values)
        )

    body = ""
    for index, row in enumerate(rows):
        change = ' class="change"' if index < len(marked) and marked[index] else ""
        body += f"<tr{change}>{cells('td', row)}</tr>"
    return f"<table><thead><tr>{cells('th', head)}</tr></thead><tbody>{body}</tbody></table>"


def latency_of(component: Report) -> dict[str, float | None]:
    """The latency to show: the complete latency of a spout, the execute latency of a bolt."""
    found: dict[str, float | None] = component["latency_ms"][
        "complete" if component["kind"] == "spout" else "execute"
    ]
    return found


def _components(report: Report) -> str:
    rows = [
        (
            component, of["kind"], of["executors"], of["tasks"],
            number(of["emitted"] if of["kind"] == "spout" else of["executed"]),
            number(of["acked"]), number(of["failed"]),
            *(number(latency_of(of)[share]) for share in ("p50", "p95", "p99")),
            number(of["capacity"]), number(of["capacity_peak"]),
        )
        for component, of in report["components"].items()
    ]  # fmt: skip
    head = (
        "component", "", "executors", "tasks", "tuples", "acked", "failed", "p50 ms", "p95 ms",
        "p99 ms", "capacity", "its peak",
    )  # fmt: skip
    return (
        "<h2>Components</h2>"
        + table(head, rows, numbers=range(2, 12))
        + '<p class="sub">Tuples: emitted by spouts, executed by bolts. Latency: complete latency '
        "of spouts, execute latency of bolts. Capacity: the share of the time that the executors "
        "spent in execute; of an async bolt, and of one on threads, the share of the calls that "
        "may be under way. Its peak is exceeded in one of twenty steps.</p>"
    )


def _advice(report: Report) -> str:
    rows = [
        (one["component"] or "all: workers", one["now"], one["recommended"], one["why"])
        for one in report["advice"]
    ]
    marked = [one["now"] != one["recommended"] for one in report["advice"]]
    return "<h2>Recommended parallelism</h2>" + table(
        ("component", "now", "recommended", "why"), rows, numbers=(1, 2), marked=marked
    )


def _over_time(report: Report) -> str:
    steps, components = report["steps_ms"], report["components"]
    marks = [
        (e["at_ms"], f"{e['event']} {e['place']}") for e in report["events"]
        if e["event"] in _MARKED
    ]  # fmt: skip

    names = list(components)
    gaps = [(gap["from_ms"], gap["to_ms"], gap["place"]) for gap in report["missing"]]
    more: Any = {"marks": marks, "gaps": gaps, "order": names}

    def lines(what: str, kind: str | None = None) -> list[tuple[str, Sequence[float | None]]]:
        return [
            (component, of["over_time"][what])
            for component, of in components.items()
            if kind is None or of["kind"] == kind
        ]

    parts = ["<h2>Over time</h2><h3>Throughput</h3>"]
    parts.append(
        line_plot(
            "throughput",
            steps,
            lines("per_sec"),
            unit="tuples/s",
            **more,
        )
    )
    for kind, title in (("spout", "Complete latency"), ("bolt", "Execute latency")):
        for share in ("p50", "p95", "p99"):
            parts.append(f"<h3>{title}, {share}</h3>")
            of_kind = lines(f"latency_{share}_ms", kind)
            parts.append(
                line_plot(
                    f"{title}, {share}",
                    steps,
                    of_kind,
                    unit="ms",
                    marks=marks,
                    gaps=gaps,
                    order=names,
                )
            )
    parts.append("<h3>Capacity</h3>")
    parts.append(
        line_plot(
            "capacity",
            steps,
            lines("capacity", "bolt"),
            unit="1 = all busy",
            **more,
        )
    )
    parts.append("<h3>Waiting</h3>")
    parts.append(
        line_plot(
            "waiting",
            steps,
            lines("waiting_max"),
            unit="tuples, fullest task",
            **more,
        )
    )
    return "".join(parts)


def _skew(report: Report) -> str:
    parts = ["<h2>Skew between tasks</h2>"]
    shown = False
    for component, of in report["components"].items():
        skew = of["skew"]
        counts = {f"task {task}": float(n) for task, n in skew["by_task"].items()}
        if len(counts) < 2 or not sum(counts.values()):
            continue
        shown = True
        if len(counts) > 40:
            largest = sorted(counts.items(), key=lambda item: -item[1])[:40]
            counts = dict(largest)
        parts.append(
            f"<h3>{text_of(component)}: the largest task has {skew['ratio']:.2f} times the mean"
            "</h3>"
        )
        mean = sum(skew["by_task"].values()) / len(skew["by_task"])
        title = f"{skew['measure']} by task of {component}"
        parts.append(bar_plot(title, counts, unit="tuples", mean=mean))
    if not shown:
        parts.append('<p class="none">No component has several tasks with work.</p>')
    return "".join(parts)


def _hot_keys(report: Report) -> str:
    parts = ["<h2>Hot keys of fields groupings</h2>"]
    for of in report["hot_keys"]:
        where = f"{of['component']}:{of['stream']} to {of['grouping']}"
        parts.append(f"<h3>{text_of(where)}</h3>")
        bars = {one["key"]: 100 * one["share"] for one in of["top"][:12] if one["hot"]}
        ranges = {
            one["key"]: (100 * one["share_low"], 100 * one["share_high"]) for one in of["top"][:12]
        }
        if bars:
            title = f"keys, {where}"
            parts.append(bar_plot(title, bars, unit="% of the tuples", ranges=ranges))
        else:
            parts.append(
                f'<p class="none">No key is known to have {100 * SHARE_MIN:g} % of the tuples or '
                f"more: that takes {SAMPLES_MIN} samples, {KEY_SAMPLES_MIN} of them of the key.</p>"
            )
        parts.append(
            f'<p class="sub">{number(of["samples"])} keys sampled, {100 * of["rate"]:g} % of the '
            f"tuples; each count is at most {number(of['error'])} too low. The thin lines are the "
            "ranges in which the shares are, 19 times of 20.</p>"
        )
    if not report["hot_keys"]:
        parts.append('<p class="none">No key of a fields grouping was sampled.</p>')
    return "".join(parts)


def _failures(report: Report) -> str:
    steps = report["steps_ms"]
    span = report["to_ms"] - report["from_ms"]
    parts = ["<h2>Failures and recoveries</h2>"]
    names = list(report["components"])
    failed = [(c, of["over_time"]["failed"]) for c, of in report["components"].items()]
    parts.append(line_plot("failed tuples", steps, failed, unit="a step", order=names))
    if report["recoveries"]:
        rows = [
            (
                clock(one["at_ms"], span), one["place"], one["why"],
                "not again" if one["secs"] is None else f"{one['secs']:.1f} s",
                one["running_on"] or "",
            )
            for one in report["recoveries"]
        ]  # fmt: skip
        head = ("worker ended", "where", "why", "running again after", "on")
        parts.append(table(head, rows, numbers=(3,)))
    else:
        parts.append('<p class="none">No worker exited unexpectedly.</p>')
    if report["errors"]:
        rows = [
            (e["component"], e["count"], clock(e["first_ms"], span), clock(e["last_ms"], span),
             e["message"])
            for e in report["errors"]
        ]  # fmt: skip
        head = ("component", "errors", "first", "last", "message")
        parts.append("<h3>Errors</h3>" + table(head, rows, numbers=(1,)))
    events = report["events"][-_EVENTS_SHOWN:]
    rows = [(clock(e["at_ms"], span), e["event"], e["place"], e["text"], e["by"]) for e in events]
    head = ("time (UTC)", "event", "where", "", "reported by")
    parts.append("<h3>Events</h3>" + table(head, rows))
    return "".join(parts)


def _metrics(report: Report) -> str:
    if not report["metrics"]:
        return ""
    rows = [
        (m["component"], m["name"], number(m["sum"]), m["intervals"]) for m in report["metrics"]
    ]
    head = ("component", "metric", "sum", "intervals")
    return "<h2>Metrics of the components</h2>" + table(head, rows, numbers=(2, 3))
