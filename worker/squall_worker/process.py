"""The worker process: it brings topology, engine, transport and cluster state together.

The order at the start is chosen for speed: the connection to ZooKeeper is made while the topology
is loaded, and links to the peers while the components open. Afterwards the worker only follows
ZooKeeper: while it is away, the worker goes on with its last reading, or starts from its
supervisor's (see `first_reading`).

    connect -------------------\\
    load topology, bind port ---+-> read assignment -> links, engine.start -> RUNNING
                                                           -> peers greeted -> spouts emit
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from squall_common.authentication.worker_identity import (
    set_worker_identity,
    worker_credentials,
)
from squall_common.client.reporting import Connect, ReportSender, connect_by
from squall_common.cluster.state import ClusterState
from squall_common.cluster.store import ConnectionLostError, StoreError
from squall_common.cluster.values import (
    CheckpointReport,
    ErrorInfo,
    StormBase,
    WorkerDrained,
    WorkerReport,
)
from squall_common.config.options.typed import TopologyOptions, WorkerOptions
from squall_common.daemon.clock import Clock, SystemClock
from squall_common.daemon.logs import get_logger, set_place
from squall_common.daemon.loop.background import BackgroundTasks
from squall_common.daemon.loop.loop_lag import LoopLag
from squall_common.daemon.output.printing import print_if_possible
from squall_common.errors import SquallError
from squall_common.names import SYSTEM_COMPONENT, SYSTEM_TASK, topology_name_of
from squall_common.outside.held import HeldTokens
from squall_common.security.identity import Role
from squall_common.state.errors import SnapshotError
from squall_common.topology.model import WorkerSlot
from squall_common.worker_files.heartbeat_file import Phase
from squall_common.worker_files.launch_spec import LaunchSpec
from squall_common.worker_files.watch_file import Pace, read_watch
from squall_worker.cluster.first_epoch import FirstEpoch
from squall_worker.cluster.first_reading import FirstReader, FirstReading
from squall_worker.cluster.pause_detector import PauseDetector
from squall_worker.cluster.peers import LOOK_SECS, Peers, refuses
from squall_worker.cluster.placement import Ownership, Placement, drains, spouts_run
from squall_worker.cluster.session import Session
from squall_worker.cluster.view import ClusterView
from squall_worker.credentials import LOOK_SECS as CREDENTIALS_SECS
from squall_worker.credentials import CredentialsFile
from squall_worker.heap import tune_heap
from squall_worker.identity import LOOK_SECS as IDENTITY_SECS
from squall_worker.identity import IdentityTokens
from squall_worker.image import LINKS_OF_IMAGE, begin_image, current_image, image_number
from squall_worker.in_hand import open_in_hand
from squall_worker.keys import own_key
from squall_worker.localized import LocalizedTopology, load, put_on_path
from squall_worker.report.dumps import Dumps, heading
from squall_worker.report.errors import ErrorReporter
from squall_worker.report.heartbeats import HeartbeatThread
from squall_worker.report.log_levels import TimedLogLevels
from squall_worker.report.outgoing import Alone, AloneThread, OutgoingReports
from squall_worker.report.recording import HISTORY_SECS, Recording
from squall_worker.report.statistics import EXECUTORS_MAX, StatsReport
from squall_worker.report.sums import SumsReport
from squall_worker.report.usage import UsageMeter
from squall_worker.settings import WorkerSettings
from squall_worker.transport.push import Address, Sockets
from squall_worker.transport.zmq import ZmqTransport, new_sockets
from squall_worker.watch.messages import Ask, answer_questions, ask_aside
from squall_worker.watch.state_answers import Read, StateAnswers
from squall_worker.watch.watchdog import Send, Watchdog, dump_when_silent, send_aside

if TYPE_CHECKING:
    from squall_engine.embed import EmbeddedEngine, EventLog
    from squall_engine.epochs.cluster import ClusterEpochs, Image
    from squall_engine.epochs.parts import EpochSettings

log = get_logger(__name__)

# Exit status. The supervisor relaunches after any of them while the slot has work.
EXIT_STOPPED = 0  # asked to stop, and drained or out of time
EXIT_FATAL = 1  # the topology cannot start, or must not go on
EXIT_USAGE = 2  # wrong arguments or launch file
EXIT_NOT_OURS = 4  # the slot's work has moved elsewhere
# (5: watchdog.EXIT_STALLED, a call of a component did not return)

# How long what was sent may take to leave a process that begins anew.
_LEAVE_SECS = 0.02
# After a sleep, how often the cluster state is read until it answers.
_DOUBT_SECS = 1.0
# How often a heartbeat is sent while Nimbus waits for the topology to drain.
_DRAIN_REPORT_SECS = 1.0
# How long errors that are on their way to ZooKeeper get when the process ends.
_REPORT_SECS = 2.0
# The part of a graceful stop that is reserved for the peers' acknowledgements and goodbyes.
_GOODBYE_SECS = 0.5


class Worker:
    """One worker, from launch file to exit status."""

    def __init__(
        self,
        spec: LaunchSpec,
        *,
        state: ClusterState | None = None,
        clock: Clock | None = None,
        heartbeats: Callable[..., HeartbeatThread] = HeartbeatThread,
        sockets: Callable[[], Sockets] = new_sockets,
        rings: bool = True,
        refuses: Callable[[Address, float], Awaitable[bool]] = refuses,
        send: Send | None = None,
        ask: Ask | None = None,
        connect_nimbus: Connect | None = None,
        alone: Callable[[Callable[[], ReportSender]], Alone] = AloneThread,
        begin_image: Callable[[Image], None] = begin_image,
    ) -> None:
        """`state` has not been started; by default it is the ZooKeeper that the daemon's conf
        names, which the watchdog's `send` and `ask` reach through sessions of their own. A
        simulation passes the factories of its heartbeats and its sockets, its `refuses`, and how
        it reaches Nimbus (`alone`: how reports are sent while the supervisor is away), and allows
        no `rings` between workers of one host."""
        self.spec = spec
        self.slot = WorkerSlot(spec.supervisor_id, spec.port)
        self._options = WorkerOptions.read(spec.daemon_conf)
        self.settings = WorkerSettings.of(self._options, secured=spec.secured)
        self._clock = clock or SystemClock()
        self._began = self._clock.monotonic()
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks(on_crash=lambda _, error: self._fail(error))
        self._stop = asyncio.Event()
        self._changed = asyncio.Event()  # the cluster state or the links have changed
        self._session = Session(
            spec,
            self._options,
            state,
            tasks=self._tasks,
            clock=self._clock,
            on_connected=self._changed.set,  # a worker that started without it reads now
        )
        self._fatal: BaseException | None = None
        self._engine: EmbeddedEngine | None = None
        self._transport: ZmqTransport | None = None
        self._events: EventLog | None = None
        self._report: StatsReport | None = None  # not None once tasks run
        self._epochs: ClusterEpochs | None = None  # with checkpoints
        self._begin_image = begin_image
        self._renewal: asyncio.TimerHandle | None = None  # begins an image
        self._active = False
        self._drains_since: int | None = None  # zxid of the status for which Nimbus waits
        self._sums: SumsReport | None = None  # not None once tasks run
        self._watched = False  # somebody looks at the topology
        self._pause_detector = PauseDetector(self.settings.away_secs, self._clock.boottime())
        self._peers = Peers(
            grace_secs=self.settings.stop_secs + 1.0,
            clock=self._clock,
            on_lost=self._lose,
            on_change=self._changed.set,
            refuses=refuses,
        )
        self._errors = ErrorReporter(
            host=spec.hostname,
            port=spec.port,
            clock=self._clock,
            send=self._send_error,
        )
        self._recording = Recording(
            spec,
            self._options,
            self._errors,
            tasks=self._tasks,
            clock=self._clock,
            began=self._began,
        )
        self._sockets = sockets
        self._rings = rings
        self._loop_lag = LoopLag()
        self._log_levels = TimedLogLevels(self._loop, self._clock)
        self._watchdog = Watchdog(
            self._loop,
            self._clock,
            record=self._errors.record,
            send=send or send_aside(self._options, spec.topology_id, self._session.digest),
            ask=ask or ask_aside(self._options, spec.topology_id, self._session.digest),
        )
        self._credentials = CredentialsFile(spec.credentials_file, spec.topology_id)
        self._identity: IdentityTokens | None = None  # of a topology that declares audiences
        self._dumps = Dumps(
            spec.worker_dir,
            spec.artifacts_dir,
            about=self._about,
            loop=self._loop,
            executors=self._executor_lines,
            samples=self._sample_stacks,
        )
        self._state_answers = StateAnswers(spec.worker_dir, self._state_reader)
        if spec.secured:
            set_worker_identity(spec.identity_file)
        self._connect_nimbus = connect_nimbus or connect_by(
            spec.daemon_conf, worker_credentials(Role.NIMBUS)
        )
        self._alone = alone(self._make_sender)
        self._outgoing = OutgoingReports(
            spec.worker_dir,
            period_secs=self.settings.report_secs,
            clock=self._clock,
            alone=self._alone,
        )
        self._heartbeats = heartbeats(
            spec.heartbeat_file,
            beat_secs=self.settings.beat_secs,
            report_secs=self.settings.report_secs,
            turn_age_secs=self._turn_age_secs,
            report=self._report_heartbeat,
            look=self._look,
        )

    async def run(self) -> int:
        """Run until asked to stop; returns the process's exit status. Never raises for errors of a
        topology or the cluster."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self._loop.add_signal_handler(number, self._on_signal, number)
        status = EXIT_FATAL
        try:
            self._heartbeats.start()
            status = await self._live()
        except Exception as error:
            self._report_fatal(error)
        finally:
            # After a sleep it must not even drain: its tasks may run elsewhere.
            await self._close(graceful=status != EXIT_FATAL and not self._pause_detector.in_doubt)
        log.info("worker_exits", topology_id=self.spec.topology_id, slot=self.slot, status=status)
        return status

    async def _live(self) -> int:
        start = asyncio.create_task(self._start())
        stopped = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait({start, stopped}, return_when=asyncio.FIRST_COMPLETED)
            if not start.done():
                start.cancel()
                await asyncio.gather(start, return_exceptions=True)
                return EXIT_STOPPED
            engine, view, first = start.result()
            return await self._follow(engine, view, first, stopped)
        finally:
            stopped.cancel()

    # -- start --------------------------------------------------------------------------------

    async def _start(self) -> tuple[EmbeddedEngine, ClusterView, FirstReading]:
        spec = self.spec
        connecting = self._tasks.start("connect", self._session.connect())
        await asyncio.sleep(0)  # let it send its first bytes
        # Large: while ZooKeeper answers.
        from squall_engine.embed import tune_garbage_collector

        localized = load(spec.stormdist)
        options = TopologyOptions.read(localized.conf)
        self._errors.throttle_by(options)
        self._recording.begin(localized)
        key = own_key(spec, localized.conf, self.settings.bind_host)
        transport = self._transport = ZmqTransport(
            spec.topology_id,
            self.slot,
            spec.incarnation,
            backlog_bytes_max=self.settings.backlog_bytes_max(options),
            on_event=self._peers.happened,
            on_stranger=self._peers.met_stranger,
            on_dropped=self._dropped,
            clock=self._clock,
            sockets=self._sockets(),
            key=key,
            ring_bytes=self.settings.ring_bytes(options) if self._rings else 0,
            busy_poll_secs=self.settings.busy_poll_secs(options),
            links_opened=image_number() * LINKS_OF_IMAGE,
        )
        self._peers.attach(transport)
        transport.bind(self.settings.bind_host, spec.port)
        put_on_path(localized)
        view = ClusterView(self._session.state, spec.topology_id, self.slot, self._changed.set)
        reader = FirstReader(view, self.slot, changed=self._changed, now=self._clock.monotonic)
        # Checkpoints need ZooKeeper, and all workers the same placement.
        alone = options.topology_checkpoint_interval_secs is None
        last_known = spec.last_known_file if alone else None
        first = await reader.read(asyncio.shield(connecting), last_known)
        placement = first.placement
        await self._peers.follow(placement)
        epochs = None
        if options.topology_checkpoint_interval_secs is not None:
            epochs = await self._take_part(localized, options, view, placement, transport)
        if options.topology_identity_audiences:
            await self._begin_identity(options)
        engine = self._engine = self._make_engine(localized, placement, transport, epochs)
        if self._epochs is not None:
            engine.receive_epochs = self._epochs.receive
        self._errors.source_of = engine.source_of
        set_place(engine.log_place())
        await engine.start()
        engine.set_routes(placement.routes)
        self._recording.start(engine, self._checkpoints)
        tune_heap()
        gc.enable()  # the start ran without (see __main__)
        tune_garbage_collector()
        self._report = StatsReport(
            spec.topology_id,
            placement.executors,
            partial(engine.stats, EXECUTORS_MAX),
            loop=self._loop,
            clock=self._clock,
            began=self._began,
            drained=self._drained,
            rest_secs=self._rest_secs,
            says_end=self._says_end,
            usage=UsageMeter(self._loop_lag).read,
            checkpoints=self._checkpoints,
            store_failure=self._store_failure,
        )
        self._sums = SumsReport(
            spec.worker_dir,
            engine.component_sums,
            loop=self._loop,
            clock=self._clock,
            began=self._began,
        )
        self._watchdog.begin(engine.calls_under_way())
        self._loop_lag.start()
        self._heartbeats.enter(Phase.RUNNING)
        log.info(
            "worker_running",
            topology_id=spec.topology_id,
            slot=self.slot,
            incarnation=spec.incarnation,
            executors=len(placement.executors),
            peers=len(placement.hosts),
            encrypted=key is not None,
            secs=self._age(),
        )
        return engine, view, first

    async def _begin_identity(self, options: TopologyOptions) -> None:
        """Get the tokens that the topology shows to foreign parties, if its cluster has any."""
        if not self.spec.secured:
            return
        self._identity = IdentityTokens(
            options.topology_identity_audiences,
            self.spec.topology_id,
            self._connect_nimbus,
            self._clock,
        )
        await self._identity.first()
        self._tasks.every("identity tokens", IDENTITY_SECS, self._identity.look)

    def _make_engine(
        self,
        localized: LocalizedTopology,
        placement: Placement,
        transport: ZmqTransport,
        epochs: EpochSettings | None,
    ) -> EmbeddedEngine:
        from squall_engine.embed import EmbeddedEngine, EngineCallbacks, EngineSettings

        # With checkpoints no message is sent again by itself: there is nothing to note.
        in_hand, before = open_in_hand(self.spec) if epochs is None else (None, None)
        settings = EngineSettings(
            prepared=localized.prepared,
            topology_id=self.spec.topology_id,
            slot=self.slot,
            executors=placement.executors,
            daemon_conf=self.spec.daemon_conf,
            code_dir=localized.code_dir,
            pid_dir=self.spec.pid_dir,
            log_dir=self.spec.artifacts_dir,
            worker=f"{self.spec.hostname}:{self.spec.port}",
            tracer_provider=self._recording.make_provider(TopologyOptions.read(localized.conf)),
            credentials=self._credentials.read() or {},
            identity_tokens=HeldTokens() if self._identity is None else self._identity.held,
            epochs=epochs,
        )
        callbacks = EngineCallbacks(
            on_reported=self._errors.report, on_fatal=self._fail, may_turn=self._may_turn
        )
        return EmbeddedEngine(
            settings,
            callbacks,
            transport=transport,
            clock=self._clock,
            in_hand=in_hand,
            before=before,
        )

    # -- checkpoints --------------------------------------------------------------------------

    async def _take_part(
        self,
        localized: LocalizedTopology,
        options: TopologyOptions,
        view: ClusterView,
        placement: Placement,
        transport: ZmqTransport,
    ) -> EpochSettings:
        """Wait for the other workers of a topology with checkpoints; returns where the tasks
        begin."""
        from squall_engine.epochs.cluster import ClusterEpochs, incarnation_of

        run, image = self.spec.incarnation, current_image()
        epochs = self._epochs = ClusterEpochs(
            localized.prepared,
            options,
            name=topology_name_of(self.spec.topology_id),
            topology_id=self.spec.topology_id,
            own=self.slot,
            routes=placement.routes,
            incarnation=incarnation_of(run.assignment_zxid, run.launch, image),
            image=image,
            store=self._session.state.store,
            send=lambda peer, section: transport.send(peer, [section]),
            renew=self._renew,
            on_failure=self._errors.report,
            on_fault=self._fail,
            on_savepoint=self._heartbeats.report_soon,
        )

        first = FirstEpoch(
            epochs, view, session=self._session, peers=self._peers, changed=self._changed
        )
        return await first.wait(transport)

    def _is_elsewhere(self, placement: Placement) -> bool:
        """Whether tasks with checkpoints run elsewhere than this process believes."""
        return self._epochs is not None and not self._epochs.is_placed(placement.routes)

    def _renew(self, image: Image) -> None:
        """Begin anew in this process, once what was just sent has left."""
        log.info("worker_begins_anew", slot=self.slot, image=image.number, floor=image.floor)
        self._renewal = self._loop.call_later(_LEAVE_SECS, self._begin_image_unless_ending, image)

    def _begin_image_unless_ending(self, image: Image) -> None:
        """An image would know neither that this process was asked to stop, nor what it died of."""
        if not self._stop.is_set() and self._fatal is None:
            self._begin_image(image)

    # -- afterwards ---------------------------------------------------------------------------

    async def _follow(
        self,
        engine: EmbeddedEngine,
        view: ClusterView,
        first: FirstReading,
        stopped: asyncio.Task[Any],
    ) -> int:
        """Follow the cluster state until the end."""
        if self._epochs is None:
            self._tasks.start("ready", self._get_ready(engine))
        else:
            self._epochs.begin(engine)
        if engine.has_spouts:
            self._tasks.start("questions", self._answer_questions(engine))
        self._tasks.every("credentials", CREDENTIALS_SECS, partial(self._renew_credentials, engine))
        self._tasks.every("silent peers", LOOK_SECS, self._peers.look_for_ended)
        ownership = Ownership(first.placement.executors, self.settings.refresh_secs)
        if first.base is not None:
            self._take_status(engine, first.base, ours=True)
        read_at = float("-inf")
        while not self._stop.is_set():
            if self._fatal is not None:
                raise self._fatal
            now = self._clock.monotonic()
            if now >= ownership.deadline:
                log.error("slot_not_ours", slot=self.slot, topology_id=self.spec.topology_id)
                return EXIT_NOT_OURS
            next_read = read_at + (
                _DOUBT_SECS if self._pause_detector.in_doubt else self.settings.refresh_secs
            )
            at = min(next_read, ownership.deadline, self._peers.deadline())
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), max(0.01, at - now))
            self._changed.clear()
            if not self._stop.is_set() and self._fatal is None:
                read_at = self._clock.monotonic()
                # A reading takes long while ZooKeeper is away: a stop does not wait for it.
                reading = asyncio.ensure_future(self._refresh(engine, view, ownership))
                try:
                    await asyncio.wait({reading, stopped}, return_when=asyncio.FIRST_COMPLETED)
                    if reading.done():
                        reading.result()
                finally:
                    reading.cancel()
        return EXIT_STOPPED

    async def _refresh(
        self, engine: EmbeddedEngine, view: ClusterView, ownership: Ownership
    ) -> None:
        """Read assignment and status and apply them; a part that cannot be read stays as it was."""
        doubt = self._pause_detector.doubt
        if self._pause_detector.in_doubt:
            log.warning(
                "worker_slept", slot=self.slot, secs=round(self._pause_detector.away_secs, 1)
            )
        try:
            placement = await view.placement()
            found = await view.status()
            log_config = await view.log_config()
        except StoreError as error:
            log.warning("cluster_state_unreadable", error=error)
            self._peers.update()
            return
        now = self._clock.monotonic()
        executors = () if placement is None else placement.executors
        ours = ownership.read(executors, now, at_once=self._pause_detector.in_doubt)
        if not ours:
            log.warning(
                "slot_reassigned", slot=self.slot, stops_in_secs=round(ownership.deadline - now, 1)
            )
        elif placement is not None and self._is_elsewhere(placement):
            assert self._epochs is not None
            self._epochs.placement_changed()
        elif placement is not None:
            await self._peers.follow(placement)
            engine.set_routes(placement.routes)
        self._peers.update()
        self._log_levels.follow(log_config)
        base, zxid = found or (None, None)
        self._take_status(engine, base, ours)
        self._follow_drain(zxid if ours and drains(base) else None)
        if ours and self._pause_detector.confirm(doubt):
            log.info("worker_goes_on", slot=self.slot)
            engine.resume()

    def _take_status(self, engine: EmbeddedEngine, base: StormBase | None, ours: bool) -> None:
        """Run spouts, and sample events, according to the topology's status."""
        if self._events is None:
            self._events = engine.make_event_log()
            self._events.write_to(self.spec.artifacts_dir / "events.log")
        if self._epochs is not None:
            self._epochs.follow(base)
        if base is not None:
            self._events.sample(self.spec.topology_id, base.component_debug)
        active = ours and spouts_run(base)
        if active != self._active:
            self._active = active
            status = "gone" if base is None else base.status.name
            log.info("topology_status", status=status, spouts_run=active)
            engine.set_active(active)

    def _follow_drain(self, status_zxid: int | None) -> None:
        """Report whether this worker has drained, as long as Nimbus waits for it (None: it does
        not), and at once when it has asked again."""
        if status_zxid != self._drains_since:
            self._drains_since = status_zxid
            if status_zxid is not None:
                self._heartbeats.report_soon()

    def _checkpoints(self) -> CheckpointReport | None:
        """What the heartbeat says about checkpoints; on the loop."""
        return None if self._epochs is None else self._epochs.report

    def _store_failure(self) -> str | None:
        """What the heartbeat says about the store of checkpoints; on the loop."""
        return None if self._epochs is None else self._epochs.store_failure

    def _drained(self) -> WorkerDrained | None:
        """What the heartbeat says about being drained; on the loop."""
        zxid, engine, transport = self._drains_since, self._engine, self._transport
        if zxid is None or engine is None or transport is None or not transport.is_idle:
            return None
        work = self._work_settled(engine.work_when_drained())
        if work is None:
            return None
        run = self.spec.incarnation
        return WorkerDrained(zxid, f"{run.assignment_zxid}-{run.launch}", work)

    def _rest_secs(self) -> float | None:
        """What the heartbeat says about rest at the end of all sources; on the loop."""
        engine, transport = self._engine, self._transport
        if self._drains_since is not None or engine is None or transport is None:
            return None
        if not transport.is_idle:
            return None
        return engine.rest_secs(self._work_settled(engine.work_when_drained(at_end=True)))

    def _says_end(self) -> bool:
        """What the heartbeat says about the spouts of this worker; on the loop."""
        return self._engine is not None and self._engine.sources_ended() is not None

    def _work_settled(self, work: int | None) -> int | None:
        """The work of a worker with nothing in flight; with checkpoints None until one of after it
        is complete, and sinks have written their rows."""
        if self._epochs is not None and not self._epochs.has_drained(work):
            return None
        return work

    async def _renew_credentials(self, engine: EmbeddedEngine) -> None:
        found = self._credentials.read()
        if found is not None:
            log.info("credentials_updated", topology_id=self.spec.topology_id, keys=len(found))
            engine.set_credentials(found)

    async def _answer_questions(self, engine: EmbeddedEngine) -> None:
        """Answer workers that ask which messages trees belong to."""
        await self._session.connected.wait()
        calls = engine.calls_under_way()
        await answer_questions(self._session.state.store, self.spec.topology_id, calls.message_of)

    async def _get_ready(self, engine: EmbeddedEngine) -> None:
        """Let spouts emit once the peers are linked. A peer that never comes is not waited for: its
        link queues, and the engine stops the tasks that feed it."""
        linked = await self._peers.wait_linked()
        engine.set_ready(True)
        log.info("connections_ready", all_peers=linked, secs=self._age())

    def _lose(self, tasks: frozenset[int]) -> None:
        # (With checkpoints its successor makes the topology go back.)
        if self._engine is not None and self._epochs is None:
            self._engine.worker_lost(tasks)

    def _dropped(self, sections: Sequence[bytes]) -> None:
        if self._epochs is not None:
            self._loop.call_soon(self._epochs.sections_dropped, sections)
        elif self._engine is not None:
            self._loop.call_soon(self._engine.sections_dropped, sections)

    def _may_turn(self) -> bool:
        """Whether the engine may go on: after a sleep, only once it is known that the tasks are
        still ours."""
        if self._pause_detector.seen(self._clock.boottime()):
            return True
        self._changed.set()
        return False

    # -- heartbeats (called on their thread) --------------------------------------------------

    def _turn_age_secs(self) -> float:
        if not self._pause_detector.seen(self._clock.boottime()):
            self._loop.call_soon_threadsafe(self._changed.set)
        engine = self._engine
        started = None if engine is None else engine.turn_started
        return 0.0 if started is None else self._clock.monotonic() - started

    def _report_heartbeat(self) -> float | None:
        if self._report is not None:
            beat = self._report.heartbeat()
            run = self.spec.incarnation
            self._outgoing.report(
                WorkerReport(
                    beat.topology_id,
                    self.slot,
                    tuple(beat.executor_stats),
                    beat.time_secs,
                    (run.assignment_zxid, run.launch),
                    self._session.state.encode_worker_beat(self.slot, beat),
                )
            )
        again = [] if self._drains_since is None else [_DRAIN_REPORT_SECS]
        pace = self._pace()
        self._watched = pace is not None
        if pace is not None:
            again.append(pace.report_secs)
        return min(again, default=None)

    def _pace(self) -> Pace | None:
        """How often to report while somebody watches the topology; None: nobody does."""
        return read_watch(self.spec.worker_dir, self._clock.monotonic())

    def _make_sender(self) -> ReportSender:
        """Of reports while the supervisor is away; called on the heartbeat thread."""
        return ReportSender(
            self._connect_nimbus,
            self._write_report,
            clock=self._clock,
            call_bytes_max=self._options.nimbus_thrift_max_buffer_size,
        )

    async def _write_report(self, report: WorkerReport) -> None:
        if not self._session.connected.is_set():
            raise ConnectionLostError("ZooKeeper was not connected yet")
        state = self._session.state
        state.put_encoded_beat_nowait(report.topology_id, report.slot, report.heartbeat)

    def _look(self) -> float:
        dump_when_silent(self.settings.silent_secs)
        self._dumps.look()
        self._state_answers.look()
        again = self._watchdog.look()
        pace = self._pace()
        if pace is not None and not self._watched:
            self._watched = True
            self._heartbeats.report_soon()
        if pace is not None and pace.sums_secs is not None and self._sums is not None:
            again = min(again, self._sums.report(pace.sums_secs))
        return again

    def _about(self) -> str:
        """The heading of a dump."""
        return heading(
            {
                "topology": self.spec.topology_id,
                "worker": f"{self.spec.hostname}:{self.spec.port}",
                "pid": os.getpid(),
                "incarnation": self.spec.incarnation,
                "phase": self._heartbeats.phase.name,
                "age_secs": self._age(),
                "turn_age_secs": f"{self._turn_age_secs():.3f}",
            }
        )

    def _executor_lines(self) -> Iterable[str]:
        if self._engine is None:
            return ()
        return self._engine.describe(self._clock.monotonic())

    def _state_reader(self) -> Read | str:
        """What reads the state of the tasks, or why none can be read now."""
        engine, phase = self._engine, self._heartbeats.phase
        if phase is Phase.STARTING or engine is None:
            return "it is starting, and has no tasks yet"
        if phase is Phase.STOPPING:
            return "it is ending"
        return engine.live_state

    def _sample_stacks(self, until: float) -> str:
        """On the sampler's thread."""
        return "" if self._engine is None else self._engine.sample_stacks(until)

    # -- end ----------------------------------------------------------------------------------

    def _on_signal(self, number: int) -> None:
        log.info("stop_requested", signal=signal.Signals(number).name)
        if self._stop.is_set():
            logging.shutdown()
            os._exit(EXIT_STOPPED)  # asked twice: at once
        self._stop.set()
        self._changed.set()

    def _fail(self, error: BaseException) -> None:
        """The worker must die; from any thread."""
        if self._fatal is None:
            self._fatal = error
        self._loop.call_soon_threadsafe(self._changed.set)

    def _report_fatal(self, error: Exception) -> None:
        """Report why the worker dies: to its log, to stderr, whose last line its supervisor shows,
        and, if no component reported it, to ZooKeeper."""
        log.error(
            "worker_fails", error=error, exc_info=None if isinstance(error, SquallError) else error
        )
        said = str(error).partition("\n")[0]  # without the hint
        print_if_possible(f"{type(error).__name__}: {said}", sys.stderr)
        if isinstance(error, SnapshotError):
            self._errors.report(error.component, error.task, error)
            return
        embed = sys.modules.get("squall_engine.embed")
        if embed is None or not isinstance(error, embed.ComponentStartError):
            self._errors.report(SYSTEM_COMPONENT, SYSTEM_TASK, error)

    async def _send_error(self, component: str, info: ErrorInfo) -> None:
        """Send it to ZooKeeper, once it is connected."""
        await self._session.connected.wait()
        await self._session.state.report_error(self.spec.topology_id, component, info)

    async def _close(self, *, graceful: bool) -> None:
        """End everything: spouts first, then tuples in flight, then the links. All of it shares one
        deadline, since the supervisor kills at the end of its own."""
        self._watchdog.stop()
        self._loop_lag.stop()
        self._heartbeats.enter(Phase.STOPPING)
        deadline = self._clock.monotonic() + self.settings.stop_secs

        def left(secs_max: float, secs_min: float = 0.1) -> float:
            return max(secs_min, min(secs_max, deadline - self._clock.monotonic()))

        drains = graceful and self._epochs is None
        if self._renewal is not None:
            self._renewal.cancel()
        if self._epochs is not None:
            # What is in flight belongs to no complete checkpoint, and is done again.
            await self._epochs.close(left(self.settings.stop_secs - _GOODBYE_SECS, 0.0))
        if self._engine is not None:
            secs = self.settings.stop_secs - _GOODBYE_SECS if drains else 0.0
            drained = await self._engine.stop(max(0.0, secs))
            log.info("engine_stopped", drained=drained)
        # The peers come first: they wait for our acknowledgements and our goodbye.
        why = "asked to" if graceful else f"{self._fatal or 'could not start'}"
        writing = await self._recording.end(why)
        if self._transport is not None:
            secs = left(self.settings.stop_secs) if drains else 0.0
            settled = await self._transport.close(secs)
            log.info("transport_closed", settled=settled, counts=self._transport.counts())
        self._peers.close()
        if self._events is not None:
            self._events.close()
        await self._errors.close(left(_REPORT_SECS))
        if writing:
            _, late = await asyncio.wait(writing, timeout=left(HISTORY_SECS, 0.25))
            for task in late:
                task.cancel()
        for error in await asyncio.gather(*writing, return_exceptions=True):
            if isinstance(error, Exception):
                log.error("end_incomplete", error=error, exc_info=error)
        await self._tasks.close()
        self._heartbeats.stop()
        self._alone.stop()
        if self._session.connected.is_set():
            with contextlib.suppress(StoreError):
                await self._session.state.close()

    def _age(self) -> str:
        """Seconds since the process began its work, for logs."""
        return f"{self._clock.monotonic() - self._began:.3f}"
