"""How a supervisor passes questions about state on to its workers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from squall_common.daemon.clock import ManualClock
from squall_common.telemetry.live_state import decode_answer
from squall_common.worker_files.state_files import read_questions, write_state_answer
from squall_supervisor.watch.state_questions import StateQuestions
from squall_thrift import storm


class Sender:
    def __init__(self) -> None:
        self.has_questions = False
        self.questions: list[storm.StateQuestion] = []
        self.answers: list[storm.StateAnswer] = []

    async def fetch_questions(self) -> list[storm.StateQuestion]:
        self.has_questions = False
        found, self.questions = self.questions, []
        return found

    async def send_answers(self, answers: Sequence[storm.StateAnswer]) -> None:
        self.answers += answers

    def ask(self, number: int, port: int = 6700, topology_id: str = "a-1-1") -> None:
        self.has_questions = True
        self.questions.append(
            storm.StateQuestion(
                number=number, topologyId=topology_id, port=port, question="{}", secs=15.0
            )
        )


@pytest.fixture
def sender() -> Sender:
    return Sender()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def questions(sender: Sender, clock: ManualClock) -> StateQuestions:
    return StateQuestions(sender, clock=clock)


async def test_a_question_reaches_its_worker_and_the_answer_nimbus(
    tmp_path: Path, sender: Sender, clock: ManualClock, questions: StateQuestions
) -> None:
    folders = {("a-1-1", 6700): tmp_path}
    assert not questions.are_open
    sender.ask(7)
    sender.ask(8)
    assert questions.are_open
    await questions.pass_on(folders)
    assert [one.number for one in read_questions(tmp_path, clock.monotonic())] == [7, 8]
    assert sender.answers == []
    assert questions.pause_secs < 1
    write_state_answer(tmp_path, 7, b"seven")
    await questions.pass_on(folders)
    assert [(one.number, one.port, one.answer) for one in sender.answers] == [(7, 6700, b"seven")]
    assert [one.number for one in read_questions(tmp_path, clock.monotonic())] == [8]
    write_state_answer(tmp_path, 8, b"eight")
    await questions.pass_on(folders)
    assert [one.number for one in sender.answers] == [7, 8]
    assert not questions.are_open
    assert list(tmp_path.iterdir()) == []


async def test_a_question_is_given_to_no_worker_of_another_topology(
    tmp_path: Path, sender: Sender, questions: StateQuestions
) -> None:
    sender.ask(7, topology_id="b-2-1")
    await questions.pass_on({("a-1-1", 6700): tmp_path})
    assert list(tmp_path.iterdir()) == []
    (answer,) = sender.answers
    assert "does not run it" in (decode_answer(answer.answer).trouble or "")


async def test_a_worker_that_does_not_answer_is_not_asked_forever(
    tmp_path: Path, sender: Sender, clock: ManualClock, questions: StateQuestions
) -> None:
    sender.ask(7)
    await questions.pass_on({("a-1-1", 6700): tmp_path})
    clock.advance(16.0)
    await questions.pass_on({})
    assert not questions.are_open
    assert list(tmp_path.iterdir()) == []


async def test_a_worker_whose_folder_is_gone_harms_nothing(
    tmp_path: Path, sender: Sender, clock: ManualClock, questions: StateQuestions
) -> None:
    sender.ask(7)
    await questions.pass_on({("a-1-1", 6700): tmp_path / "gone"})
    assert sender.answers == []


async def test_an_answer_that_is_none_is_said(
    tmp_path: Path, sender: Sender, questions: StateQuestions
) -> None:
    sender.ask(7)
    folders = {("a-1-1", 6700): tmp_path}
    await questions.pass_on(folders)
    (tmp_path / "state-answer-7").write_bytes(b"nonsense")
    await questions.pass_on(folders)
    assert "cannot be read" in (decode_answer(sender.answers[0].answer).trouble or "")
