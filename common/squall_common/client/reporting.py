"""Delivers workers' heartbeats: to Nimbus, and to ZooKeeper while Nimbus does not take them.

A supervisor sends for all of its workers, a worker whose supervisor is away for itself; both do it
the same way. Nimbus that does not answer in time, refuses, or cannot be found costs one write to
ZooKeeper a report, until it is back; it is tried again after a pause that grows to ten seconds.

Every attempt has one deadline, so that a Nimbus that hangs (its connection open) delays a report by
no more than that.
"""

from __future__ import annotations

import asyncio
import enum
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from squall_common.client.nimbus import NimbusClient
from squall_common.cluster.convert import to_sums_report, to_worker_report
from squall_common.cluster.store import StoreError
from squall_common.cluster.values import SumsReport, WorkerReport
from squall_common.config.options.typed import ClientOptions
from squall_common.daemon.clock import Clock
from squall_common.daemon.logs import get_logger
from squall_common.errors import NimbusError
from squall_common.telemetry.live_state import QUESTIONS
from squall_thrift import storm
from squall_thrift.client import ThriftApplicationError
from squall_thrift.protocol.messages import ApplicationErrorType
from squall_thrift.serving.authentication import Credentials

log = get_logger(__name__)

# How long Nimbus may take for a report, and how long it is left alone after it did not.
ANSWER_SECS = 3.0
_PAUSE_SECS = 1.0
_PAUSE_SECS_MAX = 10.0
# Reports travel together up to this size, far below what Nimbus takes by default.
_TOGETHER_BYTES_MAX = 128 * 1024
# What a call takes beside a report's heartbeat: texts, numbers, and the executors below.
_BESIDE_BYTES = 32 * 1024
# More executors are listed by the heartbeat alone.
_EXECUTORS_LISTED_MAX = 1_000
_BYTES_A_EXECUTOR = 15


_T = TypeVar("_T")


class Connection(Protocol):
    """To the leading Nimbus."""

    async def call(self, method: str, *args: Any) -> Any: ...

    async def close(self) -> None: ...


Connect = Callable[[], Awaitable[Connection]]
# Writes a report to ZooKeeper; raises StoreError.
Write = Callable[[WorkerReport], Awaitable[object]]


class Way(enum.Enum):
    """Where reports went."""

    NIMBUS = "Nimbus"
    ZOOKEEPER = "ZooKeeper"
    NOWHERE = "nowhere"


def connect_by(conf: Mapping[str, Any], credentials: Credentials | None = None) -> Connect:
    """Connects to the leader that `nimbus.seeds` lead to, in one attempt. Without `credentials` it
    proves who it is by what the configuration names."""
    options = msgspec.structs.replace(ClientOptions.read(conf), storm_nimbus_retry_times=0)
    return lambda: NimbusClient.connect(options, credentials=credentials)


