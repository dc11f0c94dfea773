"""Calls by which the state of running tasks is read."""

from __future__ import annotations

from typing import Any

from squall_common.errors import InvalidTopologyError, describe
from squall_common.security.access import caller_of
from squall_common.security.acl import Node
from squall_common.telemetry.live_state import ANSWER_BYTES_MAX, decode_question
from squall_common.topology.model import WorkerSlot
from squall_nimbus.service.base import Calls, needed, operation
from squall_nimbus.views.live_state import fitting, has_key, owners_of, slots_of
from squall_thrift import storm
from squall_thrift.serving.authorization import Call


async def _node(_: Calls, arguments: tuple[Any, ...]) -> Node:
    return Node(needed(arguments[0], "node"))


class LiveStateCalls(Calls):
    """Who asks, and supervisors that hand on questions and answers."""

    @operation("readState", by_id="topologyId")
    async def readState(
        self, call: Call, topologyId: str | None, question: str | None
    ) -> list[storm.WorkerStateAnswer]:
        """Ask the workers that may have what is asked for. One that does not answer in time has a
        `trouble` that says so."""
        nimbus = self.nimbus
        await nimbus.leader_elector.require()
        topology_id, text = needed(topologyId, "topologyId"), needed(question, "question")
        stored = await nimbus.reader.stored(topology_id)
        try:
            asked = decode_question(text)
        except ValueError as error:
            raise InvalidTopologyError(f"not a question about state: {describe(error)}") from error
        component = asked.component
        if component is not None and component not in stored.compiled.bolts:
            raise InvalidTopologyError(f"topology {topology_id} has no bolt {component!r}")
        found = await nimbus.state.assignment(topology_id)
        placed = slots_of(stored, found[0] if found else None, component)
        owners = {placed[task] for task in owners_of(stored, asked) if task in placed}
        everywhere = set(placed.values())
        nimbus.watched.watch(topology_id, nimbus.clock.monotonic())
        caller = caller_of(call)
        asker = None if caller is None else caller.name
        answers = await self._asked(topology_id, owners or everywhere, text, asker)
        if owners and everywhere > owners and not has_key(answers):
            answers |= await self._asked(topology_id, everywhere - owners, text, asker)
        hosts = found[0].node_host if found else {}
        return [
            storm.WorkerStateAnswer(
                supervisor_id=slot.node,
                host=hosts.get(slot.node, ""),
                port=slot.port,
                answer=answer if isinstance(answer, bytes) else None,
                trouble=answer if isinstance(answer, str) else None,
            )
            for slot, answer in fitting(answers).items()
        ]

    async def _asked(
        self, topology_id: str, slots: set[WorkerSlot], text: str, asker: str | None
    ) -> dict[WorkerSlot, bytes | str]:
        """Those whose supervisor is away are not waited for."""
        present = await self.nimbus.reader.supervisors()
        reached = {slot for slot in slots if slot.node in present}
        answers: dict[WorkerSlot, bytes | str] = {}
        answers |= dict.fromkeys(slots - reached, "its supervisor is away")
        if reached:
            answers |= await self.nimbus.state_questions.ask(
                topology_id, reached, text, asker=asker
            )
        return answers

    @operation("getStateQuestions", of=_node)
    async def getStateQuestions(self, call: Call, node: str | None) -> list[storm.StateQuestion]:
        return [
            storm.StateQuestion(
                number=one.number,
                topologyId=one.topology_id,
                port=one.port,
                question=one.text,
                secs=one.secs,
            )
            for one in self.nimbus.state_questions.take(needed(node, "node"))
        ]

    @operation("sendStateAnswers", of=_node)
    async def sendStateAnswers(
        self, call: Call, node: str | None, answers: list[storm.StateAnswer] | None
    ) -> None:
        """Answers that nobody waits for any more are dropped."""
        for one in needed(answers, "answers"):
            if len(one.answer) <= ANSWER_BYTES_MAX:
                self.nimbus.state_questions.answer(
                    needed(node, "node"), one.number, one.port, one.answer
                )
