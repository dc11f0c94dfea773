"""The bolts around a DRPC computation: PrepareRequest before it, JoinResult and ReturnResults
behind it."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from squall import Bolt, Stream, TopologyContext, Tuple
from squall_common.config.options.typed import TopologyOptions
from squall_drpc.batched.coordinated import ELSEWHERE_STREAM, ID_STREAM
from squall_drpc.local import LOCAL_PREFIX, local_server
from squall_drpc.origin import parse_origin
from squall_drpc.remote import Answers

ARGS_STREAM = "default"
RETURN_STREAM = "return"

_SERVERS_MAX = 64  # to which one task sends answers


class PrepareRequest(Bolt):
    """Gives each attempt of a request its own id, and emits arguments and return info separately.

    The id goes to the task of the last step that the grouping there chooses; the other tasks of
    that step are notified that the request is not theirs.
    """

    outputs = {  # noqa: RUF012 - how components are written
        ARGS_STREAM: ["request", "args"],
        RETURN_STREAM: ["request", "return"],
        ID_STREAM: ["request"],
        ELSEWHERE_STREAM: Stream(["request"], direct=True),
    }

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._bits = random.Random(os.urandom(32)).getrandbits
        self._last_tasks = [
            task
            for consumer in context.this_targets.get(ELSEWHERE_STREAM, ())
            for task in context.component_tasks(consumer)
        ]
        self._sends_ids = bool(context.this_targets.get(ID_STREAM))

    def execute(self, tup: Tuple) -> None:
        args, origin = tup.values
        request = self._bits(63)
        self.emit([request, origin], stream=RETURN_STREAM)
        self.emit([request, args], stream=ARGS_STREAM)
        if self._sends_ids:
            homes = self.emit([request], stream=ID_STREAM)
            for task in self._last_tasks:
                if task not in homes:
                    self.emit_direct(task, [request], stream=ELSEWHERE_STREAM)


class JoinResult(Bolt):
    """Joins a request's result with its return info. A tuple without a partner fails after the
    message timeout."""

    outputs = ["result", "return-info"]  # noqa: RUF012
    auto_ack = False

    def __init__(self, return_component: str) -> None:
        """`return_component` emits (request, return info)."""
        self._return_component = return_component

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._results: OrderedDict[Any, tuple[Tuple, float]] = OrderedDict()
        self._returns: OrderedDict[Any, tuple[Tuple, float]] = OrderedDict()
        options = TopologyOptions.read(conf)
        self._tick_secs = options.topology_tick_tuple_freq_secs or math.inf
        self._timeout_secs = options.topology_message_timeout_secs
        self._now = 0.0

    def execute(self, tup: Tuple) -> None:
        if tup.is_tick:
            self._on_tick()
            self.ack(tup)
            return
        request = tup[0]
        is_return = tup.source_component == self._return_component
        mine, other = (
            (self._returns, self._results) if is_return else (self._results, self._returns)
        )
        partner = other.pop(request, None)
        if partner is None:
            if request in mine:
                self.fail(tup)
                raise ValueError(
                    f"{tup.source_component!r} has emitted two results for one request"
                )
            mine[request] = (tup, self._now)
            return
        returned, result = (tup, partner[0]) if is_return else (partner[0], tup)
        self.emit([str(result[1]), returned[1]], anchors=(returned, result))
        self.ack(returned)
        self.ack(result)

    @property
    def waiting(self) -> int:
        """The number of tuples that wait for a partner."""
        return len(self._results) + len(self._returns)

    def _on_tick(self) -> None:
        self._now += self._tick_secs
        for waiting in (self._results, self._returns):
            while waiting:
                request, (tup, since) = next(iter(waiting.items()))
                if self._now - since < self._timeout_secs:
                    break
                del waiting[request]
                self.fail(tup)


class ReturnResults(Bolt):
    """Sends each result to the server that has the request, from tuples of (result, return info).
    A tuple is acked once its result has arrived, and failed if it cannot be delivered.

        builder.bolt("return", ReturnResults()).shuffle("join")
    """

    auto_ack = False

    def prepare(self, conf: Mapping[str, Any], context: TopologyContext) -> None:
        self._answers: OrderedDict[tuple[str, int], Answers] = OrderedDict()
        self._bytes_max = TopologyOptions.read(conf).drpc_max_buffer_size

    def execute(self, tup: Tuple) -> None:
        result, text = tup.values
        try:
            origin = parse_origin(text)
            if origin.host.startswith(LOCAL_PREFIX):
                local_server(origin.host).settle(origin.id, str(result))
                self.ack(tup)
                return
            answers = self._answers_of((origin.host, origin.port))
        except Exception:
            self.fail(tup)
            raise
        done = answers.settle(origin.id, str(result))
        done.add_done_callback(lambda done: self._brought(tup, done))

    async def cleanup(self) -> None:
        await asyncio.gather(*(answers.stop() for answers in self._answers.values()))

    def _answers_of(self, address: tuple[str, int]) -> Answers:
        answers = self._answers.get(address)
        if answers is None:
            if len(self._answers) >= _SERVERS_MAX:
                raise ValueError(f"return infos name more than {_SERVERS_MAX} DRPC servers")
            answers = self._answers[address] = Answers(address, bytes_max=self._bytes_max)
        return answers

    def _brought(self, tup: Tuple, done: asyncio.Future[None]) -> None:
        if done.cancelled():
            return
        error = done.exception()
        if error is None:
            self.ack(tup)
        else:
            self.fail(tup)
            self.report_error(error)
