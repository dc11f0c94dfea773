"""What the components of a large topology do now, from the sums that its workers report.

Executors of a large topology are read every few seconds at best. In between, each worker reports
what its executors of a component have counted together since it began. A rate is the difference
between two such reports by the difference of their times, as in `rates`; those of all workers add
up.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from squall_common.telemetry.sums import ComponentSums, WorkerSums, decode_sums
from squall_thrift import storm
from squall_ui.live.rates import SHOWN_SECS, WINDOW_SECS, Flow

Slot = tuple[str, int]  # supervisor, port
_APART_MS = 900


@dataclass(frozen=True, slots=True)
class Busiest:
    """The executor of a component that is longest in `execute`."""

    first_task: int
    last_task: int
    slot: Slot
    share: float


class _Reports:
    """The reports of a worker: all of the last two seconds, and about one a second of the ten
    before the last one."""

    def __init__(self, data: bytes, sums: WorkerSums) -> None:
        self.data = data  # of the last one
        self._recent = deque([sums])
        self._older: deque[WorkerSums] = deque()

    @property
    def last(self) -> WorkerSums:
        return self._recent[-1]

    @property
    def have_rates(self) -> bool:
        """Whether there are two."""
        return len(self._recent) > 1

    def add(self, data: bytes, sums: WorkerSums) -> None:
        recent, older, now_ms = self._recent, self._older, sums.stats_ms
        self.data = data
        # Another worker has the slot; or the one before was left when a page was closed, perhaps
        # hours ago: it says nothing about now.
        if not 0 <= now_ms - recent[-1].stats_ms <= 1000 * WINDOW_SECS:
            recent.clear()
            older.clear()
        recent.append(sums)
        while len(recent) > 2 and now_ms - recent[1].stats_ms >= 1000 * SHOWN_SECS:
            one = recent.popleft()
            if not older or one.stats_ms - older[-1].stats_ms >= _APART_MS:
                older.append(one)
        while len(older) > 1 and now_ms - older[1].stats_ms >= 1000 * WINDOW_SECS:
            older.popleft()

    def since(self, secs: float) -> tuple[WorkerSums, WorkerSums]:
        """One from that long before the last one, or the oldest, and the last one."""
        new, oldest = self.last, (self._older or self._recent)[0]
        for one in chain(reversed(self._recent), reversed(self._older)):
            if new.stats_ms - one.stats_ms >= 1000 * secs:
                return one, new
        return oldest, new


class WorkersSums:
    """Of one topology."""

    def __init__(self) -> None:
        self._workers: dict[Slot, _Reports] = {}

    def clear(self) -> None:
        """Nothing is known any more."""
        self._workers = {}

    def take(self, reports: Sequence[storm.SupervisorWorkerHeartbeat]) -> bool:
        """Take in the last report of each worker. Returns whether rates are known; they are not
        while a worker reports no sums, or has only once: they would be those of a part."""
        found: dict[Slot, _Reports] = {}
        for one in reports:
            slot = (one.supervisor_id or "", one.port or 0)
            if one.sums is None:
                continue
            known = self._workers.get(slot)
            if known is None or known.data != one.sums:
                try:
                    sums = decode_sums(one.sums)
                except ValueError:  # its worker runs its users' code
                    continue
                if known is None:
                    known = _Reports(one.sums, sums)
                else:
                    known.add(one.sums, sums)
            found[slot] = known
        self._workers = found
        return (
            bool(found)
            and len(found) == len(reports)
            and all(worker.have_rates for worker in found.values())
        )

    def now(self) -> dict[str, Flow]:
        """What each component does, by name."""
        return self._flows(SHOWN_SECS)

    def steady(self) -> dict[str, Flow]:
        """What each component has done in the last ten seconds."""
        return self._flows(WINDOW_SECS)

    def busiest(self) -> Mapping[str, Busiest]:
        """Of the components whose workers have named one."""
        found: dict[str, Busiest] = {}
        for slot, worker in self._workers.items():
            for name, one in worker.last.components.items():
                if one.busiest is not None:
                    first, last, share = one.busiest
                    if name not in found or share > found[name].share:
                        found[name] = Busiest(first, last, slot, share)
        return found

    def most(self) -> Mapping[str, float]:
        """The tuples a second of the executor of each component that has most."""
        found: dict[str, float] = {}
        for worker in self._workers.values():
            for name, one in worker.last.components.items():
                found[name] = max(found.get(name, 0.0), one.most_a_second)
        return found

    def _flows(self, secs: float) -> dict[str, Flow]:
        gains: dict[str, _Gain] = {}
        for worker in self._workers.values():
            before, new = worker.since(secs)
            rate = 1000 / max(50, new.stats_ms - before.stats_ms)
            for name, sums in new.components.items():
                gain = gains.get(name)
                if gain is None:
                    gain = gains[name] = _Gain()
                gain.add(before.components.get(name, _NOTHING), sums, rate)
        return {name: gain.flow() for name, gain in gains.items()}


_NOTHING = ComponentSums()


class _Gain:
    """Adds up what a component gained in its workers."""

    def __init__(self) -> None:
        self._flow = Flow()
        # Seconds a second that were spent, on what was done meanwhile.
        self._execute = self._process = 0.0

    def add(self, old: ComponentSums, new: ComponentSums, rate: float) -> None:
        """Counters only grow, unless a worker makes them up: nothing becomes negative."""
        flow = self._flow
        flow.emitted += rate * max(0, new.emitted - old.emitted)
        flow.transferred += rate * max(0, new.transferred - old.transferred)
        flow.executed += rate * max(0, new.executed - old.executed)
        flow.acked += rate * max(0, new.acked - old.acked)
        flow.failed += rate * max(0, new.failed - old.failed)
        flow.busy += rate * max(0.0, new.busy_secs - old.busy_secs)
        self._execute += rate * max(0.0, new.execute_secs - old.execute_secs)
        self._process += rate * max(0.0, new.process_secs - old.process_secs)
        if new.by_source:
            before = {(component, stream): count for component, stream, count in old.by_source}
            for component, stream, count in new.by_source:
                gained = rate * max(0, count - before.get((component, stream), 0))
                source = (component, stream)
                flow.by_source[source] = flow.by_source.get(source, 0.0) + gained
        for component, secs in new.blocked_secs.items():
            gained = rate * max(0.0, secs - old.blocked_secs.get(component, 0.0))
            flow.blocked[component] = flow.blocked.get(component, 0.0) + gained
        for component, octets in new.sent_bytes.items():
            gained = rate * max(0, octets - old.sent_bytes.get(component, 0))
            flow.sent_bytes[component] = flow.sent_bytes.get(component, 0.0) + gained

    def flow(self) -> Flow:
        """The sum. `complete_ms` counts of a spout, `process_ms` of a bolt: both are the time until
        a tuple, or a message, was acked."""
        flow = self._flow
        flow.execute_ms = 1000 * self._execute / flow.executed if flow.executed else 0.0
        flow.process_ms = 1000 * self._process / flow.acked if flow.acked else 0.0
        flow.complete_ms = flow.process_ms
        return flow
