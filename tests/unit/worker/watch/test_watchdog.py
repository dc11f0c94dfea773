"""The watchdog beside a real engine, whose loop or threads are stuck in a component: one call of
each kind. Its clock is the test's; the test plays the heartbeat thread, and moves the clock only
when a loop that can run has run: without a processor for a moment, it would seem to be held."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import pytest

from squall import Bolt, Spout, TopologyBuilder
from squall_common.cluster.store import ConnectionLostError
from squall_common.cluster.values import ErrorInfo
from squall_common.config.load import default_conf, normalize_topology_conf
from squall_common.daemon.clock import ManualClock
from squall_common.topology.error_text import headline
from squall_common.topology.model import WorkerSlot
from squall_common.topology.prepared import prepare
from squall_engine.embed import EmbeddedEngine, EngineSettings
from squall_worker.watch.watchdog import EXIT_STALLED, Watchdog

STUCK = threading.Event()  # something waits for GO
LOOP_IS_HELD = threading.Event()  # it waits on the loop's thread
GO = threading.Event()
SECRET = "a value of a tuple"


def wait_here() -> None:
    with contextlib.suppress(RuntimeError):  # on another thread
        asyncio.get_running_loop()
        LOOP_IS_HELD.set()
    STUCK.set()
    GO.wait(30)


class Words(Spout):
    outputs = ("word", "number")

    def open(self, conf: Any, context: Any) -> None:
        self.sent = False

    def next_tuple(self) -> None:
        if not self.sent:
            self.sent = True
            self.emit([SECRET, 1], message_id="message-1")


class StuckSpout(Words):
    def next_tuple(self) -> None:
        wait_here()


class StuckAck(Words):
    def ack(self, msg_id: Any) -> None:
        wait_here()


class ThreadStuckAck(StuckAck):
    blocking = True


class StuckActivate(Words):
    def activate(self) -> None:
        wait_here()


class ThreadStuckActivate(StuckActivate):
    blocking = True


class WaitingSpout(StuckSpout):
    blocking = True


class Pass(Bolt):
    def execute(self, tup: Any) -> None:
        pass


class StuckBolt(Bolt):
    def execute(self, tup: Any) -> None:
        wait_here()


class StuckBatch(Bolt):
    def execute_batch(self, tuples: Any) -> None:
        wait_here()


class StuckColumns(Bolt):
    def execute_columns(self, columns: Any) -> None:
        wait_here()


class StuckThread(StuckBolt):
    blocking = True


class StuckThreadBatch(StuckBatch):
    blocking = True


class WaitingBatch(Bolt):
    async def execute_batch(self, tuples: Any) -> None:
        STUCK.set()
        while not GO.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class BlockedCoroutine(Bolt):
    async def execute(self, tup: Any) -> None:
        wait_here()


class WaitingCoroutine(Bolt):
    async def execute(self, tup: Any) -> None:
        STUCK.set()
        while not GO.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


class Setup:
    """What the watchdog has done."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.errors: list[tuple[str, str]] = []
        self.ended: list[int] = []
        self.asked: list[int] = []
        self.answer: str | None = None
        self.dog: Watchdog
        self.loop: asyncio.AbstractEventLoop
        self.engine: EmbeddedEngine

    def send(self, errors: Sequence[tuple[str, ErrorInfo]], secs: float) -> None:
        self.errors += [(component, info.error) for component, info in errors]

    def ask(self, roots: Collection[int], secs: float) -> dict[int, str]:
        self.asked += roots
        if self.answer is None:
            raise ConnectionLostError("ZooKeeper is away")
        return dict.fromkeys(roots, self.answer)

    def let_pass(self, secs: float) -> None:
        """Look as the heartbeat thread does."""
        while secs > 0:
            wait = self.dog.look()
            if not LOOP_IS_HELD.is_set():
                self.let_loop_run()
            self.clock.advance(wait)
            secs -= wait

    def let_loop_run(self) -> None:
        """Until it has answered what it was asked before."""
        has_run = threading.Event()
        self.loop.call_soon_threadsafe(has_run.set)
        assert has_run.wait(20)


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@contextlib.contextmanager
def running(spout: Spout, bolt: Bolt, **conf: Any) -> Iterator[Setup]:
    """One worker's engine on a thread of its own, until it is stuck."""
    STUCK.clear()
    LOOP_IS_HELD.clear()
    GO.clear()
    builder = TopologyBuilder()
    builder.spout("words", spout)
    builder.bolt("bolt", bolt, conf=conf).shuffle("words")
    settings = normalize_topology_conf(
        {"topology.acker.executors": 1}, default_conf(), name="stall"
    )
    prepared = prepare(builder.build(), settings)
    setup = Setup()
    done = threading.Event()

    async def run() -> None:
        engine = EmbeddedEngine(
            EngineSettings(
                prepared=prepared,
                topology_id="stall-1-1",
                slot=WorkerSlot("node", 6700),
                executors=prepared.executors,
                daemon_conf=default_conf(),
            )
        )
        await engine.start()
        setup.loop = asyncio.get_running_loop()
        setup.dog = Watchdog(
            setup.loop,
            setup.clock,
            record=lambda component, task, text: ErrorInfo(text, 0, "h", 1),
            send=setup.send,
            ask=setup.ask,
            end=setup.ended.append,
        )
        setup.engine = engine
        setup.dog.begin(engine.calls_under_way())
        engine.set_active(True)
        while not done.is_set():  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        await engine.stop(0)

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    try:
        assert STUCK.wait(20)
        yield setup
    finally:
        GO.set()
        done.set()
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize(
    ("spout", "bolt", "component", "call"),
    [
        (Words(), StuckBolt(), "bolt", "StuckBolt.execute"),
        (Words(), StuckBatch(), "bolt", "StuckBatch.execute_batch"),
        (Words(), StuckColumns(), "bolt", "StuckColumns.execute_columns"),
        (Words(), StuckThread(), "bolt", "StuckThread.execute"),
        (Words(), StuckThreadBatch(), "bolt", "StuckThreadBatch.execute_batch"),
        (Words(), WaitingBatch(), "bolt", "WaitingBatch.execute_batch"),
        (Words(), BlockedCoroutine(), "bolt", "BlockedCoroutine.execute"),
        (Words(), WaitingCoroutine(), "bolt", "WaitingCoroutine.execute"),
        (StuckSpout(), Pass(), "words", "StuckSpout.next_tuple"),
        (StuckAck(), Pass(), "words", "StuckAck.ack"),
        (ThreadStuckAck(), Pass(), "words", "ThreadStuckAck.ack"),
        (StuckActivate(), Pass(), "words", "StuckActivate.activate"),
        (ThreadStuckActivate(), Pass(), "words", "ThreadStuckActivate.activate"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value else "",
)
def test_a_stuck_call_of_each_kind_is_named_reported_and_ends_the_worker(
    spout: Spout,
    bolt: Bolt,
    component: str,
    call: str,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with running(spout, bolt) as stuck:
        stuck.let_pass(5)
        named = [r.getMessage() for r in caplog.records if "call_under_way" in r.getMessage()]
        assert len(named) == 1
        assert call in named[0]
        assert "test_watchdog.py" in named[0], "the user's line"
        assert stuck.errors == []
        stuck.let_pass(30)
        wait_until(lambda: stuck.errors)
        ((where, text),) = stuck.errors
        assert where == component
        assert f"{call} of task " in text
        assert "in wait_here" in text or "in execute" in text
        assert SECRET not in text
        assert SECRET not in caplog.text
        stuck.let_pass(250)
        assert stuck.ended == []
        stuck.let_pass(25)
        wait_until(lambda: stuck.ended)
        assert stuck.ended == [EXIT_STALLED]
        last_line = capsys.readouterr().err.splitlines()[-1]
        assert last_line.startswith(f"CallStalled: {call} of task ")
        assert "worker is restarted" in headline(stuck.errors[-1][1])


@pytest.mark.parametrize("bolt", [StuckBolt, StuckBatch, StuckThread, WaitingCoroutine])
def test_the_error_names_the_source_and_the_message(bolt: type[Bolt]) -> None:
    with running(Words(), bolt()) as stuck:
        stuck.let_pass(35)
        wait_until(lambda: stuck.errors)
        line = headline(stuck.errors[0][1])  # which `storm get-errors` shows
        assert "of words" in line
        assert "stream default, message id 'message-1'" in line


def test_the_error_names_the_source_of_columns() -> None:
    with running(Words(), StuckColumns()) as stuck:
        stuck.let_pass(35)
        wait_until(lambda: stuck.errors)
        assert "1 tuple(s) of words, stream default" in headline(stuck.errors[0][1])


def without_spout(stuck: Setup) -> None:
    """Let the watchdog look after the bolt only, as in a worker that has no spout."""
    engine = stuck.engine
    engine.built = [one for one in engine.built if one.task.component != "words"]
    stuck.dog.begin(engine.calls_under_way())


@pytest.mark.parametrize("bolt", [StuckBolt, StuckBatch, StuckThread, WaitingCoroutine])
def test_a_message_of_another_workers_spout_is_requested_once(bolt: type[Bolt]) -> None:
    with running(Words(), bolt()) as stuck:
        stuck.answer = "message id 'from afar'"
        without_spout(stuck)
        stuck.let_pass(35)
        wait_until(lambda: stuck.errors)
        assert len(stuck.asked) == 1
        assert "stream default, message id 'from afar'" in headline(stuck.errors[0][1])


def test_without_an_answer_the_error_has_the_tree_id(caplog: pytest.LogCaptureFixture) -> None:
    with running(Words(), StuckBolt()) as stuck:
        without_spout(stuck)
        stuck.let_pass(35)
        wait_until(lambda: stuck.errors)
        (root,) = stuck.asked
        assert f"stream default, tree {root:016x}" in headline(stuck.errors[0][1])
        assert "messages_not_known" in caplog.text


def test_a_component_has_its_own_limit() -> None:
    with running(Words(), StuckBolt(), **{"topology.worker.stall.timeout.secs": 10}) as stuck:
        stuck.let_pass(13)
        wait_until(lambda: stuck.ended)


def test_a_component_may_have_no_limit() -> None:
    with running(Words(), StuckThread(), **{"topology.worker.stall.timeout.secs": None}) as stuck:
        stuck.let_pass(1000)
        wait_until(lambda: stuck.errors)
        assert stuck.ended == []


def test_a_spout_on_a_thread_may_wait_for_input() -> None:
    with running(WaitingSpout(), Pass()) as waiting:
        waiting.let_pass(1000)
        assert (waiting.errors, waiting.ended) == ([], [])


def test_a_worker_that_was_stopped_for_an_hour_is_not_stalled() -> None:
    with running(Words(), StuckBolt()) as stuck:
        stuck.let_pass(3)
        stuck.clock.advance(3600)
        stuck.let_pass(20)
        assert (stuck.errors, stuck.ended) == ([], [])


def test_nothing_is_reported_while_a_worker_ends() -> None:
    with running(Words(), StuckBolt()) as stuck:
        stuck.dog.stop()
        stuck.let_pass(1000)
        assert (stuck.errors, stuck.ended) == ([], [])
