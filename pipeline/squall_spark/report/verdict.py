"""The report in three sentences: what the topology did, what limits it, what went wrong. Pure."""

from __future__ import annotations

from typing import Any

from squall_spark.report.advise import HIGH
from squall_spark.report.plots import number

Report = dict[str, Any]


def verdict(report: Report) -> list[str]:
    """Three sentences for people."""
    return [_did(report), _limit(report), _trouble(report)]


def _did(report: Report) -> str:
    secs = (report["to_ms"] - report["from_ms"]) / 1000
    spouts = {name: of for name, of in report["components"].items() if of["kind"] == "spout"}
    emitted = sum(of["emitted"] for of in spouts.values())
    failed = sum(of["failed"] for of in spouts.values())
    acked = sum(of["acked"] for of in spouts.values())
    if not spouts:
        return "No spout has a history in this time."
    names = " and ".join(spouts) if len(spouts) <= 2 else f"{len(spouts)} spouts"
    rate = number(emitted / secs) if secs > 0 else "-"
    text = f"In {duration(secs)}, {names} emitted {number(emitted)} tuples, {rate} a second"
    p99 = [
        of["latency_ms"]["complete"]["p99"]
        for of in spouts.values()
        if of["latency_ms"]["complete"]["p99"] is not None
    ]
    if p99:
        text += f"; 99 % of them were complete within {number(max(p99))} ms"
    if failed:
        share = 100 * failed / max(1, failed + acked)
        return f"{text}, and {number(failed)} failed ({number(share)} %)."
    return f"{text}, and none failed." if acked else f"{text}."


def _limit(report: Report) -> str:
    bolts = {
        name: of["capacity_peak"]
        for name, of in report["components"].items()
        if of["capacity_peak"] is not None
    }
    changes = [one for one in report["advice"] if one["now"] != one["recommended"]]
    todo = ""
    if changes:
        listed = ", ".join(
            f"{one['component'] or 'workers'} {one['now']} to {one['recommended']}"
            for one in changes[:3]
        )
        todo = f"; recommended parallelism: {listed}"
        if len(changes) > 3:
            todo += f" and {len(changes) - 3} more"
    if not bolts:
        return f"How busy its bolts were is not known{todo}."
    busiest = max(bolts, key=lambda name: (bolts[name], name))
    peak = f"{min(bolts[busiest], 9.99):.0%}"
    calls_max = report["components"][busiest].get("calls_max")
    if calls_max is not None:
        peak = f"{min(bolts[busiest], 1.0):.0%}"
        calls = f"of its {calls_max} calls are under way at peak{todo}."
        if bolts[busiest] > HIGH:
            return f"{busiest} limits it: {peak} {calls}"
        return f"No bolt is near its limit: of the busiest, {busiest}, {peak} {calls}"
    if bolts[busiest] > HIGH:
        return f"{busiest} limits it: its executors are busy {peak} of the time at peak{todo}."
    return (
        f"No bolt is near its limit: the busiest, {busiest}, is busy {peak} of the time at "
        f"peak{todo}."
    )


def _trouble(report: Report) -> str:
    parts = []
    exits = report["recoveries"]
    if exits:
        stayed = sum(one["secs"] is None for one in exits)
        slowest = max((one["secs"] for one in exits if one["secs"] is not None), default=None)
        text = f"{_count(len(exits), 'worker')} exited unexpectedly"
        if slowest is not None:
            text += f", and ran again within {duration(slowest)}"
        if stayed:
            text += f" ({stayed} did not run again)"
        parts.append(text)
    errors = sum(one["count"] for one in report["errors"])
    if errors:
        most = max(report["errors"], key=lambda one: one["count"])
        parts.append(f"{_count(errors, 'error')}, most of them in {most['component']}")
    hot = [one for of in report["hot_keys"] for one in of["top"] if one["hot"]]
    if hot:
        first = max(hot, key=lambda one: one["share"])
        parts.append(
            f"{_count(len(hot), 'hot key')}, the largest with {100 * first['share']:.0f} % of its "
            "stream"
        )
    if report["missing"]:
        parts.append(f"{_count(len(report['missing']), 'part')} of the history missing")
    if not parts:
        return "No worker exited unexpectedly, no error was reported, and no key is hot."
    return f"Worth a look: {'; '.join(parts)}."


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def duration(secs: float) -> str:
    """A length of time for people."""
    if secs < 120:
        return f"{number(round(secs, 1))} s"
    if secs < 7200:
        return f"{secs / 60:.0f} minutes"
    if secs < 172_800:
        return f"{secs / 3600:.0f} hours"
    return f"{secs / 86_400:.0f} days"
