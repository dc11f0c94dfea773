"""The bookkeeping of a CoordinatedBolt: when has a task seen all tuples of a request? No I/O.

For each request, each task of a step counts the tuples that it sent to each task of the next step,
and reports the count to each of them once it is *complete* itself (even a count of zero). So a task
knows how many tuples of a request it will ever get, and from which tasks.

    step 1                      step 2                       step 3, the last
    complete when its one       complete when every task     complete when, besides, the request's
    request tuple is settled    of step 1 that can report    id has come (to one task: the request's
                                has, and as many tuples      *home*), or word that its home is
                                as it said are settled       another task

    first sign of it ──▶ TRACKED ──all reports, all tuples, the id──▶ FINISHING ──▶ gone
                            │                                            │
                            └── a tuple failed, or time ran out ─────────┴──▶ ENDED ──▶ gone

TRACKED    something of the request has come, something is missing.
FINISHING  all has come; the bolt's `finished_id` runs and may emit more, or fail it.
ENDED      failed or timed out: late tuples are refused for two more timeouts.

Nothing is kept of a request that finished: by the counts, nothing more can come.

Counts are compared source by source, and a source's report counts once: a tuple lost from one
source and a duplicate from another do not cancel out. A worker that dies takes its counts along;
the tasks that replace its own never see all of a request that it had begun, so such a request is
never complete: it ends by the timeout, or by the failure of its tuple tree.

From Storm's CoordinatedBolt (checkFinishId), with three differences: reports and tuples are counted
by source; tasks of the last step that are not the home are notified, while in Storm they keep a
request until the timeout; and a failed request is remembered, so that late tuples do not start it
again.
"""

from __future__ import annotations

import enum
from collections import OrderedDict
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any


class Verdict(enum.Enum):
    """The outcome of an event."""

    WAIT = "something is missing"
    COMPLETE = "all has come: call finish() after the bolt's callback"
    LATE = "the request is over: fail the tuple"


@dataclass(frozen=True, slots=True)
class Ended:
    """A request that did not finish, and the tuples held for it."""

    id: Hashable
    held: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """A request that finished, the tuples held for it, and the counts to report."""

    held: tuple[Any, ...]
    counts: dict[int, int]  # task -> tuples sent to it


@dataclass(slots=True)
class _Request:
    since: float
    reports: dict[int, int] = field(default_factory=dict)  # source task -> tuples it sent
    settled: dict[int, int] = field(default_factory=dict)  # source task -> tuples processed
    sent: dict[int, int] = field(default_factory=dict)  # task -> tuples sent to it
    held: list[Any] = field(default_factory=list)  # settled when the request ends
    home: bool | None = None  # known once the id, or a notice about it, has come
    finishing: bool = False


class Coordination:
    """All requests of one task. The caller owns what is held; times are seconds of one clock."""

    def __init__(
        self,
        *,
        sources: Collection[int] = (),
        reports: int = 0,
        needs_id: bool = False,
        timeout_secs: float,
    ) -> None:
        """`sources` are the tasks of the previous step, or steps, and `reports` how many of them
        report: of the first step, only the task that had the request; of others, each. Both are
        empty in the first step, where one tuple is the request. With `needs_id` the id has to come
        too."""
        self._sources = frozenset(sources)
        self._reports = reports
        self._needs_id = needs_id
        self._timeout_secs = timeout_secs
        self._requests: OrderedDict[Hashable, _Request] = OrderedDict()  # oldest first
        self._ended: OrderedDict[Hashable, float] = OrderedDict()  # id -> when, oldest first

    def __len__(self) -> int:
        """How many requests are tracked."""
        return len(self._requests)

    @property
    def remembered(self) -> int:
        """How many requests that did not finish are remembered."""
        return len(self._ended)

    # ---- events ----

    def arrived(self, request: Hashable, now: float) -> Verdict:
        """A tuple has come and will be processed. Returns WAIT or LATE."""
        return Verdict.LATE if self._find(request, now) is None else Verdict.WAIT

    def settled(self, request: Hashable, source: int, now: float) -> Verdict:
        """A tuple of this source task was processed and acked."""
        found = self._find(request, now)
        if found is None:
            return Verdict.LATE
        found.settled[source] = found.settled.get(source, 0) + 1
        return self._verdict(found)

    def reported(
        self, request: Hashable, source: int, count: int, now: float, held: Any = None
    ) -> Verdict:
        """A source task reports how many tuples it sent. `held` is kept until the request ends."""
        found = self._find(request, now)
        if found is None:
            return Verdict.LATE
        found.held.append(held)
        if source in self._sources:
            found.reports.setdefault(source, count)
        return self._verdict(found)

    def id_came(self, request: Hashable, home: bool, now: float, held: Any = None) -> Verdict:
        """The request's id has come (`home`), or the notice that another task is its home."""
        found = self._find(request, now)
        if found is None:
            return Verdict.LATE
        found.held.append(held)
        if found.home is None:
            found.home = home
        return self._verdict(found)

    def sent(self, request: Hashable, tasks: Sequence[int]) -> None:
        """A tuple was sent to these tasks."""
        found = self._requests.get(request)
        if found is not None:
            for task in tasks:
                found.sent[task] = found.sent.get(task, 0) + 1

    def failed(self, request: Hashable, now: float) -> Ended | None:
        """A tuple of the request was failed; returns None when the request is already over."""
        found = self._requests.pop(request, None)
        if found is None:
            return None
        self._ended[request] = now
        return Ended(request, tuple(found.held))

    def expire(self, now: float) -> list[Ended]:
        """End the requests that have timed out."""
        over = []
        while self._requests:
            request, found = next(iter(self._requests.items()))
            if now - found.since < self._timeout_secs:
                break
            del self._requests[request]
            self._ended[request] = now
            over.append(Ended(request, tuple(found.held)))
        while self._ended and now - next(iter(self._ended.values())) >= 2 * self._timeout_secs:
            self._ended.popitem(last=False)
        return over

    def finish(self, request: Hashable) -> Finished | None:
        """After COMPLETE: forget the request. Returns None when it was failed meanwhile."""
        found = self._requests.get(request)
        if found is None or not found.finishing:
            return None
        del self._requests[request]
        return Finished(tuple(found.held), found.sent)

    # ---- questions ----

    def is_home(self, request: Hashable) -> bool:
        """Whether the bolt has to be notified that the request is finished."""
        found = self._requests.get(request)
        return found is not None and (not self._needs_id or found.home is True)

    def strayed(self, request: Hashable) -> bool:
        """Whether tuples of a request came to a task that is not its home."""
        found = self._requests.get(request)
        return found is not None and self._needs_id and found.home is False and bool(found.settled)

    def _find(self, request: Hashable, now: float) -> _Request | None:
        found = self._requests.get(request)
        if found is None and request not in self._ended:
            found = self._requests[request] = _Request(now)
        return found

    def _verdict(self, found: _Request) -> Verdict:
        if found.finishing or not self._has_all(found):
            return Verdict.WAIT
        found.finishing = True
        return Verdict.COMPLETE

    def _has_all(self, found: _Request) -> bool:
        if self._needs_id and found.home is None:
            return False
        if not self._reports:
            return sum(found.settled.values()) > 0
        if len(found.reports) < self._reports:
            return False
        return {s: n for s, n in found.reports.items() if n} == found.settled

    def validate(self) -> None:
        """Assert what must always hold."""
        assert not self._requests.keys() & self._ended.keys()
        for found in self._requests.values():
            assert found.reports.keys() <= self._sources
            assert all(n > 0 for n in found.settled.values())
