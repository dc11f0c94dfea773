"""All that the pages show of one topology at one moment, as JSON.

`TopologyState` keeps what has to be remembered between two looks: reports of executors, and time
series. The rest is made anew from what Nimbus answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import ConfigError
from squall_common.names import is_system_id
from squall_common.telemetry.findings import (
    CheckpointFacts,
    ComponentFacts,
    Exit,
    Facts,
    Finding,
    HeldWorker,
    cpu_note,
    findings,
)
from squall_common.topology.error_text import headline
from squall_common.topology.plan import brief
from squall_common.topology.thrift import plan_of
from squall_thrift import storm
from squall_ui.live import graph
from squall_ui.live.beats import WorkerBeats
from squall_ui.live.rates import WINDOW_SECS, Flow, Key, Rates, sum_of
from squall_ui.live.series import Series
from squall_ui.live.sums import WorkersSums
from squall_ui.rest.cluster import topology_summary
from squall_ui.rest.graph import components_of, edges_of
from squall_ui.rest.topology import checkpoints_json

_TREND_SECS = 120
_ERROR_CHARS = 300
_DOES_CHARS = 120  # a box has room for half of them
# How often it is judged why a large topology is slow: by ten seconds, so one more is not missed.
_JUDGE_SECS = 1.0


@dataclass(frozen=True, slots=True)
class Look:
    """What Nimbus answered about a topology."""

    summary: storm.TopologySummary
    code: storm.StormTopology
    page: storm.TopologyPageInfo
    info: storm.TopologyInfo
    reports: Sequence[storm.SupervisorWorkerHeartbeat] | None = None  # None: not read
    sums: Sequence[storm.SupervisorWorkerHeartbeat] | None = None  # of a large one that is watched


@dataclass(frozen=True, slots=True)
class _Known:
    """What followed from these answers about a topology's executors."""

    info: storm.TopologyInfo | None  # None: they follow from the page alone
    page: storm.TopologyPageInfo
    components: dict[str, dict[str, Any]]
    steady: dict[str, dict[str, Any]]  # of the last ten seconds
    sums: dict[str, Flow]


@dataclass(frozen=True, slots=True)
class _Followed:
    """What followed from sums, at a time in the topology's uptime."""

    flows: Mapping[str, Flow]
    busiest: Mapping[str, tuple[str, float]]
    most: Mapping[str, float]
    uptime_secs: int


