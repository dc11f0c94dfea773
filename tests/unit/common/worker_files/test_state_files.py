"""The files of questions about state, and of answers."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from squall_common.telemetry.live_state import ANSWER_BYTES_MAX
from squall_common.worker_files.state_files import (
    QUESTIONS_FILE,
    QUESTIONS_MAX,
    PendingQuestion,
    read_questions,
    take_state_answer,
    write_questions,
    write_state_answer,
)


def test_questions_are_read_until_their_time_is_over(tmp_path: Path) -> None:
    assert read_questions(tmp_path, 0.0) == []
    questions = [PendingQuestion(1, 20.0, "{}"), PendingQuestion(2, 30.0, '{"key":"a"}')]
    write_questions(tmp_path, questions)
    assert read_questions(tmp_path, 10.0) == questions
    assert read_questions(tmp_path, 20.0) == questions[1:]
    assert read_questions(tmp_path, -1_000.0) == [], "of another boot"
    write_questions(tmp_path, [])
    assert list(tmp_path.iterdir()) == []


def test_the_number_of_questions_is_limited(tmp_path: Path) -> None:
    write_questions(tmp_path, [PendingQuestion(number, 20.0, "{}") for number in range(100)])
    assert len(read_questions(tmp_path, 10.0)) == QUESTIONS_MAX


def test_an_answer_that_came_too_late_goes_with_a_later_one(tmp_path: Path) -> None:
    for number in (1, 2):
        write_state_answer(tmp_path, number, b"it")
    os.utime(tmp_path / "state-answer-1", (1, 1))
    write_state_answer(tmp_path, 3, b"it")
    assert [take_state_answer(tmp_path, number) for number in (1, 2, 3)] == [None, b"it", b"it"]


@pytest.mark.parametrize("data", [b"", b"else", b"[[1]]", b'[[1,2,"x"],7]'])
def test_what_are_no_questions_counts_as_none(tmp_path: Path, data: bytes) -> None:
    (tmp_path / QUESTIONS_FILE).write_bytes(data)
    assert read_questions(tmp_path, 0.0) == []


def test_a_supervisor_writes_through_no_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (tmp_path / QUESTIONS_FILE).symlink_to(target)
    (tmp_path / f"{QUESTIONS_FILE}.new").symlink_to(target)
    write_questions(tmp_path, [PendingQuestion(1, 20.0, "{}")])
    assert target.read_text() == "mine"
    assert len(read_questions(tmp_path, 10.0)) == 1


def test_an_answer_is_taken_once(tmp_path: Path) -> None:
    assert take_state_answer(tmp_path, 7) is None
    write_state_answer(tmp_path, 7, b"one")
    assert take_state_answer(tmp_path, 8) is None
    assert take_state_answer(tmp_path, 7) == b"one"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("data", [b"else", b"SQSA" + b"x" * (ANSWER_BYTES_MAX + 1)])
def test_what_no_worker_answers_is_refused_and_removed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "state-answer-7").write_bytes(data)
    with pytest.raises(ValueError, match="answer"):
        take_state_answer(tmp_path, 7)
    assert take_state_answer(tmp_path, 7) is None


def test_no_link_is_followed_and_no_pipe_waited_for(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(b"SQSAsecret")
    (tmp_path / "state-answer-1").symlink_to(tmp_path / "secret")
    os.mkfifo(tmp_path / "state-answer-2")
    for number in (1, 2):
        with pytest.raises((OSError, ValueError)):
            take_state_answer(tmp_path, number)
