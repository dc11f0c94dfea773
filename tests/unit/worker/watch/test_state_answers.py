"""A worker answers questions about its state, whatever state it is in itself."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.support.devcluster import wait_for

from squall_common.telemetry.live_state import Answer, Question, TaskAnswer, decode_answer
from squall_common.worker_files.state_files import (
    PendingQuestion,
    take_state_answer,
    write_questions,
)
from squall_worker.watch.state_answers import Read, StateAnswers


def ask(folder: Path, *numbers: int, text: str = '{"component":"count"}', secs: float = 15) -> None:
    until = time.monotonic() + secs
    write_questions(folder, [PendingQuestion(number, until, text) for number in numbers])


def answer_of(folder: Path, number: int) -> Answer:
    found: list[bytes] = []

    def taken() -> bool:
        data = take_state_answer(folder, number)
        if data is not None:
            found.append(data)
        return bool(found)

    wait_for("the answer", taken, 30.0, 0.005)
    return decode_answer(found[0])


def test_each_question_is_answered_once(tmp_path: Path) -> None:
    asked: list[Question] = []

    def read(question: Question, secs: float) -> Answer:
        assert 0 < secs < 15
        asked.append(question)
        return Answer((TaskAnswer("count", 0, 7),))

    answers = StateAnswers(tmp_path, lambda: read)
    ask(tmp_path, 1, 2)
    answers.look()
    answers.look()
    for number in (1, 2):
        assert answer_of(tmp_path, number).tasks[0].keys == 7
    ask(tmp_path, 2, 3)
    answers.look()
    assert answer_of(tmp_path, 3).tasks
    assert asked == [Question("count")] * 3


def test_the_thread_that_looks_is_not_held_up(tmp_path: Path) -> None:
    go_on = threading.Event()

    def read(question: Question, secs: float) -> Answer:
        go_on.wait(30)
        return Answer()

    answers = StateAnswers(tmp_path, lambda: read)
    ask(tmp_path, 1)
    answers.look()
    assert take_state_answer(tmp_path, 1) is None
    go_on.set()
    assert answer_of(tmp_path, 1) == Answer()


@pytest.mark.parametrize(
    ("text", "said"),
    [("{}", "it is starting"), ("nonsense", "does not understand"), ('{"limit":0}', "a page has")],
)
def test_why_there_is_no_answer_is_one(tmp_path: Path, text: str, said: str) -> None:
    answers = StateAnswers(tmp_path, lambda: "it is starting")
    ask(tmp_path, 1, text=text)
    answers.look()
    assert said in (answer_of(tmp_path, 1).trouble or "")


def test_a_failure_is_said(tmp_path: Path) -> None:
    def read(question: Question, secs: float) -> Answer:
        raise RuntimeError("broken")

    def reader() -> Read | str:
        return read

    answers = StateAnswers(tmp_path, reader)
    ask(tmp_path, 1)
    answers.look()
    assert "broken" in (answer_of(tmp_path, 1).trouble or "")
