"""Describes the state of each task in a line, for stack dumps. Called from another thread than the
loop's: reads everything once and changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from squall_engine.tasks.base import Task
from squall_engine.tasks.bolt import BoltTask
from squall_engine.tasks.built import Built
from squall_engine.tasks.spout import SpoutTask


def describe_tasks(built: Sequence[Built], now: float) -> Iterable[str]:
    """One line a task: `split 7 SyncBolt: queued=12 outgoing=0 busy`."""
    for one in tuple(built):
        task = one.task
        words = [f"outgoing={_outgoing(task)}"]
        if isinstance(task, SpoutTask):
            words[:0] = _spout(task, now)
        elif isinstance(task, BoltTask):
            words[:0] = _bolt(task)
        if not one.opened:
            words.append("not opened yet")
        yield f"{task.component} {task.task} {type(task).__name__}: {' '.join(words)}"


def _spout(spout: SpoutTask, now: float) -> list[str]:
    pending_max = "unbounded" if spout.pending_max is None else spout.pending_max
    words = [f"pending={len(spout.pending)}", f"max={pending_max}"]
    words.append("active" if spout.active else "inactive")
    if spout.idle_until > now:
        words.append(f"idle for {spout.idle_until - now:.3f} s")
    return words


def _bolt(bolt: BoltTask) -> list[str]:
    words = [f"queued={bolt.inbox.queued}"]
    flying = getattr(bolt, "_flying", None)
    if flying is not None:
        words.append(f"in_flight={len(flying)}")
    words.append("busy" if bolt.busy else "idle")
    return words


def _outgoing(task: Task) -> int:
    """Tuples that it emitted and that have not left yet."""
    return sum(len(edge) for output in task.outputs for edge in output.edges)