class TopologyState:
    """One topology over time."""

    def __init__(self) -> None:
        self.series = Series()
        self._rates = Rates()
        self._beats = WorkerBeats()
        self._sums = WorkersSums()
        # At the last look: whether rates followed from sums alone, so that what executors do (the
        # `info` then) need not be read again.
        self.follows_sums = False
        self.info: storm.TopologyInfo | None = None
        self._known: _Known | None = None
        self._plans: tuple[storm.StormTopology, Mapping[str, str]] | None = None
        self._followed: _Followed | None = None  # the last time that rates followed from sums
        # What is judged, where it follows from sums, and when it was made.
        self._judged: dict[str, dict[str, Any]] = {}
        self._judged_at = float("-inf")

    def look(self, seen: Look, now_secs: float) -> dict[str, Any]:
        """Take in what was seen; the state as JSON."""
        if seen.sums is None:
            self._sums.clear()
            self._followed = None
        have_sums = seen.sums is not None and self._sums.take(seen.sums)
        self.info, self.follows_sums = seen.info, have_sums and seen.reports is None
        if have_sums:
            self._followed = _Followed(
                self._sums.now(),
                self._busiest(seen.page.workers or ()),
                self._sums.most(),
                seen.summary.uptime_secs,
            )
        followed = self._followed if have_sums or self._lacks_sums(seen) else None
        from_sums = self.follows_sums or (followed is not None and not have_sums)
        known = self._described(seen) if from_sums else self._executors(seen)
        components, steady, sums = known.components, known.steady, known.sums
        judge = True
        if followed is not None:
            flows, busiest, most = followed.flows, followed.busiest, followed.most
            components = _with_sums(components, flows, busiest, most)
            sums = {**sums, **{name: flow for name, flow in flows.items() if name in components}}
            judge = have_sums and not 0 <= now_secs - self._judged_at < _JUDGE_SECS
            if judge:
                self._judged = _with_sums(steady, self._sums.steady(), busiest, most)
                self._judged_at = now_secs
            steady = self._judged
        edges = _edges(seen.code, sums)
        facts = self._facts(seen, steady, now_secs)
        totals = _totals(seen.code, components, sums)
        if judge:
            self._record(now_secs, components, totals)
        cost = {name: one["processMs"] for name, one in components.items()}
        pairs = [(one["source"], one["target"]) for one in edges]
        return {
            "at": round(now_secs, 2),
            "topology": topology_summary(seen.summary),
            "components": components,
            "edges": edges,
            "layers": graph.layers(list(components), pairs),
            "path": graph.slowest_path(list(components), list(seen.code.spouts), pairs, cost),
            "findings": [_finding(one) for one in findings(facts)],
            "workers": [_worker(one) for one in seen.page.workers or ()],
            "cpuNote": cpu_note(facts),
            "totals": totals,
            "checkpoints": None
            if seen.page.checkpoints is None
            else checkpoints_json(seen.page.checkpoints),
            "finished": seen.page.finished,
            "debug": bool(seen.page.debug_options and seen.page.debug_options.enable),
        }

    def _lacks_sums(self, seen: Look) -> bool:
        """Whether sums are missing for a moment, and what was read of the executors is older than
        they are: it was not read again meanwhile. Then the last sums are shown until it was."""
        return (
            self._followed is not None
            and seen.sums is not None
            and seen.reports is None
            and (seen.info.uptime_secs or 0) < self._followed.uptime_secs
        )

    def _busiest(self, workers: Iterable[storm.WorkerSummary]) -> dict[str, tuple[str, float]]:
        """Of each component the busiest executor's name, and its share of time in `execute`."""
        hosts = {(one.supervisor_id or "", one.port or 0): one.host or "" for one in workers}
        return {
            name: (
                _executor_name(
                    (name, one.first_task, one.last_task, hosts.get(one.slot, ""), one.slot[1])
                ),
                _round(min(1.0, one.share)),
            )
            for name, one in self._sums.busiest().items()
        }

    def _described(self, seen: Look) -> _Known:
        """The components without what their executors do, of which nothing was read."""
        last = self._known
        if last is None or last.info is not None or last.page is not seen.page:
            components = _components(seen, self._does(seen.code), {})
            last = self._known = _Known(None, seen.page, components, components, {})
        return last

    def _executors(self, seen: Look) -> _Known:
        """What the executors' reports say. Where nothing new was read, it is not made again: of
        thousands of executors that takes a while."""
        if seen.reports is None:
            last = self._known
            if last is not None and last.info is seen.info and last.page is seen.page:
                return last
            self._beats.clear()
        else:
            self._beats.take(seen.reports)
        executors = self._beats.executors(
            (one for one in seen.info.executors if not is_system_id(one.component_id)),
            seen.page.workers or (),
        )
        by_component = _by_component(self._rates.add(executors))
        does = self._does(seen.code)
        components = _components(seen, does, by_component)
        steady_flows = _by_component(self._rates.steady())
        _add_percentiles(components, steady_flows)
        self._known = _Known(
            seen.info,
            seen.page,
            components,
            _components(seen, does, steady_flows),
            {name: sum_of(_known_flows(by_component.get(name, {}))) for name in does},
        )
        return self._known

    def _does(self, code: storm.StormTopology) -> Mapping[str, str]:
        """What each component does, in few words. It stays as it is for as long as a topology."""
        if self._plans is None or self._plans[0] is not code:
            found = components_of(code, False)
            self._plans = (
                code,
                {name: brief(plan_of(one), _DOES_CHARS) for name, one in found.items()},
            )
        return self._plans[1]

    def _facts(
        self, seen: Look, components: Mapping[str, Mapping[str, Any]], now_secs: float
    ) -> Facts:
        conf = _options(seen.page.topology_conf)
        summary, last = seen.summary, seen.summary.last_exit
        workers = seen.page.workers or ()
        return Facts(
            name=summary.name,
            status=summary.status,
            health=summary.health or "",
            uptime_secs=summary.uptime_secs,
            rates_secs=WINDOW_SECS,
            workers=len(workers),
            silent=[f"{one.host}:{one.port}" for one in workers if not one.uptime_secs],
            held=[held for one in workers if (held := _held(one)) is not None],
            schedule=summary.sched_status or "",
            last_exit=None if last is None else _exit(last, now_secs),
            restarts=summary.restarts or 0,
            pending_max=conf.topology_max_spout_pending,
            checkpoints=_checkpoints(seen.page.checkpoints),
            timeout_secs=conf.topology_message_timeout_secs,
            finished=seen.page.finished,
            busy_poll_ms=conf.topology_worker_busy_poll_ms,
            components=[
                ComponentFacts(
                    name,
                    one["type"] == "spout",
                    one["executors"],
                    one["tasks"],
                    emitted=one["emitRate"],
                    executed=one["executeRate"],
                    acked=one["ackRate"],
                    failed=one["failRate"],
                    execute_ms=one["executeMs"],
                    complete_ms=one["completeMs"],
                    busy=one["busy"],
                    busy_mean=one["busyMean"],
                    busy_before=self.series.before(f"{name}.busy", now_secs, _TREND_SECS),
                    busiest=one["busiest"],
                    blocked=one["blocked"],
                    error=one["error"],
                    error_age_secs=None
                    if one["errorTime"] is None
                    else max(0, int(now_secs) - one["errorTime"]),
                    pending=one["queue"] or 0 if one["type"] == "spout" else 0,
                    exhausted=one["exhausted"],
                    calls=one["calls"],
                    calls_max=one["callsMax"],
                    on_threads=one["onThreads"],
                )
                for name, one in components.items()
            ],
        )

    def _record(
        self, now_secs: float, components: Mapping[str, Any], totals: Mapping[str, float]
    ) -> None:
        values = {f".{name}": value for name, value in totals.items()}
        for name, one in sorted(components.items()):
            spout = one["type"] == "spout"
            values[f"{name}.rate"] = one["emitRate" if spout else "executeRate"]
            values[f"{name}.ms"] = one["completeMs" if spout else "executeMs"]
            values[f"{name}.failed"] = one["failRate"]
            for share in ("p50", "p95", "p99"):
                if one[share] is not None:
                    values[f"{name}.{share}"] = one[share]
            if not spout:
                values[f"{name}.busy"] = one["busy"]
            if one["queue"] is not None:
                values[f"{name}.queue"] = one["queue"]
            if one["stateKeys"] is not None:
                values[f"{name}.keys"] = one["stateKeys"]
        self.series.add(now_secs, values)


