"""Passes questions about the state of tasks on to this node's workers, and their answers back.

Nimbus says with its answer to heartbeats that there are questions. They are fetched then, laid into
the folder of each worker that is asked (`squall_common.worker_files.state_files`), and looked for
answers often until they have come or nobody waits any more. A question is only given to a worker of
the topology that it is about.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.telemetry.live_state import Answer, encode_answer
from squall_common.worker_files.state_files import (
    PendingQuestion,
    take_state_answer,
    write_questions,
)
from squall_thrift import storm

log = get_logger(__name__)

_LOOK_SECS = 0.1  # while a worker is asked
_NOT_HERE = Answer(trouble="its supervisor does not run it: it is starting, or has moved")


class Sender(Protocol):
    """What reaches Nimbus; `squall_common.client.reporting.ReportSender` is one."""

    has_questions: bool

    async def fetch_questions(self) -> list[storm.StateQuestion]: ...

    async def send_answers(self, answers: Sequence[storm.StateAnswer]) -> None: ...


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question that a worker has."""

    pending: PendingQuestion
    port: int
    folder: Path


class StateQuestions:
    """`pass_on` is called again and again, after `pause_secs` at most."""

    def __init__(self, sender: Sender, *, clock: Clock) -> None:
        self._sender = sender
        self._clock = clock
        self._asked: list[_Asked] = []

    @property
    def are_open(self) -> bool:
        """Whether there is anything to pass on."""
        return self._sender.has_questions or bool(self._asked)

    @property
    def pause_secs(self) -> float:
        return _LOOK_SECS if self._asked else math.inf

    async def pass_on(self, folders: Mapping[tuple[str, int], Path]) -> None:
        """Do it once. `folders` are those of the workers, by topology and port."""
        answers: list[storm.StateAnswer] = []
        if self._sender.has_questions:
            fetched = await self._sender.fetch_questions()
            answers += await self._lay_down(fetched, folders)
        answers += await self._answers()
        if answers:
            await self._sender.send_answers(answers)

    async def _lay_down(
        self, fetched: Sequence[storm.StateQuestion], folders: Mapping[tuple[str, int], Path]
    ) -> list[storm.StateAnswer]:
        """Give questions to their workers; returns answers for those that are not here."""
        now, away, changed = self._clock.monotonic(), [], set()
        for one in fetched:
            folder = folders.get((one.topologyId, one.port))
            if folder is None:
                away.append(_answer(one.number, one.port, encode_answer(_NOT_HERE)))
                continue
            pending = PendingQuestion(one.number, now + one.secs, one.question)
            self._asked.append(_Asked(pending, one.port, folder))
            changed.add(folder)
        await asyncio.to_thread(self._write, changed)
        return away

    async def _answers(self) -> list[storm.StateAnswer]:
        if not self._asked:
            return []
        found = await asyncio.to_thread(self._take)
        now = self._clock.monotonic()
        left = [
            one
            for one in self._asked
            if one.pending.number not in found and one.pending.until > now
        ]
        ended = {one.folder for one in self._asked} if len(left) < len(self._asked) else set()
        answers = [
            _answer(one.pending.number, one.port, found[one.pending.number])
            for one in self._asked
            if found.get(one.pending.number) is not None
        ]
        self._asked = left
        await asyncio.to_thread(self._write, ended)
        return answers

    def _write(self, folders: set[Path]) -> None:
        """Let workers have the questions that are open."""
        for folder in folders:
            mine = [one.pending for one in self._asked if one.folder == folder]
            try:
                write_questions(folder, mine)
            except OSError as error:  # the disk is full, or the worker has ended
                log.info("state_questions_not_written", folder=folder, error=error)

    def _take(self) -> dict[int, bytes]:
        """The answers that there are, by the number of the question."""
        found: dict[int, bytes] = {}
        for one in self._asked:
            try:
                data = take_state_answer(one.folder, one.pending.number)
            except (OSError, ValueError) as error:
                log.warning("state_answer_not_read", folder=one.folder, error=error)
                data = encode_answer(Answer(trouble=f"its answer cannot be read: {error}"))
            if data is not None:
                found[one.pending.number] = data
        return found


def _answer(number: int, port: int, data: bytes) -> storm.StateAnswer:
    return storm.StateAnswer(number=number, port=port, answer=data)
