"""Questions about the state of running tasks, while their workers are asked.

A supervisor learns from the answer to its heartbeats that there are questions for its node, fetches
them, and sends what its workers have answered. So nobody connects to a worker or a supervisor, and
a topology about which nobody asks costs nothing. The questions are in the leader's memory: with it
they end, and who has asked asks again.

The key of a question says which task has it, where it is the key that the input is grouped by, or
begins with it. That task's worker is asked first, and the others only if it does not have the key.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from squall_common.cluster.values import Assignment
from squall_common.component.groupings import NoStableHashError
from squall_common.config.options.typed import TopologyOptions
from squall_common.errors import SquallError
from squall_common.names import is_system_id
from squall_common.state.key_groups import key_group, task_of_group
from squall_common.telemetry.live_state import Question, decode_answer, forms_of
from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.state_files import QUESTIONS_MAX
from squall_nimbus.store.topology_store import StoredTopology

ANSWER_SECS = 15.0
"""How long workers are waited for: a heartbeat (3 s) until they are asked, and one look."""
_WORKERS_MAX = 500  # asked at once
_OPEN_MAX = 2_000  # questions of workers, in all
_OPEN_OF_ONE_MAX = 500  # of one user: others are to have room
_ANSWERS_BYTES_MAX = 8 * 1024 * 1024  # of all workers, in one reply


@dataclass(slots=True)
class _Open:
    """A question to one worker."""

    topology_id: str
    asker: str | None
    slot: WorkerSlot
    text: str
    until: float
    answered: asyncio.Future[bytes] = field(repr=False)
    taken: bool = False  # its supervisor has it


@dataclass(frozen=True, slots=True)
class Taken:
    """A question, as a supervisor fetches it."""

    number: int
    topology_id: str
    port: int
    text: str
    secs: float  # until nobody waits for the answer any more


class StateQuestions:
    """`now` is monotonic seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        # Not from 1: workers know the numbers that a leader before this one gave, and do not answer
        # twice; and what they answered too late still lies in their folders.
        self._numbers = itertools.count(secrets.randbelow(1 << 62))
        self._open: dict[int, _Open] = {}

    async def ask(
        self,
        topology_id: str,
        slots: Collection[WorkerSlot],
        text: str,
        secs: float = ANSWER_SECS,
        *,
        asker: str | None = None,
    ) -> dict[WorkerSlot, bytes | str]:
        """What the workers on these slots answer within `secs`; of one that does not, why (a text).
        `asker` is the user who asks; None: no one is authenticated. Raises SquallError if too much
        is asked already, by this user or in all."""
        self._refuse_too_many(slots, asker)
        loop, until = asyncio.get_running_loop(), self._now() + secs
        mine = {
            next(self._numbers): _Open(topology_id, asker, slot, text, until, loop.create_future())
            for slot in sorted(slots)
        }
        self._open |= mine
        try:
            await asyncio.wait([one.answered for one in mine.values()], timeout=secs)
        finally:
            for number in mine:
                del self._open[number]
        return {
            one.slot: one.answered.result() if one.answered.done() else _why_silent(one, secs)
            for one in mine.values()
        }

    def _refuse_too_many(self, slots: Collection[WorkerSlot], asker: str | None) -> None:
        if len(slots) > _WORKERS_MAX:
            raise SquallError(
                f"{len(slots)} workers would have to be asked, and at most {_WORKERS_MAX} are: "
                "name a component, or a key"
            )
        asked = Counter(one.slot for one in self._open.values())
        mine = sum(one.asker == asker for one in self._open.values())
        full = any(asked[slot] >= QUESTIONS_MAX for slot in slots)
        too_many = len(self._open) + len(slots) > _OPEN_MAX
        if full or too_many or (asker is not None and mine + len(slots) > _OPEN_OF_ONE_MAX):
            raise SquallError(
                "too many questions about state are open: ask again when those are answered"
            )

    def has_for(self, node: str) -> bool:
        """Whether there are questions that the supervisor of a node has not fetched."""
        return any(not one.taken and one.slot.node == node for one in self._open.values())

    def take(self, node: str) -> list[Taken]:
        """The questions for the workers of a node, which its supervisor then has."""
        found, now = [], self._now()
        for number, one in self._open.items():
            if one.slot.node == node and not one.taken:
                one.taken = True
                secs = max(0.0, one.until - now)
                found.append(Taken(number, one.topology_id, one.slot.port, one.text, secs))
        return found

    def answer(self, node: str, number: int, port: int, data: bytes) -> bool:
        """A worker's answer. False for one that nobody waits for, or that another worker was asked
        for."""
        one = self._open.get(number)
        if one is None or one.slot != WorkerSlot(node, port) or one.answered.done():
            return False
        one.answered.set_result(data)
        return True


def fitting(answers: Mapping[WorkerSlot, bytes | str]) -> dict[WorkerSlot, bytes | str]:
    """The answers, by slot, as far as they fit into one reply; in place of the others why they are
    left out."""
    left = _ANSWERS_BYTES_MAX
    found = {}
    for slot, answer in sorted(answers.items()):
        if isinstance(answer, bytes):
            if len(answer) > left:
                answer = (
                    "its answer is left out, since those of all workers are too large for one "
                    "reply: ask for fewer keys, or name a component"
                )
            else:
                left -= len(answer)
        found[slot] = answer
    return found


def _why_silent(one: _Open, secs: float) -> str:
    if not one.taken:
        return (
            f"its supervisor has not fetched the question within {secs:g} s: it is away, no worker "
            "of its node reports, or it is of a version that does not read live state"
        )
    return (
        f"it has not answered within {secs:g} s: its process hangs or was replaced, or is of a "
        "version that does not read live state"
    )


def slots_of(
    stored: StoredTopology, assignment: Assignment | None, component: str | None
) -> dict[int, WorkerSlot]:
    """Where the tasks of a component run (None: of all bolts), by task."""
    bolts = set(stored.compiled.bolts) if component is None else {component}
    return {
        task: slot
        for executor, slot in (assignment.executor_slot if assignment else {}).items()
        for task in range(executor.task_start, executor.task_end + 1)
        if (name := stored.task_to_component.get(task)) in bolts and not is_system_id(name or "")
    }


def owners_of(stored: StoredTopology, question: Question) -> set[int]:
    """The tasks that have the key of a question if it is a key of the input, or begins with one.
    Empty: that cannot be told."""
    component, key = question.component, question.key
    if key is None or component is None:
        return set()
    conf = stored.compiled.components[component].conf
    groups = TopologyOptions.read(conf).topology_state_max_parallelism
    tasks = sorted(task for task, name in stored.task_to_component.items() if name == component)
    if groups is None or not tasks:
        return set()
    found = set()
    for each in _input_keys(forms_of(key)):
        try:
            group = key_group(each, groups)
        except NoStableHashError:
            continue
        found.add(tasks[task_of_group(group, len(tasks), groups)])
    return found


def _input_keys(forms: Iterable[Any]) -> Iterable[Any]:
    """A list or a counter of a key is at (name, key); an entry of a key's may begin with it."""
    for form in forms:
        yield form
        if isinstance(form, tuple):
            yield from form[:2]


def has_key(answers: Mapping[WorkerSlot, bytes | str]) -> bool:
    """Whether a worker has the key that was asked for, or one of them might: it does not answer."""
    for data in answers.values():
        if isinstance(data, str):
            return True
        try:
            answer = decode_answer(data)
        except ValueError:
            return True
        if answer.trouble or any(one.entries or one.trouble for one in answer.tasks):
            return True
    return False
