"""Unexpected exits of workers: which of them are reported, and the last one of each topology."""

from __future__ import annotations

from collections import Counter, deque

from squall_common.cluster.worker_exits import COUNT_MAX, WorkerExit

TOTALS_MAX = 1_000
_REASON_CHARS_MAX = 80


class EndReports:
    """Decides which exits are reported: at most `limit` per topology in `secs`, so that a crash
    loop does not push everything else out of the topology's errors."""

    def __init__(self, limit: int = 5, secs: float = 300.0) -> None:
        self._limit = limit
        self._secs = secs
        self._windows: dict[str, tuple[float, int]] = {}  # topology id -> since, ends

    def suffix(self, topology_id: str, now: float) -> str | None:
        """What to append to the report of an exit; None: it is only logged."""
        since, ends = self._windows.get(topology_id, (now, 0))
        silent = 0
        if now - since >= self._secs:
            silent, since, ends = max(0, ends - self._limit), now, 0
        self._windows = {
            one: window for one, window in self._windows.items() if now - window[0] < 2 * self._secs
        }
        self._windows[topology_id] = (since, ends + 1)
        if ends >= self._limit:
            return None
        if silent:
            return f" ({silent} more exits before this one are only in the supervisor's log)"
        if ends == self._limit - 1:
            return f" (more exits within {self._secs:.0f} s are only in the supervisor's log)"
        return ""


class RecentExits:
    """The last unexpected exit of each topology on this node, and their number, for `kept_secs`, of
    at most `topologies_max`: the exit of a killed topology is not shown anywhere, and expires by
    age."""

    def __init__(self, kept_secs: float = 86_400.0, topologies_max: int = 50) -> None:
        self._kept_secs = kept_secs
        self._topologies_max = topologies_max
        self._exits: dict[str, WorkerExit] = {}  # the newest last
        self._times: dict[str, deque[int]] = {}  # of the exits of those topologies
        self.totals: Counter[tuple[str, str]] = Counter()
        """Exits since this process began, by topology id and reason; ("", "other") beyond
        TOTALS_MAX pairs."""

    def note(self, topology_id: str, end: WorkerExit, *, amends: bool = False) -> None:
        """Add an exit. `amends`: more is known about the last one, which is not counted again."""
        self._exits.pop(topology_id, None)
        self._exits[topology_id] = end
        if not amends:
            place = (topology_id, end.reason[:_REASON_CHARS_MAX])
            full = place not in self.totals and len(self.totals) >= TOTALS_MAX
            self.totals[("", "other") if full else place] += 1
            times = self._times.setdefault(topology_id, deque(maxlen=COUNT_MAX))
            times.append(end.time_secs)
        if len(self._exits) > self._topologies_max:
            oldest = next(iter(self._exits))
            del self._exits[oldest]
            self._times.pop(oldest, None)

    def listed(self, now_secs: float) -> dict[str, WorkerExit]:
        """By topology id; `now_secs` since 1970."""
        since = now_secs - self._kept_secs
        return {id_: one for id_, one in self._exits.items() if one.time_secs >= since}

    def counts(self, now_secs: float) -> dict[str, int]:
        """How many exits are kept, by topology id; those without any are left out."""
        since = now_secs - self._kept_secs
        counts = {id_: sum(at >= since for at in times) for id_, times in self._times.items()}
        return {id_: count for id_, count in counts.items() if count}
