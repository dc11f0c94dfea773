"""Messages that kill their worker: found, run alone, and given to `__dead_letter`.

Every worker records the trees of the tuples that it executes (`in_hand`). When it exits
unexpectedly, its replacement reads the record and sends it to the workers that have spouts, in a
KILLED section; spouts know the message of a tree. For spouts that died with their worker, the
record has the keys of their messages. `quarantine` decides which messages are suspected, tried and
condemned; `spout_suspects` holds back the messages of one spout, emits them and makes their dead
letters.

While the quarantine is inactive spouts emit past all this; see
docs/decisions/0029-messages-that-kill.md.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import msgspec

from squall_common.daemon.logs import get_logger
from squall_common.names import DEAD_LETTER_STREAM
from squall_common.topology.model import ComponentKind
from squall_engine.acking.dead_letters import DeadLetter
from squall_engine.acking.quarantine import Quarantine
from squall_engine.acking.spout_suspects import COUNTED_MAX, Place, SpoutSuspects, put_newest
from squall_engine.core.codec import CodecError, ValueCodec
from squall_engine.core.sections import KILLED
from squall_engine.dataflow.remote import Exchange
from squall_engine.options import EngineOptions
from squall_engine.plan import Plan
from squall_engine.tasks.in_hand import Before, InHand
from squall_engine.tasks.spout import SpoutTask

log = get_logger(__name__)

_RECENT_MAX = 20_000  # trees a worker that failed of late, and whose
# How long bolts wait for the links to the workers with spouts, and then for the report to leave.
_LINK_SECS = 3.0
_SENT_SECS = 0.25
_LOOK_SECS = 0.25  # how often those that are held are looked at
_RESEND_SECS = 5.0  # if this worker exits within this time, its successor sends the report again
_WHY_CHARS_MAX = 300


class _InHandReport(msgspec.Struct, frozen=True, array_like=True):
    """What a worker had in hand when it ended unexpectedly."""

    worker: str  # host:port
    why: str
    held: list[tuple[int, int]]  # (root, task)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(_InHandReport).decode


class Suspects:
    """The suspects of one worker. Spouts on threads call it from there, under their lock;
    everything else is called on the loop."""

    def __init__(
        self,
        plan: Plan,
        exchange: Exchange,
        codec: ValueCodec,
        registry: Any,
        options: EngineOptions,
        in_hand: InHand,
        *,
        now: Callable[[], float],
        report: Callable[[str, int, BaseException], None],
        wake: Callable[[], None],
        before: Before | None = None,
    ) -> None:
        self._plan = plan
        self._exchange = exchange
        self.codec = codec
        self.registry = registry
        self._options = options
        self.in_hand = in_hand
        self.now = now
        self.report = report
        self.wake = wake
        self.quarantine = Quarantine(2.0 * options.topology.topology_message_timeout_secs)
        # The quarantine is the loop's and that of spouts on threads. Taken after a spout's lock.
        self.lock: AbstractContextManager[Any] = threading.RLock()
        self.spouts: list[SpoutSuspects] = []
        self.places: dict[int, Place] = {}  # by key
        self._recent: dict[int, tuple[SpoutSuspects, Any]] = {}  # root -> whose, message id
        self._counted: dict[int, None] = {}  # roots
        self._before = before
        self._emits_before: Mapping[int, int] = {}  # root -> key, of the spouts before ours
        self._reports: list[_InHandReport] = []  # to be said
        self._ready = False
        self._timer: asyncio.TimerHandle | None = None  # while something is held
        self._bolts_wait_until = 0.0
        self._forget_at: float | None = None  # when what was said is not `unreported` any more

    def limit_of(self, component_id: str) -> int | None:
        """`topology.max.worker.kills` of a spout; None: off."""
        component = self._plan.topology.components[component_id]
        limit = self._options.of(component_id).topology_max_worker_kills
        if not limit or component.kind is not ComponentKind.SPOUT or not self._plan.acker_tasks:
            return None
        return limit

    def of_spout(self, spout: SpoutTask) -> None:
        """Watch a spout task of this worker, if its configuration asks for it."""
        limit = self.limit_of(spout.component)
        if limit is not None:
            consumed = bool(self._plan.consumers_of(spout.component, DEAD_LETTER_STREAM))
            watched = SpoutSuspects(self, spout, limit, consumed)
            spout.on_failing = watched.failing
            self.spouts.append(watched)

    # -- what the worker before us had in hand --

    def begin(self) -> None:
        """Begin, once the spouts of this worker are known and before anything was emitted."""
        before, self._before = self._before, None
        if before is None:
            return
        now, quarantine, in_hand = self.now(), self.quarantine, self.in_hand
        ours = bool(self.spouts)
        for key, (kills, task) in (before.kills or {}).items():
            if ours:
                quarantine.kills[key] = kills
                self.places[key] = Place(task, "", "")
                in_hand.note_kills(key, kills, task)
        quarantine.unknown = ours and before.unknown
        emits = self._emits_before = before.emits or {}
        held = list(dict.fromkeys((*before.unreported, *(before.held if before.counts else ()))))
        if before.counts:
            known = [one for one in before.held if ours and one[0] in emits]
            if ours and (before.unrecorded or len(known) < len(before.held)) and not before.careful:
                quarantine.unknown = True
            for root, task in known:
                place = Place(_signed(task), before.worker, before.why)
                self._count(emits[root], place, now)
        if before.counts or quarantine.kills or quarantine.unknown:
            quarantine.report_arrived(now)
            self._begin_quarantine()
        in_hand.note_unknown(quarantine.unknown)
        in_hand.note_unreported(held)
        if before.counts or before.unreported:
            self._reports.append(_InHandReport(before.worker, before.why, held))
            self._bolts_wait_until = now + _LINK_SECS

    def ready(self) -> None:
        """The connections to the workers with spouts are up."""
        self._ready = True

    @property
    def bolts_wait(self) -> bool:
        """Whether the report of what was in hand has not left yet: the next tuple may kill this
        worker as well, and then the report would be lost."""
        return self._bolts_wait_until > 0.0 and self.now() < self._bolts_wait_until

    def _send_reports(self) -> None:
        """Say to the workers with spouts what was in hand."""
        slots = self._spout_slots()
        for in_hand_report in self._reports:
            section = bytes([KILLED]) + _encode(in_hand_report)
            for slot in slots:
                self._exchange.send(slot, section)
        self._reports.clear()
        now = self.now()
        self._forget_at = now + _RESEND_SECS
        self._bolts_wait_until = now + _SENT_SECS if slots else 0.0
        if slots:
            asyncio.get_running_loop().call_later(_SENT_SECS + 0.001, self.wake)

    def _spout_slots(self) -> set[Any]:
        routes = self._exchange.routes
        tasks = (
            task
            for component in self._plan.topology.spouts
            if self.limit_of(component) is not None
            for task in self._plan.tasks_of.get(component, ())
        )
        return {routes[task] for task in tasks if task in routes}

    # -- what other workers had in hand --

    def lost(self) -> None:
        """A worker exited unexpectedly."""
        if self.spouts:
            with self.lock:
                self.quarantine.lost(self.now())
            self._begin_quarantine()

    def receive(self, section: bytes) -> None:
        """Take a KILLED section. Raises CodecError."""
        try:
            in_hand_report = _decode(memoryview(section)[1:])
        except msgspec.MsgspecError as error:
            raise CodecError(f"cannot read what a lost worker had in hand: {error}") from error
        if not self.spouts:
            return
        now = self.now()
        ours = [
            (root, task, key) for root, task in in_hand_report.held if (key := self._key_of(root))
        ]
        with self.lock:
            for root, task, key in ours:
                if root not in self._counted:
                    put_newest(self._counted, root, None, COUNTED_MAX)
                    place = Place(
                        _signed(task), in_hand_report.worker, in_hand_report.why[:_WHY_CHARS_MAX]
                    )
                    self._count(key, place, now)
            self.quarantine.report_arrived(now)
        self._begin_quarantine()
        self.wake()

    def _key_of(self, root: int) -> int | None:
        """The key of the message of a tree; None when it does not belong to a spout here."""
        found = self._recent.get(root)
        if found is not None:
            spout, message_id = found
            return spout.key_of(message_id)
        for spout in self.spouts:
            with spout.task.lock:
                waiting = spout.task.pending.find_message(root)
            if waiting is not None and not isinstance(waiting[0], DeadLetter):
                return spout.key_of(waiting[0])
        return self._emits_before.get(root)

    def _count(self, key: int, place: Place, now: float) -> None:
        self.quarantine.killed(key, now)
        self.places[key] = place
        self.in_hand.note_kills(key, self.quarantine.kills[key], place.task or 0)

    def remember(self, root: int, spout: SpoutSuspects, message_id: Any) -> None:
        """A tree has failed; it may turn out to have been in hand somewhere."""
        put_newest(self._recent, root, (spout, message_id), _RECENT_MAX)

    # -- turns --

    def _begin_quarantine(self) -> None:
        self.in_hand.note_careful(True)
        for spout in self.spouts:
            spout.begin()

    def turn(self) -> bool:
        """Once a turn. True when anything was emitted."""
        if self._reports and self._ready:
            self._send_reports()
        now = self.now()
        if self._forget_at is not None and now >= self._forget_at:
            self._forget_at = None
            self.in_hand.note_unreported(())
        if not self.quarantine.is_active:
            return False
        worked = False
        while True:
            with self.lock:
                found = self.quarantine.next(now)
            if found is None:
                break
            held, verdict = found
            held.spout.release(held, verdict)
            worked = True
        if self.quarantine.held and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_SECS, self._look)
        with self.lock:
            closed = self.quarantine.end_when_due(now)
        if closed:
            self._end_quarantine()
        return worked

    def component_of(self, task: int) -> str | None:
        """The component of a task; None: the topology has no such task any more."""
        return self._plan.task_to_component.get(task)

    def _look(self) -> None:
        self._timer = None
        self.wake()

    def retry(self) -> bool:
        """Emit again the dead letters that failed; True when there were any."""
        found = [spout.retry() for spout in self.spouts]
        return any(found)

    @property
    def holds_messages(self) -> bool:
        """Whether messages or dead letters wait here to be emitted."""
        return bool(self.quarantine.held) or any(spout.has_letters for spout in self.spouts)

    def _end_quarantine(self) -> None:
        self.in_hand.note_careful(False)
        self.in_hand.note_unknown(False)
        for key in list(self.places):
            self.free(key)
        for spout in self.spouts:
            spout.end()

    def free(self, key: int) -> None:
        """A message is not a suspect any more."""
        self.places.pop(key, None)
        self.in_hand.note_kills(key, 0)


def _signed(task: int) -> int:
    return task - 2**64 if task >= 2**63 else task