class ReportSender:
    """Sends one batch at a time. `supervisor_id` is that of a supervisor that reports for its
    workers; None for a worker that reports alone."""

    def __init__(
        self,
        connect: Connect,
        write: Write,
        *,
        clock: Clock,
        supervisor_id: str | None = None,
        call_bytes_max: int = 1_048_576,
        answer_secs: float = ANSWER_SECS,
    ) -> None:
        self._connect = connect
        self._write = write
        self._clock = clock
        self._supervisor_id = supervisor_id
        self._call_bytes_max = call_bytes_max
        self._answer_secs = answer_secs
        self._connection: Connection | None = None
        self._pause_secs = _PAUSE_SECS
        self._next_try = float("-inf")
        self.way: Way | None = None  # of the last batch
        # How often workers are to report whose topology somebody watches, as Nimbus said last.
        self.watched: dict[str, float] = {}
        # Whether Nimbus has said that there are questions about the state of workers' tasks.
        self.has_questions = False

    async def send(self, reports: Sequence[WorkerReport]) -> Way:
        """Deliver them, and return where to. Never raises for what is away."""
        way = await self._deliver(reports)
        if way is not self.way:
            level = log.info if way is Way.NIMBUS else log.warning
            level("worker_reports_go_to", way=way.value, before=self.way and self.way.value)
            self.way = way
        return way

    async def send_sums(self, sums: Sequence[SumsReport]) -> None:
        """Pass on sums by component, over the connection that takes reports. They are dropped if it
        is lost, or Nimbus does not take them: the next ones come soon."""
        if self._connection is None or not sums:
            return
        try:
            async with asyncio.timeout(self._answer_secs):
                for batch in together(sums, _size_of_sums, self._together_bytes):
                    await self._send_batch(
                        self._connection, [to_sums_report(one, alone=False) for one in batch]
                    )
        except (
            NimbusError,
            ThriftApplicationError,
            storm.AuthorizationException,
            TimeoutError,
        ) as error:
            log.info("sums_not_delivered", error=error)
            await self.close()

    async def fetch_questions(self) -> list[storm.StateQuestion]:
        """The questions for this supervisor's workers, of which Nimbus has said that there are any.
        Empty if they cannot be fetched; the user who asked is then told that no answer came."""
        self.has_questions = False
        found = await self._call_beside("getStateQuestions", self._supervisor_id)
        return list(found or ())

    async def send_answers(self, answers: Sequence[storm.StateAnswer]) -> None:
        """Pass on the answers of workers. They are dropped if Nimbus does not take them."""
        for batch in together(answers, _size_of_answer, self._together_bytes):
            await self._call_beside("sendStateAnswers", self._supervisor_id, batch)

    async def _call_beside(self, method: str, *args: Any) -> Any:
        """A call over the connection that takes reports, whose loss does no harm."""
        if self._connection is None:
            return None
        try:
            async with asyncio.timeout(self._answer_secs):
                return await self._connection.call(method, *args)
        except (
            NimbusError,
            ThriftApplicationError,
            storm.AuthorizationException,
            TimeoutError,
        ) as error:
            log.info("state_questions_not_passed_on", method=method, error=error)
            await self.close()
            return None

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _deliver(self, reports: Sequence[WorkerReport]) -> Way:
        if self._clock.monotonic() >= self._next_try:
            try:
                async with asyncio.timeout(self._answer_secs):
                    await self._to_nimbus(reports)
            except (
                NimbusError,
                ThriftApplicationError,
                storm.AuthorizationException,
                TimeoutError,
            ) as error:
                await self._failed(error)
            else:
                self._pause_secs = _PAUSE_SECS
                return Way.NIMBUS
        return await self._to_zookeeper(reports)

    async def _to_nimbus(self, reports: Sequence[WorkerReport]) -> None:
        """Over the open connection; if that fails, once more over a fresh one, since another Nimbus
        may lead now. Repeating a report does no harm."""
        if self._connection is not None:
            try:
                await self._call(self._connection, reports)
                return
            except (NimbusError, ThriftApplicationError) as error:
                log.info("nimbus_looked_for_again", error=error)
                await self.close()
        self._connection = await self._connect()
        await self._call(self._connection, reports)

    async def _call(self, connection: Connection, reports: Sequence[WorkerReport]) -> None:
        if self._supervisor_id is None:
            for report in reports:
                await self._call_alone(connection, report)
            return
        watched: dict[str, float] = {}
        for batch in together(map(self._fitting, reports), _size, self._together_bytes):
            beats = [
                to_worker_report(one, alone=False, executors_max=_EXECUTORS_LISTED_MAX)
                for one in batch
            ]
            watched |= await self._send_batch(connection, beats)
        reported = {one.topology_id for one in reports}
        self.watched = {i: secs for i, secs in self.watched.items() if i not in reported} | watched

    async def _send_batch(
        self, connection: Connection, beats: list[storm.SupervisorWorkerHeartbeat]
    ) -> dict[str, float]:
        """Returns which topologies are watched, and how often they are to report."""
        try:
            said: dict[str, float] = await connection.call(
                "sendSupervisorWorkerHeartbeats",
                storm.SupervisorWorkerHeartbeats(
                    supervisor_id=self._supervisor_id or "", worker_heartbeats=beats
                ),
            )
            self.has_questions |= QUESTIONS in said
            return {key: secs for key, secs in said.items() if key != QUESTIONS}
        except ThriftApplicationError as error:
            # A Nimbus that knows of no watchers answers with nothing.
            if error.type is not ApplicationErrorType.MISSING_RESULT:
                raise
            return {}

    async def _call_alone(self, connection: Connection, report: WorkerReport) -> None:
        beat = to_worker_report(
            self._fitting(report), alone=True, executors_max=_EXECUTORS_LISTED_MAX
        )
        try:
            await connection.call("sendSupervisorWorkerHeartbeat", beat)
        except storm.NotAliveException:
            pass  # its topology has ended

    @property
    def _together_bytes(self) -> int:
        return min(_TOGETHER_BYTES_MAX, self._call_bytes_max)

    def _fitting(self, report: WorkerReport) -> WorkerReport:
        """The report, without its heartbeat where this Nimbus would refuse the call: that the
        worker lives counts for more than what it did."""
        if len(report.heartbeat) + _BESIDE_BYTES <= self._call_bytes_max:
            return report
        return WorkerReport(
            report.topology_id, report.slot, report.executors, report.time_secs, report.run, b""
        )

    async def _failed(self, error: Exception) -> None:
        why = f"no answer within {self._answer_secs:g} s" if type(error) is TimeoutError else error
        log.info("nimbus_took_no_reports", error=why, next_try_in_secs=self._pause_secs)
        await self.close()
        self.watched = {}
        self._next_try = self._clock.monotonic() + self._pause_secs
        self._pause_secs = min(2 * self._pause_secs, _PAUSE_SECS_MAX)

    async def _to_zookeeper(self, reports: Sequence[WorkerReport]) -> Way:
        try:
            async with asyncio.timeout(self._answer_secs):
                await asyncio.gather(*(self._write(one) for one in reports if one.heartbeat))
        except (StoreError, TimeoutError) as error:
            why = "no answer" if type(error) is TimeoutError else error
            log.info("reports_not_written", error=why)
            return Way.NOWHERE
        return Way.ZOOKEEPER


def together(items: Iterable[_T], size: Callable[[_T], int], bytes_max: int) -> Iterator[list[_T]]:
    """The items in lists of at most this many bytes, or of one that is larger."""
    batch: list[_T] = []
    total = 0
    for item in items:
        octets = size(item)
        if batch and total + octets > bytes_max:
            yield batch
            batch, total = [], 0
        batch.append(item)
        total += octets
    if batch:
        yield batch


def _size_of_answer(answer: storm.StateAnswer) -> int:
    return len(answer.answer) + 80


def _size_of_sums(report: SumsReport) -> int:
    return len(report.sums or b"") + len(report.topology_id) + 80


def _size(report: WorkerReport) -> int:
    listed = min(len(report.executors), _EXECUTORS_LISTED_MAX)
    return len(report.heartbeat) + len(report.topology_id) + _BYTES_A_EXECUTOR * listed + 80
