"""The suspects of one spout task: held back, emitted alone, or made dead letters.

See `suspects` for the whole mechanism, and for the worker's part of it (`SuspectsHost`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from squall_common.errors import SquallError
from squall_common.names import DEAD_LETTER_STREAM
from squall_engine.acking.dead_letters import DeadLetter, sendable
from squall_engine.acking.quarantine import HeldMessage, Quarantine, Verdict
from squall_engine.core.codec import ValueCodec
from squall_engine.tasks.in_hand import InHand, key_of
from squall_engine.tasks.spout import MessageFilter, SpoutTask

COUNTED_MAX = 20_000
_NEVER = 2**62
_REPORTED_MAX = 5  # with more suspects than that, only those suspected again are reported


class MessageSuspectedError(SquallError):
    """A message was in hand when a worker exited unexpectedly."""


@dataclass(slots=True, eq=False)
class _Letter(DeadLetter):
    """The dead letter of a message that was condemned."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a message was in hand last."""

    task: int | None
    worker: str
    why: str


class SuspectsHost(Protocol):
    """The worker's side, shared by its spouts."""

    quarantine: Quarantine
    lock: AbstractContextManager[Any]  # of the quarantine; taken after a spout's lock
    in_hand: InHand
    codec: ValueCodec
    registry: Any
    places: dict[int, Place]  # by key
    now: Callable[[], float]
    report: Callable[[str, int, BaseException], None]
    wake: Callable[[], None]

    def remember(self, root: int, spout: SpoutSuspects, message_id: Any) -> None:
        """A tree has failed; it may turn out to have been in hand somewhere."""

    def free(self, key: int) -> None:
        """A message is not a suspect any more."""

    def component_of(self, task: int) -> str | None:
        """The component of a task; None: the topology has no such task any more."""


