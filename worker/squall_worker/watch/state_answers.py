"""Answers questions about the state of this worker's tasks.

The supervisor lays them into the worker's folder (`squall_common.worker_files.state_files`). The
heartbeat thread looks for them, so that there is an answer also while the run loop is stuck: that
it is, and in which call. A thread that ends with the last question reads the state.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from squall_common.daemon.logs import get_logger
from squall_common.errors import describe
from squall_common.telemetry.live_state import (
    ANSWER_BYTES_MAX,
    Answer,
    Question,
    decode_question,
    encode_answer,
)
from squall_common.worker_files.state_files import (
    PendingQuestion,
    read_questions,
    write_state_answer,
)

log = get_logger(__name__)

# Answers a question within so many seconds; blocks.
Read = Callable[[Question, float], Answer]

# What is left of a question's time when its answer is laid down, to travel.
_TRAVEL_SECS = 2.0
_SECS_MIN = 0.5
_REMEMBERED_MAX = 1_000


class StateAnswers:
    """`look` is for the heartbeat thread."""

    def __init__(self, folder: Path, read: Callable[[], Read | str]) -> None:
        """`read()` is what reads the state, or why none can be read now."""
        self._folder = folder
        self._read = read
        self._seen: dict[int, None] = {}
        self._waiting: queue.SimpleQueue[PendingQuestion] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._open = 0  # questions that wait or are being answered

    def look(self) -> None:
        """Take questions that are new."""
        for one in read_questions(self._folder, time.monotonic()):
            if one.number in self._seen:
                continue
            self._seen[one.number] = None
            if len(self._seen) > _REMEMBERED_MAX:
                del self._seen[next(iter(self._seen))]
            with self._lock:
                self._waiting.put(one)
                self._open += 1
                if self._open == 1:
                    threading.Thread(target=self._run, name="state answers", daemon=True).start()

    def _run(self) -> None:
        while True:
            one = self._waiting.get_nowait()
            self._answer(one)
            with self._lock:
                self._open -= 1
                if not self._open:
                    return

    def _answer(self, one: PendingQuestion) -> None:
        left = one.until - time.monotonic()
        if left <= 0:
            return  # nobody waits for it any more
        answer = self._answered(one.question, max(_SECS_MIN, left - _TRAVEL_SECS))
        data = encode_answer(answer)
        if len(data) > ANSWER_BYTES_MAX:
            data = encode_answer(Answer(trouble=f"its answer would have {len(data)} bytes"))
        try:
            write_state_answer(self._folder, one.number, data)
        except OSError as error:  # a full disk: who asks is told that there was no answer
            log.warning("state_answer_not_written", folder=self._folder, error=error)

    def _answered(self, text: str, secs: float) -> Answer:
        try:
            question = decode_question(text)
        except ValueError as error:  # of a later version
            return Answer(trouble=f"it does not understand the question: {describe(error)}")
        read = self._read()
        if isinstance(read, str):
            return Answer(trouble=read)
        try:
            return read(question, secs)
        except Exception as error:
            log.warning("state_not_read", error=error, exc_info=error)
            return Answer(trouble=f"its state could not be read: {describe(error)}")