def _by_component(flows: Mapping[Key, Flow | None]) -> dict[str, dict[Key, Flow | None]]:
    found: dict[str, dict[Key, Flow | None]] = {}
    for key, flow in flows.items():
        found.setdefault(key[0], {})[key] = flow
    return found


def _components(
    seen: Look,
    does: Mapping[str, str],
    flows: Mapping[str, Mapping[Key, Flow | None]],
) -> dict[str, dict[str, Any]]:
    """What is shown of each component. `does`: what its box says that it does."""
    stats = {
        **(seen.page.id_to_spout_agg_stats or {}),
        **(seen.page.id_to_bolt_agg_stats or {}),
    }
    return {
        name: _component(name in seen.code.spouts, flows.get(name, {}), stats.get(name), one)
        for name, one in does.items()
    }


def _component(
    is_spout: bool,
    flows: Mapping[Key, Flow | None],
    stats: storm.ComponentAggregateStats | None,
    does: str,
) -> dict[str, Any]:
    known = list(_known_flows(flows))
    total = sum_of(known)
    busiest = max(flows, key=lambda key: _busy(flows[key]), default=None)
    busy = _busy(flows[busiest]) if busiest is not None else 0.0
    mean = total.busy / len(known) if known else 0.0
    common = stats.common_stats if stats else None
    error = stats.last_error if stats else None
    spout = stats.specific_stats.spout if stats and stats.specific_stats else None
    bolt = stats.specific_stats.bolt if stats and stats.specific_stats else None
    calls_max = bolt.calls_max if bolt else None
    latency = _latency(stats)
    tasks = (common.num_tasks if common else 0) or 0
    # Of the last seconds: of all time, a wait that begins now would show after hours.
    blocked = {by: min(1.0, waiting / max(1, tasks)) for by, waiting in total.blocked.items()}
    return {
        "type": "spout" if is_spout else "bolt",
        "does": does,
        "executors": len(flows) or (common.num_executors if common else 0) or 0,
        "reporting": len(known),
        "tasks": tasks,
        "emitRate": _round(total.emitted),
        "executeRate": _round(total.executed),
        "ackRate": _round(total.acked),
        "failRate": _round(total.failed),
        "executeMs": _round(total.execute_ms),
        "processMs": _round(total.process_ms),
        "completeMs": _round(total.complete_ms),
        "busy": _round(busy),
        "busyMean": _round(mean),
        "busiest": _executor_name(busiest),
        "skew": _round(_skew(known, is_spout)),
        "emitted": (common.emitted if common else 0) or 0,
        "failed": (common.failed if common else 0) or 0,
        "queue": common.queue_tuples if common else None,
        "stateKeys": common.state_keys if common else None,
        "stateBytes": common.state_bytes if common else None,
        "exhausted": None if spout is None else spout.exhausted_tasks,
        # Of an async bolt, or one on threads: under way now, and at most.
        "calls": None if calls_max is None else _round(min(calls_max, total.calls)),
        "callsMax": calls_max,
        "onThreads": bool(bolt and bolt.on_threads),
        "blocked": {by: _round(share) for by, share in blocked.items() if share >= 0.005},
        "p50": _round(latency.p50_ms if latency else None),
        "p95": _round(latency.p95_ms if latency else None),
        "p99": _round(latency.p99_ms if latency else None),
        "error": _headline(error.error) if error else "",
        "errorTime": error.error_time_secs if error else None,
    }


