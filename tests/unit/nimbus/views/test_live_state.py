"""Questions about state in Nimbus: whom it asks, and what becomes of those who do not answer."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from tests.support.nimbus_service import LocalNimbus, eventually

from squall import Spout, StatefulBolt, TopologyBuilder
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.errors import SquallError
from squall_common.state.key_groups import key_group, task_of_group
from squall_common.telemetry.live_state import (
    QUESTIONS,
    Answer,
    Entry,
    Question,
    TaskAnswer,
    encode_answer,
)
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_nimbus.views.live_state import StateQuestions, fitting, has_key, owners_of
from squall_thrift import storm

SLOTS = {WorkerSlot("a", 1), WorkerSlot("b", 1)}
FOUND = encode_answer(Answer((TaskAnswer("count", 0, entries=(Entry("k", 1, "str:k"),)),)))
NOTHING = encode_answer(Answer((TaskAnswer("count", 1, keys=3),)))


async def test_answers_come_from_those_who_were_asked() -> None:
    questions = StateQuestions(lambda: 10.0)
    asking = asyncio.create_task(questions.ask("t-1-1", SLOTS, "{}", 30.0))
    await asyncio.sleep(0)
    assert questions.has_for("a")
    assert questions.has_for("b")
    assert not questions.has_for("c")
    (first,) = questions.take("a")
    assert (first.topology_id, first.port, first.text, first.secs) == ("t-1-1", 1, "{}", 30.0)
    assert questions.take("a") == []
    assert not questions.has_for("a")
    (second,) = questions.take("b")
    assert not questions.answer("b", first.number, 1, b"of another node")
    assert not questions.answer("a", first.number, 2, b"of another worker")
    assert questions.answer("a", first.number, 1, b"one")
    assert not questions.answer("a", first.number, 1, b"again")
    assert questions.answer("b", second.number, 1, b"two")
    assert await asking == {WorkerSlot("a", 1): b"one", WorkerSlot("b", 1): b"two"}
    assert not questions.answer("b", second.number, 1, b"late")


async def test_another_leader_gives_other_numbers() -> None:
    """A worker answers each number once."""
    taken = []
    for _ in range(2):
        questions = StateQuestions(lambda: 10.0)
        asking = asyncio.create_task(questions.ask("t-1-1", SLOTS, "{}", 0.05))
        await asyncio.sleep(0)
        taken += [one.number for node in ("a", "b") for one in questions.take(node)]
        await asking
    assert len(set(taken)) == 4
    assert max(taken) < 2**63, "it travels as 64 bits"


async def test_who_does_not_answer_is_said_to_with_the_reason() -> None:
    questions = StateQuestions(lambda: 10.0)
    asking = asyncio.create_task(questions.ask("t-1-1", SLOTS, "{}", 0.05))
    await asyncio.sleep(0)
    questions.take("a")
    found = await asking
    assert "it has not answered within 0.05 s" in str(found[WorkerSlot("a", 1)])
    assert "its supervisor has not fetched" in str(found[WorkerSlot("b", 1)])
    assert not questions.has_for("b"), "nobody waits any more"


async def test_too_many_questions_are_refused_and_harm_no_other_worker() -> None:
    questions = StateQuestions(lambda: 10.0)
    slot = {WorkerSlot("a", 1)}
    asking = [asyncio.create_task(questions.ask("t-1-1", slot, "{}", 30.0)) for _ in range(8)]
    await asyncio.sleep(0)
    with pytest.raises(SquallError, match="too many questions"):
        await questions.ask("t-1-1", slot, "{}", 30.0)
    with pytest.raises(SquallError, match="would have to be asked"):
        await questions.ask("t-1-1", {WorkerSlot("a", n) for n in range(501)}, "{}", 30.0)
    assert await questions.ask("t-1-1", {WorkerSlot("b", 1)}, "{}", 0.01)
    for one in asking:
        one.cancel()
    await asyncio.gather(*asking, return_exceptions=True)
    assert not questions.has_for("a")


async def test_the_questions_of_one_user_leave_room_for_those_of_others() -> None:
    questions = StateQuestions(lambda: 10.0)
    many = {WorkerSlot("a", n) for n in range(500)}
    asking = asyncio.create_task(questions.ask("t-1-1", many, "{}", 30.0, asker="alice"))
    await asyncio.sleep(0)
    with pytest.raises(SquallError, match="too many questions"):
        await questions.ask("u-1-1", {WorkerSlot("b", 1)}, "{}", 30.0, asker="alice")
    assert await questions.ask("v-1-1", many, "{}", 0.01, asker="bob")
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert await questions.ask("u-1-1", {WorkerSlot("b", 1)}, "{}", 0.01, asker="alice")


def test_answers_that_are_too_large_together_are_left_out_by_name() -> None:
    large = b"x" * 200_000
    answers: dict[WorkerSlot, bytes | str] = {WorkerSlot("a", n): large for n in range(50)}
    answers[WorkerSlot("b", 1)] = "away"
    answers[WorkerSlot("c", 1)] = b"small"
    found = fitting(answers)
    assert found.keys() == answers.keys()
    kept = [answer for answer in found.values() if isinstance(answer, bytes)]
    assert kept == [*[large] * 41, b"small"]
    assert found[WorkerSlot("b", 1)] == "away"
    assert "ask for fewer keys" in str(found[WorkerSlot("a", 49)])


def test_a_key_is_not_looked_for_elsewhere_if_its_owner_may_have_it() -> None:
    slot = WorkerSlot("a", 1)
    assert has_key({slot: FOUND})
    assert has_key({slot: "away"})
    assert has_key({slot: encode_answer(Answer(trouble="it is starting"))})
    assert has_key({slot: b"damaged"})
    assert not has_key({slot: NOTHING})


class Count(StatefulBolt):
    def execute(self, tup: Any) -> None: ...


class Words(Spout):
    outputs = ["word"]

    def next_tuple(self) -> None: ...


def test_the_owner_of_a_key_is_the_task_that_gets_its_tuples() -> None:
    builder = TopologyBuilder()
    builder.spout("words", Words())
    builder.bolt("count", Count(), parallelism=3).fields("words", "word")
    prepared = prepare(builder.build(), normalize_topology_conf({}, default_conf(), name="words"))
    tasks = sorted(t for t, name in prepared.task_to_component.items() if name == "count")
    stored: Any = SimpleNamespace(
        compiled=prepared.topology, task_to_component=prepared.task_to_component
    )

    def owners(key: str) -> set[int]:
        return owners_of(stored, Question("count", key))

    found = set()
    for number in range(100):
        key = f"word {number}"
        (owner,) = owners(key)
        assert owner == tasks[task_of_group(key_group(key, 128), 3, 128)]
        assert owner in owners(f'["seen", "{key}"]'), "of a list or a counter"
        found.add(owner)
    assert found == set(tasks)
    number = tasks[task_of_group(key_group(7, 128), 3, 128)]
    assert number in owners("7"), "the number, or the text"
    assert owners_of(stored, Question("count")) == set()
    assert owners_of(stored, Question(None, "word 1")) == set()


@pytest.fixture
async def nimbus(tmp_path: Any) -> Any:
    async with LocalNimbus(tmp_path, conf={"nimbus.monitor.freq.secs": 3600}) as nimbus:
        await nimbus.leads()
        supervisor = await nimbus.supervisor("sup-a", host="host-a")
        yield nimbus
        await supervisor.close()


async def test_a_question_travels_by_the_supervisor(nimbus: Any) -> None:
    topology_id = await nimbus.submit()

    async def beat() -> dict[str, float]:
        beats = storm.SupervisorWorkerHeartbeats(supervisor_id="sup-a", worker_heartbeats=[])
        said: dict[str, float] = await nimbus.call("sendSupervisorWorkerHeartbeats", beats)
        return said

    assert await beat() == {}
    assert await nimbus.call("getStateQuestions", "sup-a") == []
    asking = asyncio.create_task(nimbus.call("readState", topology_id, '{"key":"k"}'))

    async def asked() -> bool:
        return QUESTIONS in await beat()

    await eventually(asked, "the supervisor is told")
    (question,) = await nimbus.call("getStateQuestions", "sup-a")
    assert (question.topologyId, question.port, question.question) == (
        topology_id,
        6700,
        '{"key":"k"}',
    )
    assert QUESTIONS not in await beat()
    answer = storm.StateAnswer(number=question.number, port=6700, answer=FOUND)
    await nimbus.call("sendStateAnswers", "sup-a", [answer])
    (found,) = await asking
    assert (found.host, found.port, found.answer, found.trouble) == ("host-a", 6700, FOUND, None)


async def test_what_cannot_be_asked_is_refused(nimbus: Any) -> None:
    topology_id = await nimbus.submit()
    for question, said in (
        ("nonsense", "not a question"),
        ('{"limit":0}', "a page has"),
        ('{"component":"nobody"}', "has no bolt 'nobody'"),
    ):
        with pytest.raises(storm.InvalidTopologyException, match=said):
            await nimbus.call("readState", topology_id, question)
    with pytest.raises(storm.NotAliveException):
        await nimbus.call("readState", "none-1-1", "{}")


async def test_a_supervisor_that_is_away_is_not_waited_for(tmp_path: Any) -> None:
    async with LocalNimbus(tmp_path, conf={"nimbus.monitor.freq.secs": 3600}) as nimbus:
        await nimbus.leads()
        supervisor = await nimbus.supervisor("sup-a", host="host-a")
        topology_id = await nimbus.submit()
        await supervisor.close()

        async def away() -> bool:
            return not await nimbus.nimbus.reader.supervisors()

        await eventually(away, "the supervisor is away")
        (found,) = await nimbus.call("readState", topology_id, "{}")
        assert found.trouble == "its supervisor is away"
