"""From a report of `storm report --json` to the rebalance that it recommends.

Commands and the UI make the report; the decisions here are pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from squall_common.errors import SquallError
from squall_common.names import is_system_id

_FORMAT = 1
AGE_SECS_MAX = 3600.0


class RecommendationError(SquallError):
    """A report that cannot be applied."""


@dataclass(frozen=True, slots=True)
class Component:
    """A component as it runs now."""

    executors: int
    tasks: int


@dataclass(frozen=True, slots=True)
class Change:
    """One proposed change. `component` "" stands for the workers."""

    component: str
    now: int
    recommended: int
    why: str


@dataclass(frozen=True, slots=True)
class Recommendation:
    """A report's advice for a topology as it runs now."""

    changes: list[Change]
    unjudged: list[str]  # components ("": the workers) with too little data


def read_report_file(path: Path) -> dict[str, Any]:
    """Read a report. Raises RecommendationError if the file is not one of ours."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise RecommendationError(
            f"cannot read the report {path}: {error.strerror or error}",
            hint="storm report TOPOLOGY --json FILE writes one; --from-report without a file "
            "makes a new one",
        ) from error
    return read_report(text, path)


def read_report(text: bytes, path: object) -> dict[str, Any]:
    """Read the text of a report; `path` names it in errors. Raises RecommendationError if it is not
    one of ours."""
    try:
        report = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise RecommendationError(f"{path} is not JSON: {error}") from error
    if not isinstance(report, dict) or "advice" not in report:
        raise RecommendationError(f"{path} is not a report of `storm report --json`")
    if report.get("format") != _FORMAT:
        raise RecommendationError(
            f"{path} is a report from another version of squall (format {report.get('format')}; "
            f"this one reads {_FORMAT})"
        )
    return report


def recommendation_of(
    report: Mapping[str, Any],
    *,
    topology_id: str,
    running: Mapping[str, Component],
    workers: int,
    now_secs: float,
    force: bool,
) -> Recommendation:
    """The changes that the report recommends to a topology as it runs now, with at most as many
    executors as tasks, and the components it cannot judge. Raises RecommendationError for a report
    about another topology or, unless forced, an old one."""
    try:
        about = str(report["topology"]["id"])
        age_secs = now_secs - float(report["to_ms"]) / 1000
        if not math.isfinite(age_secs):
            raise ValueError(f"to_ms: {report['to_ms']}")
        advice = [
            (
                str(one["component"]),
                int(one["recommended"]),
                str(one["why"]),
                bool(one.get("enough", True)),
            )
            for one in report["advice"]
        ]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise RecommendationError(f"the report is damaged: {error!r}") from error
    if about != topology_id:
        raise RecommendationError(
            f"the report is about {about}, but {topology_id} is running",
            hint="make a new report: --from-report without a file",
        )
    if age_secs > AGE_SECS_MAX and not force:
        raise RecommendationError(
            f"the report's data ends {age_secs / 3600:.1f} hours ago; the load may have changed",
            hint="--from-report without a file makes a new report; --force applies this one",
        )
    found = []
    judged = set()
    for component, recommended, why, enough in advice:
        if enough:
            judged.add(component)
        if not component:
            if recommended > workers:
                found.append(Change("", workers, recommended, why))
        elif component in running:
            now, tasks = running[component].executors, running[component].tasks
            recommended = max(1, min(recommended, tasks))
            if recommended != now:
                found.append(Change(component, now, recommended, why))
    ours = sorted(name for name in running if not is_system_id(name))
    return Recommendation(found, [name for name in [*ours, ""] if name not in judged])


def running_of(info: Any) -> dict[str, Component]:
    """Executors and tasks of a topology's components, from Thrift's TopologyInfo."""
    found: dict[str, Component] = {}
    for executor in info.executors:
        before = found.get(executor.component_id, Component(0, 0))
        tasks = executor.executor_info.task_end - executor.executor_info.task_start + 1
        found[executor.component_id] = Component(before.executors + 1, before.tasks + tasks)
    return found