def _with_sums(
    components: Mapping[str, dict[str, Any]],
    flows: Mapping[str, Flow],
    busiest: Mapping[str, tuple[str, float]],
    most: Mapping[str, float],
) -> dict[str, dict[str, Any]]:
    """The components with what follows from sums. `busiest`: an executor's name, and its share of
    time in `execute`; `most`: the tuples a second of the executor that has most."""
    found = dict(components)
    for name, one in components.items():
        if (flow := flows.get(name)) is None:
            continue
        spout = one["type"] == "spout"
        tasks = max(1, one["tasks"])
        mean = (flow.emitted if spout else flow.executed) / max(1, one["executors"])
        calls_max = one["callsMax"]
        found[name] = changed = {
            **one,
            "emitRate": _round(flow.emitted),
            "executeRate": _round(flow.executed),
            "ackRate": _round(flow.acked),
            "failRate": _round(flow.failed),
            "executeMs": _round(flow.execute_ms),
            "processMs": 0.0 if spout else _round(flow.process_ms),
            "completeMs": _round(flow.complete_ms) if spout else 0.0,
            # (At most 1: a worker of an earlier version does not say how many calls an async bolt
            # makes at once.)
            "busyMean": _round(min(1.0, flow.busy / max(1, calls_max or one["executors"]))),
            "calls": None if calls_max is None else _round(min(calls_max, flow.busy)),
            "skew": _round(max(1.0, most.get(name, 0.0) / mean)) if mean > 0 else 1.0,
            "blocked": {
                by: _round(min(1.0, waiting / tasks))
                for by, waiting in flow.blocked.items()
                if waiting / tasks >= 0.005
            },
        }
        if name in busiest:
            changed["busiest"], changed["busy"] = busiest[name]
        elif not flow.busy:
            changed["busy"] = 0.0
    return found


def _add_percentiles(
    components: Mapping[str, dict[str, Any]], flows: Mapping[str, Mapping[Key, Flow | None]]
) -> None:
    """Show the percentiles of the last ten seconds, where workers report distributions; otherwise
    those stay that Nimbus has computed."""
    for name, one in components.items():
        found = sum_of(_known_flows(flows.get(name, {}))).percentiles_ms()
        if found is not None:
            one["p50"], one["p95"], one["p99"] = map(_round, found)


def _headline(error: str) -> str:
    """The line that names an error, in a length for a table."""
    found = headline(error)
    return found if len(found) <= _ERROR_CHARS else f"{found[: _ERROR_CHARS - 1].rstrip()}…"


def _known_flows(flows: Mapping[Key, Flow | None]) -> Iterable[Flow]:
    return (one for one in flows.values() if one is not None)


def _busy(flow: Flow | None) -> float:
    return flow.busy if flow is not None else 0.0


def _executor_name(key: Key | None) -> str:
    if key is None:
        return ""
    _, first, last, host, port = key
    tasks = f"task {first}" if first == last else f"tasks {first} to {last}"
    return f"{tasks} on {host}:{port}"


