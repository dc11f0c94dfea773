"""Asks the workers of a running topology about the state of its tasks, and shows the answers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from squall_cli.cluster.nimbus import call_nimbus
from squall_common.config.options.typed import ClientOptions
from squall_common.errors import SquallError
from squall_common.telemetry.live_state import (
    Entry,
    Question,
    TaskAnswer,
    decode_answer,
    merged,
)

NOW = "now"


@dataclass(slots=True)
class LiveAnswer:
    """What all workers that were asked answer."""

    tasks: list[tuple[str, TaskAnswer]] = field(default_factory=list)  # with its worker
    troubles: list[tuple[str, str]] = field(default_factory=list)  # of a worker or a task, and what

    def entries(self, limit: int) -> tuple[list[tuple[TaskAnswer, Entry]], bool]:
        """A page of all tasks, and whether more keys follow."""
        return merged((task for _, task in self.tasks), limit)


def ask(client: ClientOptions, name: str, question: Question) -> LiveAnswer:
    """Ask. Raises SquallError if Nimbus does not take the question; workers that do not answer are
    among the troubles."""
    topology_id = call_nimbus(client, "getTopologySummaryByName", name).id
    text = msgspec.json.encode(question).decode()
    found = LiveAnswer()
    for one in call_nimbus(client, "readState", topology_id, text):
        worker = f"{one.host or one.supervisor_id}:{one.port}"
        if one.answer is None:
            found.troubles.append((f"worker {worker}", one.trouble or "it has not answered"))
            continue
        try:
            answer = decode_answer(one.answer)
        except ValueError as error:
            found.troubles.append((f"worker {worker}", str(error)))
            continue
        if answer.trouble:
            found.troubles.append((f"worker {worker}", answer.trouble))
        found.tasks += ((worker, task) for task in answer.tasks)
    found.tasks.sort(key=lambda one: (one[1].component, one[1].task))
    found.troubles += (
        (f"task {task.task} of {task.component!r}", task.trouble)
        for _, task in found.tasks
        if task.trouble
    )
    return found


def sizes_as_json(name: str, found: LiveAnswer) -> list[dict[str, Any]]:
    """An object for each task, and for each worker that has not answered."""
    answers: list[dict[str, Any]] = [
        {
            "topology": name,
            "component": task.component,
            "task": task.task,
            "worker": worker,
            "keys": task.keys,
            "bound_keys": task.bound,
            "bytes": task.bytes,
            "unstored": task.unstored,
            "epoch": task.epoch,
            "windows": None if task.windows is None else dict(task.windows),
            "trouble": task.trouble,
        }
        for worker, task in found.tasks
    ]
    return [*answers, *_troubles_as_json(name, found)]


def _troubles_as_json(name: str, found: LiveAnswer) -> list[dict[str, Any]]:
    return [
        {"topology": name, "worker": who.removeprefix("worker "), "trouble": trouble}
        for who, trouble in found.troubles
        if who.startswith("worker ")
    ]


def entries_as_json(
    name: str,
    entries: Iterable[tuple[TaskAnswer, Entry]],
    stored: Sequence[Mapping[str, Any]],
    found: LiveAnswer,
) -> list[dict[str, Any]]:
    """An object for each entry: those that tasks have now, and those of the store."""
    answers: list[dict[str, Any]] = [
        {
            "topology": name,
            "component": task.component,
            "task": task.task,
            "key": entry.key,
            "value": entry.value,
            "as_of": NOW,
            "stored": entry.stored,
            "cut": entry.cut,
            "order": entry.order,
        }
        for task, entry in entries
    ]
    return [*answers, *map(dict, stored), *_troubles_as_json(name, found)]


def sizes_table(found: LiveAnswer) -> tuple[Sequence[str], list[tuple[object, ...]]]:
    """Columns and rows."""
    columns = ("BOLT", "TASK", "WORKER", "KEYS", "BOUND", "~BYTES", "UNSTORED", "EPOCH", "WINDOWS")
    rows: list[tuple[object, ...]] = []
    for worker, task in found.tasks:
        windows = ", ".join(
            f"{count} {what.replace('_', ' ')}" for what, count in (task.windows or {}).items()
        )
        figures = (task.keys, task.bound, task.bytes, task.unstored, task.epoch)
        shown = ("" if one is None else str(one) for one in figures)
        rows.append((task.component, task.task, worker, *shown, windows))
    return columns, rows


def as_of(entry: Entry, epoch: int | None, what: str) -> str:
    """Which values an entry shows, in words; `what` is stored (a checkpoint)."""
    if entry.stored is None:
        return NOW
    if entry.stored:
        return f"{NOW} and {what}" + ("" if epoch is None else f" {epoch}")
    return f"{NOW}; not stored yet"


def require_answered(found: LiveAnswer) -> None:
    """Raises SquallError, which says what has not answered."""
    if found.troubles:
        raise SquallError("\n".join(f"{who}: {trouble}" for who, trouble in found.troubles))
