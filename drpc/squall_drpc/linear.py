"""LinearDRPCTopologyBuilder: a DRPC function as a chain of bolts.

    builder = LinearDRPCTopologyBuilder("reach")
    builder.add_bolt(GetTweeters(), 4)
    builder.add_bolt(GetFollowers(), 12).shuffle()
    builder.add_bolt(PartialUniquer(), 6).fields("id", "follower")
    builder.add_bolt(CountAggregator(), 3).fields("id")
    submit_topology("reach", conf, builder.create_remote_topology())

The first bolt gets (request id, arguments). Every bolt emits the request's id as the first value;
the last one emits (request id, result), once per request. A bolt with `finished_id`, or a
BatchBolt, is notified when it has processed all tuples of a request. The topology around the bolts:

    spout ──▶ prepare-request ──▶ bolt0 ══▶ bolt1 ══▶ ... ══▶ boltN ──▶ join ──▶ return
                  │ │                 (══: tuples, and counts of them)    ▲
                  │ └── id: which task of boltN finishes the request ──▶ boltN
                  └──── return info ──────────────────────────────────────┘
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from squall import Bolt, ShellBolt, Stream, TopologyBuilder
from squall._builder import BoltDeclarer
from squall_common.errors import InvalidTopologyError
from squall_common.names import DEFAULT_STREAM
from squall_common.topology.model import Topology
from squall_drpc.batched.batch import BatchBolt, BatchBoltExecutor
from squall_drpc.batched.coordinated import (
    COORDINATION_STREAM,
    ELSEWHERE_STREAM,
    ID_STREAM,
    CoordinatedBolt,
    FinishedCallback,
    coordinated_class,
)
from squall_drpc.batched.coordinated_shell import CoordinatedShellBolt
from squall_drpc.bolts import ARGS_STREAM, RETURN_STREAM, JoinResult, PrepareRequest, ReturnResults
from squall_drpc.local import LocalDRPC
from squall_drpc.spout import DRPCSpout

SPOUT_ID = "spout"
PREPARE_ID = "prepare-request"
JOIN_ID = "join-result"
RETURN_ID = "return-results"
_TICK_KEY = "topology.tick.tuple.freq.secs"
_TICK_SECS = 1

_Declare = Callable[[BoltDeclarer, str], Any]


@dataclass(slots=True)
class _Step:
    bolt: Bolt | ShellBolt
    parallelism: int
    tasks: int | None
    conf: dict[str, Any]
    inputs: list[_Declare] = field(default_factory=list)
    by_all: bool = False  # some input goes to every task
    by_id: list[tuple[str, ...] | None] = field(default_factory=list)  # fields of each input


class LinearDRPCInputDeclarer:
    """A step that is being declared: each call subscribes it to a stream of the previous step."""

    def __init__(self, step: _Step) -> None:
        self._step = step

    def shuffle(self, stream: str = DEFAULT_STREAM) -> LinearDRPCInputDeclarer:
        """Tuples are spread evenly over the tasks."""
        return self._add(lambda bolt, source: bolt.shuffle(source, stream))

    def fields(
        self, *fields: str | Sequence[str], stream: str = DEFAULT_STREAM
    ) -> LinearDRPCInputDeclarer:
        """Tuples with equal values of these fields go to the same task. The fields may be given as
        a list, too."""
        names = [name for one in fields for name in ([one] if isinstance(one, str) else one)]
        return self._add(
            lambda bolt, source: bolt.fields(source, *names, stream=stream), tuple(names)
        )

    def all(self, stream: str = DEFAULT_STREAM) -> LinearDRPCInputDeclarer:
        """Each tuple goes to every task."""
        self._step.by_all = True
        return self._add(lambda bolt, source: bolt.all(source, stream))

    def global_(self, stream: str = DEFAULT_STREAM) -> LinearDRPCInputDeclarer:
        """All tuples go to one task."""
        return self._add(lambda bolt, source: bolt.global_(source, stream))

    def none(self, stream: str = DEFAULT_STREAM) -> LinearDRPCInputDeclarer:
        """Any task may get a tuple."""
        return self._add(lambda bolt, source: bolt.none(source, stream))

    def direct(self, stream: str = DEFAULT_STREAM) -> LinearDRPCInputDeclarer:
        """The previous step picks the task."""
        return self._add(lambda bolt, source: bolt.direct(source, stream))

    def local_or_shuffle(self, stream: str = DEFAULT_STREAM) -> LinearDRPCInputDeclarer:
        """Tuples stay in their worker when it has a task of this step."""
        return self._add(lambda bolt, source: bolt.local_or_shuffle(source, stream))

    def partial_key(self, *fields: str, stream: str = DEFAULT_STREAM) -> LinearDRPCInputDeclarer:
        """Tuples with equal values of these fields go to one of two tasks."""
        return self._add(lambda bolt, source: bolt.partial_key(source, *fields, stream=stream))

    def custom(self, grouping: object, stream: str = DEFAULT_STREAM) -> LinearDRPCInputDeclarer:
        """A `CustomGrouping` of yours picks the tasks."""
        return self._add(lambda bolt, source: bolt.custom(source, grouping, stream))

    def conf(self, values: Mapping[str, Any]) -> LinearDRPCInputDeclarer:
        """Add to the configuration of this step alone."""
        self._step.conf.update(values)
        return self

    def _add(
        self, declare: _Declare, fields: tuple[str, ...] | None = None
    ) -> LinearDRPCInputDeclarer:
        self._step.inputs.append(declare)
        self._step.by_id.append(fields)
        return self


class LinearDRPCTopologyBuilder:
    """Builds the topology of one DRPC function.

    class Shout(Bolt):
        outputs = ["id", "result"]

        def execute(self, tup):
            request, text = tup.values
            self.emit([request, text.upper()])

    builder = LinearDRPCTopologyBuilder("shout")
    builder.add_bolt(Shout(), 2)
    topology = builder.create_remote_topology()
    """

    def __init__(self, function: str, *, attempts: int = 1) -> None:
        """`attempts`: see DRPCSpout."""
        self._function = function
        self._attempts = attempts
        self._steps: list[_Step] = []

    def add_bolt(
        self,
        bolt: Bolt | BatchBolt | ShellBolt,
        parallelism: int = 1,
        tasks: int | None = None,
        conf: Mapping[str, Any] | None = None,
    ) -> LinearDRPCInputDeclarer:
        """Add the next step. The first one needs no grouping."""
        made = BatchBoltExecutor.of(bolt) if isinstance(bolt, BatchBolt) else bolt
        brought = bolt.conf() if isinstance(bolt, ShellBolt) else {}
        step = _Step(made, parallelism, tasks, {**brought, **(conf or {})})
        self._steps.append(step)
        return LinearDRPCInputDeclarer(step)

    def create_remote_topology(self) -> Topology:
        """The topology, for the DRPC servers of the cluster. Raises InvalidTopologyError."""
        return self.create_topology(DRPCSpout(self._function, attempts=self._attempts))

    def create_local_topology(self, drpc: LocalDRPC) -> Topology:
        """Like `create_remote_topology`, for a server in this process."""
        return self.create_topology(
            DRPCSpout(self._function, attempts=self._attempts, local=drpc.name)
        )

    def create_topology(self, spout: DRPCSpout) -> Topology:
        """Like `create_remote_topology`, with your own spout."""
        problems = self._problems()
        if problems:
            raise InvalidTopologyError.listing(problems)
        builder = TopologyBuilder()
        builder.spout(SPOUT_ID, spout)
        builder.bolt(PREPARE_ID, PrepareRequest()).none(SPOUT_ID)
        for number in range(len(self._steps)):
            self._add_step(builder, number)
        last = _bolt_id(len(self._steps) - 1)
        [(stream, fields)] = _own_streams(self._steps[-1].bolt).items()
        tick = {_TICK_KEY: _TICK_SECS}
        builder.bolt(JOIN_ID, JoinResult(PREPARE_ID), conf=tick).fields(
            last, fields[0], stream=stream
        ).fields(PREPARE_ID, "request", stream=RETURN_STREAM)
        builder.bolt(RETURN_ID, ReturnResults()).none(JOIN_ID)
        return builder.build()

    def _add_step(self, builder: TopologyBuilder, number: int) -> None:
        step = self._steps[number]
        previous = _bolt_id(number - 1) if number else None
        is_last = number == len(self._steps) - 1
        needs_id = is_last and number > 0 and isinstance(step.bolt, FinishedCallback)
        all_report = number > 1 or (number == 1 and self._steps[0].by_all)
        ticks = _TICK_KEY in step.conf
        coordinated: CoordinatedBolt
        if isinstance(step.bolt, ShellBolt):
            shell = step.bolt
            coordinated = CoordinatedShellBolt(
                shell.command,
                shell.script,
                shell.outputs,
                previous,
                all_report=all_report,
                ticks=ticks,
            )
        else:
            coordinated = coordinated_class(step.bolt)(
                step.bolt,
                previous,
                all_report=all_report,
                id_source=PREPARE_ID if needs_id else None,
                ticks=ticks,
            )
        bolt = builder.bolt(
            _bolt_id(number),
            coordinated,
            step.parallelism,
            step.tasks,
            {_TICK_KEY: _TICK_SECS, **step.conf},
        )
        if previous is not None:
            bolt.direct(previous, COORDINATION_STREAM)
        if needs_id:
            bolt.fields(PREPARE_ID, "request", stream=ID_STREAM)
            bolt.direct(PREPARE_ID, ELSEWHERE_STREAM)
        if previous is None and not step.inputs:
            bolt.none(PREPARE_ID, ARGS_STREAM)
        for declare in step.inputs:
            declare(bolt, previous or PREPARE_ID)

    def _problems(self) -> list[str]:
        if not self._steps:
            return ["a linear DRPC topology needs at least one bolt"]
        problems = []
        for number, step in enumerate(self._steps[1:], 1):
            if not step.inputs:
                problems.append(
                    f"bolt {number} ({_name(step)}) has no grouping: add_bolt(...).shuffle(), "
                    ".fields(...) ..."
                )
        for number, step in enumerate(self._steps):
            for stream in (COORDINATION_STREAM,):
                if stream in _own_streams(step.bolt):
                    problems.append(
                        f"bolt {number} ({_name(step)}) has a stream {stream!r}, a name that is "
                        "reserved for DRPC"
                    )
        last = self._steps[-1]
        streams = _own_streams(last.bolt)
        if len(streams) != 1:
            problems.append(
                f"the last bolt ({_name(last)}) has {len(streams)} streams; it must have one"
            )
        elif len(next(iter(streams.values()))) != 2:
            problems.append(
                f"the last bolt ({_name(last)}) must emit two fields: the request's id, the result"
            )
        if len(self._steps) > 1 and isinstance(last.bolt, FinishedCallback):
            problems.extend(_last_grouping_problems(last, self._steps[-2]))
        return problems


def _last_grouping_problems(last: _Step, before: _Step) -> list[str]:
    """With several tasks, all tuples of a request must go to the task that gets its id."""
    if max(last.parallelism, last.tasks or 1) == 1:
        return []
    firsts = {fields[0] for fields in _own_streams(before.bolt).values() if fields}
    if all(
        fields is not None and len(fields) == 1 and fields[0] in firsts for fields in last.by_id
    ):
        return []
    return [
        f"the last bolt ({_name(last)}) has several tasks and is notified of finished requests: "
        "group it by fields, on the request's id alone"
    ]


def _own_streams(bolt: Bolt | ShellBolt) -> dict[str, tuple[str, ...]]:
    outputs: Any = bolt.outputs
    if isinstance(outputs, Stream):
        outputs = {DEFAULT_STREAM: outputs}
    if not isinstance(outputs, Mapping):
        outputs = {DEFAULT_STREAM: outputs} if outputs else {}
    return {
        stream: tuple(fields.fields if isinstance(fields, Stream) else fields)
        for stream, fields in outputs.items()
    }


def _name(step: _Step) -> str:
    bolt = step.bolt
    return bolt.name if isinstance(bolt, BatchBoltExecutor) else type(bolt).__name__


def _bolt_id(number: int) -> str:
    return f"bolt{number}"