def _skew(flows: list[Flow], is_spout: bool) -> float:
    """The busiest executor's tuples against the mean of all; 1 is even."""
    counts = [one.emitted if is_spout else one.executed for one in flows]
    mean = sum(counts) / len(counts) if counts else 0.0
    return max(counts) / mean if mean > 0 else 1.0


def _latency(stats: storm.ComponentAggregateStats | None) -> storm.LatencyDistribution | None:
    """The distribution of the latency that counts for a component, if Nimbus knows it."""
    specific = stats.specific_stats if stats else None
    if specific is None:
        return None
    if specific.spout is not None:
        return specific.spout.complete_latency
    return specific.bolt.execute_latency if specific.bolt is not None else None


def _edges(code: storm.StormTopology, sums: Mapping[str, Flow]) -> list[dict[str, Any]]:
    """One for each pair of components, with its streams."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for edge in edges_of(code, False):
        one = found.setdefault(
            (edge.source, edge.target),
            {
                "source": edge.source,
                "target": edge.target,
                "streams": [],
                "rate": 0.0,
                "bytes": _round(_sent(sums, edge.source, edge.target)),
            },
        )
        one["streams"].append({"stream": edge.stream, "grouping": edge.grouping})
        if edge.target in sums:
            rate = sums[edge.target].by_source.get((edge.source, edge.stream), 0.0)
            one["rate"] = _round(one["rate"] + rate)
    return list(found.values())


def _sent(sums: Mapping[str, Flow], source: str, target: str) -> float:
    """Bytes a second that leave their worker; tuples within a worker are not encoded."""
    return sums[source].sent_bytes.get(target, 0.0) if source in sums else 0.0


def _totals(
    code: storm.StormTopology, components: Mapping[str, Any], sums: Mapping[str, Flow]
) -> dict[str, float]:
    spouts = sum_of(sums[name] for name in code.spouts if name in sums)
    busy = [one["busy"] for one in components.values() if one["type"] == "bolt"]
    return {
        "emitRate": _round(sum(one.emitted for one in sums.values())),
        "sourceRate": _round(spouts.emitted),
        "ackRate": _round(spouts.acked),
        "failRate": _round(spouts.failed),
        "completeMs": _round(spouts.complete_ms),
        "busy": max(busy, default=0.0),
    }


def _worker(one: storm.WorkerSummary) -> dict[str, Any]:
    usage = one.usage
    return {
        "host": one.host or "",
        "port": one.port or 0,
        "supervisor": one.supervisor_id or "",
        "executors": one.num_executors or 0,
        "components": dict(one.component_to_num_tasks or {}),
        "started": bool(one.uptime_secs),
        "uptime": one.uptime_secs or 0,
        "cpu": _round(usage.cpu_cores if usage else None),
        "memory": usage.memory_bytes if usage else None,
        "lagMs": _round(usage.loop_lag_ms if usage else None),
    }


def _held(one: storm.WorkerSummary) -> HeldWorker | None:
    lag_ms = one.usage.loop_lag_ms if one.usage else None
    return HeldWorker.of(f"{one.host}:{one.port}", lag_ms, one.component_to_num_tasks or {})


def _checkpoints(report: storm.CheckpointReport | None) -> CheckpointFacts | None:
    if report is None:
        return None
    return CheckpointFacts(
        report.interval_ms / 1000,
        report.waiting_ms / 1000,
        report.epoch,
        report.given_up,
        report.waited_for or "",
        report.rollbacks,
        report.rollback_reason or "",
        report.failure or "",
    )


def _exit(last: storm.WorkerExit, now_secs: float) -> Exit:
    age_secs = max(0, int(now_secs) - last.time_secs)
    return Exit(last.reason, f"{last.host}:{last.port}", age_secs, last.last_line)


def _finding(one: Finding) -> dict[str, Any]:
    return {
        "kind": one.kind,
        "severity": one.severity.name.lower(),
        "title": one.title,
        "text": one.text,
        "component": one.component,
        "trend": one.trend,
    }


def _options(conf: str | None) -> TopologyOptions:
    """What is masked in the configuration may be of the wrong type."""
    try:
        return TopologyOptions.read(json.loads(conf or "{}"))
    except (ConfigError, ValueError):
        return TopologyOptions()


def _round(value: Any) -> Any:
    """Three significant digits: changes that nobody sees are not sent."""
    return None if value is None else float(f"{value:.3g}")