class SpoutSuspects:
    """The messages of one spout task. A `MessageFilter` while the quarantine is active."""

    def __init__(self, host: SuspectsHost, task: SpoutTask, limit: int, consumed: bool) -> None:
        """`consumed`: a bolt takes the dead letters."""
        self._host = host
        self.task = task
        self._calls = task.calls
        self._limit = limit
        # With how many kills it is condemned; never when no bolt takes its dead letters.
        self._condemn_at = limit if consumed else _NEVER
        self._inner: MessageFilter | None = None
        self._letters = 0  # in flight
        self._again: deque[_Letter] = deque()
        self._reported: dict[int, int] = {}  # kills of a message that were reported

    def key_of(self, message_id: Any) -> int:
        return key_of(self.task.component, message_id, self._host.registry)

    def begin(self) -> None:
        with self.task.lock:
            if self.task.message_filter is not self:
                self._inner, self.task.message_filter = self.task.message_filter, self
            self._calls.set_interceptor(self._intercept)

    def end(self) -> None:
        with self.task.lock:
            self._calls.set_interceptor(None)
            if not self._letters:
                self.task.message_filter = self._inner
            self._reported.clear()

    # -- emitting --

    def _intercept(
        self, values: Sequence[Any], message_id: Any, stream: str, task: int | None
    ) -> Sequence[int]:
        """In place of an emit; what is held back was sent to no task yet."""
        what = (values, message_id, stream, task)
        if isinstance(message_id, DeadLetter):
            return self._emit(*what, key=None)
        key = self.key_of(message_id)
        host = self._host
        with host.lock:
            verdict = host.quarantine.judge(key, self._condemn_at)
            if verdict is Verdict.HELD:
                host.quarantine.hold(HeldMessage(self, key, self._condemn_at, what, host.now()))
        if verdict is Verdict.FREE:
            return self._emit(*what, key=key)
        if verdict is Verdict.CONDEMNED:
            self._emit_dead_letter(key, *what)
        else:
            self._report(key, message_id)
        host.wake()
        return ()

    def release(self, held: HeldMessage, verdict: Verdict) -> None:
        """A message was held long enough."""
        with self.task.lock:
            if verdict is Verdict.CONDEMNED:
                self._emit_dead_letter(held.key, *held.what)
            else:
                self._emit(*held.what, key=held.key)
        self._host.wake()

    def _emit(
        self, values: Sequence[Any], message_id: Any, stream: str, task: int | None, *,
        key: int | None,
    ) -> Sequence[int]:  # fmt: skip
        calls = self._calls
        calls.set_interceptor(None)
        try:
            ids: Sequence[int]
            if task is None:
                ids = calls.emit(values, message_id, stream)
            else:
                ids = calls.emit_direct(task, values, message_id, stream)
        finally:
            calls.set_interceptor(self._intercept)
        if key is not None:
            with self._host.lock:
                self._host.in_hand.note_emit(calls.last_root(), key)
        return ids

    def _report(self, key: int, message_id: Any) -> None:
        """Report a suspect, once for each exit."""
        host = self._host
        count = host.quarantine.count(key)
        if self._reported.get(key) == count or (
            count < 2 and len(host.quarantine.kills) > _REPORTED_MAX
        ):
            return
        put_newest(self._reported, key, count, COUNTED_MAX)
        place = host.places.get(key)
        where = f" {place.worker} ({place.why})" if place is not None and place.worker else ""
        text = (
            f"message {_shown(message_id)} was in hand when a worker exited unexpectedly{where}, "
            f"{count} of topology.max.worker.kills: {self._limit}. It is emitted again alone"
        )
        if self._condemn_at == _NEVER and count >= self._limit:
            text += (
                "; it cannot become a dead letter, because no bolt consumes the stream "
                f"{DEAD_LETTER_STREAM} of {self.task.component!r}"
            )
        host.report(self.task.component, self.task.task, MessageSuspectedError(text))

    # -- dead letters --

    def _emit_dead_letter(
        self, key: int, values: Sequence[Any], message_id: Any, stream: str, task: int | None
    ) -> None:
        """Emit the dead letter of a message that was condemned."""
        host = self._host
        with host.lock:
            count = host.quarantine.count(key)
            host.quarantine.failed(key)
            place = host.places.get(key) or Place(None, "", "")
        reason = f"in hand at {count} unexpected worker exits"
        if place.why:
            reason += f"; the last: {place.why}"
        component = host.component_of(place.task) if place.task else None
        row = [
            message_id, list(values), stream, reason,
            component, place.task if component else None, place.worker or None, count - 1,
        ]  # fmt: skip
        letter = _Letter(message_id, sendable(host.codec, row))
        self._emit(letter.row, letter, DEAD_LETTER_STREAM, None, key=None)
        self._letters += 1
        error = MessageSuspectedError(f"message {_shown(message_id)} is a dead letter: {reason}")
        host.report(self.task.component, self.task.task, error)

    def retry(self) -> bool:
        with self.task.lock:
            letters = [self._again.popleft() for _ in range(len(self._again))]
            for letter in letters:
                self._emit(letter.row, letter, DEAD_LETTER_STREAM, None, key=None)
        return bool(letters)

    @property
    def has_letters(self) -> bool:
        """Whether dead letters wait to be emitted again."""
        return bool(self._again)

    # -- what became of messages (under the spout's lock) --

    def failing(self, roots: Iterable[int]) -> None:
        """These trees fail, or time out."""
        for root in roots:
            waiting = self.task.pending.find_message(root)
            if waiting is not None and not isinstance(waiting[0], DeadLetter):
                self._host.remember(root, self, waiting[0])

    def acked(self, message_ids: Sequence[Any]) -> Sequence[Any]:
        notified = []
        for message_id in message_ids:
            one = message_id
            if isinstance(one, _Letter):
                self._letters -= 1
                one = one.message_id
            notified.append(one)
            self._settled(one.message_id if isinstance(one, DeadLetter) else one, acked=True)
        return notified if self._inner is None else self._inner.acked(notified)

    def failed(
        self, message_ids: Iterable[Any], root: int | None = None, *, lost: bool = False
    ) -> list[Any]:
        others = []
        for message_id in message_ids:
            if isinstance(message_id, _Letter):
                self._again.append(message_id)
            else:
                others.append(message_id)
                if not isinstance(message_id, DeadLetter):
                    self._settled(message_id, acked=False)
        return others if self._inner is None else self._inner.failed(others, root, lost=lost)

    def _settled(self, message_id: Any, *, acked: bool) -> None:
        host = self._host
        with host.lock:
            quarantine = host.quarantine
            if not quarantine.kills:
                return
            key = self.key_of(message_id)
            if not acked:
                quarantine.failed(key)
            elif quarantine.acked(key):
                host.free(key)
            else:
                return
        host.wake()

    def clear(self) -> None:
        """The spout's process is gone: message ids mean something else from now on."""
        if self._inner is not None:
            self._inner.clear()


def _shown(message_id: Any) -> str:
    try:
        return repr(message_id)[:200]
    except Exception as error:
        return f"<{type(message_id).__name__}: its repr failed: {type(error).__name__}>"


def put_newest(kept: dict[Any, Any], key: Any, value: Any, size_max: int) -> None:
    """Keep the newest."""
    if len(kept) >= size_max and key not in kept:
        del kept[next(iter(kept))]
    kept[key] = value
